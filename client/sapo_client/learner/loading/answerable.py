"""Prompts that a policy can answer: its chat template accepts them, and they fit into its window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.loading.prompts import TemplateRaised
from sapo_client.learner.wire import Refusal, RefusalReason

if TYPE_CHECKING:
    from sapo_client.learner.policy import Policy


@dataclass(frozen=True, slots=True)
class AnswerablePrompts:
    """Prompts of which some can be answered.

    Attributes:
        places: of those that can, among all.
        tokens: of those, in the order of ``places``.
        refusals: why the others cannot, by their place.
    """

    places: list[int]
    tokens: list[tuple[int, ...]]
    refusals: Mapping[int, Refusal]


def answerable_prompts(
    policy: Policy, prompts: Sequence[str], new_tokens: int, max_tokens: int | None = None
) -> AnswerablePrompts:
    """Return which prompts can be answered, and why the others cannot.

    Args:
        policy: that answers.
        prompts: texts.
        new_tokens: of the longest completion.
        max_tokens: tokens of a prompt with its completion that the sampler takes; None: as the model.
    """
    found = AnswerablePrompts([], [], refusals := {})
    for place, prompt in enumerate(prompts):
        try:
            encoded = policy.encode_prompt(prompt)
        except TemplateRaised as error:
            refusals[place] = Refusal(RefusalReason.TEMPLATE, f"the model's chat template {error.text}")
            continue
        if not policy.has_room(encoded, new_tokens, max_tokens):
            text = "the prompt and an answer exceed the model's context window"
            refusals[place] = Refusal(RefusalReason.WINDOW, text)
            continue
        found.places.append(place)
        found.tokens.append(encoded)
    return found


def within_window(policy: Policy, group: TrainingGroup) -> TrainingGroup:
    """Return a group, or one whose completions have no tokens if it exceeds the model's window."""
    if policy.has_room(group.prompt, max(map(len, group.completions), default=0)):
        return group
    return replace(group, completions=((),) * len(group.completions))


def untrained(batch: Sequence[TrainingGroup]) -> tuple[int, int]:
    """Return how many groups of a batch have no tokens: because they are too long, or the template raised."""
    without = [group for group in batch if not any(group.completions)]
    raised = sum(not group.prompt for group in without)
    return len(without) - raised, raised
