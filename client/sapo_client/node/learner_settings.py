"""What a node's learner is started with, from the configuration."""

from __future__ import annotations

from pathlib import Path

from sapo_client.config import LearnerConfig
from sapo_client.learner.settings import LearnerSettings


def learner_settings(config: LearnerConfig, directory: Path, *, seed: int, fresh: bool) -> LearnerSettings:
    """The settings; a node's seed is its own, for nodes that choose alike teach each other nothing."""
    return LearnerSettings(
        model=config.model,
        directory=directory,
        seed=seed,
        learning_rate=config.learning_rate,
        temperature=config.temperature,
        max_new_tokens=config.max_new_tokens,
        threads=config.threads,
        device=config.device,  # type: ignore[arg-type]  # the pattern of the config field
        fresh=fresh,
        bfloat16=config.bfloat16,
        lora_rank=config.lora_rank,
        gradient_checkpointing=config.gradient_checkpointing,
        memory_bytes=None if config.memory_gib is None else int(config.memory_gib * 2**30),
        length_normalised=config.length_normalised,
        passes=config.passes,
        mini_batches=config.mini_batches,
        kl_weight=config.kl_weight,
        own_baseline=config.own_baseline,
    )
