"""Share of Sybils in the batches of honest nodes, and a check of every draw against the caps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from sapo_client.lab.scale.node import SimulatedNode
from sapo_client.lab.scale.plan import Participant
from sapo_protocol.identifiers import Account
from sapo_verification.reputation.origins import Network
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.types import AdmittedRollout

POLICY: Final = SamplingPolicy()
"""The sampling policy of the simulated engines: a node's defaults."""

SYBIL_HOST: Final = "52.0.0.1"
"""The address of Sybils whose network is known."""

_ROUNDING: Final = 1e-9


class SybilStanding(Enum):
    """A sampling node's evidence about Sybils; it trusts all honest accounts."""

    TRUSTED = "have earned trust, in many networks"
    NETWORK = "have earned trust, in one network"
    NEWCOMERS = "are newcomers"

    @property
    def cap(self) -> float | None:
        """Maximum share of the external places that they can have together; None without a cap."""
        caps = {SybilStanding.NETWORK: POLICY.network_cap, SybilStanding.NEWCOMERS: POLICY.newcomer_cap}
        return caps.get(self)


@dataclass(slots=True)
class SamplingNode:
    """An honest node that draws batches.

    Attributes:
        island: home of its account at the start of the simulation.
        drawn: number of its external groups, by whether their account is a Sybil's.
        draws: number of batches drawn so far.
        expected: Sybils' share of the external places according to the accounts' shares, summed over all
            draws.
        violations: number of shares above a cap, over all draws.
    """

    node: SimulatedNode
    island: int
    standing: SybilStanding
    drawn: Counter[bool] = field(default_factory=Counter)
    draws: int = 0
    expected: float = 0.0
    violations: int = 0

    def learn_trust(self, about: list[Participant], epoch: int) -> None:
        """Record the accounts that have earned trust."""
        is_new = self.standing is SybilStanding.NEWCOMERS
        self.node.trust([one for one in about if not (is_new and one.is_sybil)], epoch)

    def learn_network(self, admitted: AdmittedRollout, forwarder: str) -> None:
        """Record a Sybil's network as a node does: when the Sybil's own node is the forwarder."""
        engine = self.node.engine
        if self.standing is SybilStanding.NETWORK and bytes(admitted.rollout.node).hex() == forwarder:
            assert engine is not None
            engine.learn_origin(admitted.account, SYBIL_HOST)

    def draw(self, epoch: int, sybils: frozenset[Account]) -> None:
        """Draw the external groups of a batch, and check the shares used for the draw against the caps."""
        engine = self.node.engine
        assert engine is not None
        shares = engine.sampler.shares(engine.pool.accounts(), epoch)
        is_new = engine.reputation.is_newcomer
        self.violations += cap_violations(shares, POLICY, is_new, engine.origins.network_of)
        self.expected += sum(share for account, share in shares.items() if account in sybils)
        drawn = self.node.draw(epoch)
        self.violations += max(0, len(drawn) - POLICY.external_groups)
        self.drawn.update(group.account in sybils for group in drawn)
        self.draws += 1


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """Sybils' share of the external places for one standing, on the island where it is largest.

    Attributes:
        cap: maximum share of all their places together; None without a cap.
        share: share of the external places, according to the accounts' shares at each draw.
        groups: number of external groups drawn on the island with the largest share.
        of_groups: share of these groups that are Sybils'.
        draws: number of draws on all islands.
        violations: number of shares above the cap of an account, of all newcomers together or of a network,
            on all islands.
    """

    standing: str
    cap: float | None
    share: float
    groups: int
    of_groups: float
    draws: int
    violations: int


def batch_figures(sampling_nodes: list[SamplingNode], standing: SybilStanding) -> BatchFigures | None:
    """Return the figures of a standing; None if no node with this standing has drawn a batch."""
    drew = [one for one in sampling_nodes if one.standing is standing and one.draws]
    if not drew:
        return None
    islands = {one.island: [other for other in drew if other.island == one.island] for one in drew}
    worst = max(islands.values(), key=_expected)
    drawn = sum((one.drawn for one in worst), Counter[bool]())
    return BatchFigures(
        standing.value,
        standing.cap,
        share=_expected(worst),
        groups=drawn.total(),
        of_groups=drawn[True] / max(1, drawn.total()),
        draws=sum(one.draws for one in drew),
        violations=sum(one.violations for one in drew),
    )


def _expected(sampling_nodes: list[SamplingNode]) -> float:
    return sum(one.expected for one in sampling_nodes) / sum(one.draws for one in sampling_nodes)


def cap_violations(
    shares: Mapping[Account, float],
    policy: SamplingPolicy,
    is_newcomer: Callable[[Account], bool],
    network_of: Callable[[Account], Network | None],
) -> int:
    """Return the number of caps that the shares of a draw exceed.

    The caps are those of every account, of all newcomers together and of every network, and the total of 1.
    """
    sums: dict[Network, float] = {}
    for account, share in shares.items():
        if (network := network_of(account)) is not None:
            sums[network] = sums.get(network, 0.0) + share
    newcomers = sum(share for account, share in shares.items() if is_newcomer(account))
    found = sum(share > policy.account_cap + _ROUNDING for share in shares.values())
    found += newcomers > policy.newcomer_cap + _ROUNDING
    found += sum(total > policy.network_cap + _ROUNDING for total in sums.values())
    return found + (sum(shares.values()) > 1.0 + _ROUNDING)
