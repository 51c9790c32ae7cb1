"""Typed wrappers of the contracts' functions; web3's types do not leave this module.

Every method blocks: call it in a worker thread.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from eth_abi.exceptions import DecodingError
from eth_utils import to_checksum_address
from web3 import Web3
from web3.types import BlockIdentifier, FilterParams, TxParams

from sapo_client.ledger import fields
from sapo_client.ledger.artifact import EARLIER, LEDGER_VERSION, Artifact, load
from sapo_client.ledger.errors import NotYet
from sapo_client.ledger.fraud import (
    AccountPlaces,
    FraudProof,
    Recording,
    final_fields,
    place_fields,
    root_fields,
)
from sapo_client.ledger.function_codec import function_codec
from sapo_client.ledger.logs import EPOCH_FINAL, event_data, registry_events
from sapo_client.ledger.records import (
    Announcement,
    EpochRecord,
    FinalRecord,
    LeafQuestion,
    RegistryEvent,
    Stake,
    Tip,
)
from sapo_client.ledger.rpc import Answer, Rpc
from sapo_client.ledger.settlement import settled_refusal
from sapo_client.ledger.transactions import Call
from sapo_protocol.eip712 import EpochApproval, EpochRoot, SuccessionNotice
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.terms.auditors import Auditors

_NOBODY: Final = Account(bytes(Account.SIZE))
"""The sender of calls that are only simulated."""


class Contract:
    """A contract at an address."""

    NAME: ClassVar[str]

    def __init__(self, rpc: Rpc, address: Account) -> None:
        self.address = address
        self._rpc = rpc

    @property
    def artifact(self) -> Artifact:
        """Return the compiled contract."""
        return load(self.NAME)

    def is_deployed(self) -> bool:
        """Whether the code at the address is this contract's, of the current version."""
        return self.version() == LEDGER_VERSION

    def version(self) -> int | None:
        """Return which version of this contract the code at the address is; None if it is none of them.

        Of an earlier version, only what every version has may be called: records, terms and claims.
        """
        where = to_checksum_address(self.address)
        code = self._rpc.agree(lambda web3: bytes(web3.eth.get_code(where)), f"the code at {where}")
        versions = (LEDGER_VERSION, *EARLIER.get(self.NAME, ()))
        return next((version for version in versions if load(self.NAME, version).is_code(code)), None)

    # Both without web3's contracts, which build a class of all functions and events for each call.

    def _call(self, function: str, *arguments: object) -> Any:
        codec, where = function_codec(self.NAME, function), to_checksum_address(self.address)
        question: TxParams = {"to": where, "data": codec.encode(arguments)}

        def call(web3: Web3, block: BlockIdentifier) -> Any:
            answer = web3.eth.call(question, block, ccip_read_enabled=False)
            try:
                return codec.decode(answer)
            except DecodingError as error:
                raise NotYet(
                    f"there is no {self.NAME} at {where}: its answer to"
                    f" {function} is none of that contract's",
                    hint="use the RPC address of the manifest's chain, and the manifest of this swarm",
                ) from error

        return self._rpc.read(call, f"what {self.NAME}.{function} says")

    def _encode(self, function: str, *arguments: object) -> bytes:
        return function_codec(self.NAME, function).call_data(arguments)


class Registry(Contract):
    """``NodeRegistry``: the node keys that each account has registered."""

    NAME = "NodeRegistry"

    def register(self, node_key: NodeId, not_after_seconds: int) -> bytes:
        """Return call data that claims a node key for the sender."""
        return self._encode("register", bytes(node_key), not_after_seconds)

    def revoke(self, node_key: NodeId) -> bytes:
        """Return call data that ends the sender's claim."""
        return self._encode("revoke", bytes(node_key))

    def live_nodes(self, account: Account) -> tuple[NodeId, ...]:
        """Return the keys that an account claims at the moment."""
        return tuple(map(NodeId, self._call("liveNodes", to_checksum_address(account))))

    def distributor(self) -> Account:
        """Return the distributor that remembers since when accounts are registered; not of version 1."""
        return Account.from_hex(self._call("distributor"))

    def deployment_block(self) -> int:
        """Return the block in which the events begin."""
        return int(self._call("deploymentBlock"))

    def events(self, first_block: int, last_block: int) -> list[RegistryEvent]:
        """Return claims and their ends in settled blocks, oldest first.

        Raises:
            NotYet, Disagreement: the endpoints lack the last block, or disagree.
        """
        wanted: FilterParams = {
            "address": to_checksum_address(self.address),
            "fromBlock": _block(first_block),
            "toBlock": _block(last_block),
        }
        found = self._rpc.agree(
            lambda web3: registry_events(web3, wanted, last_block), "the registry's events"
        )
        return list(found)


class EpochLedgerContract(Contract):
    """``EpochLedger``: one posting per epoch, final after its challenge window."""

    NAME = "EpochLedger"

    def post(self, statement: EpochApproval, signatures: Sequence[bytes]) -> bytes:
        """Return call data that posts an epoch; signatures ascend by signer."""
        return self._encode("post", root_fields(statement.root), statement.turn, list(signatures))

    def is_rejected(self, statement: EpochApproval) -> bool:
        """Whether the contract has rejected a root, so that it refuses it whatever the signatures."""
        call = Call(self.address, self.post(statement, ()))
        return settled_refusal(self._rpc, _NOBODY, call, confirmations=1) == "RootRejected"

    def finalise(self) -> bytes:
        """Return call data that makes the live posting final."""
        return self._encode("finalise")

    def auditors(self) -> tuple[Auditors, int]:
        """Return the accounts whose signatures count, by epoch, and how many a posting needs."""
        quorum = int(self._call("quorum"))
        if self.version() != LEDGER_VERSION:
            return Auditors(tuple(map(Account.from_hex, self._call("auditors")))), quorum
        founders = self.auditors_in(0)
        replacements = (each.replacement for each in self.successions())
        return Auditors(founders, tuple(each for each in replacements if each is not None)), quorum

    def auditors_in(self, epoch: int) -> tuple[Account, ...]:
        """Return the auditors of an epoch by place, which is their bit among a posting's signers."""
        return tuple(map(Account.from_hex, self._call("auditorsIn", epoch)))

    def announce(self, notice: SuccessionNotice, signatures: Sequence[bytes]) -> bytes:
        """Return call data that announces a successor; signatures ascend by signer."""
        accounts = map(to_checksum_address, (notice.leaving, notice.entering))
        fields = (notice.number, notice.activation_epoch, bytes(notice.successor), *accounts)
        return self._encode("announceSuccessor", fields, list(signatures))

    def withdraw_successor(self, signatures: Sequence[bytes]) -> bytes:
        """Return call data that withdraws the pending announcement; signatures ascend by signer."""
        return self._encode("withdrawSuccessor", list(signatures))

    def successions(self) -> tuple[Announcement, ...]:
        """Return every announcement that was not withdrawn, ascending by activation."""
        return tuple(map(fields.announcement, self._call("successions")))

    def current_epoch(self) -> int:
        """Return the epoch that the ledger's clock shows, by its last block."""
        return int(self._call("currentEpoch"))

    def next_succession(self) -> int:
        """Return the number of the next announcement."""
        return int(self._call("nextSuccession"))

    def next_epoch(self) -> int:
        """Return the lowest epoch that can still become final."""
        return int(self._call("nextEpoch"))

    def tip(self) -> Tip:
        """Return the block of the newest final epoch's event, and that event's hash."""
        history, block = self._call("lastFinal")
        return Tip(Digest(history), block)

    def final_events(self, first_block: int, last_block: int) -> list[Answer[tuple[bytes, ...]]]:
        """Return the data of the ``EpochFinal`` events of some blocks, as each endpoint reports them."""
        wanted: FilterParams = {
            "address": to_checksum_address(self.address),
            "fromBlock": _block(first_block),
            "toBlock": _block(last_block),
            "topics": [EPOCH_FINAL],
        }
        return self._rpc.each(lambda web3: event_data(web3, wanted, last_block))

    def live(self) -> EpochRecord | None:
        """Return the posting that can still be challenged, if there is one."""
        return fields.record(self._call("live"))

    def digest(self, root: EpochRoot) -> Digest:
        """Return the digest under which the contract knows a root."""
        return Digest(self._call("epochRootDigest", root_fields(root)))

    def approval_digest(self, statement: EpochApproval) -> Digest:
        """Return the digest that auditors sign for the contract."""
        return Digest(self._call("approvalDigest", root_fields(statement.root), statement.turn))

    def clock(self) -> tuple[int, int]:
        """Return the genesis time and the epoch length, in seconds."""
        return int(self._call("genesisSeconds")), int(self._call("epochSeconds"))

    def challenge_seconds(self) -> int:
        """Return how long a posting can be challenged before it may become final."""
        return int(self._call("challengeSeconds"))

    def epoch_budget(self) -> int:
        """Return the most points that one epoch may grant."""
        return int(self._call("epochBudget"))

    def auditor_bond(self) -> int:
        """Return the bond that an auditor needs, in the token's smallest unit."""
        return int(self._call("auditorBond"))

    def distributor(self) -> "Distributor":
        """Return the contract that pays points; the ledger created it, the verifier and the vault."""
        return Distributor(self._rpc, Account.from_hex(self._call("distributor")))

    def verifier(self) -> "FraudVerifierContract":
        """Return the contract that checks fraud proofs."""
        return FraudVerifierContract(self._rpc, Account.from_hex(self._call("verifier")))

    def vault(self) -> "Vault":
        """Return the contract that holds the auditors' bonds."""
        return Vault(self._rpc, Account.from_hex(self._call("vault")))


class FraudVerifierContract(Contract):
    """``FraudVerifier``: rejects false postings and slashes who signed them."""

    NAME = "FraudVerifier"

    def prove(self, proof: FraudProof) -> bytes:
        """Return call data that submits a proof; its recordings must be on the chain already."""
        return self._encode(proof.FUNCTION, *proof.arguments())

    def record(self, recording: Recording) -> bytes:
        """Return call data that records an account's value under a root, for a proof or an answer."""
        account = to_checksum_address(recording.account)
        return self._encode("recordValue", bytes(recording.root), account, place_fields(recording.place))

    def recorded_value(self, root: Digest, account: Account) -> int | None:
        """Return the recorded value of an account in the tree of a root, or None if there is none."""
        found = int(self._call("recordedValue", bytes(root), to_checksum_address(account)))
        return found - 1 if found else None

    def ledger(self) -> Account:
        """Return the ledger whose postings it judges."""
        return Account.from_hex(self._call("ledger"))

    def distributor(self) -> Account:
        """Return the distributor whose grants it reads."""
        return Account.from_hex(self._call("distributor"))

    def points_cap(self) -> int:
        """Return the most points that an account may earn in one epoch."""
        return int(self._call("pointsCap"))

    def question_bond(self) -> int:
        """Return the bond of a question about an account's leaves, in the token's smallest unit."""
        return int(self._call("questionBond"))

    def answer_seconds(self) -> int:
        """Return the time in which a question must be answered, in seconds."""
        return int(self._call("answerSeconds"))

    def ask(self, account: Account) -> bytes:
        """Return call data that asks for an account's leaves in the live posting."""
        return self._encode("ask", to_checksum_address(account))

    def answer(self, places: AccountPlaces) -> bytes:
        """Return call data that shows an account's leaves, and earns the question's bond.

        What the places' recordings hold must be on the chain.
        """
        return self._encode("answer", *places.arguments())

    def prove_hidden(self, account: Account) -> bytes:
        """Return call data that rejects the live posting because a question was not answered in time."""
        return self._encode("proveHidden", to_checksum_address(account))

    def recall_seconds(self) -> int:
        """Return how long after its posting a question about a final epoch can be asked, in seconds."""
        return int(self._call("recallSeconds"))

    def ask_final(self, newest_first: Sequence[FinalRecord], account: Account) -> bytes:
        """Return call data that asks for an account's leaves in the oldest of the last final epochs."""
        return self._encode("askFinal", list(map(final_fields, newest_first)), to_checksum_address(account))

    def answer_final(self, final: FinalRecord, places: AccountPlaces) -> bytes:
        """Return call data that shows an account's leaves in a final epoch, as ``answer`` does."""
        return self._encode("answerFinal", final_fields(final), *places.arguments())

    def recall(self, newest_first: Sequence[FinalRecord], account: Account) -> bytes:
        """Return call data that recalls the last final epochs: nobody has shown leaves in the oldest one.

        It is accepted for ``answer_seconds`` from the question's deadline on.
        """
        return self._encode("recall", list(map(final_fields, newest_first)), to_checksum_address(account))

    def refund(self, posting: Digest, account: Account) -> bytes:
        """Return call data that refunds the bond of a lapsed question.

        Its posting was rejected or replaced, or the question was about a final epoch and is too old for
        ``recall``.

        Args:
            posting: its name, or that of a final epoch's record.
        """
        return self._encode("refund", bytes(posting), to_checksum_address(account))

    def questions(self, posting: Digest) -> Mapping[Account, LeafQuestion]:
        """Return the questions about a posting, or a final epoch, that wait for their answers, by account."""
        accounts, questions = self._call("openQuestions", bytes(posting))
        return {
            Account.from_hex(account): LeafQuestion(Account.from_hex(asker), deadline)
            for account, (asker, deadline, *_) in zip(accounts, questions, strict=True)
        }

    def has_equivocated(self, auditor: Account, epoch: int, turn: int) -> bool:
        """Whether an auditor's two signatures in a turn of an epoch were punished already."""
        return bool(self._call("equivocated", to_checksum_address(auditor), epoch, turn))


class Bonds(Contract):
    """Functions of both bond contracts: deposits count at once, withdrawals need a delay."""

    def deposit(self, account: Account, amount: int) -> bytes:
        """Return call data that bonds tokens of the sender, approved before, for an account."""
        return self._encode("deposit", to_checksum_address(account), amount)

    def request_exit(self, amount: int) -> bytes:
        """Return call data that requests the exit of a part of the sender's bond."""
        return self._encode("requestExit", amount)

    def withdraw(self) -> bytes:
        """Return call data that withdraws the requested part."""
        return self._encode("withdraw")

    def bonded(self, account: Account) -> int:
        """Return the bond of an account that counts, in the token's smallest unit."""
        return int(self._call("bonded", to_checksum_address(account)))

    def stake(self, account: Account) -> Stake:
        """Return an account's bond, exiting part included."""
        return Stake(*self._call("stakeOf", to_checksum_address(account)))

    def token(self) -> "Token":
        """Return the token of the bonds."""
        return Token(self._rpc, Account.from_hex(self._call("token")))

    def exit_seconds(self) -> int:
        """Return the time from a requested exit to its withdrawal."""
        return int(self._call("exitSeconds"))


class Vault(Bonds):
    """``StakeVault``: the auditors' bonds."""

    NAME = "StakeVault"

    def slash(self, account: Account, prover: Account) -> bytes:
        """Return call data that slashes a bond; only the verifier may send it."""
        return self._encode("slash", to_checksum_address(account), to_checksum_address(prover))

    def slasher(self) -> Account:
        """Return the only account that may slash a bond."""
        return Account.from_hex(self._call("slasher"))


class Distributor(Contract):
    """``RewardDistributor``: claims against the cumulative root of the last final epoch."""

    NAME = "RewardDistributor"

    def claim(self, account: Account, cumulative: int, proof: Sequence[bytes]) -> bytes:
        """Return call data that pays an account its unpaid points; every version accepts it."""
        return self._encode("claim", to_checksum_address(account), cumulative, list(map(bytes, proof)))

    def enrol(self, account: Account) -> bytes:
        """Return call data that enrols an account: it earns from now on. Registering does so, too."""
        return self._encode("enrol", to_checksum_address(account))

    def max_claimable(self, account: Account) -> int:
        """Return the most points that an account can be paid now: its cap since it registered or claimed."""
        return int(self._call("mostClaimable", to_checksum_address(account)))

    def set_payout(self, payout: Account) -> bytes:
        """Return call data that names where the sender's claims go; after the first time with a delay."""
        return self._encode("setPayout", to_checksum_address(payout))

    def apply_payout(self, account: Account) -> bytes:
        """Return call data that applies an announced payout address."""
        return self._encode("applyPayout", to_checksum_address(account))

    def grant(self, root: Digest, points: int, epochs: int) -> bytes:
        """Return call data that grants points; only the ledger may send it."""
        return self._encode("grant", bytes(root), points, epochs)

    def claimed(self, account: Account) -> int:
        """Return the points that an account was paid so far."""
        return int(self._call("claimed", to_checksum_address(account)))

    def payout(self, account: Account) -> Account:
        """Return the address that an account's claims go to."""
        return Account.from_hex(self._call("payoutOf", to_checksum_address(account)))

    def payout_change(self, account: Account) -> tuple[Account, int]:
        """Return the announced payout address and the Unix time from which it applies; zeros if none."""
        payout, effective_at = self._call("payoutChange", to_checksum_address(account))
        return Account.from_hex(payout), int(effective_at)

    def ledger(self) -> Account:
        """Return the only account that may grant points."""
        return Account.from_hex(self._call("ledger"))

    def tokens_per_point(self) -> int:
        """Return the price of a point, in the token's smallest unit."""
        return int(self._call("tokensPerPoint"))

    def paid_points(self) -> int:
        """Return the points that were claimed, of all accounts together."""
        return int(self._call("paidPoints"))

    def granted_points(self) -> int:
        """Return the points of all final epochs together."""
        return int(self._call("grantedPoints"))

    def root_of(self, account: Account, cumulative: int, proof: Sequence[bytes]) -> Digest:
        """Return the root that the contract computes from a proof."""
        return Digest(self._call("rootOf", to_checksum_address(account), cumulative, list(map(bytes, proof))))

    def token(self) -> "Token":
        """Return the token that it pays."""
        return Token(self._rpc, Account.from_hex(self._call("token")))


class Token(Contract):
    """``SapoToken``, or any other ERC-20."""

    NAME = "SapoToken"

    def balance(self, account: Account) -> int:
        """Return an account's balance, in the token's smallest unit."""
        return int(self._call("balanceOf", to_checksum_address(account)))

    def approve(self, spender: Account, amount: int) -> bytes:
        """Return call data that allows another account to transfer tokens of the sender."""
        return self._encode("approve", to_checksum_address(spender), amount)

    def transfer(self, receiver: Account, amount: int) -> bytes:
        """Return call data that sends tokens."""
        return self._encode("transfer", to_checksum_address(receiver), amount)


class Faucet(Contract):
    """``Faucet``: the first tokens and coins of a test network."""

    NAME = "Faucet"

    def drip(self, account: Account) -> bytes:
        """Return call data that sends tokens and coins to an account."""
        return self._encode("drip", to_checksum_address(account))


def _block(number: int) -> Any:
    return number
