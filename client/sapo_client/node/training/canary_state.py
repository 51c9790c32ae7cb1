"""State of the canary, kept between checks and across restarts."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Final

from sapo_client.atomic_files import write_atomically
from sapo_client.node.training.family_evidence import (
    KEPT_PART,
    NO_TASKS,
    BestLevels,
    Comparison,
    Kept,
    Losses,
)
from sapo_client.node.training.harm_rates import HarmRates, PastComparison
from sapo_client.node.training.level_file import stored_level, stored_names
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account
from sapo_protocol.suite import Family
from sapo_verification.sampling.sampler import OPEN

SURE_RATIO: Final = 100.0
"""Threshold of the likelihood ratio. If the policy is as good as its shadow, the ratio ever exceeds it with a
probability of 1 %, however often it is checked (Ville's inequality)."""

SPOILT_DOUBT: Final = 0.01
"""Probability with which a policy that keeps at least half of a family is rolled back for it, at most."""

MAX_COMPARISONS: Final = 20
"""Checks without a decision after which the comparison restarts, so that old results do not hide a new
effect."""

LATE_CHECKS: Final = (1, 5)
"""Numbers of last checks in which no family may seem lost when the policy becomes the shadow: in a suite of
thirty families one check has two items of each."""

MIN_LATE: Final = 4
"""Right answers of the shadow in a family in these checks below which nothing seems lost."""

LEAD_CHECKS: Final = 3
"""Last checks of a comparison that show by how much the policy is better than its shadow now: about 200 items
by default, and few enough that the lead has hardly changed."""

MAX_SETBACKS: Final = 7

MAX_NATS: Final = 700.0
"""Largest log evidence; the exponential of a little more overflows a float."""

MAX_QUARANTINED: Final = 64
"""Accounts in quarantine; beyond it the oldest is released. Each check that passes releases one, too."""


@dataclass(frozen=True, slots=True)
class HeldOutResult:
    """Results of the last check, beside those of the first one and of the shadow.

    Attributes:
        step: the policy's step.
        items: items of which the policy's answers were checked.
        reward: mean reward of the policy, 0..1.
        first_reward: that of the first check.
        shadow: mean reward of the shadow; None if there was nothing to compare.
        shadow_step: step at which policy and shadow were last equal.
        lead: of the items of the last ``LEAD_CHECKS`` checks since then, the share that only the policy got
            right, less the share that only the shadow did; 0 without a comparison.
        lead_error: standard error of ``lead``.
    """

    step: int
    items: int
    reward: float
    first_reward: float
    shadow: float | None
    shadow_step: int
    lead: float
    lead_error: float


@dataclass(frozen=True, slots=True)
class CanaryState:
    """State of the canary.

    Attributes:
        opening: how many of ``OPEN`` steps of others' text are used.
        checks: number of checks so far; each has different items.
        comparisons: checks since policy and shadow were equal.
        lost: items in those checks that only the shadow got right.
        won: items in those checks that only the policy got right.
        latest: the last ``LEAD_CHECKS`` of those checks; of each the lost, won and compared items.
        setbacks: how often text of accounts that are not known did harm, since text of others last helped.
        waits: checks until more of it is used.
        quarantined: accounts of which nothing is trained, the oldest first.
        shadow_step: step at which policy and shadow were last equal.
        last: results of the last check; None before the first one.
        by_family: the results of each check since policy and shadow were equal, by family; the policy is the
            new one.
        best: the share of right answers that shadows surely had at some time, by family; empty before the
            first comparison has ended.
        accounts: whose text was trained, what harm came of it, and who waits.
    """

    opening: int = OPEN
    checks: int = 0
    comparisons: int = 0
    lost: int = 0
    won: int = 0
    setbacks: int = 0
    waits: int = 0
    quarantined: tuple[Account, ...] = ()
    latest: tuple[tuple[int, int, int], ...] = ()
    shadow_step: int = 0
    last: HeldOutResult | None = None
    by_family: tuple[tuple[Comparison, ...], ...] = ()
    best: tuple[float, ...] = ()
    accounts: HarmRates = field(default_factory=HarmRates)

    def checked(
        self, lost: int, won: int, compared: int, by_family: tuple[Comparison, ...] = ()
    ) -> CanaryState:
        """Return the state after a check with these numbers of lost, won and compared items."""
        return replace(
            self,
            checks=self.checks + 1,
            comparisons=self.comparisons + 1,
            lost=self.lost + lost,
            won=self.won + won,
            latest=(*self.latest, (lost, won, compared))[-LEAD_CHECKS:],
            by_family=(*self.by_family, by_family) if by_family else self.by_family,
        )

    def kept(self, step: int) -> CanaryState:
        """Return the state after policy and shadow became equal at a step, as where the policy became the
        shadow; if others' text helped, setbacks are reset.

        What the shadow could do is remembered: each new shadow may have lost less than half of a family, and
        without that many of them would lose all of it.
        """
        setbacks = 0 if self.has_won else self.setbacks
        return replace(
            self,
            comparisons=0,
            lost=0,
            won=0,
            latest=(),
            by_family=(),
            best=self._best_of_all(),
            setbacks=setbacks,
            shadow_step=step,
        )

    def limited_to(self, families: Collection[int]) -> CanaryState:
        """Return the state without the results of other families, which the swarm's terms may have retired.

        No evidence about them would be added any more, and that a policy forgets them is no harm. The best
        levels stay, for they may come back.
        """
        by_family = (
            tuple(each if place in families else NO_TASKS for place, each in enumerate(check))
            for check in self.by_family
        )
        return replace(self, by_family=tuple(by_family))

    def restarted(self) -> CanaryState:
        """Return the state in which the comparison begins anew, with the same shadow."""
        return replace(self, comparisons=0, lost=0, won=0, latest=(), by_family=())

    def rolled_back(self, step: int, shadow: float) -> CanaryState:
        """Return the state after the shadow, of this reward in the last check, became the policy."""
        last = None if self.last is None else replace(self.last, reward=shadow, lead=0.0, lead_error=0.0)
        return replace(self.kept(step), last=last)

    def measured(self, step: int, items: int, reward: float, shadow: float | None) -> CanaryState:
        """Return the state with the results of a check; unchanged if no item was checked."""
        if not items:
            return self
        lead, error = _lead(self.latest)
        last = HeldOutResult(
            step=step,
            items=items,
            reward=reward,
            first_reward=reward if self.last is None else self.last.first_reward,
            shadow=shadow,
            shadow_step=self.shadow_step,
            lead=lead,
            lead_error=error,
        )
        return replace(self, last=last)

    def passed(self) -> CanaryState:
        """Return the state after a check without harm: one more step is used, unless it has to wait."""
        released = replace(self, quarantined=self.quarantined[1:])
        if self.waits:
            return replace(released, waits=self.waits - 1)
        return replace(released, opening=min(OPEN, self.opening + 1))

    def accepted(self, step: int, rng: random.Random) -> CanaryState:
        """Return the state after the policy became the shadow although others' text was trained.

        Args:
            rng: draws the accounts that are admitted now; others cannot predict it.
        """
        return replace(self.kept(step), accounts=self.accounts.ended(rng, has_harmed=False))

    def idle(self, step: int, rng: random.Random) -> CanaryState:
        """Return the state after a check before which no text of others was trained; see ``accepted``."""
        return replace(self.kept(step), accounts=self.accounts.idle(rng))

    def set_back(self, rng: random.Random) -> CanaryState:
        """Return the state after harm by unknown authors: other accounts are admitted now, and fewer of them.

        If it is not known whose text was trained, no text is used, each time for longer.

        Args:
            rng: draws the accounts; others cannot predict it.
        """
        if self.accounts.used:
            return replace(self, accounts=self.accounts.ended(rng, has_harmed=True))
        setbacks = min(self.setbacks + 1, MAX_SETBACKS)
        return replace(self, setbacks=setbacks, opening=0, waits=2**setbacks // 2)

    def quarantining(self, accounts: frozenset[Account]) -> CanaryState:
        """Return the state with further accounts in quarantine."""
        known = [each for each in self.quarantined if each not in accounts]
        return replace(self, quarantined=(*known, *sorted(accounts))[-MAX_QUARANTINED:])

    @property
    def has_lost(self) -> bool:
        """Whether the policy is significantly worse than its shadow, over all families or in one."""
        return evidence(self.lost, self.won) > SURE_RATIO or bool(self.spoilt)

    @property
    def has_won(self) -> bool:
        """Whether the policy is significantly better than its shadow, and surely keeps what this knows.

        Gains in some families hide the loss of another one, and what becomes the shadow is not restored.
        """
        is_better = evidence(self.won, self.lost) > SURE_RATIO
        return is_better and not self._unproven and not self.may_have_lost_lately

    @property
    def may_have_lost_lately(self) -> bool:
        """Whether the policy had less than half of its shadow's right answers in a family lately.

        After many checks without a loss, evidence of one takes long, and an attacker may wait for that.
        """
        return any(_is_much_less(self.by_family[-checks:]) for checks in LATE_CHECKS)

    @property
    def spoilt(self) -> list[int]:
        """The families in which the policy has surely lost more than half of what the shadow can do, or of
        the best that shadows could."""
        losses = Losses(self._families, SPOILT_DOUBT, self._best_levels())
        for check in self.by_family:
            losses.learn(dict(enumerate(check)))
        return losses.spoilt

    @property
    def _unproven(self) -> list[int]:
        """The families that a shadow knew and the policy may have lost."""
        return self._kept().unproven

    def _kept(self) -> Kept:
        kept = Kept(self._families, self._best_levels())
        for check in self.by_family:
            kept.learn(dict(enumerate(check)))
        return kept

    def _best_of_all(self) -> tuple[float, ...]:
        """Return the best levels, with those that the present shadow surely has."""
        levels = self._best_levels()
        levels.learn(self._kept().results)
        return levels.levels

    def _best_levels(self) -> BestLevels:
        # a successor of the terms may have more families, or fewer
        return BestLevels([*self.best, *[0.0] * self._families][: max(self._families, len(self.best))])

    @property
    def _families(self) -> int:
        return max(map(len, self.by_family), default=0)

    @property
    def is_undecided(self) -> bool:
        """Whether there was no decision for ``MAX_COMPARISONS`` checks, so that any difference is small."""
        return self.comparisons >= MAX_COMPARISONS


def _is_much_less(checks: Sequence[Sequence[Comparison]]) -> bool:
    """Whether the policy had less than half of its shadow's right answers in a family in these checks."""
    for family in range(max(map(len, checks), default=0)):
        total = NO_TASKS
        for check in checks:
            total = total.and_also(check[family]) if family < len(check) else total
        its = total.both + total.lost
        if its >= MIN_LATE and total.both + total.won < KEPT_PART * its:
            return True
    return False


class CanaryFile:
    """File of the state, beside the checkpoints that it belongs to.

    Results and best levels are stored by the family's name. Files of earlier versions have them by place;
    a successor of the terms keeps the places of all families before it, so that they are read as they are.

    Args:
        path: of the file.
        families: of the suite, in its order.
        fresh: a new policy is started, so a stored state is ignored.
    """

    def __init__(self, path: Path, families: Sequence[Family], *, fresh: bool = False) -> None:
        self._path = path
        self._names = stored_names(families)
        self._fresh = fresh

    def read(self) -> CanaryState | None:
        """Return the stored state; None if there is none, or it is damaged or of an earlier version."""
        if self._fresh:
            return None
        try:
            plain = json.loads(self._path.read_text(encoding="utf-8"))
            quarantined = tuple(Account.from_hex(each) for each in plain.pop("quarantined"))
            accounts = _accounts(plain.pop("accounts", {}))
            latest = tuple((lost, won, compared) for lost, won, compared in plain.pop("latest", ()))
            best = self._in_order(plain.pop("best", {}))
            checks = [self._in_order(check) for check in plain.pop("by_family", ())]
            last = plain.pop("last", None)
            held_out = None if last is None else HeldOutResult(**last)
            return CanaryState(
                **plain,
                quarantined=quarantined,
                accounts=accounts,
                latest=latest,
                by_family=tuple(tuple(map(_comparison, check)) for check in checks if check),
                best=tuple(map(stored_level, best)),
                last=held_out,
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, LocalProtocolError):
            return None

    def _in_order(self, stored: object) -> list[object]:
        """Return what is stored for each family in the suite's order, None for others; empty if nothing is.

        Raises:
            TypeError: it is neither by name nor by place.
        """
        if isinstance(stored, list):
            # more families than there are now: of another suite, in an order that nobody knows
            stored = dict(zip(self._names, stored, strict=False)) if len(stored) <= len(self._names) else {}
        if not isinstance(stored, dict):
            raise TypeError(f"not stored by family: {type(stored).__name__}")
        return [stored.get(name) for name in self._names] if stored else []

    def write(self, watch: CanaryState) -> None:
        """Replace the stored state atomically."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        plain = {
            **asdict(watch),
            "quarantined": [str(account) for account in watch.quarantined],
            "accounts": _plain(watch.accounts),
            "by_family": [dict(zip(self._names, check, strict=False)) for check in watch.by_family],
            "best": dict(zip(self._names, watch.best, strict=False)),
        }
        write_atomically(self._path, json.dumps(plain) + "\n")
        self._fresh = False


def _accounts(stored: Mapping[str, object]) -> HarmRates:
    """Return the accounts that a file holds, none if it is of an earlier version.

    Version 0.2 stored who waits as ``blamed``: they were trained in a comparison that ended with harm.

    Raises:
        LocalProtocolError: an account is damaged.
        TypeError: something else is.
    """
    if "blamed" in stored:
        blamed = tuple(sorted(_account(entry[0]) for entry in _lists(stored["blamed"])))
        harmful = (PastComparison(blamed, has_harmed=True),) if blamed else ()
        return HarmRates(_listed(stored.get("used", [])), harmful, frozenset(blamed))
    past = tuple(_past_comparison(each) for each in _lists(stored.get("comparisons", [])))
    chance, lot = stored.get("new_chance", 1.0), stored.get("lot", 0)
    if not isinstance(chance, float) or not 0.0 <= chance <= 1.0 or not isinstance(lot, int):
        raise TypeError(f"no lots of new accounts: {chance!r:.60}, {lot!r:.60}")
    used, waiting = _listed(stored.get("used", [])), _listed(stored.get("waiting", []))
    return HarmRates(used, past, frozenset(waiting), chance, lot)


def _past_comparison(stored: Sequence[object]) -> PastComparison:
    accounts, has_harmed = stored
    if not isinstance(has_harmed, bool):
        raise TypeError(f"no end of a comparison: {has_harmed!r:.60}")
    return PastComparison(_listed(accounts), has_harmed)


def _lists(stored: object) -> list[list[object]]:
    if not isinstance(stored, list) or not all(isinstance(each, list) and each for each in stored):
        raise TypeError(f"no list of lists: {stored!r:.60}")
    return stored


def _listed(stored: object) -> tuple[Account, ...]:
    if not isinstance(stored, list):
        raise TypeError(f"no list of accounts: {stored!r:.60}")
    return tuple(map(_account, stored))


def _account(stored: object) -> Account:
    if not isinstance(stored, str):
        raise TypeError(f"no account: {stored!r:.60}")
    return Account.from_hex(stored)


def _plain(accounts: HarmRates) -> dict[str, object]:
    """Return the accounts as JSON."""
    return {
        "used": [str(each) for each in accounts.used],
        "comparisons": [
            [[str(each) for each in past.accounts], past.has_harmed] for past in accounts.comparisons
        ],
        "waiting": sorted(str(each) for each in accounts.waiting),
        "new_chance": accounts.new_chance,
        "lot": accounts.lot,
    }


def _comparison(stored: object) -> Comparison:
    """Return a family's stored results, none if nothing is stored.

    Raises:
        TypeError: they are no numbers of tasks.
        ValueError: they are not four of them.
    """
    if stored is None:
        return NO_TASKS
    if not isinstance(stored, list) or not all(isinstance(each, int) and each >= 0 for each in stored):
        raise TypeError(f"no results of a comparison: {stored!r:.60}")
    tasks, both, won, lost = stored
    return Comparison(tasks, both, won, lost)


def _lead(latest: Iterable[tuple[int, int, int]]) -> tuple[float, float]:
    """Return the lead in some checks and its standard error.

    Half an item is added to each of the four outcomes of a pair, so that few items without a difference are
    not taken for certainty (Agresti and Min 2005).
    """
    lost, won, compared = (sum(column) for column in zip((0, 0, 0), *latest, strict=True))
    if not compared:
        return 0.0, 0.0
    items = compared + 2
    variance = ((won + lost + 1) / items - ((won - lost) / items) ** 2) / items
    return (won - lost) / compared, math.sqrt(variance)


def evidence(more: int, less: int) -> float:
    """Return the likelihood ratio for the hypothesis that one side wins more often, against a fair coin.

    The numerator is the mean likelihood over all win probabilities from a half to one, so that the ratio is a
    martingale while both sides are equal (an e-value), and may be checked after every item.
    """
    among = more + less
    if among == 0:
        return 1.0
    # in logarithms, since the likelihood of thousands of items underflows
    tail = _log_tail(more, among + 1)
    nats = tail + (among + 1) * math.log(2) - math.log(among + 1) - log_comb(among, more)
    return math.exp(min(MAX_NATS, nats))


def log_comb(among: int, count: int) -> float:
    """Return the logarithm of the binomial coefficient."""
    return math.lgamma(among + 1) - math.lgamma(count + 1) - math.lgamma(among - count + 1)


def log_sum(logs: Iterable[float]) -> float:
    """Return log(sum(exp(logs))), without overflow."""
    known = list(logs)
    highest = max(known)
    return highest + math.log(math.fsum(math.exp(each - highest) for each in known))


def _log_tail(heads: int, among: int) -> float:
    """Return the logarithm of the probability that at most ``heads`` of ``among`` fair coins show heads."""
    return log_sum(log_comb(among, count) for count in range(heads + 1)) - among * math.log(2)
