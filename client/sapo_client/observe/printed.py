"""Which findings of an assessment are printed on the terminal, and when. Pure; the clock is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding

REPEAT_SECONDS: Final = 300.0
"""Seconds between two lines about a finding that lasts."""

PRINTED_ONCE: Final = frozenset({FindingCode.UNREACHABLE})
"""Findings that a healthy node may have for ever, since not every operator can resolve them: each text is
printed once while the finding lasts. Status and doctor always show them."""

_MAX_SENTENCES: Final = 8
"""Maximum number of texts remembered per such finding: part of a text comes from the router and may vary."""


@dataclass(frozen=True, slots=True)
class _Printed:
    at_seconds: float
    sentences: frozenset[str]


class PrintedFindings:
    """Decides which findings are printed, from what was printed before."""

    def __init__(self) -> None:
        self._last: tuple[HealthFinding, ...] = ()
        self._printed: dict[tuple[FindingCode, FindingLevel], _Printed] = {}

    @property
    def codes(self) -> frozenset[FindingCode]:
        """Return the codes of the last assessment."""
        return frozenset(finding.code for finding in self._last)

    def lines(self, findings: Sequence[HealthFinding], now_seconds: float) -> list[str]:
        """Return the lines to print after an assessment: new findings, reminders and findings that ended."""
        printed: dict[tuple[FindingCode, FindingLevel], _Printed] = {}
        lines = []
        for finding in findings:
            key = finding.code, finding.level  # its figures may have changed
            before = self._printed.get(key)
            if self._is_due(finding, before, now_seconds):
                lines.append(finding.line())
                sentences = frozenset() if before is None else before.sentences
                before = _Printed(now_seconds, sentences | {finding.text})
            if before is not None:
                printed[key] = before
        codes = {finding.code for finding in findings}
        lines += [f"over: {old.text} ({old.code})" for old in self._last if old.code not in codes]
        self._last, self._printed = tuple(findings), printed
        return lines

    def _is_due(self, finding: HealthFinding, before: _Printed | None, now_seconds: float) -> bool:
        if before is None:
            return True
        if finding.code in PRINTED_ONCE:
            return finding.text not in before.sentences and len(before.sentences) < _MAX_SENTENCES
        return now_seconds - before.at_seconds >= REPEAT_SECONDS
