"""Selection of a node's backend, which answers prompts and trains, from the configuration."""

from __future__ import annotations

from pathlib import Path

from sapo_client.config import LearnerConfig
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.backend import Backend
from sapo_client.learner.process import Learner
from sapo_client.learner.settings import LearnerSettings


def open_backend(config: LearnerConfig, directory: Path, *, seed: int, fresh: bool) -> Backend:
    """Return the configured backend, not running yet.

    Raises:
        SapoError: a setting that it needs is missing.
    """
    if config.backend == "endpoint":
        return _endpoint(config)
    if config.backend == "human":
        from sapo_client.learner.contributors.human import Human
        from sapo_client.learner.contributors.no_train import Contributor

        return Contributor(Human())
    return Learner(learner_settings(config, directory, seed=seed, fresh=fresh))


def learner_settings(config: LearnerConfig, directory: Path, *, seed: int, fresh: bool) -> LearnerSettings:
    """Return the learner's settings; each node has its own seed, or all would generate the same text."""
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
        external_loss=config.external_loss,  # type: ignore[arg-type]  # the pattern of the config field
        demonstrations_per_step=config.demonstrations_per_step,
        demonstration_rate=config.demonstration_rate,
        demonstration_weighting=config.demonstration_weighting,  # type: ignore[arg-type]  # as above
        need_below=config.need_below,
        vllm=config.backend == "vllm",
    )


def _endpoint(config: LearnerConfig) -> Backend:
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
                max_new_tokens=config.max_new_tokens,
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
