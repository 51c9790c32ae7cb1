"""Targets for a swarm of any size, and a check of a simulation against them.

The target for memory, at most 1.3 times as much per node as with 100 nodes, needs two simulations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sapo_client.lab.scale.report import ScaleReport

MAX_BITS_PER_SECOND: Final = 3e6
MAX_OF_A_CORE: Final = 0.05
MAX_SECONDS: Final = 2.0
MIN_DELIVERED: Final = 0.999


@dataclass(frozen=True, slots=True)
class Goal:
    """One figure, its target, and whether the target is met."""

    text: str
    value: str
    target: str
    is_met: bool


def goals(report: ScaleReport) -> tuple[Goal, ...]:
    """Return all targets that can be checked with one simulation, with its figures."""
    mega, most = 1e6, f"at most {MAX_BITS_PER_SECOND / 1e6:.0f} Mbit/s"
    processor = report.processor + report.transport_processor
    violations = sum(one.violations for one in report.batches)
    draws = sum(one.draws for one in report.batches)
    return (
        Goal(
            "upload, the busiest honest node",
            f"{report.worst_upload / mega:.2f} Mbit/s",
            most,
            report.worst_upload <= MAX_BITS_PER_SECOND,
        ),
        Goal(
            "download, the busiest honest node",
            f"{report.worst_download / mega:.2f} Mbit/s",
            most,
            report.worst_download <= MAX_BITS_PER_SECOND,
        ),
        Goal(
            "processor, simulator and libp2p",
            f"{processor:.2%} of a core",
            f"at most {MAX_OF_A_CORE:.0%}",
            processor <= MAX_OF_A_CORE,
        ),
        Goal(
            "delay of 99 % of the deliveries",
            f"{report.late_delay:.2f} s",
            f"under {MAX_SECONDS:.0f} s",
            report.late_delay < MAX_SECONDS,
        ),
        Goal(
            "honest groups that reach 99 % of their island",
            f"{report.delivered:.2%} of {report.groups:,}",
            f"at least {MIN_DELIVERED:.1%}",
            report.delivered >= MIN_DELIVERED,
        ),
        Goal(
            "lowest score of an honest peer",
            f"{report.worst_score:.1f}",
            "not below 0",
            report.worst_score >= 0,
        ),
        Goal("shares above a cap", f"{violations} in {draws:,} draws", "none", violations == 0),
    )
