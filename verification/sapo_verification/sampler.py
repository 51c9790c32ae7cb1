"""The swarm sampler: which external groups join the node's own in a batch.

The paper (arXiv 2509.08721, section 3 and Algorithm 1) drops external groups without advantage
and draws J of the rest uniformly. Deviations:

* the *account* is drawn first, then a group of it: a flood of groups gains no share;
* an account's probability is at most ``account_cap`` of the external places, that of all accounts
  behind one network at most ``network_cap``, and all newcomers' together at most ``newcomer_cap``;
  probability that a cap cuts goes to no other author, its places are filled with local groups, so few
  trusted accounts mean less external text;
* a newcomer's is never above that of the average trusted account: a new name is worth no more than an
  old one, so shedding a name wins nothing;
* weight counts up to ``FULL_TRUST`` only: who was right often enough gains nothing by sheer volume;
* what is drawn is verified then, so a node's cost follows its batch, not the size of the swarm.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_protocol.identifiers import Account
from sapo_verification.origins import Network, no_network
from sapo_verification.pool import Pool
from sapo_verification.reputation import Reputation, Standing
from sapo_verification.types import SampledBatch, SampledGroup, VerifiedRollout
from sapo_verification.verifier import Verifier

MAX_TRIES: Final = 32
"""Rollouts of one account verified for one place: an account without spread must not eat a round."""

MAX_TIMEOUTS: Final = 4
"""Of those the ones that may run into the checker's deadline: thirty-two of 2 s each would be a minute."""

FULL_TRUST: Final = 0.75
"""The weight after some twenty good groups; a tenfold flood would otherwise weigh a quarter more."""


@dataclass(frozen=True, slots=True)
class SamplingPolicy:
    """How a batch is mixed.

    Attributes:
        local_groups: I of the paper.
        external_groups: J of the paper, at most I.
        account_cap: largest share of the external places for one account.
        newcomer_cap: largest share of the external places for all newcomers together.
        network_cap: largest share of the external places for all accounts behind one network.
    """

    local_groups: int = 4
    external_groups: int = 4
    account_cap: float = 0.125
    newcomer_cap: float = 0.10
    network_cap: float = 0.25


class Sampler:
    """Draws external groups from the pool and assembles batches."""

    def __init__(
        self,
        pool: Pool,
        reputation: Reputation,
        verifier: Verifier,
        policy: SamplingPolicy,
        network_of: Callable[[Account], Network | None] = no_network,
    ) -> None:
        self._pool = pool
        self._reputation = reputation
        self._verifier = verifier
        self._policy = policy
        self._network_of = network_of

    async def draw_external(self, epoch: int, rng: random.Random) -> tuple[VerifiedRollout, ...]:
        """Up to J verified, informative groups of other accounts."""
        standing = self._reputation.weigh(self._pool.accounts(), epoch)
        shares = cap_networks(capped_shares(standing, self._policy), self._policy, self._network_of)
        drawn = [await self._draw_one(shares, rng) for _ in range(self._policy.external_groups)]
        return tuple(rollout for rollout in drawn if rollout is not None)

    def assemble(self, local: Sequence[VerifiedRollout], external: Sequence[VerifiedRollout]) -> SampledBatch:
        """The batch of a step."""
        groups = [SampledGroup(rollout, external=False) for rollout in local]
        return SampledBatch((*groups, *(SampledGroup(rollout, external=True) for rollout in external)))

    async def _draw_one(self, shares: Mapping[Account, float], rng: random.Random) -> VerifiedRollout | None:
        """One informative group of an account drawn by share, or none if the draw fell on no account."""
        point = rng.random()
        for account, share in shares.items():
            if (point := point - share) < 0:
                return await self._first_informative(account, rng)
        return None

    async def _first_informative(self, account: Account, rng: random.Random) -> VerifiedRollout | None:
        timeouts = 0
        waiting = list(self._pool.waiting(account))
        rng.shuffle(waiting)
        for admitted in waiting[:MAX_TRIES]:
            if not self._pool.take(admitted.content_id):
                continue  # an audit found it wanting while this draw was waiting
            try:
                verified = await self._verifier.verify(admitted)
            except RemoteProtocolError as error:  # counted by the verifier
                timeouts += error.reason is Reason.CHECKER_TIMEOUT
                if timeouts == MAX_TIMEOUTS:
                    return None
                continue
            if verified.is_informative and not self._verifier.is_quarantined(verified):
                return verified
        return None


def capped_shares(standing: Standing, policy: SamplingPolicy) -> Mapping[Account, float]:
    """Each account's share of the external places, summing to at most 1.

    Shares follow the weights, newcomers divide theirs evenly, and no share that is cut is handed on.
    The newcomers' part is theirs also among many trusted accounts, or nobody could ever become one.
    """
    reserved = policy.newcomer_cap if standing.newcomers else 0.0
    weights = {account: min(FULL_TRUST, weight) for account, weight in standing.weights.items() if weight > 0}
    total = sum(weights.values())
    shares = {
        account: min(policy.account_cap, (1.0 - reserved) * weight / total)
        for account, weight in weights.items()
    }
    average = sum(shares.values()) / len(shares) if shares else policy.account_cap
    for account in standing.newcomers:
        shares[account] = min(policy.account_cap, average, reserved / len(standing.newcomers))
    return shares


def cap_networks(
    shares: Mapping[Account, float],
    policy: SamplingPolicy,
    network_of: Callable[[Account], Network | None],
) -> Mapping[Account, float]:
    """The shares, scaled down where one network's accounts together exceed its cap."""
    behind = {account: network for account in shares if (network := network_of(account)) is not None}
    sums: dict[Network, float] = {}
    for account, network in behind.items():
        sums[network] = sums.get(network, 0.0) + shares[account]
    factors = {
        network: policy.network_cap / max(total, policy.network_cap) for network, total in sums.items()
    }
    return {
        account: share * factors[behind[account]] if account in behind else share
        for account, share in shares.items()
    }
