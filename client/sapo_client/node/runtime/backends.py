"""Creation of the configured backend, which samples completions and trains."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from sapo_client.config import LearnerConfig
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.backend import Backend
from sapo_client.learner.process import Learner
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.sizing.presets import completion_tokens
from sapo_protocol.suite import Suite

MAX_STEPS_KEPT: Final = 256
"""Limit of ``own_steps_kept``; own groups of a step with 32 completions of 512 tokens take about a
megabyte."""


def open_backend(
    config: LearnerConfig,
    directory: Path,
    *,
    suite: Suite,
    seed: int,
    fresh: bool,
    own_steps_kept: int = 0,
    reinforces: bool = False,
) -> Backend:
    """Return the configured backend, not running yet.

    Args:
        suite: with the model it determines the length of completions, unless that is configured, and how
            demonstrations are learnt.
        own_steps_kept: number of last steps whose own groups are kept for the canary's shadow.
        reinforces: whether others' text enters the policy gradient.

    Raises:
        SapoError: a setting that it needs is missing.
    """
    tokens = config.max_new_tokens or tokens_for(suite)
    if config.backend == "endpoint":
        return _endpoint(config, tokens)
    if config.backend == "human":
        from sapo_client.learner.contributors.human import Human
        from sapo_client.learner.contributors.no_train import Contributor

        return Contributor(Human())
    settings = learner_settings(
        config, directory, max_new_tokens=tokens, seed=seed, fresh=fresh, reinforces=reinforces
    )
    shows_steps = any(family.answer != "plain" for family in suite.families)
    longest = None if config.max_new_tokens else longest_completion(suite)
    settings = replace(settings, shows_steps=shows_steps, completion_bytes=longest)
    return Learner(replace(settings, own_steps_kept=min(own_steps_kept, MAX_STEPS_KEPT)))


def longest_completion(suite: Suite) -> int:
    """Return the largest number of bytes of a completion that the suite's families allow."""
    return max(family.max_completion_bytes for family in suite.families)


def tokens_for(suite: Suite) -> int:
    """Return a limit of tokens per completion that truncates no answer to these tasks, for an unknown
    tokenizer."""
    return completion_tokens(longest_completion(suite), vocabulary=0, window=None)


def learner_settings(
    config: LearnerConfig,
    directory: Path,
    *,
    max_new_tokens: int,
    seed: int,
    fresh: bool,
    reinforces: bool = False,
) -> LearnerSettings:
    """Return the learner's settings; ``seed`` must differ between nodes, or all would sample the same text.

    Args:
        reinforces: whether others' text enters the policy gradient.
    """
    agreement = config.agreement if config.agreement is not None else config.backend != "tinker"
    return LearnerSettings(
        model=config.model,
        directory=directory,
        seed=seed,
        learning_rate=config.learning_rate,
        temperature=config.temperature,
        max_new_tokens=max_new_tokens,
        threads=_threads(config),
        device=config.device,  # type: ignore[arg-type]  # the pattern of the config field
        ranks=None if config.ranks == "auto" else config.ranks,
        ranks_socket=None if config.ranks_socket is None else str(config.ranks_socket),
        fresh=fresh,
        bfloat16=config.bfloat16,
        base=config.base,  # type: ignore[arg-type]  # the pattern of the config field
        optimizer=config.optimizer,  # type: ignore[arg-type]  # as above
        lora_rank=config.lora_rank,
        gradient_checkpointing=config.gradient_checkpointing,
        memory_bytes=None if config.memory_gib is None else int(config.memory_gib * 2**30),
        loss=config.loss,  # type: ignore[arg-type]  # the pattern of the config field
        overlap=config.overlap,
        sequence_ratio_cap=config.sequence_ratio_cap,
        length_normalised=config.length_normalised,
        passes=config.passes,
        mini_batches=config.mini_batches,
        kl_weight=config.kl_weight,
        own_baseline=config.own_baseline,
        external_loss=config.external_loss,
        agreement=agreement and reinforces,
        demonstrations_per_step=config.demonstrations_per_step,
        demonstration_rate=config.demonstration_rate,
        demonstration_steps=config.demonstration_steps,
        demonstration_averaging=config.demonstration_averaging,
        held_back=config.comparison_tasks > 0,
        demonstration_weighting=config.demonstration_weighting,  # type: ignore[arg-type]  # as above
        need_below=config.need_below,
        vllm=config.backend == "vllm",
        tinker=config.backend == "tinker",
        endpoint=config.endpoint,
        endpoint_key=None if config.endpoint_key_file is None else _key(config.endpoint_key_file),
    )


def _threads(config: LearnerConfig) -> int:
    """Return the number of the learner's threads, at least one."""
    if config.leave_cores is None:
        return config.threads
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, usable - config.leave_cores)


def _endpoint(config: LearnerConfig, max_new_tokens: int) -> Backend:
    from sapo_client.learner.contributors.endpoint import CompletionsEndpoint, EndpointSettings
    from sapo_client.learner.contributors.no_train import Contributor

    if config.endpoint is None:
        raise SapoError(
            "the endpoint backend has no endpoint",
            hint="set learner.endpoint, as in http://127.0.0.1:8000/v1, and learner.model to its name there",
            exit_code=ExitCode.CONFIG,
        )
    return Contributor(
        CompletionsEndpoint(
            EndpointSettings(
                url=config.endpoint,
                model=config.model,
                key=None if config.endpoint_key_file is None else _key(config.endpoint_key_file),
                temperature=config.temperature,
                max_new_tokens=max_new_tokens,
            )
        )
    )


def _key(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SapoError(
            f"cannot read the endpoint's key: {error}",
            hint="learner.endpoint_key_file must be a text file that contains only the key",
            exit_code=ExitCode.CONFIG,
        ) from error
