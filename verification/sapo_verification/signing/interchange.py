"""The signing database as a file, for moving an identity to another machine without signing anything twice.

As in EIP-3076: JSON, one low watermark per swarm, account and kind of signature, complete or refused.

    {"format": "sapo-signing", "version": 2,
     "marks": [{"swarm": "<64 hex>", "account": "0x<40 hex>", "epoch": 7, "next_slot": 12, "share": "0/1"}],
     "approvals": [{"swarm": "<64 hex>", "account": "0x<40 hex>", "epoch": 6, "turn": 0, "root": "<64 hex>"}]}

Version 1 had no approvals. After the import of such a file nothing is approved up to the epochs of its marks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from sapo_protocol.contributions import MAX_TURN
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest, SwarmId
from sapo_protocol.json_text import require_shallow
from sapo_verification.signing.database import UNKNOWN_ROOT, ApprovalMark, Mark, SlotShare

M = TypeVar("M", Mark, ApprovalMark)

FORMAT: Final = "sapo-signing"
VERSION: Final = 2
_WITHOUT_APPROVALS: Final = 1

MAX_FILE_BYTES: Final = 1024 * 1024
"""Five thousand marks; a node has a handful."""

_MAX_NUMBER: Final = 2**63 - 1
"""The largest integer that SQLite stores."""

_FIELDS: Final = frozenset({"swarm", "account", "epoch", "next_slot", "share"})
_APPROVAL_FIELDS: Final = frozenset({"swarm", "account", "epoch", "turn", "root"})
_LISTS: Final = {_WITHOUT_APPROVALS: {"marks"}, VERSION: {"marks", "approvals"}}


@dataclass(frozen=True, slots=True)
class SigningHistory:
    """The watermarks of one machine, for import on another."""

    marks: tuple[Mark, ...]
    approvals: tuple[ApprovalMark, ...] = ()

    def to_json(self) -> str:
        """Return the text of an interchange file."""
        marks = [
            {
                "swarm": mark.swarm_id.hex(),
                "account": str(mark.account),
                "epoch": mark.epoch,
                "next_slot": mark.next_slot,
                "share": str(mark.share),
            }
            for mark in self.marks
        ]
        approvals = [
            {
                "swarm": mark.swarm_id.hex(),
                "account": str(mark.account),
                "epoch": mark.epoch,
                "turn": mark.turn,
                "root": mark.root.hex(),
            }
            for mark in self.approvals
        ]
        document = {"format": FORMAT, "version": VERSION, "marks": marks, "approvals": approvals}
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> SigningHistory:
        """Return the history in the text of an interchange file.

        Raises:
            LocalProtocolError: it is not an interchange file of a known version, or has an account twice.
        """
        try:
            document = json.loads(require_shallow(text))
        except ValueError as error:
            raise LocalProtocolError(f"the file is not JSON: {error}") from error
        if not isinstance(document, dict) or not document.keys() >= {"format", "version"}:
            raise LocalProtocolError("this is not a signing history")
        lists = _LISTS.get(document["version"]) if type(document["version"]) is int else None
        if document["format"] != FORMAT or lists is None:
            raise LocalProtocolError(
                f"the file is {document['format']} {document['version']}, not {FORMAT} {VERSION}"
            )
        if document.keys() != {"format", "version", *lists}:
            raise LocalProtocolError("this is not a signing history")
        marks = tuple(map(_mark, _list(document, "marks")))
        if document["version"] == _WITHOUT_APPROVALS:
            return cls(_once(marks), tuple(map(_unknown_approvals, marks)))
        return cls(_once(marks), _once(tuple(map(_approval, _list(document, "approvals")))))


def _once(marks: tuple[M, ...]) -> tuple[M, ...]:
    if len({(mark.swarm_id, mark.account) for mark in marks}) < len(marks):
        raise LocalProtocolError("the file has one account of one swarm twice")
    return marks


def _unknown_approvals(mark: Mark) -> ApprovalMark:
    return ApprovalMark(mark.swarm_id, mark.account, mark.epoch, MAX_TURN, UNKNOWN_ROOT)


def _list(document: Mapping[str, object], name: str) -> list[object]:
    if not isinstance(value := document[name], list):
        raise LocalProtocolError(f"the file's {name} are not a list")
    return value


def _mark(record: object) -> Mark:
    if not isinstance(record, dict) or record.keys() != _FIELDS:
        raise LocalProtocolError(f"a mark has exactly the fields {', '.join(sorted(_FIELDS))}")
    return Mark(
        swarm_id=SwarmId.from_hex(_text(record, "swarm")),
        account=Account.from_hex(_text(record, "account")),
        epoch=_number(record, "epoch"),
        next_slot=_number(record, "next_slot"),
        share=SlotShare.parse(_text(record, "share")),
    )


def _approval(record: object) -> ApprovalMark:
    if not isinstance(record, dict) or record.keys() != _APPROVAL_FIELDS:
        raise LocalProtocolError(f"an approval has exactly the fields {', '.join(sorted(_APPROVAL_FIELDS))}")
    return ApprovalMark(
        swarm_id=SwarmId.from_hex(_text(record, "swarm")),
        account=Account.from_hex(_text(record, "account")),
        epoch=_number(record, "epoch"),
        turn=_number(record, "turn"),
        root=Digest.from_hex(_text(record, "root")),
    )


def _text(record: Mapping[str, object], name: str) -> str:
    if not isinstance(value := record[name], str):
        raise LocalProtocolError(f"{name} is not a string")
    return value


def _number(record: Mapping[str, object], name: str) -> int:
    value = record[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_NUMBER:
        raise LocalProtocolError(f"{name} is not an integer from 0 to {_MAX_NUMBER}")
    return value
