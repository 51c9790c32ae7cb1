"""What the attacks came to: each message that was sent, and what honest nodes made of it; pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sapo_client.testnet.attacks import BY_NAME
from sapo_client.testnet.story import Story


@dataclass(frozen=True, slots=True)
class Sent:
    """One message of an attacker, as it noted it down."""

    kind: str
    message: str
    content_id: str | None
    bait: bool
    peer_id: str


@dataclass(frozen=True, slots=True)
class AttackRow:
    """One kind of attack.

    Attributes:
        sent: messages, bait left out; what a flood sent counts each.
        refused: how many of them honest nodes refused, by reason; each node counts for itself.
        nodes: honest nodes that refused at least one for an expected reason.
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
        """Whether an honest node refused it for a reason that it was made for."""
        return bool(self.nodes)

    @property
    def harmless(self) -> bool:
        """Whether nobody trained on it, or chance made it a valid contribution."""
        return not self.trained or BY_NAME[self.kind].may_be_right


def read_sent(path: Path) -> list[Sent]:
    """The messages in an attacker's file; a line torn by its end is left out."""
    if not path.exists():
        return []
    sent = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        sent.append(
            Sent(
                kind=entry["kind"],
                message=entry["message"],
                content_id=entry["content_id"],
                bait=entry["bait"],
                peer_id=entry["peer_id"],
            )
        )
    return sent


def attack_rows(sent: Iterable[Sent], stories: Sequence[Story]) -> list[AttackRow]:
    """A row for each kind that was sent, in the order of the table of kinds."""
    by_kind: dict[str, list[Sent]] = {}
    for message in sent:
        by_kind.setdefault(message.kind, []).append(message)
    return [_row(kind, by_kind[kind], stories) for kind in BY_NAME if kind in by_kind]


def _row(kind: str, messages: Sequence[Sent], stories: Sequence[Story]) -> AttackRow:
    expected = tuple(sorted(str(reason) for reason in BY_NAME[kind].expected))
    meant = [message for message in messages if not message.bait]
    by_node = {story.name: _reasons(kind, meant, story) for story in stories}
    ids = {message.content_id for message in meant if message.content_id}
    trained = {id_ for story in stories for step in story.steps for id_ in step.external if id_ in ids}
    if kind in ("replay", "late_replay"):
        trained = set()  # the content is its honest author's, and was trained on as that
    return AttackRow(
        kind=kind,
        expected=expected,
        sent=len(meant),
        refused=dict(sorted(sum(by_node.values(), Counter()).items())),
        nodes=tuple(name for name, reasons in by_node.items() if set(expected) & set(reasons)),
        trained=tuple(sorted(trained)),
    )


def _reasons(kind: str, messages: Sequence[Sent], story: Story) -> Counter[str]:
    """What one node refused of these messages, by reason."""
    if kind == "flood":
        senders = {message.peer_id for message in messages}
        return +Counter({"flood": sum(story.floods[sender] for sender in (*senders, ""))})
    reasons: Counter[str] = Counter()
    for message in messages:
        if reason := story.refused_messages.get(message.message):
            reasons[reason] += 1
        elif message.content_id and kind != "late_replay":
            reasons.update(story.refused_contents.get(message.content_id, ()))
    return reasons


def created_files(root: Path, markers: Iterable[Path], name: str) -> tuple[str, ...]:
    """Files that answers tried to create and that exist.

    Args:
        root: the testnet's directory, all of which is searched.
        markers: folders that hold nothing else.
        name: of the files that were named without a folder; checkers work in the root folder.
    """
    found = {path for folder in markers if folder.exists() for path in folder.iterdir()}
    found |= set(root.rglob(f"{name}*"))
    found |= {path for path in (Path("/", name), Path.cwd() / name) if path.exists()}
    return tuple(sorted(str(path) for path in found))
