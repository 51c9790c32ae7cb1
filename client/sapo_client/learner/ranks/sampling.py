"""Sampling from a copy of the policy: by several ranks, or while the policy itself is trained.

A sampler reads whole weights, but a rank holds a shard. So every rank keeps an unsharded copy of the model,
brought up to date before each call: all ranks gather a tensor together, then each writes its own copy. No
rank sends weights while others run ahead, which would hang without a message. A single process has a copy
where it samples the next round during a step (``ahead.py``).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from sapo_client.learner.generate import Completion, Generator, SampleRequest, generator_for
from sapo_client.learner.policy import Policy
from sapo_client.learner.ranks.group import RankGroup
from sapo_client.learner.ranks.shard import copy_trained
from sapo_client.learner.seeds import sampling_seed
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.precision import sampling_type


class Replica:
    """Unsharded copy of a policy on every rank; in a single process the policy itself, or a copy on demand.

    Args:
        policy: before it is sharded.
        ranks: of the learner.
        copied: whether a single process has a copy, too; it shares the frozen weights.

    Attributes:
        policy: the copy; its weights are those of the last ``refresh``.
    """

    def __init__(self, policy: Policy, ranks: RankGroup, *, copied: bool = False) -> None:
        self._source = policy.model
        self.policy = policy
        if ranks.size > 1:
            self.policy = replace(policy, model=copy.deepcopy(policy.model).to(policy.device))
        elif copied:
            frozen = {id(each): each for each in policy.model.parameters() if not each.requires_grad}
            self.policy = replace(policy, model=copy.deepcopy(policy.model, frozen))

    @property
    def is_copy(self) -> bool:
        """Whether the weights are others than those that are trained."""
        return self.policy.model is not self._source

    def refresh(self) -> None:
        """Copy the trained weights; all ranks must call it."""
        if self.is_copy:
            copy_trained(self._source, self.policy.model)


class ReplicaGenerator(Generator):
    """Generator from copies of the policy; of several ranks, all get all completions.

    Each rank samples a share of the prompts, so that with one seed the samples depend on the number of ranks
    (their distribution does not); or the leader samples all of them, as on a server that it alone speaks to.

    Args:
        ranks: of the learner.
        replica: whose weights ``inner`` reads.
        inner: samples this rank's share.
        by_leader: whether the leader samples everything.
    """

    def __init__(
        self, ranks: RankGroup, replica: Replica, inner: Generator | None, *, by_leader: bool
    ) -> None:
        self._ranks = ranks
        self._replica = replica
        self._inner = inner
        self._by_leader = by_leader
        self.window = None if inner is None else inner.window

    def refresh(self) -> None:
        """Bring the weights up to date; all ranks call it."""
        self._replica.refresh()
        if self._inner is not None:
            self._inner.refresh()

    def draw(self, request: SampleRequest) -> list[list[Completion]]:
        """Sample as ``Generator.draw`` says; all ranks return the same."""
        own = self._share(request)
        groups = self._inner.draw(own) if self._inner is not None and own.prompts else []
        message = [[_message(item) for item in group] for group in groups]
        if self._by_leader:
            found = self._ranks.broadcast(message)
        else:
            found = self._ranks.collected(self._ranks.exchange(message))
        return [[_completion(item) for item in group] for group in found]

    def _share(self, request: SampleRequest) -> SampleRequest:
        """Return what this rank samples."""
        if self._by_leader:
            return request
        seed = sampling_seed(f"{request.seed}/rank {self._ranks.rank}")
        return replace(request, prompts=self._ranks.deal(request.prompts), seed=seed)


def _message(completion: Completion) -> list[Any]:
    return [completion.tokens, completion.logprobs, completion.text]


def _completion(message: list[Any]) -> Completion:
    tokens, logprobs, text = message
    return Completion(tuple(tokens), tuple(logprobs), text)


def open_generator(replica: Replica, ranks: RankGroup, settings: LearnerSettings) -> Generator:
    """Return the generator that the settings name, on the policy itself or on its copies."""
    if not replica.is_copy:
        return _generator_of(replica, ranks, settings)
    # one server, which one rank calls
    by_leader = ranks.size == 1 or settings.endpoint is not None
    samples = ranks.is_leader or not by_leader
    inner = _generator_of(replica, ranks, settings) if samples else None
    return ReplicaGenerator(ranks, replica, inner, by_leader=by_leader)


def _generator_of(replica: Replica, ranks: RankGroup, settings: LearnerSettings) -> Generator:
    policy = replica.policy
    if not settings.vllm:
        products = sampling_type(policy.device, settings.bfloat16)
        return generator_for(policy, keep_states=not replica.is_copy, products=products)
    if settings.endpoint is not None:
        from sapo_client.learner.remote.vllm_server import VllmServerGenerator

        return VllmServerGenerator(policy, settings.endpoint)
    from sapo_client.learner.vllm.generator import VllmGenerator

    return VllmGenerator(policy, seed=settings.seed, ranks=ranks, new_tokens=settings.max_new_tokens)
