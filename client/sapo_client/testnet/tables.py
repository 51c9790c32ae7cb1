"""Tables as plain data: the same cells are printed to a terminal or written as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sapo_client.testnet.attack_results import AttackRow
from sapo_client.testnet.auditors import AuditorRow
from sapo_client.testnet.ledger_view import Claim, EpochRow, points_of
from sapo_client.testnet.node_record import NodeRecord, Trend, trend
from sapo_client.testnet.skills import Skills, travelled
from sapo_client.units import TOKEN
from sapo_protocol.errors import Reason

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_NODE_NOTE = (
    "Peers: most at one time, attackers included. Rollouts: shared by the node; accepted from others "
    "(authentic, in time); without signal (all answers earned the same reward; auditors check every rollout, "
    "other nodes only those they draw); used in its own training; refused. Points: what the ledger "
    "grants its account."
)
_SKILL_NOTE = (
    "Mean reward of own answers in a node's first ten steps and in its last fifth (at least ten), families "
    "counted equally: in those in which it had next to no right answer at first, and in the others. Chance: "
    "two standard errors of the difference."
)
_REFUSED_NOTE = "Each reason is a rule of verification/README.md."
_AUDITOR_NOTE = (
    "As most of the other nodes saw it: epochs whose settlement names the auditor's tally, and epochs that "
    "were settled before it came. Points apart: by how much its tallies lie outside the counted ones. An "
    "auditor whose tallies come late and lie apart has lied; that moves no points and stops no epoch."
)


@dataclass(frozen=True, slots=True)
class Table:
    """A titled table of text with a note on how to read it; columns of numbers are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        """Return the table in Markdown."""
        rule = tuple("---:" if self._is_numeric(i) else "---" for i in range(len(self.columns)))
        lines = ("| " + " | ".join(cells) + " |" for cells in (self.columns, rule, *self.rows))
        note = f"\n{self.note}\n" if self.note else ""
        return f"## {self.title}\n\n" + "\n".join(lines) + "\n" + note

    def rich(self) -> RichTable:
        """Return the table for a terminal."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable

        table = RichTable(
            title=self.title,
            box=SIMPLE_HEAD,
            title_justify="left",
            title_style="bold",
            caption=self.note or None,
            caption_justify="left",
        )
        for index, column in enumerate(self.columns):
            table.add_column(column, justify="right" if self._is_numeric(index) else "left")
        for row in self.rows:
            table.add_row(*row)
        return table

    def _is_numeric(self, column: int) -> bool:
        cells = [row[column] for row in self.rows if row[column]]
        return bool(cells) and all(cell[0].isdigit() for cell in cells)


def node_table(records: Sequence[NodeRecord], ledger: Sequence[EpochRow]) -> Table:
    """Return each honest node's rounds, rewards and counts."""
    columns = (
        "node", "rounds", "reward start", "reward end", "peers",
        "shared", "accepted", "no signal", "sampled", "refused", "points",
    )  # fmt: skip
    return Table("Nodes", columns, tuple(_node_row(record, ledger) for record in records), _NODE_NOTE)


def _node_row(record: NodeRecord, ledger: Sequence[EpochRow]) -> tuple[str, ...]:
    change = trend(record.rewards)
    return (
        record.name,
        str(len(record.steps)),
        f"{change.start:.3f}" if change else "",
        f"{change.end:.3f}" if change else "",
        str(record.max_peers),
        str(len(record.published)),
        str(len(record.admitted)),
        str(record.without_advantage),
        str(record.sampled),
        str(record.refusals),
        str(points_of(ledger, record.account)),
    )


def skill_table(skills: Sequence[Skills]) -> Table:
    """Return the nodes' success at start and end, in families that they lacked and in the others."""
    columns = ("node", "knew nothing of", "start", "end", "chance", "others: start", "end", "chance")
    rows = [(each.name, ", ".join(each.lacked), *_ends(each.learnt), *_ends(each.kept)) for each in skills]
    mean = [("mean", "", *_ends(travelled(skills)), "", "", "")] if skills else []
    return Table("Skills", columns, (*rows, *mean), _SKILL_NOTE)


def _ends(change: Trend | None) -> tuple[str, str, str]:
    if change is None:
        return "", "", ""
    return f"{change.start:.3f}", f"{change.end:.3f}", f"{2 * change.error:.3f}"


def refusal_table(records: Sequence[NodeRecord]) -> Table:
    """Return how often each honest node refused something, by reason."""
    reasons = sorted({reason for record in records for reason in record.refused} - {Reason.NO_SIGNAL})
    rows = ((reason, *(str(record.refused[reason]) for record in records)) for reason in reasons)
    columns = ("reason", *(record.name for record in records))
    return Table("Refused, by reason", columns, tuple(rows), _REFUSED_NOTE)


def attack_table(attacks: Sequence[AttackRow], files: Sequence[str]) -> Table:
    """Return the result of each kind of attack."""
    columns = ("attack", "sent", "to be refused for", "refused for", "by nodes", "files created")
    return Table("Attacks", columns, tuple(_attack_row(row, files) for row in attacks))


def _attack_row(row: AttackRow, files: Sequence[str]) -> tuple[str, ...]:
    refused = ", ".join(f"{reason} {count}" for reason, count in row.refused.items())
    created = str(len(files)) if row.kind == "code_in_answer" else ""
    return row.kind, str(row.sent), " or ".join(row.expected), refused, str(len(row.nodes)), created


def ledger_table(ledger: Sequence[EpochRow], records: Sequence[NodeRecord]) -> Table:
    """Return the final record of each epoch, with every node's points if the tallies explain them."""
    columns = ("epoch", "points", *(record.name for record in records), "contribution root")
    rows = (
        (
            str(row.epoch),
            str(row.total),
            *(str(row.points.get(record.account, 0)) if row.points else "?" for record in records),
            row.contribution_root[:16],
        )
        for row in ledger
    )
    return Table("Ledger", columns, tuple(rows))


def auditor_table(auditors: Sequence[AuditorRow]) -> Table:
    """Return the outcome of each auditor's tallies."""
    columns = ("auditor", "tallies counted", "too late", "points apart", "")
    rows = (
        (row.name, str(len(row.counted)), str(len(row.late)), str(row.apart), "lied" if row.lied else "")
        for row in auditors
    )
    return Table("Auditors", columns, tuple(rows), _AUDITOR_NOTE)


def claim_table(claim: Claim) -> Table:
    """Return the reward that was paid at the end."""
    columns = ("claim of", "points paid before", "after", "tokens before", "after")
    tokens = (f"{amount / TOKEN:,.0f}" for amount in (claim.tokens_before, claim.tokens_after))
    row = (claim.name, str(claim.points_before), str(claim.points_after), *tokens)
    return Table("Claim", columns, (row,))
