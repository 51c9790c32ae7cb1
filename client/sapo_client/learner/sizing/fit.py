"""Check whether a learner fits into the free memory, before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.memory import GIB, available_bytes
from sapo_client.learner.policy import PACKAGED, chosen_device
from sapo_client.learner.sizing.estimate import MemoryEstimate, Workload, estimate_memory
from sapo_client.learner.sizing.presets import PROMPT_TOKENS, SuiteLevel, completion_tokens, level_for
from sapo_client.learner.sizing.skeleton import ModelShape, make_skeleton, shape_of

if TYPE_CHECKING:
    from sapo_client.learner.settings import LearnerSettings

LEANER: Final[tuple[dict[str, Any], ...]] = (
    {"gradient_checkpointing": True},
    {"lora_rank": 16},
    {"lora_rank": 16, "gradient_checkpointing": True},
    {"lora_rank": 16, "gradient_checkpointing": True, "base": "bfloat16"},
    {"lora_rank": 16, "gradient_checkpointing": True, "base": "nf4", "optimizer": "adamw8bit"},
)
"""Settings that take less memory, each less than the one before."""


@dataclass(frozen=True, slots=True)
class LearnerFit:
    """A learner's plan beside the memory that is free.

    Attributes:
        shape: of the model.
        level: of the suite that suits it.
        estimate: of the settings.
        free: bytes that are free on the device.
        leaner: settings that fit, as they are written in a configuration; empty if the given ones do, None if
            none does.
    """

    shape: ModelShape
    level: SuiteLevel
    estimate: MemoryEstimate
    free: float
    leaner: str | None

    @property
    def fits(self) -> bool:
        """Whether the settings' plan fits."""
        return self.leaner == ""

    @property
    def hint(self) -> str:
        """Advice where the plan does not fit."""
        return f"set {self.leaner}" if self.leaner else "take a smaller model, or a machine with more memory"


def fit(settings: LearnerSettings, *, groups: int, completions: int, sampled_groups: int) -> LearnerFit:
    """Return the plan of a learner; reads the model's ``config.json`` alone.

    Args:
        settings: of the learner.
        groups: of a step.
        completions: of a group.
        sampled_groups: sampled at once.

    Raises:
        SapoError: the configuration cannot be read, or the device is missing.
    """
    device = chosen_device(settings.device)
    shape = shape_of(make_skeleton(settings.model))
    level = level_for(shape.parameters)
    load = Workload(groups, completions, PROMPT_TOKENS[level], settings.max_new_tokens, sampled_groups)
    free = float(settings.memory_bytes or available_bytes(device))
    estimate = estimate_memory(settings, load, device.type)
    leaner = "" if estimate.peak <= free else _leaner(settings, load, device.type, free)
    return LearnerFit(shape, level, estimate, free, leaner)


def with_fitting_tokens(settings: LearnerSettings) -> LearnerSettings:
    """Return the settings with a limit of tokens that follows the tasks and the model, unless it is set.

    Raises:
        SapoError: the model's configuration cannot be read.
    """
    if settings.completion_bytes is None:
        return settings
    shape = shape_of(make_skeleton(settings.model))
    tokens = completion_tokens(settings.completion_bytes, shape.vocabulary, shape.window)
    return replace(settings, max_new_tokens=tokens, completion_bytes=None)


def require_weights_fit(settings: LearnerSettings) -> None:
    """Raise unless the weights, gradients and moments of a model that is not packaged fit into free memory.

    Activations are left out: their micro-batches become as small as they must.

    Raises:
        SapoError: they do not.
    """
    if settings.model in PACKAGED:
        return
    found = fit(settings, groups=1, completions=1, sampled_groups=1).estimate
    fixed = found.weights + found.moments + found.gradients
    free = available_bytes(chosen_device(settings.device))
    if fixed > free:
        raise SapoError(
            f"{settings.model} takes {fixed / GIB:.1f} GiB to train, and {free / GIB:.1f} are free",
            hint=f"`sapo doctor --model {settings.model}` says which settings fit",
            exit_code=ExitCode.CONFIG,
        )


def _leaner(settings: LearnerSettings, load: Workload, device: str, free: float) -> str | None:
    for changes in _changes(settings):
        if estimate_memory(replace(settings, **changes), load, device).peak <= free:
            return ", ".join(f"learner.{name} = {_written(value)}" for name, value in changes.items())
    return None


def _changes(settings: LearnerSettings) -> Iterator[dict[str, Any]]:
    """Yield the leaner settings that differ from the given ones."""
    for changes in LEANER:
        new = {name: value for name, value in changes.items() if getattr(settings, name) != value}
        if new:
            yield new


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
