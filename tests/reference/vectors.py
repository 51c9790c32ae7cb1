"""Reading vectors: what another language's test program has to do, in Python."""

import json
from pathlib import Path
from typing import Any

from reference.node import ReferenceNode
from reference.refusal import ACCEPTED

VECTORS = Path(__file__).parents[1] / "vectors"


def load(name: str) -> dict[str, Any]:
    """Return a file of vectors."""
    content: dict[str, Any] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def admission_files() -> list[str]:
    """Return the names of the files with admission cases."""
    return sorted(path.stem for path in VECTORS.glob("admission_*.json"))


def unpack(written: str | list[Any]) -> bytes:
    """Return the bytes of a message: hexadecimal, or pieces of it and runs of one byte."""
    if isinstance(written, str):
        return bytes.fromhex(written)
    pieces = (bytes.fromhex(p) if isinstance(p, str) else bytes.fromhex(p[0]) * p[1] for p in written)
    return b"".join(pieces)


def prepare(case: dict[str, Any], certificates: dict[str, Any], node: ReferenceNode) -> None:
    """Give a node the knowledge that a case begins with; its auditors were named when it was made."""
    for name in case["state"]["certificates"]:
        introduction = bytes.fromhex(certificates[case["manifest"]][name])
        assert node.validate("certificates", introduction, case["now_ms"]) == ACCEPTED
    for epoch, bonded in case["state"].get("bonds", ()):
        node.learn_bonds(epoch, {bytes.fromhex(who): int(amount) for who, amount in bonded.items()})
    for epoch, paid in case["state"].get("paid", ()):
        node.learn_paid(epoch, paid)
    for message in case["state"]["seen"]:
        assert node.validate("rollouts", unpack(message), case["now_ms"]) == ACCEPTED
