"""The swarm sampler: selects the external groups that join the node's own in a batch.

The paper (arXiv 2509.08721, section 3 and Algorithm 1) drops external groups without advantage
and draws J of the rest uniformly. Deviations:

* the *account* is drawn first, then a group of it, both by the weights of a strategy (``strategies``);
  a flood of groups gains no share;
* an account's probability is at most ``account_cap`` of the external places, that of all accounts
  behind one network at most ``network_cap``, and all newcomers' together at most ``newcomer_cap``;
  probability that a cap removes goes to no other author: those places are filled with local groups, so
  with few trusted accounts there is less external text;
J adapts: as many places are drawn as the accounts' capped shares add up to, and no account's share of
the places grows because others are missing;
a newcomer's share is never above that of the average trusted account: a new account is worth no more
than an old one, so replacing an account gains nothing;
* weight counts up to ``FULL_TRUST`` only: beyond it more right answers gain nothing;
* groups are verified when they are drawn, so a node's cost follows its batch, not the size of the swarm.
"""

import random
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Final

import trio

from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_protocol.identifiers import Account
from sapo_verification.reputation.evidence import AccountStanding, Reputation
from sapo_verification.reputation.origins import Network, no_network
from sapo_verification.sampling.demonstrations import DemonstrationPool
from sapo_verification.sampling.own_success import OwnSuccess, TaskSampler
from sapo_verification.sampling.pool import Pool
from sapo_verification.sampling.step_values import JudgedSteps, StepValues
from sapo_verification.sampling.strategies import STRATEGIES, AccountMeans, SamplingStrategy
from sapo_verification.sampling.text_use import TextUse
from sapo_verification.screens.screens import Screens
from sapo_verification.types import (
    AdmittedRollout,
    Demonstration,
    OwnAnswer,
    Pair,
    PractisedGroup,
    PrivateGroup,
    SampledBatch,
    SampledGroup,
    VerifiedRollout,
)
from sapo_verification.verifier import Verifier

MAX_TRIES: Final = 32
"""Rollouts of one account verified for one place, so that uninformative accounts do not block a round."""

MAX_TIMEOUTS: Final = 4
"""Of those, how many may time out in the checker: thirty-two of 2 s each would take a minute."""

PLACE_SECONDS: Final = 4.0
"""Time after which no further check begins for a place: two deadlines of the checker. Answers that take just
less than the deadline are no time-outs, but thirty-two of them would take a minute as well.
"""

MEASURED_SHARE: Final = 0.1
"""Part of its places that an account keeps in a family in which it is set aside: its texts there are measured
but not trained, so that a change for the better is noticed.
"""

JUDGED_SHARE: Final = 0.5
"""Texts of other accounts in mastered families that are judged in a round, as a part of the round's most
demonstrations and in addition to them.
"""

OPEN: Final = 4
"""Steps in which a node raises its intake of others' text to the maximum again after the text did harm."""

FULL_TRUST: Final = 0.75
"""Largest weight that counts, reached after some twenty good groups: without it a tenfold flood of groups
would raise an account's weight by a quarter.
"""


@dataclass(frozen=True, slots=True)
class SamplingPolicy:
    """Composition of a batch.

    Attributes:
        local_groups: I of the paper.
        external_groups: J of the paper, at most I.
        strategy: weighs accounts and groups before the caps; the name of a built-in strategy, or an object.
        text_use: what the external groups are used for.
        demonstrations: most right answers of others in a round, if the node imitates.
        need_below: success in a family from which on others' right answers are not needed.
        learnable_tasks: draw the families of own tasks by what can be learned from them, not uniformly.
        task_sampler: chooses these families instead, if given.
        account_cap: largest share of the external places for one account.
        newcomer_cap: largest share of the external places for all newcomers together.
        network_cap: largest share of the external places for all accounts behind one network.
    """

    local_groups: int = 4
    external_groups: int = 4
    account_cap: float = 0.125
    newcomer_cap: float = 0.10
    network_cap: float = 0.25
    strategy: str | SamplingStrategy = "weighted"
    text_use: TextUse = TextUse.REINFORCE
    demonstrations: int = 64
    need_below: float = 0.6
    learnable_tasks: bool = False
    task_sampler: TaskSampler | None = None

    def need(self, success: float) -> float:
        """Return how much right answers of a family are needed, from the own success there; 0 if it is
        mastered."""
        return 1.0 - success if success < self.need_below else 0.0


class Sampler:
    """Sampler of external groups from the pool; assembles batches."""

    def __init__(
        self,
        pool: Pool,
        reputation: Reputation,
        verifier: Verifier,
        policy: SamplingPolicy,
        screens: Screens,
        network_of: Callable[[Account], Network | None] = no_network,
    ) -> None:
        self._pool = pool
        self._reputation = reputation
        self._verifier = verifier
        self._policy = policy
        self._network_of = network_of
        chosen = policy.strategy
        self._strategy = STRATEGIES[chosen] if isinstance(chosen, str) else chosen
        self.likelihoods = AccountMeans()
        self.usefulness = AccountMeans()
        self.step_values = StepValues()
        self.screens = screens
        self._withdrawn: frozenset[Pair] = frozenset()
        self.opening = OPEN
        """How many of ``OPEN`` steps of the policy's J and demonstrations are used; the canary lowers it."""
        self.quarantine = frozenset[Pair]()
        """Accounts whose text did harm according to the canary, or may have: nothing of theirs is drawn."""
        self.waiting = frozenset[Account]()
        """Those of them of which it is not known whether they did."""
        self.admits: Callable[[Account], bool] = lambda _account: True
        """Whether the canary lets text of an account be drawn; after harm it admits few new accounts."""

    def need(self, success: float) -> float:
        """See ``SamplingPolicy.need``."""
        return self._policy.need(success)

    @property
    def max_external(self) -> int:
        """The present J."""
        return self._policy.external_groups * self.opening // OPEN

    @property
    def max_demonstrations(self) -> int:
        """The present limit of demonstrations in a round."""
        return self._policy.demonstrations * self.opening // OPEN

    async def draw_external(self, epoch: int, rng: random.Random) -> tuple[VerifiedRollout, ...]:
        """Return up to J verified, informative groups of other accounts."""
        self.screens.weigh(self.votes(self.screens.accounts(), epoch), self.step_values.depends_less)
        shares = self.shares(self._pool.accounts(), epoch)
        places = adapted_places(self.max_external, shares, rng)
        drawn = [await self._draw_one(shares, epoch, rng) for _ in range(places)]
        return tuple(rollout for rollout in drawn if rollout is not None)

    def shares(self, accounts: Iterable[Account], epoch: int) -> Mapping[Account, float]:
        """Return each account's share of the external places, at most 1 in all; see ``capped_shares``."""
        return self._capped(self.weigh(accounts, epoch))

    def votes(self, accounts: Iterable[Account], epoch: int) -> Mapping[Account, float]:
        """Return the accounts' weights in votes on what text is usual; see ``StepValues.votes``.

        Accounts that wait vote: after harm, chance may admit more attackers than others.
        """
        votes, barred = self.step_values.votes(), self._quarantined() - self.waiting
        voters = {account for account in accounts if votes.get(account, 1.0) and account not in barred}
        shares = self._capped(self._standing(voters, epoch))
        return {account: share * votes.get(account, 1.0) for account, share in shares.items()}

    def weigh(self, accounts: Iterable[Account], epoch: int) -> AccountStanding:
        """Return the weights by which accounts are drawn, before any cap, without those that wait."""
        quarantined = self._quarantined()
        admitted = {account for account in accounts if account not in quarantined and self.admits(account)}
        return self._standing(admitted, epoch)

    def _standing(self, accounts: Set[Account], epoch: int) -> AccountStanding:
        standing = self._reputation.weigh(accounts, epoch)
        return self._strategy.weigh(standing, self.likelihoods, self.usefulness)

    def _capped(self, weighed: AccountStanding) -> Mapping[Account, float]:
        return cap_networks(capped_shares(weighed, self._policy), self._policy, self._network_of)

    def _quarantined(self) -> frozenset[Account]:
        return frozenset(account for account, _ in self.quarantine)

    def assemble(
        self,
        local: Sequence[VerifiedRollout],
        external: Sequence[VerifiedRollout],
        *,
        practised: Sequence[PractisedGroup] = (),
        demonstrations: Sequence[Demonstration] = (),
        judged: Sequence[Demonstration] = (),
        rehearsed: Sequence[OwnAnswer] = (),
        private: Sequence[PrivateGroup] = (),
    ) -> SampledBatch:
        """Return the batch of a step."""
        forgotten = frozenset[Pair]()
        if demonstrations:
            forgotten, self._withdrawn = self.set_aside() | self._withdrawn, frozenset()
        own = [SampledGroup(rollout, external=False) for rollout in local]
        others = [SampledGroup(rollout, external=True) for rollout in external]
        return SampledBatch(
            groups=(*own, *others),
            practised=tuple(practised),
            demonstrations=tuple(demonstrations),
            judged=tuple(judged),
            rehearsed=tuple(rehearsed),
            forgotten=forgotten,
            private=tuple(private),
        )

    def demonstrate(
        self, waiting: DemonstrationPool, success: OwnSuccess, epoch: int, rng: random.Random
    ) -> tuple[Demonstration, ...]:
        """Take right answers of others to imitate; see ``Engine.demonstrate``."""
        set_aside = self.set_aside()
        self._withdrawn |= waiting.withdrawn()
        needed = {pair for pair in waiting.pairs() if self.need(success.of(pair[1]))}
        showing, trained = _accounts(needed), _accounts(needed - set_aside)
        measured = showing - trained
        part = partial(filled_part, self.step_values, set_aside)
        return waiting.take(
            self.max_demonstrations,
            shares=self._places(showing, measured, epoch),
            need=lambda family: self.need(success.of(family)),
            part=lambda account, family: 1.0 if account in measured else part(account, family),
            rng=rng,
        )

    def _places(self, accounts: Set[Account], measured: Set[Account], epoch: int) -> Mapping[Account, float]:
        """Return shares of the places, multiplied by ``MEASURED_SHARE`` for measured accounts."""
        of_all = self.shares(accounts, epoch)
        few = {account: MEASURED_SHARE * of_all.get(account, 0.0) for account in measured}
        return few | dict(self.shares(accounts - measured, epoch))

    def take_to_judge(
        self, waiting: DemonstrationPool, success: OwnSuccess, epoch: int, rng: random.Random
    ) -> tuple[Demonstration, ...]:
        """Take right answers in mastered families; see ``Engine.take_to_judge``."""

        def is_known(family: int) -> bool:
            return self.need(success.of(family)) == 0.0

        showing = _accounts(pair for pair in waiting.pairs() if is_known(pair[1]))
        return waiting.take_to_judge(
            int(JUDGED_SHARE * self.max_demonstrations),
            shares=self.shares(showing, epoch),
            is_known=is_known,
            rng=rng,
        )

    def judge_steps(
        self, epoch: int, values: Iterable[JudgedSteps], known: Iterable[JudgedSteps], own: Account
    ) -> None:
        """Record the values of the steps of a round's texts.

        Accounts weigh what they would in a batch with all others, so all newcomers together weigh little; an
        account weighs less if its steps have little value in families that this node has mastered.

        Args:
            values: of demonstrations.
            known: of what ``take_to_judge`` returned.
            own: this node's account.
        """
        values, known, judged = list(values), list(known), self.step_values
        authors = {account for account, _, _ in values}
        weights = self.votes(judged.accounts() | authors | self.screens.accounts(), epoch)
        judged.learn(values, weights)
        judged.learn_known(
            ((family, value) for account, family, value in known if account == own),
            (each for each in known if each[0] != own),
        )
        self.screens.weigh(weights, judged.depends_less)

    def set_aside(self) -> frozenset[Pair]:
        """Return the pairs of account and family whose steps are not trained."""
        screened = self.screens.recurring_runs.set_aside() | self.screens.step_lengths.longer()
        return self.step_values.misleading() | screened | self.quarantine

    async def _draw_one(
        self, shares: Mapping[Account, float], epoch: int, rng: random.Random
    ) -> VerifiedRollout | None:
        """Return an informative group of an account drawn by share, or none if it has none."""
        (account,) = rng.choices(list(shares), list(shares.values()))
        found = await self._informative(account, epoch, rng)
        while found:
            (chosen,) = rng.choices(found, [self._strategy.verified(rollout) for rollout in found])
            if self._pool.take(chosen.content_id):
                return chosen
            found.remove(chosen)  # an audit refused it meanwhile
        return None

    async def _informative(self, account: Account, epoch: int, rng: random.Random) -> list[VerifiedRollout]:
        """Return as many informative groups as the strategy compares; the others leave the pool."""
        found: list[VerifiedRollout] = []
        timeouts, until = 0, trio.current_time() + PLACE_SECONDS
        for admitted in self._shuffled(account, epoch, rng)[:MAX_TRIES]:
            try:
                verified = await self._verifier.verify(admitted)
            except RemoteProtocolError as error:  # counted by the verifier
                self._pool.take(admitted.content_id)
                timeouts += error.reason in (Reason.CHECKER_TIMEOUT, Reason.NODE_BUSY)
            else:
                if self._is_usable(verified):
                    found.append(verified)
                else:
                    self._pool.take(admitted.content_id)
            is_late = timeouts == MAX_TIMEOUTS or trio.current_time() >= until
            if is_late or len(found) == self._strategy.looks:
                break
        return found

    def _shuffled(self, account: Account, epoch: int, rng: random.Random) -> list[AdmittedRollout]:
        """Return the account's waiting rollouts in a weighted shuffle (Efraimidis and Spirakis, 2006)."""
        keyed = [
            (rng.random() ** (1.0 / self._strategy.freshness(admitted, epoch)), admitted)
            for admitted in self._pool.waiting(account)
        ]
        keyed.sort(key=itemgetter(0), reverse=True)
        return [admitted for _, admitted in keyed]

    def _is_usable(self, verified: VerifiedRollout) -> bool:
        """Whether the group has an advantage, and no planted phrase in text that would be trained (stage
        13)."""
        is_trained = self._policy.text_use.reinforces
        phrase = is_trained and self.screens.holds_planted_phrase(verified)
        return verified.is_informative and not phrase


def adapted_places(max_places: int, shares: Mapping[Account, float], rng: random.Random) -> int:
    """Return J times the sum of the shares, rounded randomly to an integer with exactly that mean.

    These places are then drawn by the normalised shares, so an account's expected number of places is J times
    its share.
    """
    mass = min(1.0, sum(shares.values()))
    return min(max_places, int(max_places * mass + rng.random())) if mass > 0 else 0


def capped_shares(standing: AccountStanding, policy: SamplingPolicy) -> Mapping[Account, float]:
    """Return each account's share of the external places, summing to at most 1.

    Shares are proportional to the weights, newcomers divide theirs evenly, and what a cap removes goes to no
    other account. The newcomers' part is reserved however many trusted accounts there are, so that new
    accounts can become trusted.
    """
    reserved = policy.newcomer_cap if standing.newcomers else 0.0
    weights = {account: min(FULL_TRUST, weight) for account, weight in standing.weights.items() if weight > 0}
    total = sum(weights.values())
    shares = {
        account: min(policy.account_cap, (1.0 - reserved) * (weight / total))
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
    """Return the shares, scaled down where one network's accounts together exceed its cap."""
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


def filled_part(values: StepValues, set_aside: Container[Pair], account: Account, family: int) -> float:
    """Return the part of an account's places in a family that is filled, 0 to 1."""
    return MEASURED_SHARE if (account, family) in set_aside else values.worth(account, family)


def _accounts(pairs: Iterable[Pair]) -> frozenset[Account]:
    return frozenset(account for account, _ in pairs)
