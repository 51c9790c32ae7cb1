"""Counts of what the transport received, dropped and refused."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class TransportCounters:
    """Counts since the start; read by metrics, written by one task at a time."""

    published: int = 0
    received: int = 0
    duplicates: int = 0
    accepted: int = 0
    ignored: int = 0
    rejected: int = 0
    oversize: int = 0
    flood_pauses: int = 0
    malformed_frames: int = 0
    broken_connections: int = 0
    dropped_before_sending: int = 0
    bugs: int = 0
    disconnects: int = 0
    bans: int = 0
    requests_served: int = 0
    requests_refused: int = 0
    requests_lapsed: int = 0
    dials: int = 0
    dials_failed: int = 0

    def snapshot(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)
