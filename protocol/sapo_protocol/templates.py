"""The common shape of an envelope and of a rollout, read in one pass.

Nearly every message is a genuine rollout in the one encoding that it can have, so its bytes follow a
template: these heads at these places, with values between them. What follows the template to the last
byte is taken; anything else yields nothing here and goes through the general decoder, which takes it or
says why not. So this module decides no verdict: it takes a subset of what the decoder takes, and reads
the same values out of it (the fuzz tests compare the two). It halves the price of admission.
"""

from typing import Final, NamedTuple

from sapo_protocol.constants import (
    MAX_COMPLETION_BYTES,
    MAX_COMPLETIONS,
    MAX_FAMILIES,
    MAX_GROUP_BYTES,
    PROTOCOL_VERSION,
)

_SIGNATURE_BYTES: Final = 64

_ARRAY: Final = 0x80
_BYTES: Final = 0x40
_SIGNATURE: Final = b"\x04\x58\x40"
_NODE: Final = b"\x00\x58\x20"
_ACCOUNT: Final = b"\x01\x54"
_POLICY_TAG: Final = b"\x06\x58\x20"


class Frame(NamedTuple):
    """What an envelope of the template holds."""

    kind: int
    payload: bytes
    signature: bytes


class RolloutFields(NamedTuple):
    """What a rollout of the template holds, within every bound of its schema."""

    node: bytes
    account: bytes
    epoch: int
    slot: int
    family: int
    completions: tuple[bytes, ...]
    policy_tag: bytes | None


def read_frame(data: bytes, swarm_id: bytes) -> Frame | None:
    """The frame in a message of this swarm and version, if it follows the template."""
    if not (data.startswith(_FRAME) and data[8:40] == swarm_id and data[5:8] == b"\x02\x58\x20"):
        return None
    if len(data) < 45 + _SIGNATURE_BYTES or data[40] != 3:
        return None
    length, start = _bytes_head(data, 41)
    end = start + length
    if length < 0 or len(data) != end + 3 + _SIGNATURE_BYTES or data[end : end + 3] != _SIGNATURE:
        return None
    return Frame(data[4], data[start:end], data[end + 3 :])


def read_rollout(payload: bytes) -> RolloutFields | None:
    """The fields of a rollout, if its payload follows the template."""
    if len(payload) < 58 or payload[1:4] != _NODE or payload[36:38] != _ACCOUNT:
        return None
    values, at = [], 58
    for key in (2, 3, 4):
        if at + 1 >= len(payload) or payload[at] != key:
            return None
        value, at = _uint(payload, at + 1)
        values.append(value)
    epoch, slot, family = values
    if epoch < 0 or not 0 <= slot < 1 << 32 or not 0 <= family < MAX_FAMILIES:
        return None
    completions, at = _completions(payload, at)
    if not completions:
        return None
    policy_tag = None
    if payload[0] == 0xA7 and payload[at : at + 3] == _POLICY_TAG:
        policy_tag, at = payload[at + 3 : at + 35], at + 35
    if at != len(payload) or payload[0] != (0xA6 if policy_tag is None else 0xA7):
        return None
    return RolloutFields(payload[4:36], payload[38:58], epoch, slot, family, completions, policy_tag)


def _completions(payload: bytes, at: int) -> tuple[tuple[bytes, ...], int]:
    """The completions behind key 5 and where they end; none if they leave the template or a bound."""
    taken, begin, size = [], at, len(payload)
    if at + 1 >= size or payload[at] != 5 or not _ARRAY < payload[at + 1] <= _ARRAY + MAX_COMPLETIONS:
        return (), at
    at += 2
    for _ in range(payload[begin + 1] - _ARRAY):
        if at >= size:
            return (), at
        if (length := payload[at] - _BYTES) < 24:
            at += 1
        elif length == 24 and at + 1 < size and payload[at + 1] >= 24:  # most completions, so not by a call
            length, at = payload[at + 1], at + 2
        else:
            length, at = _bytes_head(payload, at)
        if not 0 <= length <= MAX_COMPLETION_BYTES or at + length > size:
            return (), at
        completion = payload[at : at + length]
        if not (completion.isascii() or _is_utf8(completion)):
            return (), at
        taken.append(completion)
        at += length
    return (tuple(taken), at) if at - begin <= MAX_GROUP_BYTES else ((), at)


def _bytes_head(data: bytes, at: int) -> tuple[int, int]:
    """Length and begin of a byte string; a length of -1 if there is none in the shortest form."""
    first = data[at]
    if _BYTES <= first < _BYTES + 24:
        return first - _BYTES, at + 1
    size = 1 << (first - 0x58) if 0x58 <= first <= 0x5A else 0
    length = int.from_bytes(data[at + 1 : at + 1 + size], "big")
    if not size or at + 1 + size > len(data) or length < _SHORTEST[size]:
        return -1, at
    return length, at + 1 + size


def _uint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned integer and where it ends; -1 if there is none in the shortest form."""
    first = data[at]
    if first < 24:
        return first, at + 1
    if first > 27:
        return -1, at
    size = 1 << (first - 24)
    value = int.from_bytes(data[at + 1 : at + 1 + size], "big")
    return (value, at + 1 + size) if value >= _SHORTEST[size] else (-1, at)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


_SHORTEST: Final = {1: 24, 2: 1 << 8, 4: 1 << 16, 8: 1 << 32}
"""The smallest number that needs an argument of so many bytes."""
_FRAME: Final = bytes((0xA5, 0, PROTOCOL_VERSION, 1))
