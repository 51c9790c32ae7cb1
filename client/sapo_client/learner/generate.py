"""Sampling completions, with the behaviour log-probability of every sampled token.

One interface, two ways: an own key-value-cache loop for models shaped like Llama (``cpu/fast_decoder.py``),
and transformers' ``generate`` for every other architecture. Both return the exact token ids that were
sampled, the end token included, for these ids are what is trained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import torch
from torch import Tensor

from sapo_client.learner.cpu.fast_decoder import FastDecoder
from sapo_client.learner.cpu.fused_layers import is_llama_shaped
from sapo_client.learner.logprobs import completion_logprobs

if TYPE_CHECKING:
    from sapo_client.learner.policy import Policy

T = TypeVar("T")

MAX_ROWS: Final = 256
"""Rows decoded at once: more are no faster on a CPU, and the cache of a held-out set must fit anywhere."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One sampled answer.

    Attributes:
        tokens: as sampled, the end token included unless the length limit came first.
        logprobs: log-probability of each token under the tempered policy that sampled it.
        text: the tokens without specials.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str


class Generator(Protocol):
    """Samples groups of completions from a policy's current weights."""

    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        completions_per_prompt: int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[list[Completion]]:
        """One group per prompt (token ids); temperature 0 is greedy."""
        ...


def generator_for(policy: Policy) -> Generator:
    """The faster of the two ways that fits the policy's architecture."""
    if is_llama_shaped(policy.model):
        return FastGenerator(policy)
    return PlainGenerator(policy)


class FastGenerator:
    """The own loop; reads the weights anew on every call, so it never serves stale ones."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @torch.inference_mode()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        completions_per_prompt: int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[list[Completion]]:
        """See ``Generator.sample``."""
        decoder = FastDecoder(self._policy.model, end=self._policy.end, pad=self._policy.pad)
        random = torch.Generator(self._policy.device).manual_seed(seed)
        at_once = max(1, MAX_ROWS // completions_per_prompt)
        rows: list[Completion] = []
        for start in range(0, len(prompts), at_once):
            part = prompts[start : start + at_once]
            table = decoder.run(part, completions_per_prompt, max_new_tokens, temperature, random)
            rows.extend(
                self._completion(*row) for row in zip(*(each.tolist() for each in table), strict=True)
            )
        return _grouped(rows, completions_per_prompt)

    def _completion(self, tokens: list[int], logprobs: list[float]) -> Completion:
        kept = _until_end(tokens, self._policy.end)
        return Completion(tuple(kept), tuple(logprobs[: len(kept)]), self._policy.decode(kept))


class PlainGenerator:
    """transformers' ``generate``; log-probabilities come from one more forward pass over the samples.

    (``output_scores`` would keep rows x length x vocabulary floats: ten gigabytes for a 150,000-word model.)
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    @torch.no_grad()
    def sample(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        completions_per_prompt: int,
        max_new_tokens: int,
        temperature: float,
        seed: int,
    ) -> list[list[Completion]]:
        """See ``Generator.sample``."""
        groups: dict[int, list[Completion]] = {}
        devices = [self._policy.device] if self._policy.device.type == "cuda" else []
        at_once = max(1, MAX_ROWS // completions_per_prompt)
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            for places in _of_one_length(prompts, at_once):
                part = [prompts[place] for place in places]
                rows = self._generate(part, completions_per_prompt, max_new_tokens, temperature)
                for place, group in zip(places, rows, strict=True):
                    groups[place] = self._completions(prompts[place], group, temperature)
        return [groups[place] for place in range(len(prompts))]

    def _generate(
        self, prompts: Sequence[Sequence[int]], count: int, length: int, temperature: float
    ) -> list[list[list[int]]]:
        """Sampled ids without the prompts, a group for each; prompts of one length need no padding."""
        from transformers import GenerationConfig

        greedy = temperature == 0
        config = GenerationConfig(
            max_new_tokens=length,
            num_return_sequences=1 if greedy else count,
            do_sample=not greedy,
            eos_token_id=self._policy.end,
            pad_token_id=self._policy.pad,
            **({} if greedy else {"temperature": temperature, "top_k": 0, "top_p": 1.0}),
        )
        ids = torch.tensor([list(prompt) for prompt in prompts], device=self._policy.device)
        out = self._policy.model.generate(
            inputs=ids, attention_mask=torch.ones_like(ids), generation_config=config
        )
        rows: list[list[int]] = out[:, ids.shape[1] :].tolist()
        if greedy:
            return [[row] * count for row in rows]
        return _grouped(rows, count)

    def _completions(
        self, prompt: Sequence[int], rows: list[list[int]], temperature: float
    ) -> list[Completion]:
        kept = [_until_end(row, self._policy.end) for row in rows]
        values = completion_logprobs(
            self._policy.model, [(prompt, row) for row in kept], self._policy.pad, temperature or 1.0
        )
        return [
            Completion(tuple(row), tuple(value.tolist()), self._policy.decode(row))
            for row, value in zip(kept, _ragged(values, kept), strict=True)
        ]


def _of_one_length(prompts: Sequence[Sequence[int]], most: int) -> Iterator[list[int]]:
    """Indices of prompts that are equally long, at most so many together; the shortest first."""
    places = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
    for _, equal in groupby(places, key=lambda place: len(prompts[place])):
        while part := list(islice(equal, most)):
            yield part


def _until_end(tokens: list[int], end: int) -> list[int]:
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def _ragged(values: Tensor, rows: list[list[int]]) -> list[Tensor]:
    return [value[: len(row)] for value, row in zip(values, rows, strict=True)]


def _grouped(rows: list[T], size: int) -> list[list[T]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
