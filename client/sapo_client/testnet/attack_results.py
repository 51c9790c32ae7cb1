"""Results of the attacks: each message that was sent, and how honest nodes reacted to it; pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sapo_client.testnet.attacks import BY_NAME
from sapo_client.testnet.node_record import NodeRecord


@dataclass(frozen=True, slots=True)
class SentMessage:
    """One message of an attacker, as its log file holds it.

    Attributes:
        sent_seconds: Unix time at which it was sent.
    """

    kind: str
    message: str
    content_id: str | None
    bait: bool
    peer_id: str
    sent_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class AttackRow:
    """One kind of attack.

    Attributes:
        sent: number of messages, valid first messages excluded; every message of a flood counts.
        refused: how many of them honest nodes refused, by reason, summed over the nodes.
        nodes: honest nodes that refused at least one of them for an expected reason.
        trained: content ids of this kind that entered a batch, on any honest node.
    """

    kind: str
    expected: tuple[str, ...]
    sent: int
    refused: dict[str, int]
    nodes: tuple[str, ...]
    trained: tuple[str, ...]

    @property
    def counted(self) -> bool:
        """Whether an honest node refused it for an expected reason."""
        return bool(self.nodes)

    @property
    def harmless(self) -> bool:
        """Whether no node trained on it, or it happened to be a valid contribution."""
        return not self.trained or BY_NAME[self.kind].may_be_right


def may_attack(epoch: int, first_epoch: int, records: Sequence[NodeRecord]) -> bool:
    """Whether attackers may begin: their epoch has come, and every node has published a rollout.

    A node publishes once it has read the swarm's terms from the chain; until then it refuses all messages for
    that, and never looks at what is wrong with them.

    Args:
        epoch: the current one, negative before genesis.
        first_epoch: in which the attackers start.
    """
    return epoch >= first_epoch and all(record.published for record in records)


def read_sent(path: Path) -> list[SentMessage]:
    """Return the messages in an attacker's log file; an incomplete last line is left out."""
    if not path.exists():
        return []
    sent = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        sent.append(
            SentMessage(
                kind=entry["kind"],
                message=entry["message"],
                content_id=entry["content_id"],
                bait=entry["bait"],
                peer_id=entry["peer_id"],
                sent_seconds=entry["time"],
            )
        )
    return sent


def attack_rows(sent: Iterable[SentMessage], records: Sequence[NodeRecord]) -> list[AttackRow]:
    """Return a row for each kind that was sent, in the order of `ATTACKS`."""
    by_kind: dict[str, list[SentMessage]] = {}
    for message in sent:
        by_kind.setdefault(message.kind, []).append(message)
    return [_row(kind, by_kind[kind], records) for kind in BY_NAME if kind in by_kind]


def _row(kind: str, messages: Sequence[SentMessage], records: Sequence[NodeRecord]) -> AttackRow:
    expected = tuple(sorted(str(reason) for reason in BY_NAME[kind].expected))
    meant = [message for message in messages if not message.bait]
    by_node = {record.name: _reasons(kind, meant, record) for record in records}
    ids = {message.content_id for message in meant if message.content_id}
    trained = {id_ for record in records for step in record.steps for id_ in step.external if id_ in ids}
    if kind in ("replay", "late_replay"):
        trained = set()  # the content is an honest author's, and was trained on as such
    return AttackRow(
        kind=kind,
        expected=expected,
        sent=len(meant),
        refused=dict(sorted(sum(by_node.values(), Counter()).items())),
        nodes=tuple(name for name, reasons in by_node.items() if set(expected) & set(reasons)),
        trained=tuple(sorted(trained)),
    )


def _reasons(kind: str, messages: Sequence[SentMessage], record: NodeRecord) -> Counter[str]:
    """Count the messages of this list that one node refused, by reason."""
    if kind == "flood":
        senders = {message.peer_id for message in messages}
        return +Counter({"flood": sum(record.floods[sender] for sender in (*senders, ""))})
    reasons: Counter[str] = Counter()
    for message in messages:
        if reason := record.refused_messages.get(message.message):
            reasons[reason] += 1
        elif message.content_id and kind != "late_replay":
            reasons.update(record.refused_contents.get(message.content_id, ()))
    return reasons


def created_files(root: Path, markers: Iterable[Path], name: str) -> tuple[str, ...]:
    """Return the files that answers tried to create and that exist.

    Args:
        root: the testnet's directory, all of which is searched.
        markers: folders that hold no other files.
        name: name of the files that answers create without a folder; checkers work in the root folder.
    """
    found = {path for folder in markers if folder.exists() for path in folder.iterdir()}
    found |= set(root.rglob(f"{name}*"))
    found |= {path for path in (Path("/", name), Path.cwd() / name) if path.exists()}
    return tuple(sorted(str(path) for path in found))
