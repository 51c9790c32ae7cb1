"""Simulation of what each strategy of participation earns under the shipped rules.

One player with a strategy runs among honest accounts for many epochs. Points are counted, capped, tallied,
settled and posted by the network's own functions: `capped_points` (an auditor's count), `settle` (the clipped
median of the tallies, within the epoch budget). Only the machines are modelled: how many rollouts they
generate, how many of those are payable, and what they cost.

One assumption favours the attacker: no node forwards what an author withholds. Every tally reaches every
auditor, and a proposal pays what all tallies settle to, because the other auditors approve no other proposal.
Auditors' bonds are left out: the contracts cannot prove any of these lies, so none of them costs a bond. The
bonds of accounts are a gate, whose tokens are given back, so they cost nothing here either. An attestation
costs what its attester asks for, which is nothing here.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from hashlib import sha256
from typing import Final

from sapo_client.founding import defaults
from sapo_client.units import TOKEN
from sapo_protocol.contributions import Proposal, Share, Tally, settle
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId
from sapo_protocol.settlement import quorum_size
from sapo_protocol.terms.difficulty import VALUES_OF_A_POINT
from sapo_protocol.terms.gate import BondGate, EasGate
from sapo_verification.epoch_count import capped_points


@dataclass(frozen=True, slots=True)
class Rules:
    """Terms that a swarm's manifest and contracts fix; the defaults are those of `sapo testnet up`.

    Attributes:
        register_gas: upper bound for the registration, which every account sends once.
        claim_gas: upper bound for the claim, which every account sends once, at the end.
    """

    slots_per_epoch: int = defaults.LIMITS.slots_per_epoch
    points_per_epoch: int = defaults.LIMITS.points_per_epoch
    epoch_budget_points: int = defaults.EPOCH_BUDGET_POINTS
    auditors: int = defaults.AUDITORS
    register_gas: int = 120_000
    claim_gas: int = 100_000


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices, in units of the cost of generating one rollout.

    Attributes:
        point: the future value of a point is unknown; with four, honest work is profitable.
        million_gas: 0.03 USD at 0.01 gwei and 3,000 USD a coin; about a hundred rollouts, if each takes four
            seconds of a GPU at 0.30 USD an hour.
        message: sending one message, without generating it.
    """

    point: float = 4.0
    million_gas: float = 100.0
    message: float = 0.01


@dataclass(frozen=True, slots=True)
class EconomyWorld:
    """The other accounts, and the length of the simulation.

    Attributes:
        honest: accounts besides the player's, one machine each.
        rollouts: rollouts per machine and epoch, as in a run of `make demo`.
        payable_share: payable share of an honest machine's rollouts, from the same run.
    """

    honest: int = 8
    epochs: int = 24
    rollouts: int = 350
    payable_share: float = 0.47


class Lie(Enum):
    """The change that a lying auditor makes to its tally."""

    INFLATE = "its own accounts at the cap"
    DENY = "no points for other accounts"


@dataclass(frozen=True, slots=True)
class EarningStrategy:
    """A strategy of participation.

    Attributes:
        machines: its rate of generation, in honest machines.
        rollout_cost: cost of generating one rollout.
        payable_share: payable share of its rollouts; none for the honest share.
        flood: messages that it sends besides each rollout, none of which can count.
        delivered: probability that an auditor receives one of its rollouts.
        liars: number of auditors that belong to the player.
        auditors: number of all auditors; none for the rules' number.
        units: of a bond, which its accounts share evenly, in a swarm whose gate asks for one; the honest
            accounts have one each. None: the gate asks for no bond.
        attested: how many of its accounts are attested, in a swarm whose gate asks for that; the honest
            accounts all are. None: the gate asks for no attestation.
    """

    name: str
    accounts: int = 1
    machines: float = 1.0
    rollout_cost: float = 1.0
    payable_share: float | None = None
    flood: int = 0
    delivered: float = 1.0
    liars: int = 0
    lie: Lie = Lie.INFLATE
    auditors: int | None = None
    units: int | None = None
    attested: int | None = None


HONEST: Final = EarningStrategy("honest")

GROUP: Final = defaults.LIMITS.max_completions


def paid_share(success: float, *, ladders: bool, value: int = VALUES_OF_A_POINT) -> float:
    """Return the points per group of an author whose answers are right with a probability.

    Args:
        ladders: whether the manifest has ladders: a right answer is paid, else only right and wrong ones
            together.
        value: of the level, in eighths of a point; without ladders there are no other levels.
    """
    all_wrong, all_right = (1 - success) ** GROUP, success**GROUP
    return (1 - all_wrong) * value / VALUES_OF_A_POINT if ladders else 1 - all_wrong - all_right


def _competent(percent: int, name: str, **rule: int) -> EarningStrategy:
    share = paid_share(percent / 100, ladders=bool(rule), **rule)
    return EarningStrategy(f"right in {percent} %, {name}", payable_share=share)


COMPETENCE: Final = tuple(
    _competent(percent, name, **rule)
    for name, rule in (
        ("without ladders", {}),
        ("at a hard level", {"value": VALUES_OF_A_POINT}),
        ("at a mastered level", {"value": VALUES_OF_A_POINT - 1}),
    )
    for percent in (5, 50, 95)
)
"""Honest machines that learn: the same swarm, another share of right answers."""

SCRIPT_COST: Final = 1e-4
"""Deriving an item takes 0.1 ms, and the derivation gives the answer."""


def _scripts(
    name: str, accounts: int, *, units: int | None = None, attested: int | None = None
) -> EarningStrategy:
    """Return accounts that each answer twice as much as a machine, without a model."""
    return EarningStrategy(
        name,
        accounts=accounts,
        machines=2.0 * accounts,
        payable_share=1.0,
        rollout_cost=SCRIPT_COST,
        units=units,
        attested=attested,
    )


_UNIT: Final = 100 * TOKEN
"""A unit of the simulated bond: what a faucet gives in a day."""

STRATEGIES: Final = (
    HONEST,
    EarningStrategy("idle: registered, sends nothing", machines=0.0),
    EarningStrategy("split: one machine, 8 accounts", accounts=8),
    EarningStrategy("flood: nine messages beside each rollout", flood=9),
    EarningStrategy("withhold: each auditor receives half", delivered=0.5),
    EarningStrategy("one lying auditor inflates itself", liars=1),
    EarningStrategy("one lying auditor denies the others", liars=1, lie=Lie.DENY),
    EarningStrategy("2 of 7 auditors inflate themselves", liars=2, auditors=7),
    EarningStrategy("2 of 7 auditors deny the others", liars=2, lie=Lie.DENY, auditors=7),
    EarningStrategy("2 of 4 auditors inflate themselves", liars=2),
    EarningStrategy("2 of 4 auditors deny the others", liars=2, lie=Lie.DENY),
    EarningStrategy("4 machines, one account", machines=4.0),
    EarningStrategy("4 machines, 4 accounts", machines=4.0, accounts=4),
    EarningStrategy("script: answers without a model", payable_share=1.0, rollout_cost=SCRIPT_COST),
    _scripts("script, 16 accounts", 16),
    _scripts("script, 64 accounts: over the budget", 64),
    EarningStrategy("bond gate: honest, 1 unit", units=1),
    EarningStrategy("bond gate: one machine, 8 accounts, 1 unit", accounts=8, units=1),
    *(
        _scripts(
            f"bond gate: script, {accounts} account{'s' * (accounts > 1)}, {units} unit{'s' * (units > 1)}",
            accounts,
            units=units,
        )
        for accounts, units in ((1, 1), (16, 1), (64, 1), (100, 1), (64, 64))
    ),
    EarningStrategy("eas gate: honest, attested", attested=1),
    EarningStrategy("eas gate: one machine, 8 accounts, 1 attested", accounts=8, attested=1),
    *(
        _scripts(
            f"eas gate: script, {accounts} account{'s' * (accounts > 1)}, {attested} attested",
            accounts,
            attested=attested,
        )
        for accounts, attested in ((1, 1), (64, 1), (64, 64))
    ),
    *COMPETENCE,
)


@dataclass(frozen=True, slots=True)
class StrategyOutcome:
    """Result of a strategy.

    Attributes:
        points: points of all its accounts.
        cost: in generated rollouts, like the profit.
        others: sum of the honest accounts' points.
        posted: number of epochs that were posted to the chain.
    """

    strategy: EarningStrategy
    points: int
    cost: float
    profit: float
    others: int
    posted: int

    @property
    def profit_per_cost(self) -> float:
        """Profit per unit of cost."""
        return self.profit / self.cost


@dataclass(frozen=True, slots=True)
class EconomyRow:
    """A strategy compared with honest work in the same swarm.

    Attributes:
        against_honest: profit per cost minus that of honest work; above 0 the strategy is more profitable.
        others_lose: share of their points that the honest accounts lose because of it.
    """

    outcome: StrategyOutcome
    against_honest: float
    others_lose: float

    @property
    def pays(self) -> str:
        """The comparison as one word."""
        if self.against_honest == 0:
            return "the same"
        return "MORE" if self.against_honest > 0 else "less"


def compare(
    strategies: Sequence[EarningStrategy], rules: Rules, prices: Prices, world: EconomyWorld, seed: int
) -> list[EconomyRow]:
    """Simulate each strategy in its own swarm; honest machines have the same random streams in all."""
    rows = []
    played: dict[EarningStrategy, StrategyOutcome] = {}  # the same honest one serves most strategies
    for strategy in strategies:
        fair = replace(HONEST, auditors=strategy.auditors, units=strategy.units and 1)
        fair = replace(fair, attested=strategy.attested and 1)
        for one in (fair, strategy):
            if one not in played:
                played[one] = play(one, rules, prices=prices, world=world, seed=seed)
        honest, outcome = played[fair], played[strategy]
        gap = outcome.profit_per_cost - honest.profit_per_cost
        rows.append(EconomyRow(outcome, gap, 1 - outcome.others / honest.others))
    return rows


def play(
    strategy: EarningStrategy, rules: Rules, prices: Prices, world: EconomyWorld, seed: int
) -> StrategyOutcome:
    """Simulate a swarm with one player of a strategy."""
    game = _Game(strategy, rules, world, seed)
    cumulative: Mapping[Account, int] = {}
    posted = 0
    for epoch in range(world.epochs):
        shares = game.settlement(epoch, cumulative)
        if _total(epoch, shares):
            cumulative = {share.account: share.cumulative for share in shares}
            posted += 1
    points = sum(cumulative.get(account, 0) for account in game.accounts)
    cost = _cost(strategy, rules, prices, world, claims=sum(a in cumulative for a in game.accounts))
    others = sum(cumulative.values()) - points
    return StrategyOutcome(
        strategy=strategy,
        points=points,
        cost=cost,
        profit=points * prices.point - cost,
        others=others,
        posted=posted,
    )


def _total(epoch: int, shares: tuple[Share, ...]) -> int:
    """Return the total that the settlement's root grants."""
    nobody = Proposal(
        node=NodeId(bytes(32)), account=Account(bytes(20)), epoch=epoch, tallies=(), shares=shares
    )
    return nobody.root(ContentId(bytes(32))).total


def _cost(
    strategy: EarningStrategy, rules: Rules, prices: Prices, world: EconomyWorld, *, claims: int
) -> float:
    rollouts = round(strategy.machines * world.rollouts) * world.epochs
    gas = strategy.accounts * rules.register_gas + claims * rules.claim_gas
    work = rollouts * (strategy.rollout_cost + (1 + strategy.flood) * prices.message)
    return work + gas / 1e6 * prices.million_gas


class _Game:
    """Simulation of one player among honest accounts, epoch by epoch."""

    def __init__(self, strategy: EarningStrategy, rules: Rules, world: EconomyWorld, seed: int) -> None:
        self._strategy = strategy
        self._rules = rules
        self._world = world
        self._auditors = strategy.auditors or rules.auditors
        self._random = [random.Random(f"{seed}/{machine}") for machine in range(world.honest + 1)]
        self._delivery_random = random.Random(f"{seed}/hearing")
        self.accounts = tuple(_account(f"player {number}") for number in range(strategy.accounts))
        self._others = tuple(_account(f"honest {number}") for number in range(world.honest))
        self._units = self._bonded() if strategy.attested is None else self._attested(strategy.attested)

    def _attested(self, attested: int) -> Mapping[Account, Fraction]:
        """Return the units of each account; a number of the player's accounts have an attestation each."""
        gate = EasGate(_account("eas"), Digest(bytes(32)), (_account("attester"),), 0)
        held = {account: int(place < attested) for place, account in enumerate(self.accounts)}
        held |= dict.fromkeys(self._others, 1)
        return {account: gate.units(attestations) for account, attestations in held.items()}

    def _bonded(self) -> Mapping[Account, Fraction] | None:
        """Return the units of each account; the player's accounts share its bond evenly."""
        if self._strategy.units is None:
            return None
        gate, tokens = BondGate(_account("bond"), _UNIT, 0), self._strategy.units * _UNIT
        each = gate.units(tokens // len(self.accounts))
        return dict.fromkeys(self.accounts, each) | dict.fromkeys(self._others, Fraction(1))

    def settlement(self, epoch: int, previous: Mapping[Account, int]) -> tuple[Share, ...]:
        """Return the shares of all accounts in an epoch.

        Liars name no more tallies than they must, their own first; honest proposers name all that they hold.
        """
        delivered = self._delivered()
        tallies = [self._tally(epoch, auditor, delivered[auditor]) for auditor in range(self._auditors)]
        if self._strategy.liars:
            tallies = tallies[: quorum_size(self._auditors)]
        rules = self._rules
        return settle(
            tallies,
            previous,
            points_per_epoch=rules.points_per_epoch,
            epoch_budget=rules.epoch_budget_points,
        )

    def _tally(self, epoch: int, auditor: int, delivered: Mapping[Account, int]) -> Tally:
        points = capped_points(delivered, delivered, self._rules.points_per_epoch, self._units)
        if auditor < self._strategy.liars:
            points = tuple(self._lie(points))
        return Tally(
            node=NodeId(bytes(32)),
            account=_account(f"auditor {auditor}"),
            epoch=epoch,
            points=points,
            evidence_root=Digest(bytes(32)),
        )

    def _lie(self, points: tuple[tuple[Account, int], ...]) -> Iterator[tuple[Account, int]]:
        for account, count in points:
            if self._strategy.lie is Lie.INFLATE and account in self.accounts:
                yield account, self._rules.points_per_epoch
            elif self._strategy.lie is Lie.INFLATE or account in self.accounts:
                yield account, count

    def _delivered(self) -> list[dict[Account, int]]:
        """Return, for each auditor, the payable rollouts that it received, by account."""
        world, strategy = self._world, self._strategy
        own, *others = self._random
        delivered = [dict.fromkeys((*self.accounts, *self._others), 0) for _ in range(self._auditors)]
        for account, rng in zip(self._others, others, strict=True):
            count = _payable(rng, self._kept(world.rollouts), world.payable_share)
            for counts in delivered:
                counts[account] += count
        share = world.payable_share if strategy.payable_share is None else strategy.payable_share
        kept = self._kept(round(strategy.machines * world.rollouts), strategy.accounts)
        payable = [rollout % strategy.accounts for rollout in range(kept) if own.random() < share]
        if strategy.delivered < 1.0:
            for place in payable:
                self._deliver(delivered, self.accounts[place], strategy.delivered)
        else:
            for place, count in Counter(payable).items():
                for counts in delivered:
                    counts[self.accounts[place]] += count
        return delivered

    def _kept(self, rollouts: int, accounts: int = 1) -> int:
        """Return how many rollouts admission accepts: those within the slots."""
        return min(rollouts, self._rules.slots_per_epoch * accounts)

    def _deliver(self, delivered: list[dict[Account, int]], account: Account, chance: float) -> None:
        for counts in delivered:
            if self._delivery_random.random() < chance:
                counts[account] += 1


def _payable(rng: random.Random, rollouts: int, share: float) -> int:
    return sum(rng.random() < share for _ in range(rollouts))


def _account(name: str) -> Account:
    return Account(sha256(name.encode()).digest()[:20])
