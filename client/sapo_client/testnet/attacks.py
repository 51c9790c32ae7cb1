"""The kinds of attack: a name, the reason that honest nodes must refuse it for, and how it is made.

Each kind breaks one rule and keeps all the others, so that the refusal names that rule. It is sent by an
identity of its own: a kind that gets its sender disconnected must not silence the next one.
Making a message is pure but for the clock and the random generator, which are passed in.
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
from sapo_protocol.encoding import decode, encode
from sapo_protocol.envelope import Kind, SignedEnvelope, seal
from sapo_protocol.epochs import epoch_at
from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId, SwarmId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import Rollout
from sapo_protocol.topics import contributions_topic, rollouts_topic

SEEN_SECONDS: Final = 121.0
"""Just beyond the wire's memory of messages: a byte-identical copy gets as far as admission again."""

SETTLED_SECONDS: Final = 3.0
"""A message this old has reached every node: a copy of it cannot overtake it."""

FLOOD_MESSAGES: Final = 1600
"""At once; a connection may burst 800 and then send 200 per second."""

FLOOD_FRAME_MESSAGES: Final = 100
"""Messages per frame: a frame costs the flooded node little, its messages are what is metered."""


def marker(manifest: Manifest) -> str:
    """Name of the files that answers try to create; the swarm's own, and short enough for any family."""
    return f"pwn{manifest.swarm_id.hex()[:6]}"


@dataclass(frozen=True, slots=True)
class ObservedRollout:
    """An honest rollout off the wire."""

    at_seconds: float
    data: bytes
    envelope: SignedEnvelope
    rollout: Rollout


class Hearing:
    """What an attacker heard: the first rollouts, which are replayed late, and the latest ones."""

    def __init__(self, *, first: int = 8, latest: int = 256) -> None:
        self._first: list[ObservedRollout] = []
        self._room = first
        self._latest: deque[ObservedRollout] = deque(maxlen=latest)

    def add(self, heard: ObservedRollout) -> None:
        """Keeps one more rollout."""
        if len(self._first) < self._room:
            self._first.append(heard)
        else:
            self._latest.append(heard)

    def all(self) -> tuple[ObservedRollout, ...]:
        """Everything that is kept, oldest first."""
        return *self._first, *self._latest


@dataclass(frozen=True, slots=True)
class Message:
    """One message to send; bait is the harmless half of an attack that takes two."""

    topic: str
    data: bytes
    content_id: ContentId | None = None
    bait: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """Who signs."""

    seed: bytes
    node: NodeId
    account: Account


@dataclass(slots=True)
class Workshop:
    """Everything that attacks are made of.

    Attributes:
        now_seconds: a reading of the clock.
        heard: honest rollouts, oldest first.
        markers: an existing folder in which answers try to create files.
    """

    manifest: Manifest
    key: Key
    rng: random.Random
    now_seconds: float
    heard: Sequence[ObservedRollout]
    markers: Path
    next_slot: int = 0

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return epoch_at(self.manifest, self.now_seconds)

    def rollout(self, *completions: str, family: int | None = None) -> Rollout:
        """A flawless rollout of the own account in a slot of its own."""
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
        """A rollout as the message that carries it, signed correctly."""
        envelope = seal(Kind.ROLLOUT, swarm_id or self.manifest.swarm_id, rollout.to_payload(), self.key.seed)
        return self.message(envelope.to_bytes(), envelope.content_id)

    def message(self, data: bytes, content_id: ContentId | None = None) -> Message:
        """Bytes for the rollouts topic."""
        return Message(rollouts_topic(self.manifest.swarm_id), data, content_id)


@dataclass(frozen=True, slots=True)
class Attack:
    """One kind of attack.

    Attributes:
        expected: the reasons that count as the right refusal.
        make: the messages of one round, in order; none while the time for them has not come.
        certified: whether the sender introduces itself with a certificate first.
        targets: nodes to connect to; all of them where it is none.
        may_be_right: whether chance can make it a valid contribution, which is then no failure.
        burst: whether the messages are sent at once, many to a frame.
    """

    name: str
    expected: frozenset[Reason]
    make: Callable[[Workshop], Sequence[Message]]
    certified: bool = True
    targets: int | None = None
    may_be_right: bool = False
    burst: bool = False


def bad_signature(shop: Workshop) -> Sequence[Message]:
    """A flipped bit in the signature, a changed completion under the old one, another key's signature."""
    swarm_id, key = shop.manifest.swarm_id, shop.key
    first, second, third = (shop.rollout().to_payload() for _ in range(3))
    flipped = seal(Kind.ROLLOUT, swarm_id, first, key.seed)
    flipped = replace(flipped, signature=_flip_bit(flipped.signature, shop.rng))
    changed = replace(seal(Kind.ROLLOUT, swarm_id, second, key.seed), payload=shop.rollout("!").to_payload())
    stranger = seal(Kind.ROLLOUT, swarm_id, third, shop.rng.randbytes(32))
    return [
        shop.message(envelope.to_bytes(), envelope.content_id) for envelope in (flipped, changed, stranger)
    ]


def epoch_past(shop: Workshop) -> Sequence[Message]:
    """Rollouts of an epoch that is over; none before there is one."""
    safe = epoch_at(shop.manifest, shop.now_seconds - CLOCK_SLACK_SECONDS - 1.0) if shop.epoch else 0
    past = safe - EPOCH_WINDOW - 1
    if past < 0:
        return []
    return [shop.sealed(replace(shop.rollout(), epoch=past)) for _ in range(3)]


def epoch_future(shop: Workshop) -> Sequence[Message]:
    """Rollouts prepared ahead of their beacon."""
    return [shop.sealed(replace(shop.rollout(), epoch=shop.epoch + ahead)) for ahead in (2, 3, 1000)]


def replay(shop: Workshop) -> Sequence[Message]:
    """Somebody's genuine rollouts once more, their signature mangled so that the wire takes them for new."""
    settled = [heard for heard in shop.heard if heard.at_seconds + SETTLED_SECONDS < shop.now_seconds]
    recent = [heard for heard in settled if heard.rollout.epoch == shop.epoch]
    return [shop.message(_with_other_signature(heard, shop.rng), None) for heard in recent[-3:]]


def late_replay(shop: Workshop) -> Sequence[Message]:
    """Somebody's genuine rollouts once more, byte for byte, after the wire has forgotten them."""
    old = [heard for heard in shop.heard if heard.at_seconds + SEEN_SECONDS < shop.now_seconds]
    return [shop.message(heard.data, heard.envelope.content_id) for heard in old[:3]]


def copied_answers(shop: Workshop) -> Sequence[Message]:
    """Somebody's answers under the own name and slot: the likeliest to agree with each other first."""
    ranked = sorted(shop.heard[-64:], key=lambda heard: len(set(heard.rollout.completions)))
    return [
        shop.sealed(replace(shop.rollout(family=h.rollout.family), completions=h.rollout.completions))
        for h in ranked[:3]
    ]


def foreign_swarm(shop: Workshop) -> Sequence[Message]:
    """Rollouts signed for another swarm."""
    return [shop.sealed(shop.rollout(), SwarmId(shop.rng.randbytes(32))) for _ in range(3)]


def malformed(shop: Workshop) -> Sequence[Message]:
    """Garbage, a message cut off, and one that says the same in a longer encoding."""
    whole = shop.sealed(shop.rollout()).data
    cut = shop.sealed(shop.rollout()).data
    return [
        shop.message(b"\xff" + shop.rng.randbytes(shop.rng.randrange(16, 512))),
        shop.message(cut[: shop.rng.randrange(1, len(cut) - 1)]),
        shop.message(whole[:2] + b"\x18\x01" + whole[3:]),  # the version, a 1, in two bytes instead of one
    ]


def claimed_reward(shop: Workshop) -> Sequence[Message]:
    """A rollout that brings its own reward along, in a field that the schema does not have."""
    fields = decode(shop.rollout().to_payload())
    assert isinstance(fields, dict)
    payloads = [encode({**fields, field: 1}) for field in (7, 8, 99)]
    envelopes = [seal(Kind.ROLLOUT, shop.manifest.swarm_id, payload, shop.key.seed) for payload in payloads]
    return [shop.message(envelope.to_bytes(), envelope.content_id) for envelope in envelopes]


def stranger(shop: Workshop) -> Sequence[Message]:
    """Rollouts of a key that no certificate introduced."""
    return [shop.sealed(shop.rollout()) for _ in range(3)]


def over_quota(shop: Workshop) -> Sequence[Message]:
    """Rollouts in slots that no account has."""
    first = shop.manifest.limits.slots_per_epoch
    return [shop.sealed(replace(shop.rollout(), slot=slot)) for slot in (first, first + 1, 2**32 - 1)]


def unknown_family(shop: Workshop) -> Sequence[Message]:
    """A rollout for a task that the suite does not have."""
    return [shop.sealed(shop.rollout(family=MAX_FAMILIES - 1))]


def equivocation(shop: Workshop) -> Sequence[Message]:
    """Two different contents in one slot; the first one is the bait."""
    first = shop.rollout()
    second = replace(first, completions=tuple(text + b"!" for text in first.completions))
    return [replace(shop.sealed(first), bait=True), shop.sealed(second)]


def code_in_answer(shop: Workshop) -> Sequence[Message]:
    """Answers that create files, exhaust the machine or end the process, if anybody evaluates them."""
    families = list(range(len(shop.manifest.suite.families)))
    shop.rng.shuffle(families)
    return [shop.sealed(shop.rollout(*_hostile_texts(shop), family=family)) for family in families[:3]]


def false_tally(shop: Workshop) -> Sequence[Message]:
    """An auditor's count by somebody who is none, in the own favour; none before an epoch has ended."""
    if shop.epoch == 0:
        return []
    key, shares = shop.key, ((shop.key.account, 1_000_000),)
    tally = Tally(key.node, key.account, shop.epoch - 1, shares, Digest(shop.rng.randbytes(32)))
    envelope = seal(Kind.TALLY, shop.manifest.swarm_id, tally.to_payload(), key.seed)
    topic = contributions_topic(shop.manifest.swarm_id)
    return [Message(topic, envelope.to_bytes(), envelope.content_id)]


def flood(shop: Workshop) -> Sequence[Message]:
    """Far more messages than a connection may send; all of one harmless and cheap kind."""
    base = replace(shop.rollout("?"), epoch=shop.epoch + 2)
    envelope = seal(Kind.ROLLOUT, shop.manifest.swarm_id, base.to_payload(), shop.key.seed)
    signatures = (shop.rng.randbytes(64) for _ in range(FLOOD_MESSAGES))
    return [shop.message(replace(envelope, signature=signature).to_bytes()) for signature in signatures]


def _hostile_texts(shop: Workshop) -> list[str]:
    name = marker(shop.manifest)
    path = shop.markers / name
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


def _with_other_signature(heard: ObservedRollout, rng: random.Random) -> bytes:
    return replace(heard.envelope, signature=_flip_bit(heard.envelope.signature, rng)).to_bytes()


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
    Attack("claimed_reward", _only(Reason.SCHEMA), claimed_reward),
    Attack("stranger", _only(Reason.CERTIFICATE_UNKNOWN), stranger, certified=False),
    Attack("unknown_family", _only(Reason.UNKNOWN_FAMILY), unknown_family),
    Attack("false_tally", _only(Reason.NOT_AN_AUDITOR), false_tally),
    Attack("epoch_past", _only(Reason.EPOCH_PAST), epoch_past),
    # a swarm with long epochs still hears that epoch, and knows the rollout
    Attack("late_replay", _only(Reason.EPOCH_PAST, Reason.SEEN), late_replay),
)
"""In the order in which an attacker goes through them: those that must wait for something come last."""

BY_NAME: Final = {attack.name: attack for attack in ATTACKS}
