"""Messages between node and learner: frames of four length bytes, big-endian, and one CBOR map.

Both ends are processes of one user on one machine, so floats are allowed and there is no schema beside the
code.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, BinaryIO, Final

import cbor2

from sapo_protocol.identifiers import ContentId
from sapo_verification.types import (
    Demonstration,
    OwnAnswer,
    PractisedGroup,
    PrivateGroup,
    SampledBatch,
    SampledGroup,
)

HEADER: Final = struct.Struct(">I")

HAPPENED: Final = "happened"
"""Key of the events (names and fields) in the result of a call."""

Message = dict[str, Any]


class RefusalReason(StrEnum):
    """Why a prompt is not answered.

    Attributes:
        WINDOW: prompt and answer exceed the model's context window.
        TEMPLATE: the model's chat template raises for the prompt.
    """

    WINDOW = "window"
    TEMPLATE = "template"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason and text of why a prompt is not answered."""

    reason: RefusalReason
    detail: str


def pack(message: Message) -> bytes:
    """Encode a message as a frame."""
    body = cbor2.dumps(message)
    return HEADER.pack(len(body)) + body


def unpack(body: bytes) -> Message:
    """Decode a frame's body."""
    message: Message = cbor2.loads(body)
    return message


def read_frame(stream: BinaryIO) -> Message | None:
    """Read the next message of a blocking stream; return None once it has ended."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    body = stream.read(length)
    return unpack(body) if len(body) == length else None


def take_frames(buffer: bytearray) -> list[Message]:
    """Remove all complete frames from the front of a buffer and return their messages."""
    messages: list[Message] = []
    while len(buffer) >= HEADER.size:
        (length,) = HEADER.unpack_from(buffer)
        stop = HEADER.size + length
        if len(buffer) < stop:
            break
        messages.append(unpack(bytes(buffer[HEADER.size : stop])))
        del buffer[:stop]
    return messages


def train_arguments(batch: SampledBatch, handles: Mapping[ContentId, int]) -> Message:
    """Return the arguments of the learner's call ``train`` for a batch, as plain values."""
    return {
        "groups": [
            *(group_message(group, handles.get(group.rollout.content_id)) for group in batch.groups),
            *(practised_message(group, handles.get(group.hint.content_id)) for group in batch.practised),
            *(private_message(group) for group in batch.private),
        ],
        "demonstrations": [demonstration_message(each) for each in batch.demonstrations],
        "judged": [demonstration_message(each) for each in batch.judged],
        "rehearsed": [own_answer_message(each) for each in batch.rehearsed],
        "forgotten": [(bytes(account), family) for account, family in sorted(batch.forgotten)],
    }


def practised_message(group: PractisedGroup, handle: int | None) -> Message:
    """Return the fields of own answers to another account's task, as ``group_message`` does.

    It has no family: the task was chosen by another account, so it must not count in the own baselines.
    """
    return {
        "prompt": group.hint.prompt,
        "completions": list(group.completions),
        "rewards": list(group.rewards),
        "external": False,
        "family": None,
        "handle": handle,
    }


def private_message(group: PrivateGroup) -> Message:
    """Return the fields of own answers that are not published, as ``group_message`` does."""
    return {
        "prompt": group.prompt,
        "completions": list(group.completions),
        "rewards": list(group.rewards),
        "external": False,
        "family": group.task.family,
        "handle": group.handle,
    }


def demonstration_message(demonstration: Demonstration) -> Message:
    """Return the fields of a demonstration that the learner needs, as plain values."""
    return {
        "prompt": demonstration.prompt,
        "completion": demonstration.completion,
        "family": demonstration.family,
        "author": bytes(demonstration.account),
        "answer": demonstration.answer,
    }


def own_answer_message(answer: OwnAnswer) -> Message:
    """Return the fields of an own answer that the learner needs, as plain values."""
    return {"prompt": answer.prompt, "completion": answer.completion, "family": answer.family}


def group_message(group: SampledGroup, handle: int | None) -> Message:
    """Return the fields of a group that the learner needs, as plain values.

    Args:
        group: of a batch.
        handle: of the sampled tokens inside the learner; None for external groups.
    """
    rollout = group.rollout
    return {
        "prompt": rollout.prompt,
        "completions": list(rollout.completions),
        "rewards": list(rollout.rewards),
        "external": group.external,
        "family": rollout.task.family,
        "handle": handle,
    }
