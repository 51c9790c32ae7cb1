"""Printed findings: errors repeatedly, those without a remedy only once."""

from __future__ import annotations

from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.observe.printed import REPEAT_SECONDS, PrintedFindings

INTERVAL = 10


def warning(code: FindingCode, text: str) -> HealthFinding:
    return HealthFinding(code, FindingLevel.WARNING, text, "do this")


def unreachable(text: str = "peers cannot connect") -> HealthFinding:
    return warning(FindingCode.UNREACHABLE, text)


def printed(*assessments: list[HealthFinding]) -> list[tuple[int, str]]:
    """Return the lines of assessments in regular intervals, each with the number of its assessment."""
    printed = PrintedFindings()
    return [
        (number, line)
        for number, findings in enumerate(assessments)
        for line in printed.lines(findings, number * INTERVAL)
    ]


def test_unreachability_is_printed_once() -> None:
    """An hour behind a router without UPnP, which a healthy node may spend there for ever."""
    line = "warning: peers cannot connect (unreachable); do this"
    assert printed(*[[unreachable()]] * 360) == [(0, line)]


def test_unreachability_is_printed_again_when_its_reason_changes_or_it_returns() -> None:
    waits, refuses = [unreachable()], [unreachable("peers cannot connect; the router refused")]
    again = printed(waits, refuses, waits, refuses, [], waits)
    assert [number for number, _ in again] == [0, 1, 4, 5]
    assert again[2] == (4, "over: peers cannot connect; the router refused (unreachable)")


def test_a_router_with_changing_refusals_is_quoted_a_few_times() -> None:
    assert len(printed(*[[unreachable(f"refused {number}")] for number in range(100)])) == 8


def test_other_findings_are_repeated_every_five_minutes_with_their_new_figures() -> None:
    assessments = [[warning(FindingCode.DISK_LOW, f"{number} MiB are free")] for number in range(100)]
    every = int(REPEAT_SECONDS / INTERVAL)
    assert printed(*assessments) == [
        (number, f"warning: {number} MiB are free (disk_low); do this") for number in range(0, 100, every)
    ]
