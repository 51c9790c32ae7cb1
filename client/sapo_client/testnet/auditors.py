"""Results about the auditors of a run, from the nodes' records; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sapo_client.testnet.node_record import JudgedTallies, NodeRecord


@dataclass(frozen=True, slots=True)
class AuditorRow:
    """One auditor over a run, as most of the other nodes saw it.

    Attributes:
        counted: epochs whose settlement names its tally.
        late: epochs whose settlement was proposed before its tally arrived.
        apart: points by which its tallies were outside the range of the counted ones, over all epochs.
    """

    name: str
    counted: tuple[int, ...]
    late: tuple[int, ...]
    apart: int

    @property
    def lied(self) -> bool:
        """Whether it published a deviating tally late, when it could know the others' tallies."""
        return bool(self.late and self.apart)


def auditor_rows(records: Sequence[NodeRecord]) -> list[AuditorRow]:
    """Return a row for each auditor of whom a node holds a tally of a final epoch."""
    accounts = {a for record in records for judged in record.judged.values() for a in _named(judged)}
    return [_row(record, records) for record in records if record.account in accounts]


def _named(judged: JudgedTallies) -> Iterator[str]:
    yield from judged.counted | judged.late | judged.apart.keys()


def _row(auditor: NodeRecord, records: Sequence[NodeRecord]) -> AuditorRow:
    account = auditor.account
    counted, late, apart = [], [], 0
    for epoch in sorted({epoch for record in records for epoch in record.judged}):
        views = [r.judged[epoch] for r in records if r is not auditor and epoch in r.judged]
        if _most(account in view.counted for view in views):
            counted.append(epoch)
        if _most(account in view.late for view in views):
            late.append(epoch)
        apart += sorted(view.apart.get(account, 0) for view in views)[len(views) // 2] if views else 0
    return AuditorRow(auditor.name, tuple(counted), tuple(late), apart)


def _most(votes: Iterable[bool]) -> bool:
    votes_cast = list(votes)
    return 2 * sum(votes_cast) > len(votes_cast)
