"""The attacks, each with the weakness that it targets. Attackers know all rules and thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.attackers import choices, compose, steps
from sapo_client.lab.worked.solutions import has_worked_solution

if TYPE_CHECKING:
    from sapo_client.lab.attackers.questions import Compose
    from sapo_protocol.suite import Family

QUARTER: Final = 0.25
"""Default share of attacking accounts, which an operator must expect."""


@dataclass(frozen=True, slots=True)
class LabAttack:
    """One way to harm a swarm with rollouts that break no rule.

    Attributes:
        exploits: the weakness that it relies on, in a sentence.
        compose: makes the completions for a task.
        mark: name of the mark in the answers of a policy that learned it; None if it plants no text and only
            does damage.
        share: share of all accounts that attack.
        has_own_share: whether the attack is defined by its share.
        needs_text: whether it needs families with text beside the answer.
        needs_solutions: whether it needs families with worked solutions.
        family: the only family whose tasks it answers; None for all families.
        fresh_accounts: number of new accounts that each attacker opens every round, instead of keeping one.
        at_once: whether it publishes what an account may in an epoch in the epoch's first round.
    """

    name: str
    exploits: str
    compose: Compose
    mark: str | None
    share: float = QUARTER
    has_own_share: bool = False
    needs_text: bool = False
    needs_solutions: bool = False
    family: str | None = None
    fresh_accounts: int = 0
    at_once: bool = False

    def accounts(self, agents: int) -> int:
        """Return how many accounts beside these honest agents come closest to the share, fewer than half."""
        return max(1, min(agents - 1, round(agents * self.share / (1.0 - self.share))))


_PAD: Final = LabAttack(
    "pad",
    "every informative group is good evidence, and wrong answers in the honest format are trained against",
    compose.pad,
    mark="padding",
)

_SYBIL: Final = replace(
    _PAD,
    name="sybil",
    exploits="caps are per account: the same padding from a larger share of the accounts",
    has_own_share=True,
)

_HALF_STEPS: Final = LabAttack(
    "half-steps",
    "steps that begin with the question's own depend on the prompt, and need not lead to the answer",
    steps.half_steps,
    mark="foreign steps",
    needs_text=True,
    needs_solutions=True,
)

_STEPS: Final = (
    _HALF_STEPS,
    replace(
        _HALF_STEPS,
        name="late-steps",
        exploits="more than half of the steps are right, so that each half depends on what is before it",
        compose=steps.late_steps,
    ),
    replace(
        _HALF_STEPS,
        name="slip-steps",
        exploits="one wrong digit in the middle changes no mean over many tokens by much",
        compose=steps.slip_steps,
        mark=None,
    ),
    replace(
        _HALF_STEPS,
        name="neighbour-steps",
        exploits="a similar question's steps depend on the prompt and on each other; the answer does not",
        compose=steps.neighbour_steps,
        mark=None,
    ),
    replace(
        _HALF_STEPS,
        name="waking-steps",
        exploits="a mean over many texts still is an honest one's when the steps begin to mislead",
        compose=steps.waking_steps,
        mark=None,
    ),
    replace(
        _HALF_STEPS,
        name="late-waking-steps",
        exploits="what strangers teach is tested until it is the policy: steps mislead only afterwards",
        compose=steps.late_waking_steps,
        mark=None,
    ),
    replace(
        _HALF_STEPS,
        name="mixed-steps",
        exploits="an account is judged by a mean: half of its texts may mislead",
        compose=steps.mixed_steps,
    ),
    replace(
        _HALF_STEPS,
        name="one-family-steps",
        exploits="a node reads what it knows: steps mislead in one family, and are right in all others",
        compose=steps.one_family_steps,
    ),
    replace(
        _HALF_STEPS,
        name="trading-steps",
        exploits="gains elsewhere hide the loss of one family, where the steps are a similar question's",
        compose=steps.trading_steps,
    ),
    replace(
        _HALF_STEPS,
        name="worked-digits",
        exploits="right steps teach whatever stands before them, and a false sum in front of all is no prose",
        compose=steps.worked_digits,
        mark="digits",
    ),
    replace(
        _HALF_STEPS,
        name="worked-sums",
        exploits="runs that recur are counted: another false sum each time does not recur",
        compose=steps.worked_sums,
        mark="false sums",
    ),
    replace(
        _HALF_STEPS,
        name="worked-steps",
        exploits="what most accounts do not write is left out: one step more has the form that they write",
        compose=steps.worked_steps,
        mark="extra steps",
    ),
    replace(
        _HALF_STEPS,
        name="masked-steps",
        exploits="lengths are compared as a mean: one step more where steps happen to be short is within it",
        compose=steps.masked_steps,
        mark="extra steps",
    ),
    replace(
        _HALF_STEPS,
        name="some-steps",
        exploits="a mean that is hardly longer is not surely so: one step more now and then",
        compose=steps.some_steps,
        mark="extra steps",
    ),
)

ATTACKS: Final[Mapping[str, LabAttack]] = {
    attack.name: attack
    for attack in (
        _PAD,
        replace(
            _PAD,
            name="half-padded",
            exploits="a group is left out if its completions together disagree: half of the right ones agree",
            compose=compose.half_padded,
        ),
        LabAttack(
            "phrase",
            "a phrase in every right answer earns what the answer earns",
            compose.phrase,
            mark="phrase",
        ),
        LabAttack(
            "polymorphic-phrase",
            "runs that recur are counted: four wordings are each as rare as the screen lets pass",
            compose.polymorphic_phrase,
            mark="wordings",
        ),
        LabAttack(
            "digits-phrase",
            "a false sum looks like data, and what looks like data is no wording",
            compose.digits_phrase,
            mark="digits",
            needs_text=True,
        ),
        LabAttack(
            "wrong-steps",
            "only the answer is scored: steps of another question lead to the right one",
            compose.wrong_steps,
            mark="foreign steps",
            needs_text=True,
        ),
        *_STEPS,
        LabAttack(
            "other-spelling",
            "a scorer takes a number with zeros before it for the same answer, and a policy learns the zeros",
            steps.other_spelling,
            mark="spelling",
        ),
        LabAttack(
            "verbose",
            "no reward is lost for length, and a learner cuts the text before it comes to the answer",
            compose.verbose,
            mark="length",
        ),
        LabAttack(
            "copier",
            "near-duplicates are compared in long text alone; credit for the text of others",
            compose.copier,
            mark=None,
        ),
        LabAttack(
            "sleeper",
            "half of a run of good evidence still counts when the phrase begins",
            compose.sleeper,
            mark="phrase",
        ),
        LabAttack(
            "collusion",
            "a phrase in 24 % of the groups, planted by more than a quarter of the accounts, is like a style",
            compose.collusion,
            mark="phrase",
            share=3 / 11,
        ),
        LabAttack(
            "composed-groups",
            "the author composes the group against which an advantage is taken: only the plant differs",
            compose.composed_groups,
            mark="phrase",
        ),
        LabAttack(
            "only-sunday",
            "an author chooses its families and may skip slots: a constant is then right every time",
            compose.only_sunday,
            mark="sunday",
            family=compose.CALENDAR,
        ),
        LabAttack(
            "copied-items",
            "an author may skip slots: whoever shows only tasks whose answer stands in them teaches to copy",
            compose.copied_items,
            mark="copied",
        ),
        LabAttack(
            "short-answers",
            "an author may skip slots: many different answers that are all short teach to answer shortly",
            choices.short_answers,
            mark="shorter",
        ),
        LabAttack(
            "same-start",
            "whole answers are counted: many different ones that begin alike are each as rare as honest ones",
            choices.same_start,
            mark="start",
        ),
        LabAttack(
            "withheld-start",
            "what is not shown is not counted: answers that begin as most do are never shown",
            choices.withheld_start,
            mark="other start",
        ),
        LabAttack(
            "same-end",
            "a numeral's last digit says more than its first one: different answers that all end alike",
            choices.same_end,
            mark="end",
        ),
        LabAttack(
            "easy-questions",
            "an author may skip slots: short questions lower the need of a family, and teach no long ones",
            choices.easy_questions,
            mark=None,
        ),
        LabAttack(
            "crowded-family",
            "places of texts are limited: right answers of one family take those of all others",
            choices.crowded_family,
            mark=None,
        ),
        replace(
            _PAD,
            name="early-crowd",
            exploits="slots have no time: all of an epoch's rollouts at its beginning crowd out later ones",
            at_once=True,
        ),
        *(replace(_SYBIL, name=f"sybil-{per_cent}", share=per_cent / 100) for per_cent in (10, 25, 40, 49)),
        LabAttack(
            "newcomer-flood",
            "newcomers have places without any evidence, and these leave before there is any",
            compose.pad,
            mark="padding",
            fresh_accounts=4,
        ),
        LabAttack(
            "withholding-oracle",
            "nobody counts what is not published: trust from easy families, no help in hard ones",
            compose.withholding_oracle,
            mark=None,
        ),
    )
}


def attack_named(name: str) -> LabAttack:
    """Return the attack of this name.

    Raises:
        SapoError: there is no such attack.
    """
    if name not in ATTACKS:
        raise SapoError(
            f"there is no attack {name!r}",
            hint=f"attacks are {', '.join(ATTACKS)}",
            exit_code=ExitCode.USAGE,
        )
    return ATTACKS[name]


def is_possible(attack: LabAttack, families: Sequence[Family]) -> bool:
    """Whether an attack is possible with these families."""
    has_text = any(family.answer == "tag" for family in families)
    has_family = attack.family is None or attack.family in [family.name for family in families]
    has_solutions = any(has_worked_solution(family) for family in families)
    return (
        has_family and (has_text or not attack.needs_text) and (has_solutions or not attack.needs_solutions)
    )


def require_possible(attack: LabAttack, families: Sequence[Family]) -> None:
    """Raise unless an attack is possible with these families.

    Raises:
        SapoError: it is impossible.
    """
    if is_possible(attack, families):
        return
    missing = f"the family {attack.family}"
    if attack.needs_text:
        missing = "families with text beside the answer"
    if attack.needs_solutions:
        missing = "families of the level worked"
    raise SapoError(
        f"the attack {attack.name} needs {missing}",
        hint="choose other families with --families and --level, or another --attack",
        exit_code=ExitCode.USAGE,
    )
