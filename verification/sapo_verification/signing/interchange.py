"""The signing database as a file, for moving an identity to another machine without signing a slot twice.

As in EIP-3076: JSON, one low watermark per swarm and account, complete or refused.

    {"format": "sapo-signing", "version": 1, "marks": [
      {"swarm": "<64 hex>", "account": "0x<40 hex>", "epoch": 7, "next_slot": 12, "share": "0/1"}]}
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, SwarmId
from sapo_protocol.json_text import require_shallow
from sapo_verification.signing.database import Mark, SlotShare

FORMAT: Final = "sapo-signing"
VERSION: Final = 1

MAX_FILE_BYTES: Final = 1024 * 1024
"""Five thousand marks; a node has a handful."""

_MAX_NUMBER: Final = 2**63 - 1
"""The largest integer that SQLite stores."""

_FIELDS: Final = frozenset({"swarm", "account", "epoch", "next_slot", "share"})


def marks_to_json(marks: Iterable[Mark]) -> str:
    """Return the text of an interchange file."""
    records = [
        {
            "swarm": mark.swarm_id.hex(),
            "account": str(mark.account),
            "epoch": mark.epoch,
            "next_slot": mark.next_slot,
            "share": str(mark.share),
        }
        for mark in marks
    ]
    return json.dumps({"format": FORMAT, "version": VERSION, "marks": records}, indent=2) + "\n"


def marks_from_json(text: str) -> tuple[Mark, ...]:
    """Return the marks in the text of an interchange file.

    Raises:
        LocalProtocolError: it is no interchange file, or not of this version, or names one account twice.
    """
    try:
        document = json.loads(require_shallow(text))
    except ValueError as error:
        raise LocalProtocolError(f"this is not JSON: {error}") from error
    if not isinstance(document, dict) or document.keys() != {"format", "version", "marks"}:
        raise LocalProtocolError("this is no signing history")
    if (document["format"], document["version"]) != (FORMAT, VERSION):
        raise LocalProtocolError(
            f"this is {document['format']} {document['version']}, not {FORMAT} {VERSION}"
        )
    if not isinstance(document["marks"], list):
        raise LocalProtocolError("its marks are no list")
    marks = tuple(_mark(record) for record in document["marks"])
    if len({(mark.swarm_id, mark.account) for mark in marks}) < len(marks):
        raise LocalProtocolError("it names one account of one swarm twice")
    return marks


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


def _text(record: Mapping[str, object], name: str) -> str:
    if not isinstance(value := record[name], str):
        raise LocalProtocolError(f"{name} is no text")
    return value


def _number(record: Mapping[str, object], name: str) -> int:
    value = record[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_NUMBER:
        raise LocalProtocolError(f"{name} is no number from 0 to {_MAX_NUMBER}")
    return value
