"""The kinds of attack: a name, the reason for which honest nodes must refuse it, and how it is made.

Each kind breaks one rule and keeps all others, so that the refusal names that rule. It is sent by an
identity of its own: a kind whose sender is disconnected must not prevent the next one.
Making a message is pure: the clock reading and the random generator are passed in.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sapo_protocol.constants import CLOCK_SLACK_SECONDS, EPOCH_WINDOW, MAX_FAMILIES
from sapo_protocol.contributions import Tally
from sapo_protocol.decoding import decode
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.epochs import epoch_at
from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId, SwarmId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import Rollout
from sapo_protocol.topics import contributions_topic, rollouts_topic
from sapo_verification.tasks.text_policy import CLOSE_TAG, OPEN_TAG

SEEN_SECONDS: Final = 121.0
"""Seconds after which the transport has forgotten a message id, so that a copy reaches admission."""

SETTLED_SECONDS: Final = 3.0
"""Seconds after which a message has reached every node, so that a copy cannot arrive first."""

FLOOD_MESSAGES: Final = 1600
"""Messages of a flood, sent at once; a connection may burst 800 and then send 200 per second among so few
accounts."""

FLOOD_FRAME_MESSAGES: Final = 100
"""Messages per frame: a frame costs the flooded node little; the limit counts its messages."""


def marker(manifest: Manifest) -> str:
    """Return the name of the files that answers try to create; one per swarm, short enough for any family."""
    return f"pwn{manifest.swarm_id.hex()[:6]}"


@dataclass(frozen=True, slots=True)
class ObservedRollout:
    """An honest rollout that was received from the network."""

    at_seconds: float
    data: bytes
    envelope: SignedEnvelope
    rollout: Rollout


class ObservedRollouts:
    """Rollouts that an attacker received: the first ones, for late replays, and the latest ones."""

    def __init__(self, *, first: int = 8, latest: int = 256) -> None:
        self._first: list[ObservedRollout] = []
        self._room = first
        self._latest: deque[ObservedRollout] = deque(maxlen=latest)

    def add(self, observed: ObservedRollout) -> None:
        """Add a rollout; the oldest of the latest ones makes room for it."""
        if len(self._first) < self._room:
            self._first.append(observed)
        else:
            self._latest.append(observed)

    def all(self) -> tuple[ObservedRollout, ...]:
        """Return all stored rollouts, oldest first."""
        return *self._first, *self._latest


@dataclass(frozen=True, slots=True)
class Message:
    """One message to send; ``bait`` marks the valid first message of an attack with two messages."""

    topic: str
    data: bytes
    content_id: ContentId | None = None
    bait: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """Keys and names of the signer."""

    seed: bytes
    node: NodeId
    account: Account


@dataclass(slots=True)
class AttackContext:
    """Everything that an attack needs to make its messages.

    Attributes:
        now_seconds: a reading of the clock.
        observed: honest rollouts, oldest first.
        markers: an existing folder in which answers try to create files.
    """

    manifest: Manifest
    key: Key
    rng: random.Random
    now_seconds: float
    observed: Sequence[ObservedRollout]
    markers: Path
    next_slot: int = 0

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return epoch_at(self.manifest, self.now_seconds)

    def rollout(self, *completions: str, family: int | None = None) -> Rollout:
        """Return a valid rollout of the own account in an unused slot."""
        slot = self.next_slot
        self.next_slot = (slot + 1) % self.manifest.limits.slots_per_epoch
        limit = self.manifest.limits.max_completions
        texts = tuple(text.encode() for text in completions) or (b"?",) * limit
        return Rollout(
            node=self.key.node,
            account=self.key.account,
            epoch=self.epoch,
            slot=slot,
            family=self.rng.randrange(len(self.manifest.suite.families)) if family is None else family,
            completions=texts[:limit],
        )

    def sealed(self, rollout: Rollout, swarm_id: SwarmId | None = None) -> Message:
        """Return the correctly signed message that carries a rollout."""
        envelope = seal(Kind.ROLLOUT, swarm_id or self.manifest.swarm_id, rollout.to_payload(), self.key.seed)
        return self.message(envelope.to_bytes(), envelope.content_id)

    def message(self, data: bytes, content_id: ContentId | None = None) -> Message:
        """Return a message for the rollouts topic."""
        return Message(rollouts_topic(self.manifest.swarm_id), data, content_id)


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack.

    Attributes:
        expected: the reasons that count as the right refusal.
        make: returns the messages of one round, in order; none while it is too early for them.
        certified: whether the sender publishes its certificate first.
        targets: number of nodes to connect to; none for all of them.
        may_be_right: whether chance can make it a valid contribution, which is then not a failure.
        burst: whether the messages are sent at once, many per frame.
    """

    name: str
    expected: frozenset[Reason]
    make: Callable[[AttackContext], Sequence[Message]]
    certified: bool = True
    targets: int | None = None
    may_be_right: bool = False
    burst: bool = False


def bad_signature(context: AttackContext) -> Sequence[Message]:
    """Make three forgeries: a flipped signature bit, a changed completion, another key's signature."""
    swarm_id, key = context.manifest.swarm_id, context.key
    first, second, third = (context.rollout().to_payload() for _ in range(3))
    flipped = seal(Kind.ROLLOUT, swarm_id, first, key.seed)
    flipped = replace(flipped, signature=_flip_bit(flipped.signature, context.rng))
    changed = replace(
        seal(Kind.ROLLOUT, swarm_id, second, key.seed), payload=context.rollout("!").to_payload()
    )
    stranger = seal(Kind.ROLLOUT, swarm_id, third, context.rng.randbytes(32))
    return [
        context.message(envelope.to_bytes(), envelope.content_id) for envelope in (flipped, changed, stranger)
    ]


def epoch_past(context: AttackContext) -> Sequence[Message]:
    """Make rollouts of a past epoch; none before there is one."""
    safe = epoch_at(context.manifest, context.now_seconds - CLOCK_SLACK_SECONDS - 1.0) if context.epoch else 0
    past = safe - EPOCH_WINDOW - 1
    if past < 0:
        return []
    return [context.sealed(replace(context.rollout(), epoch=past)) for _ in range(3)]


def epoch_future(context: AttackContext) -> Sequence[Message]:
    """Make rollouts of epochs whose beacon is not known yet."""
    return [context.sealed(replace(context.rollout(), epoch=context.epoch + ahead)) for ahead in (2, 3, 1000)]


def replay(context: AttackContext) -> Sequence[Message]:
    """Repeat honest rollouts with a changed signature, so that the transport takes them for new messages."""
    settled = [one for one in context.observed if one.at_seconds + SETTLED_SECONDS < context.now_seconds]
    recent = [one for one in settled if one.rollout.epoch == context.epoch]
    return [context.message(_with_other_signature(one, context.rng), None) for one in recent[-3:]]


def late_replay(context: AttackContext) -> Sequence[Message]:
    """Repeat honest rollouts byte for byte, after the transport has forgotten their message ids."""
    old = [one for one in context.observed if one.at_seconds + SEEN_SECONDS < context.now_seconds]
    return [context.message(one.data, one.envelope.content_id) for one in old[:3]]


def copied_answers(context: AttackContext) -> Sequence[Message]:
    """Submit another author's answers in own slots, most frequent answers first."""
    ranked = sorted(context.observed[-64:], key=lambda observed: len(set(observed.rollout.completions)))
    return [
        context.sealed(replace(context.rollout(family=h.rollout.family), completions=h.rollout.completions))
        for h in ranked[:3]
    ]


def foreign_swarm(context: AttackContext) -> Sequence[Message]:
    """Make rollouts signed for another swarm."""
    return [context.sealed(context.rollout(), SwarmId(context.rng.randbytes(32))) for _ in range(3)]


def malformed(context: AttackContext) -> Sequence[Message]:
    """Make random bytes, a truncated message, and a valid message in a longer encoding."""
    whole = context.sealed(context.rollout()).data
    cut = context.sealed(context.rollout()).data
    return [
        context.message(b"\xff" + context.rng.randbytes(context.rng.randrange(16, 512))),
        context.message(cut[: context.rng.randrange(1, len(cut) - 1)]),
        context.message(whole[:2] + b"\x18\x01" + whole[3:]),  # the version, a 1, in two bytes instead of one
    ]


def claimed_reward(context: AttackContext) -> Sequence[Message]:
    """Make rollouts that carry a reward in a field that is reserved, or that the schema does not have."""
    fields = decode(context.rollout().to_payload())
    assert isinstance(fields, dict)
    payloads = [encode({**fields, field: 1}) for field in (7, 8, 99)]
    envelopes = [
        seal(Kind.ROLLOUT, context.manifest.swarm_id, payload, context.key.seed) for payload in payloads
    ]
    return [context.message(envelope.to_bytes(), envelope.content_id) for envelope in envelopes]


def stranger(context: AttackContext) -> Sequence[Message]:
    """Make rollouts of a key without a certificate."""
    return [context.sealed(context.rollout()) for _ in range(3)]


def over_quota(context: AttackContext) -> Sequence[Message]:
    """Make rollouts in slots beyond the quota."""
    first = context.manifest.limits.slots_per_epoch
    return [context.sealed(replace(context.rollout(), slot=slot)) for slot in (first, first + 1, 2**32 - 1)]


def unknown_family(context: AttackContext) -> Sequence[Message]:
    """Make a rollout of a task family that the suite does not have."""
    return [context.sealed(context.rollout(family=MAX_FAMILIES - 1))]


def equivocation(context: AttackContext) -> Sequence[Message]:
    """Make two different contents for one slot; the first one is the bait."""
    first = context.rollout()
    second = replace(first, completions=tuple(text + b"!" for text in first.completions))
    return [replace(context.sealed(first), bait=True), context.sealed(second)]


def code_in_answer(context: AttackContext) -> Sequence[Message]:
    """Make answers that create files, exhaust memory or end the process if they are evaluated as code."""
    families = list(range(len(context.manifest.suite.families)))
    context.rng.shuffle(families)
    return [
        context.sealed(context.rollout(*_hostile_answers(context, family), family=family))
        for family in families[:3]
    ]


def false_tally(context: AttackContext) -> Sequence[Message]:
    """Make a tally in its own favour by a non-auditor; none before an epoch has ended."""
    if context.epoch == 0:
        return []
    key, shares = context.key, ((context.key.account, 1_000_000),)
    tally = Tally(
        node=key.node,
        account=key.account,
        epoch=context.epoch - 1,
        points=shares,
        evidence_root=Digest(context.rng.randbytes(32)),
    )
    envelope = seal(Kind.TALLY, context.manifest.swarm_id, tally.to_payload(), key.seed)
    topic = contributions_topic(context.manifest.swarm_id)
    return [Message(topic, envelope.to_bytes(), envelope.content_id)]


def flood(context: AttackContext) -> Sequence[Message]:
    """Make far more messages than a connection may send; all of one harmless and cheap kind."""
    base = replace(context.rollout("?"), epoch=context.epoch + 2)
    envelope = seal(Kind.ROLLOUT, context.manifest.swarm_id, base.to_payload(), context.key.seed)
    signatures = (context.rng.randbytes(64) for _ in range(FLOOD_MESSAGES))
    return [context.message(replace(envelope, signature=signature).to_bytes()) for signature in signatures]


def _hostile_answers(context: AttackContext, family: int) -> list[str]:
    """Return hostile texts as answers, where a scorer of the family is given them."""
    texts = _hostile_texts(context)
    if context.manifest.suite.families[family].answer == "plain":
        return texts
    return [f"{OPEN_TAG}{text}{CLOSE_TAG}" for text in texts]


def _hostile_texts(context: AttackContext) -> list[str]:
    name = marker(context.manifest)
    path = context.markers / name
    return [
        f"__import__('os').system('touch {path}')",
        f"open({str(path)!r}, 'w').close()",
        f"open('{name}','w')",  # short enough for the shortest families
        '__import__("os").abort()',
        "9**9**9**9",
        f"exec('import os; os.mkdir({name!r})')",
        "().__class__.__base__.__subclasses__()",
        "eval('1+'*9**7+'1')",
    ]


def _with_other_signature(observed: ObservedRollout, rng: random.Random) -> bytes:
    return replace(observed.envelope, signature=_flip_bit(observed.envelope.signature, rng)).to_bytes()


def _flip_bit(data: bytes, rng: random.Random) -> bytes:
    bit = rng.randrange(8 * len(data))
    return (int.from_bytes(data, "big") ^ 1 << bit).to_bytes(len(data), "big")


def _only(*reasons: Reason) -> frozenset[Reason]:
    return frozenset(reasons)


ATTACKS: Final = (
    Attack("bad_signature", _only(Reason.BAD_SIGNATURE), bad_signature),
    Attack("code_in_answer", _only(Reason.CODE_IN_ANSWER), code_in_answer),
    Attack("epoch_future", _only(Reason.EPOCH_FUTURE), epoch_future),
    Attack("malformed", _only(Reason.NOT_CANONICAL), malformed),
    Attack("replay", _only(Reason.SEEN), replay),
    Attack("copied_answers", _only(Reason.NO_SIGNAL), copied_answers, may_be_right=True),
    Attack("equivocation", _only(Reason.EQUIVOCATION), equivocation),
    Attack("over_quota", _only(Reason.SLOT_OVER_QUOTA), over_quota),
    Attack("flood", _only(Reason.FLOOD), flood, targets=1, burst=True),
    Attack("foreign_swarm", _only(Reason.WRONG_SWARM), foreign_swarm),
    Attack("claimed_reward", _only(Reason.SCHEMA, Reason.RESERVED), claimed_reward),
    Attack("stranger", _only(Reason.CERTIFICATE_UNKNOWN), stranger, certified=False),
    Attack("unknown_family", _only(Reason.UNKNOWN_FAMILY), unknown_family),
    Attack("false_tally", _only(Reason.NOT_AN_AUDITOR), false_tally),
    Attack("epoch_past", _only(Reason.EPOCH_PAST), epoch_past),
    # a swarm with long epochs still accepts that epoch, and knows the rollout
    Attack("late_replay", _only(Reason.EPOCH_PAST, Reason.SEEN), late_replay),
)
"""In the order in which an attacker runs them: those with preconditions come last."""

BY_NAME: Final = {attack.name: attack for attack in ATTACKS}
