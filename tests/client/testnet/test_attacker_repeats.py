"""An attack that could send nothing, because an epoch ended while its peer connected, is run again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from support.nodes import manifest_of

from sapo_client import keystore
from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport
from sapo_client.testnet import attacker
from sapo_client.testnet.attacker import Attacker, Campaign
from sapo_client.testnet.attacks import Attack, AttackContext, Message
from sapo_client.testnet.plan import AttackerHome
from sapo_protocol.errors import Reason, Verdict
from sapo_protocol.suite import Suite
from sapo_protocol.topics import rollouts_topic

ATTACK_SECONDS = 60.0


class Interrupted:
    """Makes one message when asked whether it is ready, none when it is run first, and one later."""

    def __init__(self, topic: str) -> None:
        self._message = Message(topic, b"an attack")
        self.calls = 0

    def __call__(self, _context: AttackContext) -> Sequence[Message]:
        self.calls += 1
        return [] if self.calls == 2 else [self._message]


async def test_an_attack_that_sent_nothing_is_run_again(
    tmp_path: Path, weekdays: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause in ("INTRODUCTION_SECONDS", "LINGER_SECONDS", "RETRY_SECONDS", "MESSAGE_PAUSE_SECONDS"):
        monkeypatch.setattr(attacker, pause, 0.1)
    monkeypatch.setenv("SAPO_LOCKS_DIR", str(tmp_path / "locks"))
    manifest = manifest_of(weekdays)
    home = AttackerHome("eve", tmp_path / "eve")
    keystore.create(home.identities / "replay.json", None)
    topic = rollouts_topic(manifest.swarm_id)
    make = Interrupted(topic)
    received: list[bytes] = []

    def validate(data: bytes, _forwarder: str) -> Verdict:
        received.append(data)
        return Verdict.ACCEPT

    target = Libp2pTransport(bytes([9]) * 32, on_bug=_raise, listen=("/ip4/127.0.0.1/tcp/0",))
    target.subscribe(topic, validate)
    async with trio.open_nursery() as nursery:
        await nursery.start(target.run)
        attack = Attack("replay", frozenset({Reason.SEEN}), make)
        one = Attacker(Campaign(home, manifest, target.addresses, seed=0, offset=0, attacks=(attack,)))
        with trio.fail_after(ATTACK_SECONDS):
            await one.run_attacks()
            while not received:
                await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    sent = [json.loads(line) for line in home.attacks.read_text(encoding="utf-8").splitlines()]
    assert [(entry["kind"], entry["peers"]) for entry in sent] == [("replay", 1)]
    assert (received, make.calls) == ([b"an attack"], 4)


def _raise(error: Exception) -> Any:
    raise error
