"""Messages that no honest node sends, by kind; made as cheaply as an attacker would.

Every kind costs a node something else. What is refused for good costs its sender points, so it is soon
disconnected; what is ignored costs it none, and the limit on messages of a connection alone is against it.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sapo_client.testnet.attacks import AttackContext, ObservedRollout
from sapo_protocol.envelope import Kind, SignedEnvelope, parse_envelope
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import Rollout, parse_rollout

_REMEMBERED: Final = 64
_SIGNATURE_BYTES: Final = 64
_MALFORMED_BYTES: Final = 64

Make = Callable[["ReceivedRollouts", AttackContext, int], Sequence[bytes]]


class ReceivedRollouts:
    """The latest honest rollouts that the attacker received."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        self._rollouts: deque[ObservedRollout] = deque(maxlen=_REMEMBERED)

    def __len__(self) -> int:
        return len(self._rollouts)

    def __iter__(self) -> Iterator[ObservedRollout]:
        return iter(self._rollouts)

    def add(self, data: bytes, at_seconds: float) -> None:
        """Remember a message, unless it is no rollout."""
        try:
            envelope = parse_envelope(data, self._manifest.swarm_id)
            rollout = parse_rollout(envelope.payload)
        except RemoteProtocolError:
            return
        self._rollouts.append(ObservedRollout(at_seconds, data, envelope, rollout))

    def one(self, rng: random.Random) -> ObservedRollout:
        """Return one of them."""
        return self._rollouts[rng.randrange(len(self._rollouts))]


def _malformed(_received: ReceivedRollouts, context: AttackContext, count: int) -> Sequence[bytes]:
    return [b"\xff" + context.rng.randbytes(_MALFORMED_BYTES) for _ in range(count)]


def _forged(received: ReceivedRollouts, context: AttackContext, count: int) -> Sequence[bytes]:
    """Make a short rollout that an honest node is said to have signed: a node must verify to find out."""
    victim = received.one(context.rng)
    slot = context.rng.randrange(context.manifest.limits.slots_per_epoch)
    content = replace(victim.rollout, slot=slot, completions=(b"?",) * len(victim.rollout.completions))
    return _signed_anew(replace(victim.envelope, payload=content.to_payload()).to_bytes(), context, count)


def _repeated(received: ReceivedRollouts, context: AttackContext, count: int) -> Sequence[bytes]:
    return [received.one(context.rng).data for _ in range(count)]


def _repeated_anew(received: ReceivedRollouts, context: AttackContext, count: int) -> Sequence[bytes]:
    """Make copies of earlier messages under other signatures, each a new message for the transport."""
    return _signed_anew(received.one(context.rng).data, context, count)


def _too_early(_received: ReceivedRollouts, context: AttackContext, count: int) -> Sequence[bytes]:
    return _signed_anew(
        _unsigned(context, replace(context.rollout(), epoch=context.epoch + 2)), context, count
    )


def _strangers(_received: ReceivedRollouts, context: AttackContext, count: int) -> Sequence[bytes]:
    """Make rollouts of nodes that do not exist: a receiver requests the certificate of each author."""
    before, after = _unsigned(context, context.rollout()).split(context.key.node)
    return [before + context.rng.randbytes(len(context.key.node)) + after for _ in range(count)]


def _unsigned(context: AttackContext, rollout: Rollout) -> bytes:
    nobodys = bytes(_SIGNATURE_BYTES)
    return SignedEnvelope(Kind.ROLLOUT, context.manifest.swarm_id, rollout.to_payload(), nobodys).to_bytes()


def _signed_anew(message: bytes, context: AttackContext, count: int) -> Sequence[bytes]:
    """Return copies of a message, each with other random bytes for a signature, which comes last."""
    begin = message[:-_SIGNATURE_BYTES]
    return [begin + context.rng.randbytes(_SIGNATURE_BYTES) for _ in range(count)]


KINDS: Final[Mapping[str, Make]] = {
    "malformed": _malformed,
    "with a wrong signature": _forged,
    "repeated": _repeated,
    "repeated under another signature": _repeated_anew,
    "of a later epoch": _too_early,
    "of strangers": _strangers,
}

IGNORED: Final = ("repeated", "repeated under another signature", "of a later epoch", "of strangers")
"""Kinds for which nobody is blamed."""


def frame(
    kind: str, received: ReceivedRollouts, context: AttackContext, count: int, max_bytes: int
) -> Sequence[bytes]:
    """Return a number of messages of a kind, or as many as have that size together; at least one."""
    messages = KINDS[kind](received, context, count)
    return messages[: max(1, max_bytes // max(map(len, messages)))]
