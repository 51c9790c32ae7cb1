"""The cause of a failure in a program's standard error."""

from __future__ import annotations

import re
from typing import Final

_CAUSE: Final = re.compile(
    r"(?:[\[(][^\])]*[\])]:? +)?"  # which rank or process writes, as `[rank0]: `
    r"(?P<cause>(?:\w+\.)*\w*(?:Error|Exception)(?:: .*)?|(?:error|ERROR): .*)"
)
"""The last line of a traceback, or an error of pip or of `sapo`."""


def failure_line(stderr: str) -> str:
    """Return the line that names the cause of a failure: an exception or an error, else the last line.

    Libraries print warnings as the interpreter exits, after its traceback, and `sapo` prints a hint.
    """
    lines = [line.rstrip() for line in stderr.strip().splitlines()]
    causes = [found["cause"] for line in lines if (found := _CAUSE.fullmatch(line))]
    return (causes or lines or ["it printed nothing"])[-1]
