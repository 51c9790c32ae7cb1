"""Seeds of the corpus, from the vectors: ``python tests/fuzz/seeds.py``. Finds are added by hand."""

import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / name) for name in ("tests", "protocol", "verification")]

from reference.vectors import load, unpack  # noqa: E402

LONGEST = 1024
TEXTS = (
    "<answer>42</answer>",
    "so <answer>1</answer> no <answer> 2\n</answer>",
    "</answer><answer>",
    "42",
    "9" * 65,
    "a\u202eb",
    "__import__('os').system('id')",
    "1\u200b2",
    "\ud83d\udc38".encode("utf-16", "surrogatepass").decode("utf-16"),
)


def main() -> None:
    """Write every seed under the digest of its bytes."""
    messages = [
        unpack(message["bytes"])
        for name in ("admission_encoding", "admission_rollout")
        for case in load(name)["cases"][::12]
        for message in case["messages"]
    ]
    trees = load("derivations")["merkle"]
    entries = [b"".join(bytes.fromhex(account) + b"\x07" for account, _ in tree["entries"]) for tree in trees]
    others = [
        unpack(message["bytes"])
        for name in ("admission_contribution", "admission_equivocation")
        for case in load(name)["cases"][::8]
        for message in case["messages"]
    ]
    _write("messages", messages)
    _write("decoder", [*messages[::3], *others])
    _write("trees", entries)
    _write("texts", [text.encode() for text in TEXTS] + [b"\xff<answer>1</answer>"])


def _write(target: str, seeds: list[bytes]) -> None:
    folder = ROOT / "tests/corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        if len(seed) <= LONGEST:
            (folder / sha256(seed).hexdigest()[:16]).write_bytes(seed)


if __name__ == "__main__":
    main()
