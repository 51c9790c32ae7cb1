"""Sampled groups whose tokens the learner keeps until they are trained."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.generate import Completion

MAX_HELD_GROUPS: Final = 256
"""A round has about four groups, so the node no longer refers to the oldest."""


@dataclass(frozen=True, slots=True)
class HeldGroup:
    """A group that was sampled and not trained yet.

    Attributes:
        prompt: token ids.
        completions: with their tokens and log-probabilities.
        step: after which it was sampled.
    """

    prompt: tuple[int, ...]
    completions: tuple[Completion, ...]
    step: int

    def training_group(
        self, rewards: Sequence[float], *, external: bool, family: int | None, age: int
    ) -> TrainingGroup:
        """Return the group with its rewards, for a step that is ``age`` steps after its sampling."""
        return TrainingGroup(
            prompt=self.prompt,
            completions=tuple(item.tokens for item in self.completions),
            rewards=tuple(rewards),
            external=external,
            behaviour=tuple(item.logprobs for item in self.completions),
            family=family,
            age=age,
            states=tuple(item.states for item in self.completions),
        )

    def without_states(self) -> HeldGroup:
        """Return the group without the activations from sampling, which later steps cannot use."""
        return replace(self, completions=tuple(replace(item, states=None) for item in self.completions))


class HeldGroups(OrderedDict[int, HeldGroup]):
    """Groups by the handles that the node has chosen for them, oldest first."""

    def hold(self, handle: int, group: HeldGroup) -> None:
        """Keep a group; beyond ``MAX_HELD_GROUPS`` the oldest one is dropped."""
        self[handle] = group
        while len(self) > MAX_HELD_GROUPS:
            self.popitem(last=False)

    def matching(self, handle: int | None, completions: Sequence[bytes]) -> HeldGroup | None:
        """Return the group under a handle if it has these completions, in UTF-8."""
        held = None if handle is None else self.get(handle)
        return held if held is not None and [item.utf8 for item in held.completions] == completions else None

    def finish_step(self, handles: Collection[int | None]) -> None:
        """Drop the groups that a step has trained, and the states of the others."""
        for handle, group in list(self.items()):
            if handle in handles:
                del self[handle]
            else:
                self[handle] = group.without_states()
