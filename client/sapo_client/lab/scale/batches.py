"""What Sybils have of the batches of honest nodes, and whether every draw keeps the caps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from sapo_client.lab.scale.plan import Inhabitant
from sapo_client.lab.scale.resident import Resident
from sapo_protocol.identifiers import Account
from sapo_verification.reputation.origins import Network
from sapo_verification.sampling.sampler import SamplingPolicy
from sapo_verification.types import AdmittedRollout

POLICY: Final = SamplingPolicy()
"""What the engines of the simulation draw by: a node's defaults."""

SYBIL_HOST: Final = "52.0.0.1"
"""The address at which Sybils are seen whose network is known."""

_ROUNDING: Final = 1e-9


class SybilStanding(Enum):
    """What a drawing node knows of Sybils; of honest accounts all have earned trust with it."""

    TRUSTED = "have earned trust, in many networks"
    NETWORK = "have earned trust, in one network"
    NEWCOMERS = "are newcomers"

    @property
    def cap(self) -> float | None:
        """The largest share of the external places that they can have together; none where no cap is."""
        caps = {SybilStanding.NETWORK: POLICY.network_cap, SybilStanding.NEWCOMERS: POLICY.newcomer_cap}
        return caps.get(self)


@dataclass(slots=True)
class Drawer:
    """An honest node that draws batches.

    Attributes:
        island: where its account lives when the simulation begins.
        drawn: its external groups, by whether their account is a Sybil's.
        draws: how often it has drawn.
        expected: sum over the draws of the Sybils' part of the external places, by the accounts' shares.
        violations: shares above a cap, over all draws.
    """

    resident: Resident
    island: int
    standing: SybilStanding
    drawn: Counter[bool] = field(default_factory=Counter)
    draws: int = 0
    expected: float = 0.0
    violations: int = 0

    def learn(self, about: list[Inhabitant], epoch: int) -> None:
        """Trust the accounts that have earned it."""
        is_new = self.standing is SybilStanding.NEWCOMERS
        self.resident.trust([one for one in about if not (is_new and one.is_sybil)], epoch)

    def hear(self, admitted: AdmittedRollout, forwarder: str) -> None:
        """Learn a Sybil's network as a node does: where its own node is connected and sends its rollout."""
        engine = self.resident.engine
        if self.standing is SybilStanding.NETWORK and bytes(admitted.rollout.node).hex() == forwarder:
            assert engine is not None
            engine.learn_origin(admitted.account, SYBIL_HOST)

    def draw(self, epoch: int, sybils: frozenset[Account]) -> None:
        """Draw the external groups of a batch, and compare the shares behind the draw with the caps."""
        engine = self.resident.engine
        assert engine is not None
        shares = engine.sampler.shares(engine.pool.accounts(), epoch)
        is_new = engine.reputation.is_newcomer
        self.violations += cap_violations(shares, POLICY, is_new, engine.origins.network_of)
        self.expected += sum(share for account, share in shares.items() if account in sybils)
        drawn = self.resident.draw(epoch)
        self.violations += max(0, len(drawn) - POLICY.external_groups)
        self.drawn.update(group.account in sybils for group in drawn)
        self.draws += 1


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """What Sybils of one standing have of the external places, on the island where they have most.

    Attributes:
        cap: of their places together; none where no cap bounds them.
        share: of the external places, by the accounts' shares at each draw.
        groups: of the drawn external groups that share of which the island had most.
        of_groups: the part of these groups that is theirs.
        draws: on all islands.
        violations: shares above the cap of an account, of newcomers together or of a network, on all islands.
    """

    standing: str
    cap: float | None
    share: float
    groups: int
    of_groups: float
    draws: int
    violations: int


def batch_figures(drawers: list[Drawer], standing: SybilStanding) -> BatchFigures | None:
    """Return the figures of a standing, or none where nobody drew under it."""
    drew = [one for one in drawers if one.standing is standing and one.draws]
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


def _expected(drawers: list[Drawer]) -> float:
    return sum(one.expected for one in drawers) / sum(one.draws for one in drawers)


def cap_violations(
    shares: Mapping[Account, float],
    policy: SamplingPolicy,
    is_newcomer: Callable[[Account], bool],
    network_of: Callable[[Account], Network | None],
) -> int:
    """Return how many caps the shares of a draw exceed.

    These are the cap of every account, that of all newcomers together, that of every network, and the whole.
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
