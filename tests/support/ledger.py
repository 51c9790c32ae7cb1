"""A ledger for tests: the real embedded chain in this process, real accounts, real contracts."""

import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.request import ProxyHandler, Request, build_opener

from eth_account import Account as Keys
from eth_account.signers.local import LocalAccount
from support.swarm import make_manifest

from sapo_client.founding.contracts import Deployment, LedgerTerms, deploy
from sapo_client.founding.deployer import Deployer
from sapo_client.ledger import transactions as tx
from sapo_client.ledger.account_bond import AccountBond
from sapo_client.ledger.chain import DEFAULT_CHAIN_ID
from sapo_client.ledger.chain.embedded import EmbeddedChain, Genesis
from sapo_client.ledger.chain.methods import Methods
from sapo_client.ledger.chain.server import ChainServer
from sapo_client.ledger.contract import (
    Distributor,
    EpochLedgerContract,
    Faucet,
    FraudVerifierContract,
    Registry,
    Token,
    Vault,
)
from sapo_client.ledger.endpoints import connect
from sapo_client.ledger.fraud import FraudProof
from sapo_client.ledger.history import History
from sapo_client.ledger.rpc import Rpc
from sapo_protocol import merkle, secp256k1
from sapo_protocol.contributions import Share, Tally, settle
from sapo_protocol.eip712 import Domain, EpochApproval, EpochRoot
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.manifest import Manifest
from sapo_protocol.merkle import Place
from sapo_protocol.terms.gate import BondGate

GENESIS_SECONDS: Final = 1_700_000_000
EPOCH_SECONDS: Final = 60
CHALLENGE_SECONDS: Final = 5
PATIENCE_SECONDS: Final = 180.0
"""For an answer of the tests' own chain, on a machine that is busy with other tests."""

NOW_SECONDS: Final = GENESIS_SECONDS + 100 * EPOCH_SECONDS
"""The chain's clock when a test begins: a hundred epochs are over."""

BUDGET_POINTS: Final = 1_000
POINTS_CAP: Final = 16
TOKENS_PER_POINT: Final = 10**18
ACCOUNT_EXIT_SECONDS: Final = 14 * EPOCH_SECONDS
BOND_UNIT: Final = 16 * 10**18
"""A whole account's bond: a sixteenth of it is worth one of its sixteen points."""

AUDITOR_BOND: Final = 101
"""Odd, so that halves differ."""


def keys(number: int) -> LocalAccount:
    """Return the account whose secret is a small number."""
    return Keys.from_key(number.to_bytes(32, "big"))


def address(signer: LocalAccount) -> Account:
    """Return an account's address."""
    return Account.from_hex(signer.address)


def node_key(number: int) -> NodeId:
    """Return a node key made from a number."""
    return NodeId(number.to_bytes(32, "big"))


DEPLOYER: Final = keys(1)
ALICE: Final = keys(2)
BOB: Final = keys(3)
AUDITORS: Final = tuple(sorted((keys(number) for number in range(11, 15)), key=address))
QUORUM: Final = 3
STRANGER: Final = keys(99)
FUNDED: Final = (DEPLOYER, *(keys(number) for number in range(2, 6)), *AUDITORS)


class _EndableServer(ChainServer):
    """A server whose open connections can be ended, as by the death of its process."""

    def __init__(self, methods: Methods, port: int) -> None:
        self._connections: list[socket.socket] = []
        super().__init__(methods, port)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, peer = super().get_request()
        self._connections.append(connection)
        return connection, peer

    def end(self) -> None:
        """Stop listening and end all connections, which are otherwise kept alive."""
        self.shutdown()
        self.server_close()
        for connection in self._connections:
            with suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)


class ServedChain:
    """An embedded chain served from a thread of this process, with a clock that the test sets."""

    def __init__(
        self,
        path: Path,
        *,
        port: int = 0,
        chain_id: int = DEFAULT_CHAIN_ID,
        kind: type[EmbeddedChain] = EmbeddedChain,
    ) -> None:
        self.now_seconds = float(NOW_SECONDS)
        genesis = Genesis(chain_id, tuple(sorted(map(address, FUNDED))))
        self.clock: Callable[[], float] = lambda: 0.0
        """A clock that runs; the chain's time is the later one of it and ``now_seconds``."""
        self.engine = kind(path, genesis, now=lambda: max(self.now_seconds, self.clock()))
        self._methods = Methods(self.engine)
        self._server = _EndableServer(self._methods, port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = self._server.url

    @cached_property
    def rpc(self) -> Rpc:
        """A connection to it."""
        return Rpc([self.url], connect=partial(connect, timeout_seconds=PATIENCE_SECONDS))

    def request(self, method: str, *params: object) -> Any:
        """Return the whole answer to a request, of which the client keeps only what it needs."""
        question = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        request = Request(self.url, json.dumps(question).encode(), {"Content-Type": "application/json"})
        with build_opener(ProxyHandler({})).open(request) as answer:
            return json.load(answer)

    def swap(self, other: "ServedChain") -> None:
        """Let each of two addresses serve the other's chain."""
        self._server.methods, other._server.methods = other._server.methods, self._server.methods

    def vanish(self) -> int:
        """Stop serving; the file stays open. Return the port for ``serve_again``."""
        self._server.end()
        self._thread.join()
        return int(self.url.rpartition(":")[2])

    def serve_again(self, port: int) -> None:
        """Serve once more, on a port that is free again."""
        self._server = _EndableServer(self._methods, port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and close the file."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._methods.close()

    def send(self, signer: LocalAccount, to: Account, data: bytes, *, value_wei: int = 0) -> tx.Receipt:
        """Send a transaction and return its receipt.

        Raises:
            Refused: the contract reverts.
        """
        nonce = tx.next_nonce(self.rpc, address(signer))
        signed = tx.sign(self.rpc, signer, tx.Call(to, data, value_wei), nonce)
        tx.send(self.rpc, signed)
        receipt = tx.receipt(self.rpc, signed.digest)
        assert receipt is not None
        assert receipt.succeeded
        return receipt


@dataclass(frozen=True)
class Contracts:
    """A deployed ledger on a served chain."""

    chain: ServedChain
    deployment: Deployment

    @property
    def registry(self) -> Registry:
        return Registry(self.chain.rpc, self.deployment.registry)

    @property
    def ledger(self) -> EpochLedgerContract:
        return EpochLedgerContract(self.chain.rpc, self.deployment.ledger)

    @property
    def history(self) -> History:
        return History(self.ledger)

    @property
    def distributor(self) -> Distributor:
        return Distributor(self.chain.rpc, self.deployment.distributor)

    @property
    def base_root(self) -> Digest:
        """The root to which the next epoch's root adds."""
        last = self.history.last()
        return last.root.cumulative_root if last else merkle.EMPTY_ROOT

    @property
    def verifier(self) -> FraudVerifierContract:
        return FraudVerifierContract(self.chain.rpc, self.deployment.verifier)

    @property
    def vault(self) -> Vault:
        return Vault(self.chain.rpc, self.deployment.vault)

    @property
    def gate(self) -> AccountBond:
        """The contract behind the gate, in a swarm that was founded with ``account_exit_seconds``."""
        assert self.deployment.account_bond is not None
        return AccountBond(self.chain.rpc, self.deployment.account_bond)

    def bond_account(self, account: Account, amount: int) -> tx.Receipt:
        """Have the deployer bond tokens for an account behind the gate."""
        gate, token = self.gate, self.token
        self.chain.send(DEPLOYER, token.address, token.approve(gate.address, amount))
        return self.chain.send(DEPLOYER, gate.address, gate.deposit(account, amount))

    @property
    def token(self) -> Token:
        return Token(self.chain.rpc, self.deployment.token)

    @property
    def faucet(self) -> Faucet:
        return Faucet(self.chain.rpc, self.deployment.faucet)

    @property
    def domain(self) -> Domain:
        return Domain(self.deployment.chain_id, self.deployment.ledger)

    def manifest(self, **changes: Any) -> Manifest:
        """Return the manifest of a swarm with these contracts."""
        fields = {
            "chain_id": self.deployment.chain_id,
            "registry": self.deployment.registry,
            "ledger": self.deployment.ledger,
            "genesis_seconds": GENESIS_SECONDS,
            "epoch_seconds": EPOCH_SECONDS,
        }
        if self.deployment.account_bond is not None:
            gate = BondGate(self.deployment.account_bond, BOND_UNIT, ACCOUNT_EXIT_SECONDS)
            fields |= {"version": 2, "gate": gate}
        return make_manifest(**{**fields, **changes})

    def enrolled(self) -> "Contracts":
        """Let Alice and Bob earn from the first epoch on; return these contracts."""
        for signer in (ALICE, BOB):
            self.chain.send(DEPLOYER, self.distributor.address, self.distributor.enrol(address(signer)))
        return self

    def register(self, signer: LocalAccount, key: NodeId, not_after_seconds: int) -> tx.Receipt:
        """Claim a node key."""
        return self.chain.send(signer, self.registry.address, self.registry.register(key, not_after_seconds))

    def revoke(self, signer: LocalAccount, key: NodeId) -> tx.Receipt:
        """End a claim."""
        return self.chain.send(signer, self.registry.address, self.registry.revoke(key))

    def post(self, root: EpochRoot, signatures: Sequence[bytes], signer: LocalAccount = BOB) -> tx.Receipt:
        """Post an epoch of turn 0 with the signatures exactly as given."""
        data = self.ledger.post(EpochApproval(0, root), signatures)
        return self.chain.send(signer, self.ledger.address, data)

    def finalise(self, signer: LocalAccount = BOB) -> tx.Receipt:
        """Wait for the live posting's window to close, then make it final."""
        self.chain.now_seconds = max(
            self.chain.now_seconds, self.chain.engine.head.timestamp + CHALLENGE_SECONDS
        )
        return self.chain.send(signer, self.ledger.address, self.ledger.finalise())

    def bond(self, auditor: LocalAccount) -> None:
        """Have the deployer bond what an auditor needs."""
        vault, token = self.vault, self.token
        self.chain.send(DEPLOYER, token.address, token.approve(vault.address, AUDITOR_BOND))
        self.chain.send(DEPLOYER, vault.address, vault.deposit(address(auditor), AUDITOR_BOND))

    def prove(self, proof: FraudProof, signer: LocalAccount = BOB) -> tx.Receipt:
        """Hand in a fraud proof, after what it needs recorded."""
        for recording in proof.recordings():
            self.chain.send(signer, self.verifier.address, self.verifier.record(recording))
        return self.chain.send(signer, self.verifier.address, self.verifier.prove(proof))

    def claim(
        self, account: Account, cumulative: int, proof: Sequence[bytes], signer: LocalAccount = BOB
    ) -> tx.Receipt:
        """Claim for an account."""
        data = self.distributor.claim(account, cumulative, proof)
        return self.chain.send(signer, self.distributor.address, data)

    def settle(self, epoch: int, cumulative: dict[Account, int]) -> "Tree":
        """Make an epoch final whose cumulative tree holds the given points, signed by a quorum."""
        tree = Tree(cumulative)
        total = sum_of(tree.root) - sum_of(self.base_root)
        root = make_root(epoch, base_root=self.base_root, total=total, cumulative_root=tree.root)
        self.post(root, sign(root, self.domain))
        self.finalise()
        return tree


@dataclass(frozen=True)
class Tree:
    """A tree over accounts, as the protocol builds it."""

    points: dict[Account, int]

    @cached_property
    def entries(self) -> merkle.Entries:
        return [(account, self.points[account]) for account in sorted(self.points) if self.points[account]]

    @property
    def root(self) -> Digest:
        return merkle.sum_root(self.entries)

    def place(self, account: Account) -> Place:
        return merkle.sum_place(self.entries, account)

    def proof(self, account: Account) -> tuple[Digest, ...]:
        return self.place(account).proof


def sum_of(root: Digest) -> int:
    """Return the sum at the end of the root of a points tree."""
    return int.from_bytes(root[24:], "big")


def with_sum(digest: Digest, sum_: int) -> Digest:
    """Return a root that ends with a sum, in 64 bits as in a tree."""
    return Digest(digest[:24] + (sum_ % 2**64).to_bytes(8, "big"))


def make_plan(**changes: Any) -> LedgerTerms:
    """Return the plan of a test ledger: four auditors, three of whom suffice."""
    fields: dict[str, Any] = {
        "auditors": tuple(map(address, AUDITORS)),
        "quorum": QUORUM,
        "genesis_seconds": GENESIS_SECONDS,
        "epoch_seconds": EPOCH_SECONDS,
        "challenge_seconds": CHALLENGE_SECONDS,
        "epoch_budget_points": BUDGET_POINTS,
        "points_cap": POINTS_CAP,
        "auditor_bond": AUDITOR_BOND,
        "tokens_per_point": TOKENS_PER_POINT,
    }
    return LedgerTerms(**{**fields, **changes})


def deploy_contracts(chain: ServedChain, **changes: Any) -> Contracts:
    """Deploy another ledger on a chain."""
    return Contracts(chain, deploy([chain.url], DEPLOYER, make_plan(**changes))).enrolled()


def found(
    path: Path, *, port: int = 0, kind: type[EmbeddedChain] = EmbeddedChain, **changes: Any
) -> Contracts:
    """Return a new ledger on a new chain, copied from an earlier one of this process if there is one."""
    stored, deployment = _founded(make_plan(**changes))
    path.write_bytes(stored)
    return Contracts(ServedChain(path, port=port, kind=kind), deployment)


@cache
def _founded(plan: LedgerTerms) -> tuple[bytes, Deployment]:
    """Return a chain's file with contracts on it, for copies: deploying takes two processor seconds."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "chain.sqlite"
        chain = ServedChain(path)
        deployment = Contracts(chain, deploy([chain.url], DEPLOYER, plan)).enrolled().deployment
        chain.close()
        return path.read_bytes(), deployment


def make_root(
    epoch: int,
    *,
    base_root: Digest = merkle.EMPTY_ROOT,
    total: int = 10,
    cumulative_root: Digest | None = None,
    archive: int = 7,
) -> EpochRoot:
    """Return an epoch root made from numbers, whose sums are right."""
    filler = Digest(archive.to_bytes(24, "big") + bytes(8))
    return EpochRoot(
        epoch=epoch,
        base_root=base_root,
        contribution_root=with_sum(filler, total),
        cumulative_root=cumulative_root or with_sum(filler, sum_of(base_root) + total),
        total=total,
        archive_digest=filler,
    )


def sign(
    root: EpochRoot, domain: Domain, signers: Sequence[LocalAccount] = AUDITORS[:QUORUM], turn: int = 0
) -> list[bytes]:
    """Return the signers' signatures, in the order given."""
    digest = EpochApproval(turn, root).digest(domain)
    return [secp256k1.sign(bytes(signer.key), digest) for signer in signers]


def settled(tallies: Sequence[Tally], previous: Mapping[Account, int]) -> tuple[Share, ...]:
    """Return every account's share under the terms of a test ledger."""
    return settle(tallies, previous, points_per_epoch=POINTS_CAP, epoch_budget=BUDGET_POINTS)


def send_coins(url: str, payer: LocalAccount, receiver: Account, wei: int) -> None:
    """Send native coins over the chain's HTTP port."""
    Deployer(payer).send(Rpc([url]), tx.Call(receiver, b"", wei))


def refused_as(action: Callable[[], object]) -> str | None:
    """Return the name of the custom error with which a contract refuses an action."""
    try:
        action()
    except tx.Refused as refused:
        return refused.error
    raise AssertionError("the contract accepted it")


def ask(contracts: Contracts, account: Account) -> int:
    """Ask with the deployer's tokens in the next second; return the question's deadline."""
    chain, token, verifier = contracts.chain, contracts.token, contracts.verifier
    chain.now_seconds = chain.engine.head.timestamp + 1
    chain.send(DEPLOYER, token.address, token.approve(verifier.address, verifier.question_bond()))
    chain.send(DEPLOYER, verifier.address, verifier.ask(account))
    return chain.engine.head.timestamp + verifier.answer_seconds()
