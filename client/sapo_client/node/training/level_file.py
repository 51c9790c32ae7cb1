"""File of the best levels by family, beside the checkpoints of the policy that had them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sapo_client.atomic_files import write_atomically
from sapo_protocol.suite import Family


class LevelFile:
    """Best levels of a suite's families, which bound what many promotions may lose together.

    Args:
        path: of the file.
        families: of the suite, in its order.
        fresh: a new policy is started, so stored levels are ignored.
    """

    def __init__(self, path: Path, families: Sequence[Family], *, fresh: bool = False) -> None:
        self._path = path
        self._names = stored_names(families)
        self._fresh = fresh

    def read(self) -> list[float]:
        """Return the levels in the suite's order; 0 for those that are not stored, or damaged."""
        found = {} if self._fresh else self._stored()
        return [stored_level(found.get(name)) for name in self._names]

    def _stored(self) -> dict[str, object]:
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return stored if isinstance(stored, dict) else {}

    def write(self, levels: Sequence[float]) -> None:
        """Replace the stored levels atomically."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, json.dumps(dict(zip(self._names, levels, strict=True))) + "\n")
        self._fresh = False


def stored_names(families: Sequence[Family]) -> list[str]:
    """Return the names under which files keep what belongs to each family of a suite, all different.

    A successor of the terms may have other families, and a suite the same name and level twice, as where one
    is retired and another one follows it.
    """
    names, seen = [], Counter[str]()
    for family in families:
        name = f"{family.name}/{family.level}"
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name}/{seen[name]}")
    return names


def stored_level(stored: object) -> float:
    """Return a stored level if it is one, from 0 to 1; else 0."""
    return float(stored) if isinstance(stored, (int, float)) and 0.0 <= stored <= 1.0 else 0.0
