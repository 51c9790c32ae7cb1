"""The contracts on an embedded chain with its own clock, for simulations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from eth_account import Account as Keys

from sapo_client.founding.contracts import Deployment, LedgerTerms, deploy
from sapo_client.founding.defaults import challenge_seconds
from sapo_client.founding.deployer import Deployer
from sapo_client.ledger import transactions as tx
from sapo_client.ledger.account_bond import AccountBond
from sapo_client.ledger.chain.scratch import scratch_chain
from sapo_client.ledger.contract import EpochLedgerContract, Token
from sapo_client.ledger.fraud import FraudProof, by_signer, posting_name
from sapo_client.ledger.history import History
from sapo_client.ledger.records import EpochRecord
from sapo_client.ledger.rpc import Rpc
from sapo_client.node.auditing.agreement import ChainState, Postable
from sapo_protocol import ed25519, merkle, secp256k1
from sapo_protocol.eip712 import Domain
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.merkle import Entries

GENESIS_SECONDS: Final = 1_700_000_000
EPOCH_SECONDS: Final = 600
CHALLENGE_SECONDS: Final = challenge_seconds(EPOCH_SECONDS)
_EXPIRY_SECONDS: Final = CHALLENGE_SECONDS + EPOCH_SECONDS

BOND_EXIT_SECONDS: Final = 14 * EPOCH_SECONDS


@dataclass(frozen=True)
class Actor:
    """A node key and an account, derived from a name."""

    name: str

    @property
    def seed(self) -> bytes:
        """The secret seed of the node key."""
        return sha256(f"node {self.name}".encode()).digest()

    @property
    def secret(self) -> bytes:
        """The secret key of the account."""
        return sha256(f"account {self.name}".encode()).digest()

    @property
    def node(self) -> NodeId:
        """The node key."""
        return ed25519.public_key(self.seed)

    @property
    def account(self) -> Account:
        """The account."""
        return secp256k1.account_of(self.secret)


FOUNDER: Final = Actor("founder")


class SimulatedChain:
    """A chain with a swarm's contracts.

    Attributes:
        now_seconds: its time, which the simulation advances.
        deployment: addresses of the contracts.
        refusals: number of reverted transactions, by the name of the error.
    """

    def __init__(self, url: str, clock: list[float], terms: LedgerTerms, actors: Sequence[Actor]) -> None:
        self._clock = clock
        self.rpc: Final = Rpc([url])
        self._senders = {actor.account: Deployer(Keys.from_key(actor.secret)) for actor in (FOUNDER, *actors)}
        self.deployment: Final[Deployment] = deploy([url], self._senders[FOUNDER.account], terms)
        self.ledger: Final = EpochLedgerContract(self.rpc, self.deployment.ledger)
        self.distributor: Final = self.ledger.distributor()
        self.verifier: Final = self.ledger.verifier()
        self.vault: Final = self.ledger.vault()
        self.token: Final = Token(self.rpc, self.deployment.token)
        self._history = History(self.ledger)
        self._terms = terms
        self._state: ChainState | None = None
        self._live: tuple[EpochRecord | None] | None = None
        self.refusals: dict[str, int] = {}

    @property
    def now_seconds(self) -> float:
        """The time of the chain and of all auditors."""
        return self._clock[0]

    @now_seconds.setter
    def now_seconds(self, seconds: float) -> None:
        self._clock[0] = seconds

    @property
    def domain(self) -> Domain:
        """The ledger's domain, for signatures of roots."""
        return Domain(self.deployment.chain_id, self.ledger.address)

    @property
    def gate(self) -> AccountBond:
        """The contract of the accounts' bonds; only in a swarm with a bond gate."""
        if self.deployment.account_bond is None:
            raise LookupError("this swarm was founded without a gate")
        return AccountBond(self.rpc, self.deployment.account_bond)

    def state(self) -> ChainState:
        """Return the chain's current state; it is read again after every transaction."""
        if self._state is None:
            last, live = self._history.last(), self.live()
            if live is not None and self.now_seconds >= live.posted_at_seconds + _EXPIRY_SECONDS:
                live = None  # as a node's auditor does: the next posting replaces it
            bonded = [a for a in self._terms.auditors if self.vault.bonded(a) >= self._terms.auditor_bond]
            self._state = ChainState(
                last=last.root if last else None,
                live=live.root if live else None,
                granted_points=self.distributor.granted_points(),
                bonded=frozenset(bonded),
                next_epoch=self.ledger.next_epoch(),
                live_signatures=live.signers.bit_count() if live else 0,
            )
        return self._state

    def live(self) -> EpochRecord | None:
        """Return the posting that can still be challenged; None without one.

        It is read again after every transaction.
        """
        if self._live is None:
            self._live = (self.ledger.live(),)
        return self._live[0]

    def send(self, sender: Account, to: Account, data: bytes) -> bool:
        """Send a transaction; return whether it succeeded."""
        self._state = self._live = None  # a refused caller reads the state again, too
        try:
            self._senders[sender].send(self.rpc, tx.Call(to, data))
        except tx.Refused as refused:
            name = refused.error or "without a name"
            self.refusals[name] = self.refusals.get(name, 0) + 1
            return False
        return True

    def gas(self, sender: Account) -> int:
        """Return the gas used by all successful transactions of a sender."""
        return sum(receipt.gas_used for _, receipt in self._senders[sender].done)

    def post(self, sender: Account, postable: Postable) -> bool:
        """Post a root with its signatures."""
        ordered = by_signer(postable.statement.digest(self.domain), postable.signatures)
        return self.send(sender, self.ledger.address, self.ledger.post(postable.statement, ordered))

    def finalise(self, sender: Account) -> bool:
        """Make the live posting final."""
        return self.send(sender, self.ledger.address, self.ledger.finalise())

    def finalise_in_time(self, sender: Account) -> None:
        """Make the live posting final if its challenge window is over and no question about it is open."""
        live = self.live()
        if live is not None and self.now_seconds >= live.posted_at_seconds + CHALLENGE_SECONDS:
            self.finalise(sender)

    def challenge(self, sender: Account, proof: FraudProof) -> bool:
        """Submit a proof against a posting or an auditor, after the values that it needs are recorded."""
        steps = [*map(self.verifier.record, proof.recordings()), self.verifier.prove(proof)]
        return all(self.send(sender, self.verifier.address, data) for data in steps)

    def ask(self, asker: Account, live: EpochRecord) -> bool:
        """Ask for the asker's own leaves in the live posting, unless this question is open already."""
        if asker in self.questions(live):
            return False
        bond = self.verifier.question_bond()
        return self.send(
            asker, self.token.address, self.token.approve(self.verifier.address, bond)
        ) and self.send(asker, self.verifier.address, self.verifier.ask(asker))

    def reject_hidden(self, account: Account) -> bool:
        """Reject the live posting because a question about an account's leaves was not answered."""
        return self.send(FOUNDER.account, self.verifier.address, self.verifier.prove_hidden(account))

    def questions(self, live: EpochRecord) -> dict[Account, int]:
        """Return the deadlines of the open questions about a posting, by account."""
        name = posting_name(self.ledger.digest(live.root), live.posted_at_seconds)
        return {account: each.deadline_seconds for account, each in self.verifier.questions(name).items()}

    def enrol(self, account: Account) -> None:
        """Enrol an account for claims, as a registration does."""
        self.send(FOUNDER.account, self.distributor.address, self.distributor.enrol(account))

    def claim(self, account: Account, entries: Entries) -> bool:
        """Claim an account's points in a final cumulative tree."""
        place = merkle.sum_place(entries, account)
        if place.holder != account:
            return False
        data = self.distributor.claim(account, place.value, place.proof)
        return self.send(FOUNDER.account, self.distributor.address, data)

    def paid(self, account: Account) -> int:
        """Return the points that were paid to an account."""
        return self.distributor.claimed(account)

    def fund(self, account: Account, tokens: int) -> None:
        """Send the founder's tokens, in the smallest unit, to an account."""
        self.send(FOUNDER.account, self.token.address, self.token.transfer(account, tokens))

    def bond(self, account: Account, tokens: int) -> None:
        """Bond the founder's tokens, in the smallest unit, for an account at the gate."""
        self.send(FOUNDER.account, self.token.address, self.token.approve(self.gate.address, tokens))
        self.send(FOUNDER.account, self.gate.address, self.gate.deposit(account, tokens))

    def bond_auditor(self, account: Account) -> None:
        """Bond tokens of the founder for an auditor, as many as its signatures need to count."""
        tokens = self._terms.auditor_bond
        self.send(FOUNDER.account, self.token.address, self.token.approve(self.vault.address, tokens))
        self.send(FOUNDER.account, self.vault.address, self.vault.deposit(account, tokens))

    def has_bond(self, account: Account, *, gate: bool = False) -> bool:
        """Whether an account has a bond in the vault, or at the gate, including one being withdrawn."""
        stake = (self.gate if gate else self.vault).stake(account)
        return stake.bonded + stake.exiting > 0

    def final_epochs(self) -> int:
        """Return the number of final epochs."""
        return len(self._history.recent(self.ledger.next_epoch()))

    def leave(self, auditor: Account) -> None:
        """Start withdrawing an auditor's whole bond, in a block that others have not read when they post."""
        seen = self.state()
        self.send(auditor, self.vault.address, self.vault.request_exit(self._terms.auditor_bond))
        self._state = seen

    def accuse(self, auditor: Account, account: Account, epoch: int) -> bool:
        """Accuse an account of an equivocation, as an auditor."""
        proof = Digest(sha256(b"two contents").digest())
        return self.send(auditor, self.gate.address, self.gate.accuse(account, epoch, proof))


@contextmanager
def simulated_chain(terms: LedgerTerms, actors: Sequence[Actor]) -> Iterator[SimulatedChain]:
    """Yield a new chain with contracts; the actors hold coins, the founder holds all tokens."""
    clock = [float(GENESIS_SECONDS)]
    with scratch_chain([actor.account for actor in (FOUNDER, *actors)], lambda: clock[0]) as url:
        yield SimulatedChain(url, clock, terms, actors)
