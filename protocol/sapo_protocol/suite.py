"""The suite: the task families of a swarm, pinned so that every node derives the same items."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sapo_protocol.constants import MAX_COMPLETION_BYTES, MAX_FAMILIES
from sapo_protocol.decoding import Value
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest


@dataclass(frozen=True, slots=True)
class Family:
    """One family of tasks at one level.

    Attributes:
        name: the ReasoningGYM generator.
        level: which of the catalogue's levels, for people.
        config: the generator's config as canonical JSON, dataset size included.
        scorer: id of the checker's scorer.
        prompt: template that holds ``{question}``.
        answer: ``plain`` (the whole completion) or ``tag`` (the last ``<answer>`` element).
        max_completion_bytes: longer completions are not scored.
    """

    name: str
    level: str
    config: str
    scorer: str
    prompt: str
    answer: str
    max_completion_bytes: int

    def __post_init__(self) -> None:
        if "{question}" not in self.prompt:
            raise LocalProtocolError(f"the prompt of {self.name} has no place for the question")
        if self.answer not in ("plain", "tag"):
            raise LocalProtocolError(f"{self.name}: answers are 'plain' or 'tag', not {self.answer!r}")
        if not 0 < self.max_completion_bytes <= MAX_COMPLETION_BYTES:
            raise LocalProtocolError(f"{self.name}: completions are 1 to {MAX_COMPLETION_BYTES} bytes")
        _require_canonical(self.config)

    def to_value(self) -> Value:
        """Return the family inside an encoded manifest."""
        return (
            self.name,
            self.level,
            self.config,
            self.scorer,
            self.prompt,
            self.answer,
            self.max_completion_bytes,
        )


@dataclass(frozen=True, slots=True)
class Suite:
    """Task families with everything that their items depend on.

    Attributes:
        reasoning_gym: the exact release; items differ between releases.
        families: a rollout names a family by its index here.
        sample_digest: SHA-256 over sample items of every family; it detects a dependency that generates other
            items.
    """

    reasoning_gym: str
    families: tuple[Family, ...]
    sample_digest: Digest

    def __post_init__(self) -> None:
        if not 1 <= len(self.families) <= MAX_FAMILIES:
            raise LocalProtocolError(f"a suite has 1 to {MAX_FAMILIES} families")

    def to_value(self) -> Value:
        """Return the suite inside an encoded manifest."""
        families = tuple(family.to_value() for family in self.families)
        return {0: self.reasoning_gym, 1: families, 2: bytes(self.sample_digest)}


def canonical_json(config: Mapping[str, object]) -> str:
    """Return a generator's config as canonical JSON.

    Raises:
        LocalProtocolError: it holds a number that JSON cannot write.
    """
    try:
        return json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise LocalProtocolError(f"a generator's config is not JSON: {error}") from error


def _require_canonical(config: str) -> None:
    """Raise unless the config is canonical JSON; another spelling of it would give another swarm id."""
    try:
        parsed = json.loads(config)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or canonical_json(parsed) != config:
        raise LocalProtocolError(f"a generator's config is canonical JSON, not {config[:60]!r}")
