"""Memory that runs out on one of several ranks.

A single process halves its micro-batches and computes the step again. A rank cannot, since the others wait
for it in a collective. So it writes the halved size to a file and ends; all ranks are restarted from the
checkpoint, and it then uses that size.
"""

from __future__ import annotations

from pathlib import Path

from sapo_client.learner.ranks.group import RankGroup


class MicroBatchTooLarge(Exception):
    """Memory ran out on this rank; the next start uses smaller micro-batches."""

    def __init__(self, tokens: int) -> None:
        super().__init__(f"memory ran out; restarting with micro-batches of at most {tokens} tokens")


class RememberedTokens:
    """Most tokens of one rank's micro-batches, in a file that survives the process.

    Args:
        directory: of the learner.
        ranks: of which one is this process.
    """

    def __init__(self, directory: Path, ranks: RankGroup) -> None:
        self._path = directory / f"micro-batch-tokens-{ranks.rank}-of-{ranks.size}"

    def read(self) -> int | None:
        """Return the remembered number, or None if there is none."""
        try:
            return int(self._path.read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):  # a damaged file: memory is planned again
            return None

    def write(self, tokens: int) -> None:
        """Remember a number."""
        self._path.parent.mkdir(parents=True, exist_ok=True)  # on other machines there may be no folder yet
        self._path.write_text(f"{tokens}\n", encoding="ascii")
