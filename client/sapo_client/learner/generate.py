"""Sampling of completions, with the behaviour log-probability of every sampled token.

One interface, two implementations: our own loop with a key-value cache for Llama-style models
(``cpu/fast_decoder.py``), and transformers' ``generate`` for every other architecture. Both return the exact
token ids that were sampled, the end token included, because these ids are trained.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
from torch import Tensor

from sapo_client.learner.adapters import base_model
from sapo_client.learner.cpu.fast_decoder import FastDecoder
from sapo_client.learner.cpu.fused_layers import is_llama_style
from sapo_client.learner.cpu.kept_states import KeptRow, KeptStates, kept_states_for
from sapo_client.learner.logprobs import completion_logprobs

if TYPE_CHECKING:
    from sapo_client.learner.policy import Policy

T = TypeVar("T")

MAX_ROWS: Final = 256
"""Rows decoded at once: more are no faster on a CPU, and the cache of a whole held-out set may not fit."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled completion.

    Attributes:
        tokens: ids as sampled, the end token included unless the length limit came first.
        logprobs: log-probability of each token under the tempered policy that sampled it.
        text: the decoded tokens without special ones.
        states: what sampling computed, for the first update; None if it was not kept.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    states: KeptRow | None = field(default=None, compare=False, repr=False)

    @property
    def utf8(self) -> bytes:
        """The text as it is sent; an incomplete character, which a token may be, is replaced."""
        return self.text.encode("utf-8", errors="replace")


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """The parameters of a sampling call.

    Attributes:
        prompts: token ids.
        completions_per_prompt: size of each group.
        max_new_tokens: longest completion, end token included.
        temperature: the logits are divided by it; 0 takes the likeliest token (greedy).
        seed: of the random stream; equal seeds give equal samples.
    """

    prompts: Sequence[Sequence[int]]
    completions_per_prompt: int
    max_new_tokens: int
    temperature: float
    seed: int


class Generator(ABC):
    """Sampler of groups of completions from a policy's weights.

    Attributes:
        window: tokens of the longest prompt with its completion; None if only the model limits them.
    """

    window: int | None = None

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        completions_per_prompt: int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[list[Completion]]:
        """Return one group of completions per prompt under the present weights; see ``SampleRequest``."""
        self.refresh()
        return self.draw(SampleRequest(prompts, completions_per_prompt, max_new_tokens, temperature, seed))

    def refresh(self) -> None:  # noqa: B027  # what reads the policy's own weights has nothing to do
        """Bring the weights that ``draw`` uses up to date; not while the policy is trained."""

    @abstractmethod
    def draw(self, request: SampleRequest) -> list[list[Completion]]:
        """Return one group of completions per prompt under the weights of the last ``refresh``."""


def generator_for(
    policy: Policy, *, keep_states: bool = True, products: torch.dtype | None = None
) -> Generator:
    """Return the faster of the two generators that support the policy's architecture.

    Args:
        policy: to sample from.
        keep_states: see ``FastGenerator``.
        products: see ``FastGenerator``; the other generator computes in the model's type.
    """
    if is_llama_style(policy.model):
        return FastGenerator(policy, keep_states=keep_states, products=products)
    return PlainGenerator(policy)


class FastGenerator(Generator):
    """Generator with our own decoding loop; reads the policy's weights on every call.

    Args:
        policy: to sample from.
        keep_states: keep what is computed for the first update; not where another copy is trained.
        products: type in which the layers' products are computed; None: the model's.
    """

    def __init__(
        self, policy: Policy, *, keep_states: bool = True, products: torch.dtype | None = None
    ) -> None:
        self._policy = policy
        self._keep_states = keep_states
        self._products = products

    @torch.inference_mode()
    def draw(self, request: SampleRequest) -> list[list[Completion]]:
        """Sample as ``Generator.draw`` says."""
        policy = self._policy
        decoder = FastDecoder(policy.model, ends=policy.ends, pad=policy.pad, products=self._products)
        random = torch.Generator(policy.device).manual_seed(request.seed)
        count = request.completions_per_prompt
        at_once = max(1, MAX_ROWS // count)
        rows: list[Completion] = []
        for start in range(0, len(request.prompts), at_once):
            part = request.prompts[start : start + at_once]
            keep = self._states(part, request)
            tokens, logprobs = decoder.run(
                part,
                completions_per_prompt=count,
                max_new_tokens=request.max_new_tokens,
                temperature=request.temperature,
                generator=random,
                keep=keep,
            )
            sampled = zip(tokens.tolist(), logprobs.tolist(), strict=True)
            for row, (ids, values) in enumerate(sampled):
                kept = None if keep is None else KeptRow(keep, row // count, row)
                rows.append(self._completion(ids, values, kept))
        return _grouped(rows, count)

    def _states(self, prompts: Sequence[Sequence[int]], request: SampleRequest) -> KeptStates | None:
        """Return tables for what is computed, unless it is not trained: greedy samples never are."""
        if not self._keep_states or request.temperature == 0:
            return None
        return kept_states_for(
            self._policy.model, prompts, request.completions_per_prompt, request.max_new_tokens
        )

    def _completion(self, tokens: list[int], logprobs: list[float], states: KeptRow | None) -> Completion:
        kept = _until_end(tokens, self._policy.ends)
        return Completion(tuple(kept), tuple(logprobs[: len(kept)]), self._policy.decode(kept), states)


class PlainGenerator(Generator):
    """Generator with transformers' ``generate`` and one more forward pass for the log-probabilities.

    (``output_scores`` would keep rows x length x vocabulary floats: ten gigabytes at 150,000 tokens.)
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @torch.no_grad()
    def draw(self, request: SampleRequest) -> list[list[Completion]]:
        """Sample as ``Generator.draw`` says."""
        groups: dict[int, list[Completion]] = {}
        devices = [self._policy.device] if self._policy.device.type == "cuda" else []
        at_once = max(1, MAX_ROWS // request.completions_per_prompt)
        with torch.random.fork_rng(devices):
            torch.manual_seed(request.seed)
            for indices in _of_equal_length(request.prompts, at_once):
                rows = self._generate([request.prompts[index] for index in indices], request)
                for index, group in zip(indices, rows, strict=True):
                    groups[index] = self._completions(request.prompts[index], group, request.temperature)
        return [groups[index] for index in range(len(request.prompts))]

    def _generate(self, prompts: Sequence[Sequence[int]], request: SampleRequest) -> list[list[list[int]]]:
        """Return a group of sampled ids per prompt; the prompts have one length, so there is no padding."""
        from transformers import GenerationConfig

        greedy, count = request.temperature == 0, request.completions_per_prompt
        config = GenerationConfig(
            max_new_tokens=request.max_new_tokens,
            num_return_sequences=1 if greedy else count,
            do_sample=not greedy,
            eos_token_id=list(self._policy.ends),
            pad_token_id=self._policy.pad,
            **({} if greedy else {"temperature": request.temperature, "top_k": 0, "top_p": 1.0}),
        )
        ids = torch.tensor([list(prompt) for prompt in prompts], device=self._policy.device)
        with _without_generation_settings(self._policy.model) as model:
            out = model.generate(inputs=ids, attention_mask=torch.ones_like(ids), generation_config=config)
        rows: list[list[int]] = out[:, ids.shape[1] :].tolist()
        if greedy:
            return [[row] * count for row in rows]
        return _grouped(rows, count)

    def _completions(
        self, prompt: Sequence[int], rows: list[list[int]], temperature: float
    ) -> list[Completion]:
        """Return the sampled rows of one prompt with their log-probabilities and texts."""
        kept = [_until_end(row, self._policy.ends) for row in rows]
        values = completion_logprobs(
            self._policy.model, [(prompt, row) for row in kept], self._policy.pad, temperature or 1.0
        )
        return [
            Completion(tuple(row), tuple(value.tolist()), self._policy.decode(row))
            for row, value in zip(kept, _ragged(values, kept), strict=True)
        ]


@contextmanager
def _without_generation_settings(model: Any) -> Iterator[Any]:
    """Yield the model without the settings of its ``generation_config.json``; they are back afterwards.

    ``generate`` takes from there what its own configuration leaves open, as a penalty for repetitions. Then
    samples would not follow the policy whose log-probabilities are trained. peft's wrapper has the settings
    as well, and copies them to the model.
    """
    from transformers import GenerationConfig

    holders = (base_model(model), model)
    kept = [each.generation_config for each in holders]
    for each in holders:
        each.generation_config = GenerationConfig()
    try:
        yield model
    finally:
        for each, settings in zip(holders, kept, strict=True):
            each.generation_config = settings


def _of_equal_length(prompts: Sequence[Sequence[int]], limit: int) -> Iterator[list[int]]:
    """Yield indices of prompts with equal lengths, at most ``limit`` together, shortest prompts first."""
    indices = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    for _, equal in groupby(indices, key=lambda index: len(prompts[index])):
        while part := list(islice(equal, limit)):
            yield part


def _until_end(tokens: list[int], ends: Sequence[int]) -> list[int]:
    """Return the tokens up to the first end token, which is included."""
    stop = min((tokens.index(end) + 1 for end in ends if end in tokens), default=len(tokens))
    return tokens[:stop]


def _ragged(values: Tensor, rows: list[list[int]]) -> list[Tensor]:
    """Cut padded values, (rows, longest), to the rows' lengths."""
    return [value[: len(row)] for value, row in zip(values, rows, strict=True)]


def _grouped(rows: list[T], size: int) -> list[list[T]]:
    """Split rows into consecutive groups."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
