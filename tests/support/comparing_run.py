"""What programs share that compare readings for a time: options, clock, and a report in JSON."""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final


class ComparingRun:
    """A run whose inputs are named by a seed, and which ends after a time.

    Attributes:
        options: what the command line says: ``seconds``, ``seed``, ``json`` and the program's own.
    """

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--seconds", type=float, default=float("inf"), help="time")
        parser.add_argument("--seed", type=int, default=0, help="names what is compared")
        parser.add_argument("--json", type=Path, help="where the figures are written too")
        self.options: Final = parser.parse_args()
        self._parser = parser
        self._began = time.monotonic()

    def require_end(self, *, has_other: bool = False) -> None:
        """End the program with its usage if nothing says when to end.

        Args:
            has_other: whether an option of the program does.
        """
        if self.options.seconds == float("inf") and not has_other:
            self._parser.error("say when to end: --seconds, for example")

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return time.monotonic() - self._began

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.seconds >= float(self.options.seconds)

    def write(self, report: Mapping[str, object]) -> None:
        """Print a report, and write it where the options say."""
        text = json.dumps(report, indent=2)
        print(text)
        if self.options.json:
            self.options.json.write_text(text + "\n", encoding="utf-8")
