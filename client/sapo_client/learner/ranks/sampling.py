"""Sampling by several ranks: each samples its share of the prompts, and all get all completions.

A sampler reads whole weights, but a rank holds a shard. So every rank keeps an unsharded copy of the model,
brought up to date before each call: all ranks gather a tensor together, then each writes its own copy. No
rank sends weights while others run ahead, which would hang without a message.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sapo_client.learner.generate import Completion, Generator
from sapo_client.learner.policy import Policy
from sapo_client.learner.ranks.group import RankGroup
from sapo_client.learner.ranks.shard import copy_trained
from sapo_client.learner.seeds import sampling_seed


class Replica:
    """Unsharded copy of a policy on every rank; in a single process, the policy itself.

    Args:
        policy: before it is sharded.
        ranks: of the learner.

    Attributes:
        policy: the copy; its weights are those of the last ``refresh``.
    """

    def __init__(self, policy: Policy, ranks: RankGroup) -> None:
        self._source = policy.model
        self.policy = policy
        if ranks.size > 1:
            self.policy = replace(policy, model=copy.deepcopy(policy.model).to(policy.device))

    def refresh(self) -> None:
        """Copy the trained weights; all ranks must call it."""
        if self.policy.model is not self._source:
            copy_trained(self._source, self.policy.model)


class DealtGenerator:
    """Generator that deals prompts over ranks.

    With one seed, the samples depend on the number of ranks; their distribution does not.

    Args:
        ranks: of the learner.
        refresh: brings the weights that ``inner`` reads up to date; called by all ranks.
        inner: samples this rank's share.
    """

    def __init__(self, ranks: RankGroup, refresh: Callable[[], None], inner: Generator) -> None:
        self._ranks = ranks
        self._refresh = refresh
        self._inner = inner

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        completions_per_prompt: int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[list[Completion]]:
        """Sample as ``Generator.sample`` says; all ranks return the same."""
        self._refresh()
        own = self._ranks.deal(prompts)
        groups: list[list[Completion]] = []
        if own:
            groups = self._inner.sample(
                own,
                completions_per_prompt=completions_per_prompt,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                seed=sampling_seed(f"{seed}/rank {self._ranks.rank}"),
            )
        dealt = self._ranks.exchange([[_message(item) for item in group] for group in groups])
        return [[_completion(item) for item in group] for group in self._ranks.collected(dealt)]


class LeaderGenerator:
    """Generator of which only the leader samples, as on a server that it alone speaks to.

    Args:
        ranks: of the learner.
        refresh: brings the weights that ``inner`` reads up to date; called by all ranks.
        inner: of the leader; None elsewhere.
    """

    def __init__(self, ranks: RankGroup, refresh: Callable[[], None], inner: Generator | None) -> None:
        self._ranks = ranks
        self._refresh = refresh
        self._inner = inner

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        completions_per_prompt: int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[list[Completion]]:
        """Sample as ``Generator.sample`` says; all ranks return the same."""
        self._refresh()
        groups: list[list[Completion]] = []
        if self._inner is not None:
            groups = self._inner.sample(
                prompts,
                completions_per_prompt=completions_per_prompt,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                seed=seed,
            )
        sent = self._ranks.broadcast([[_message(item) for item in group] for group in groups])
        return [[_completion(item) for item in group] for group in sent]


def _message(completion: Completion) -> list[Any]:
    return [completion.tokens, completion.logprobs, completion.text]


def _completion(message: list[Any]) -> Completion:
    tokens, logprobs, text = message
    return Completion(tuple(tokens), tuple(logprobs), text)
