"""One fuzzing session: a node, its reference, and the envelopes that both receive."""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import cbor2
from fuzz.mutator import AUTHORS, Mutator
from fuzz.mutator_others import AUDITORS, OTHERS
from reference.node import ReferenceNode
from vectors.pipeline import Outcome, Pipeline
from vectors.world import NOW_MS, PLAIN, STRANGER, frame

from sapo_protocol.envelope import Kind
from sapo_protocol.manifest_file import manifest_to_json

SESSION = 200
"""Envelopes that one node receives: enough for duplicates and double use of slots."""

OTHERS_SHARE = 0.3
"""Part of the envelopes that are no rollouts."""

STRAY_SHARE = 0.05
"""Part of the rollouts that come over a topic which does not carry them."""


@dataclass
class Figures:
    """The findings of a run; ``failures`` are kept whole, for a vector each."""

    envelopes: int = 0
    crashes: int = 0
    wrong_accepts: int = 0
    differences: int = 0
    disorders: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)
    mutations: Counter[str] = field(default_factory=Counter)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.crashes or self.wrong_accepts or self.differences or self.disorders)

    def fail(self, kind: str, number: int, data: bytes, detail: str) -> None:
        """Count a finding and keep its bytes."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.failures) < 20:
            self.failures.append({"kind": kind, "session": number, "bytes": data.hex(), "detail": detail})


def play(seed: int, number: int, figures: Figures, envelopes: int = SESSION) -> None:
    """Play one session: pipeline and reference side by side, then the pipeline alone in another order."""
    mutator = Mutator(random.Random(f"{seed}:{number}"))
    node, reference = pipeline(), reference_node()
    received: list[tuple[str, bytes, Outcome]] = []
    for _ in range(envelopes):
        mutation, topic, data = _next(mutator)
        outcome = outcome_of(node, data, topic)
        figures.envelopes += 1
        figures.mutations[mutation] += 1
        figures.outcomes[outcome[1] or outcome[0]] += 1
        figures.rules[outcome[2] or outcome[0]] += 1
        received.append((topic, data, outcome))
        if outcome[0] == "crash":
            figures.fail("crashes", number, data, outcome[1] or "")
            continue
        if outcome[0] == "accept" and not _is_authentic(mutator, data):
            figures.fail("wrong_accepts", number, data, mutation)
        if (other := reference.validate(topic, data, NOW_MS)) != outcome:
            figures.fail("differences", number, data, f"{mutation}: {outcome}, reference {other}")
    _again(mutator.random, number, received, figures)


def _next(mutator: Mutator) -> tuple[str, str, bytes]:
    """Return a mutation's name, its topic and its outcome."""
    if mutator.random.random() < OTHERS_SHARE:
        name = mutator.random.choice(list(OTHERS))
        topic, make = OTHERS[name]
        mutator.last[topic] = data = make(mutator)
        return name, topic, data
    strays = mutator.random.random() < STRAY_SHARE
    topic = mutator.random.choice(("contributions", "equivocations")) if strays else "rollouts"
    name, data = mutator.next()
    return name, topic, data


def outcome_of(node: Pipeline, data: bytes, topic: str = "rollouts") -> Outcome:
    """Return verdict, reason and rule; ``crash`` if anything but the one exception left the pipeline."""
    try:
        return node.validate(topic, data, NOW_MS)
    except Exception as error:
        return "crash", repr(error), None


def _is_authentic(mutator: Mutator, data: bytes) -> bool:
    """Whether these bytes are the envelope of a payload that the node which it names has signed.

    A proof is authentic if both messages in it are.
    """
    if data[4] == Kind.EQUIVOCATION:
        messages = cbor2.loads(cbor2.loads(data)[3]).values()
        return all(_is_authentic(mutator, message) for message in messages)
    return any(
        payload[4:36] == node and data == frame(PLAIN, kind=kind, payload=payload, signature=data[-64:])
        for node, kind, payload in mutator.signed
    )


def _again(
    shuffler: random.Random, number: int, received: list[tuple[str, bytes, Outcome]], figures: Figures
) -> None:
    """Return the same envelopes, doubled and in another order, to a fresh node."""
    node = pipeline()
    doubled = received + shuffler.sample(received, len(received) // 4)
    shuffler.shuffle(doubled)
    once = {(topic, data) for topic, data, outcome in received if outcome[0] == "accept"}
    refused = {(topic, data) for topic, data, outcome in received if outcome[0] == "reject"}
    accepted: set[tuple[str, bytes]] = set()
    for topic, data, _ in doubled:
        message, outcome = (topic, data), outcome_of(node, data, topic)
        if outcome[0] == "accept":
            accepted.add(message)
        if (outcome[0] == "accept" and message in refused) or (outcome[0] == "reject" and message in once):
            figures.fail("disorders", number, data, f"{outcome} in another order")
    if len(accepted) != len(once):  # one content per slot and one proof per epoch, whichever came first
        figures.fail("disorders", number, b"", f"{len(once)} accepted, then {len(accepted)}")


@cache
def certificates() -> tuple[bytes, ...]:
    """Return the certificates of all authors but the stranger."""
    return tuple(author.certificate() for author in AUTHORS if author is not STRANGER)


def pipeline() -> Pipeline:
    """Return a fresh node that knows them."""
    return Pipeline(PLAIN, AUDITORS, certificates(), NOW_MS / 1000)


def reference_node() -> ReferenceNode:
    """Return a fresh reference node with the same knowledge."""
    node = ReferenceNode(json.loads(manifest_to_json(PLAIN)), map(bytes, AUDITORS))
    for certificate in certificates():
        node.validate("certificates", certificate, NOW_MS)
    return node
