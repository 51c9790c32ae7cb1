"""Admission against the one thing in it that cannot be saved: verifying the signature."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from nacl import bindings

from sapo_client.bench.swarm import GROUP, Author, BenchSwarm
from sapo_protocol.constants import MAX_ENVELOPE_BYTES
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, open_payload, parse_envelope
from sapo_protocol.errors import RemoteProtocolError

ROUNDS: Final = 7
"""Both sides are measured in turn; the best round of each is the one that nothing disturbed."""

COMPLETION: Final = b"the sum of the two is 12, so the answer is 12"


@dataclass(frozen=True, slots=True)
class AdmissionRate:
    """Messages per second of processor time."""

    message_bytes: int
    bare_per_second: float
    admitted_per_second: float

    @property
    def share(self) -> float:
        """Admission's rate as a share of bare verification's."""
        return self.admitted_per_second / self.bare_per_second


@dataclass(frozen=True, slots=True)
class AdmissionMemory:
    """What judging one hostile message allocates at its peak, in times its size, by kind of message."""

    peak_by_kind: Mapping[str, float]

    @property
    def worst(self) -> float:
        """The largest of them."""
        return max(self.peak_by_kind.values())


def admission_rate(messages: int) -> AdmissionRate:
    """Stages 0 to 7 of genuine messages against libsodium alone on the very same signatures."""
    swarm, author = BenchSwarm(), Author(0)
    sent = [swarm.message(author, 0, slot, [COMPLETION] * GROUP) for slot in range(messages)]
    signed = _signed(swarm, sent)
    bare, admitted = [], []
    for _ in range(ROUNDS):
        bare.append(_seconds(lambda: _verify_all(signed, bytes(author.node))))
        gate = swarm.admission([author])
        admitted.append(_seconds(lambda gate=gate: [gate.judge(m, swarm.now_seconds) for m in sent]))  # type: ignore[misc]
    return AdmissionRate(len(sent[0]), messages / min(bare), messages / min(admitted))


def _signed(swarm: BenchSwarm, sent: Sequence[bytes]) -> list[bytes]:
    """Signature and signed bytes in one, as libsodium takes them."""
    envelopes = [parse_envelope(message, swarm.manifest.swarm_id) for message in sent]
    return [
        e.signature + b"sapo/1/rollout\x00" + e.swarm_id + open_payload(e, Kind.ROLLOUT) for e in envelopes
    ]


def _verify_all(signed: Sequence[bytes], key: bytes) -> None:
    for data in signed:
        bindings.crypto_sign_open(data, key)


def _seconds(work: Callable[[], object]) -> float:
    """Processor time, which other processes on the machine do not lengthen as they do wall time."""
    gc.collect()
    began = time.process_time()
    work()
    return time.process_time() - began


def admission_memory() -> AdmissionMemory:
    """Peak allocation of one judgement of each hostile message."""
    swarm, author = BenchSwarm(), Author(0)
    gate = swarm.admission([author])
    peaks = {}
    for name, message in _hostile(swarm, author).items():
        gc.collect()
        tracemalloc.start()
        with suppress(RemoteProtocolError):
            gate.judge(message, swarm.now_seconds)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        peaks[name] = peak / len(message)
    return AdmissionMemory(peaks)


def _hostile(swarm: BenchSwarm, author: Author) -> dict[str, bytes]:
    """Messages at the limit of size that make a careless decoder allocate; none of them is admitted."""
    most = MAX_ENVELOPE_BYTES - 5
    largest = swarm.message(author, 0, 0, [b"a" * 8192] * 8)
    return {
        "largest rollout, forged": largest[:-1] + bytes((largest[-1] ^ 1,)),
        "numbers": _array(most) + bytes(most),
        "empty maps": _array(most) + b"\xa0" * most,
        "empty arrays": _array(most) + b"\x80" * most,
        "empty strings": _array(most) + b"\x40" * most,
        "nested arrays": _array(64) + (_array(2000) + b"\x80" * 2000) * 64,
        "one-pair maps": _array(most // 3) + b"\xa1\x00\x00" * (most // 3),
        "promised bytes": b"\x5b" + b"\xff" * 8 + bytes(most),
        "deep nesting": b"\x81" * most,
    }


def _array(length: int) -> bytes:
    """The head of an array."""
    head = encode(length)
    return bytes((head[0] | 0x80,)) + head[1:]
