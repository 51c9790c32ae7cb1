"""Gas of the ledger: the real contracts on an embedded chain. Gas is the same on every machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from eth_account import Account as Keys
from eth_account.signers.local import LocalAccount

from sapo_client.founding.contracts import Deployment, LedgerTerms, deploy
from sapo_client.founding.deployer import Deployer
from sapo_client.ledger import transactions as tx
from sapo_client.ledger.chain.scratch import scratch_chain
from sapo_client.ledger.contract import Distributor, EpochLedgerContract, Registry
from sapo_client.ledger.rpc import Rpc
from sapo_protocol import merkle, secp256k1
from sapo_protocol.contributions import Proposal, Share, Tally, cumulative_entries, settle
from sapo_protocol.eip712 import Domain, EpochApproval, EpochRoot
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId

GENESIS_SECONDS: Final = 1_700_000_000
EPOCH_SECONDS: Final = 600
CHALLENGE_SECONDS: Final = 60
AUDITORS: Final = 4
QUORUM: Final = 3

SWARMS: Final = ((16, 1), (16, 512), (1024, 1), (1024, 512))
"""Number of accounts, and points of each account, by epoch."""

CLAIMANTS: Final = (0, 1)

BIND_TARGET, EPOCH_TARGET, CLAIM_TARGET = 120_000, 150_000, 100_000

RL_SWARM_FIRST, RL_SWARM_LATER = 98_472, 81_372
"""Gas of one node's submission of one round's reward to rl-swarm's coordinator; every node sends its own.

Measured on an in-process EVM: solc 0.8, optimiser with 10,000 runs, Cancun rules."""


@dataclass(frozen=True, slots=True)
class EpochGas:
    """Gas of one epoch of a swarm, from its posting to an account's claim."""

    accounts: int
    rollouts: int
    post: int
    finalise: int
    claim: int
    proof: int
    first_claim: bool

    @property
    def settled(self) -> int:
        """Gas of the epoch without claims."""
        return self.post + self.finalise


@dataclass(frozen=True, slots=True)
class LedgerGas:
    """Gas by transaction.

    Attributes:
        deploy: all contracts, and the bonds of the auditors.
        bind: registration of an account's first to fourth node.
    """

    deploy: int
    bind: tuple[int, ...]
    epochs: tuple[EpochGas, ...]


def ledger_gas() -> LedgerGas:
    """Measure the gas of a deployment, of an account's registrations, and of a few epochs."""
    budget = max(accounts * points for accounts, points in SWARMS)
    with ledger_chain(epoch_budget=budget, points_cap=max(points for _, points in SWARMS)) as chain:
        deployed = sum(receipt.gas_used for _, receipt in chain.deployer.done)
        registry = Registry(chain.rpc, chain.deployment.registry)
        later = GENESIS_SECONDS + 10**9
        binds = [registry.register(NodeId(_digest(f"node {n}")), later) for n in range(4)]
        bind = tuple(chain.send(registry.address, data) for data in binds)
        return LedgerGas(deployed, bind, tuple(_epochs(chain)))


def _epochs(chain: LedgerChain) -> Iterator[EpochGas]:
    previous: Mapping[Account, int] = {}
    chain.enrol(map(_account, CLAIMANTS))
    for epoch, (accounts, points) in enumerate(SWARMS):
        shares = _shares(epoch, accounts, points, previous)
        root = Proposal(
            node=NodeId(bytes(32)), account=Account(bytes(20)), epoch=epoch, tallies=(), shares=shares
        ).root(_id(epoch))
        post, finalise = chain.settle(root)
        claimant = _account(CLAIMANTS[epoch // 2])  # one account claims among few, twice, another among many
        [share] = [share for share in shares if share.account == claimant]
        proof = merkle.sum_place(cumulative_entries(shares), claimant).proof
        distributor = Distributor(chain.rpc, chain.deployment.distributor)
        claim = distributor.claim(share.account, share.cumulative, proof)
        yield EpochGas(
            accounts=accounts,
            rollouts=root.total,
            post=post,
            finalise=finalise,
            claim=chain.send(distributor.address, claim),
            proof=len(proof),
            first_claim=epoch % 2 == 0,
        )
        previous = {share.account: share.cumulative for share in shares}


def _shares(epoch: int, accounts: int, points: int, previous: Mapping[Account, int]) -> tuple[Share, ...]:
    """Return the settlement of three auditors with equal tallies."""
    names = sorted(_account(number) for number in range(accounts))
    counted = tuple((name, points) for name in names)
    tallies = [
        Tally(
            node=NodeId(bytes(32)),
            account=name,
            epoch=epoch,
            points=counted,
            evidence_root=_digest("evidence"),
        )
        for name in names[:3]
    ]
    return settle(tallies, previous, points_per_epoch=points, epoch_budget=accounts * points)


class LedgerChain:
    """A chain with the contracts, its clock, and the keys of all signers.

    Attributes:
        auditors: ascending by address, as the contract lists them.
    """

    def __init__(
        self, clock: list[float], url: str, deployer: Deployer, *, epoch_budget: int, points_cap: int
    ) -> None:
        self.rpc = Rpc([url])
        self.deployer = deployer
        self._clock = clock
        self.auditors = sorted((_keys(f"auditor {n}") for n in range(AUDITORS)), key=address_of)
        plan = LedgerTerms(
            auditors=tuple(map(address_of, self.auditors)),
            quorum=QUORUM,
            genesis_seconds=GENESIS_SECONDS,
            epoch_seconds=EPOCH_SECONDS,
            challenge_seconds=CHALLENGE_SECONDS,
            epoch_budget_points=epoch_budget,
            points_cap=points_cap,
        )
        self.deployment: Deployment = deploy([url], deployer, plan)
        self.ledger = EpochLedgerContract(self.rpc, self.deployment.ledger)
        self.domain = Domain(self.deployment.chain_id, self.ledger.address)
        self._bond = plan.auditor_bond

    @property
    def now_seconds(self) -> float:
        """The chain's clock, Unix seconds."""
        return self._clock[0]

    def advance_to(self, seconds: float) -> None:
        """Set the chain's clock, which never goes back."""
        self._clock[0] = max(self._clock[0], seconds)

    def send(self, to: Account, data: bytes) -> int:
        """Send a call and return its gas."""
        return self.deployer.send(self.rpc, tx.Call(to, data)).gas_used

    def settle(self, root: EpochRoot) -> tuple[int, int]:
        """Post an epoch's root and make it final; return the gas of both."""
        self.advance_to(GENESIS_SECONDS + (root.epoch + 1) * EPOCH_SECONDS)
        return self.send(self.ledger.address, self.posting(EpochApproval(0, root))), self.finalise()

    def enrol(self, accounts: Iterable[Account]) -> None:
        """Enrol accounts for claims, as a registration does."""
        distributor = Distributor(self.rpc, self.deployment.distributor)
        for account in accounts:
            self.send(distributor.address, distributor.enrol(account))

    def posting(self, statement: EpochApproval) -> bytes:
        """Return call data that posts a statement with a quorum's signatures."""
        digest = statement.digest(self.domain)
        signatures = [secp256k1.sign(bytes(keys.key), digest) for keys in self.auditors[:QUORUM]]
        return self.ledger.post(statement, signatures)

    def finalise(self) -> int:
        """Let the window pass, make the live posting final, and return the gas."""
        self._clock[0] += CHALLENGE_SECONDS
        return self.send(self.ledger.address, self.ledger.finalise())

    def bond_again(self) -> None:
        """Give every auditor whose bond was slashed a new one."""
        vault, token = self.ledger.vault(), self.ledger.distributor().token()
        for auditor in map(address_of, self.auditors):
            if vault.bonded(auditor) < self._bond:
                self.send(token.address, token.approve(vault.address, self._bond))
                self.send(vault.address, vault.deposit(auditor, self._bond))


@contextmanager
def ledger_chain(*, epoch_budget: int, points_cap: int) -> Iterator[LedgerChain]:
    """Yield a new chain with the contracts, whose founder sends every transaction."""
    clock = [float(GENESIS_SECONDS)]
    founder = _keys("founder")
    with scratch_chain([address_of(founder)], lambda: clock[0]) as url:
        yield LedgerChain(clock, url, Deployer(founder), epoch_budget=epoch_budget, points_cap=points_cap)


def _keys(name: str) -> LocalAccount:
    return Keys.from_key(_digest(name))


def address_of(keys: LocalAccount) -> Account:
    """Return an account's address."""
    return Account.from_hex(keys.address)


def _account(number: int) -> Account:
    """Return an account with a pseudo-random address, because the length of a proof depends on addresses."""
    return Account(_digest(f"account {number}")[:20])


def _digest(name: str) -> Digest:
    return Digest(sha256(name.encode()).digest())


def _id(epoch: int) -> ContentId:
    return ContentId(_digest(f"proposal {epoch}"))
