"""Sampling of the next round while the present one trains.

The sampler reads a copy of the weights, brought up to date before the step, in a thread of its own: PyTorch
and vLLM release the interpreter while they compute. So a round is sampled by the policy of one step before.
Its ratios are relative to the log-probabilities under which it was sampled, and completions whose sequence
ratio is out of bounds are not trained (``losses/mismatch.py``).

On a CPU the sampler takes another core; on a GPU both share its multiprocessors and its memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.generate import Completion, Generator, SampleRequest
from sapo_client.learner.ranks.group import RankGroup
from sapo_client.learner.settings import LearnerSettings

Sampled = Future[list[list[Completion]]]


def require_possible(settings: LearnerSettings, ranks: RankGroup) -> None:
    """Raise if the settings ask for overlap and it is impossible.

    Raises:
        SapoError: it has several ranks.
    """
    if settings.overlap and ranks.size > 1:
        raise SapoError(
            f"learner.overlap needs a single rank, and there are {ranks.size}",
            hint="set learner.overlap = false, or learner.ranks = 1",
            exit_code=ExitCode.CONFIG,
        )


@contextmanager
def sampled_meanwhile(generator: Generator, request: SampleRequest | None, threads: int) -> Iterator[Sampled]:
    """Sample in another thread while the context runs; the context ends when both have finished.

    Args:
        generator: reads other weights than those that the context writes.
        request: None samples nothing.
        threads: number of PyTorch threads of the sampler.

    Yields:
        The sampled groups, known at the end of the context.
    """
    if request is None:
        nothing = Sampled()
        nothing.set_result([])
        yield nothing
        return
    generator.refresh()
    with ThreadPoolExecutor(1, "sampler", torch.set_num_threads, (threads,)) as pool:
        yield pool.submit(generator.draw, request)
