"""`python -m sapo_client.testnet.attacker`: a peer that breaks every rule, one at a time.

It listens with one identity that never breaks a rule, and runs each kind of attack with another one: a peer
with a certificate, like any other, that connects to the honest nodes, sends its messages and disconnects.
Everything stays on loopback; counts and times are bounded. Each message that reached at least one peer is
written to `attacks.jsonl` before the next one is sent.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from sapo_client import keystore
from sapo_client.keystore import Identity
from sapo_client.passphrase import PassphraseSource
from sapo_client.swarm.limits import DialLimits
from sapo_client.swarm.peer_id import key_from_peer_id
from sapo_client.testnet.attacks import (
    ATTACKS,
    FLOOD_FRAME_MESSAGES,
    Attack,
    AttackContext,
    Key,
    Message,
    ObservedRollout,
    ObservedRollouts,
)
from sapo_client.testnet.plan import LISTENER, AttackerHome
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, open_payload, parse_envelope
from sapo_protocol.errors import RemoteProtocolError, Verdict
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_from_json
from sapo_protocol.rollout import parse_rollout
from sapo_protocol.topics import (
    certificates_protocol,
    certificates_topic,
    contributions_protocol,
    rollouts_topic,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport
    from sapo_client.swarm.transport import Transport

CONCURRENT_ATTACKS: Final = 2
"""Maximum number of concurrent attacks: the honest nodes need most of the machine."""

INTRODUCTION_SECONDS: Final = 15.0
"""Seconds in which a node on a busy machine requests a new peer's certificate."""

SETTLE_SECONDS: Final = 1.0
"""Seconds from serving a certificate to its admission."""

MESSAGE_PAUSE_SECONDS: Final = 0.5
LINGER_SECONDS: Final = 2.0
"""Time for queued messages to be sent before their sender disconnects."""

FLOOD_LINGER_SECONDS: Final = 6.0
"""Seconds for a flood: a flooded node pauses reading, and the rest stays in the sender's queue."""

RETRY_SECONDS: Final = 2.0
"""Seconds between two checks whether an attack can start."""

CERTIFICATE_SECONDS: Final = 24 * 3600


@dataclass(frozen=True, slots=True)
class Campaign:
    """Arguments of one attacker."""

    home: AttackerHome
    manifest: Manifest
    targets: tuple[str, ...]
    seed: int
    offset: int
    attacks: tuple[Attack, ...] = ATTACKS

    def identity(self, kind: str) -> Identity:
        """Return the identity that runs a kind of attack."""
        return keystore.load(self.home.identities / f"{kind}.json", PassphraseSource(None))

    def order(self) -> list[Attack]:
        """Return the attacks, starting at this attacker's offset in the table."""
        at = self.offset % len(self.attacks)
        return [*self.attacks[at:], *self.attacks[:at]]


class Attacker:
    """One attacking process."""

    def __init__(self, campaign: Campaign) -> None:
        self._campaign = campaign
        self._rng = random.Random(f"{campaign.seed}:{campaign.home.name}")
        self._observed = ObservedRollouts()
        self._honest = {key_from_peer_id(target.rpartition("/")[2]) for target in campaign.targets}
        self._pending = campaign.order()
        self._log = campaign.home.attacks.open("a", encoding="utf-8", buffering=1)

    async def run(self) -> None:
        """Run every kind of attack once, then listen until stopped."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._stop_on_signal, nursery.cancel_scope)
            await trio.sleep(max(0.0, self._campaign.manifest.genesis_seconds - time.time()))
            async with self._peer(LISTENER, listens=True, certified=True):
                await self.run_attacks()
                _say("every kind of attack was run")
                await trio.sleep_forever()

    async def run_attacks(self) -> None:
        """Run every kind of attack, until each has sent a message to a node."""
        async with trio.open_nursery() as workers:
            for _ in range(CONCURRENT_ATTACKS):
                workers.start_soon(self._work)

    async def _work(self) -> None:
        while self._pending:
            ready = (attack for attack in self._pending if attack.make(self._context(attack)))
            if (attack := next(ready, None)) is None:
                await trio.sleep(RETRY_SECONDS)
                continue
            self._pending.remove(attack)
            if not await self._mount(attack):
                self._pending.append(attack)
                await trio.sleep(RETRY_SECONDS)

    async def _mount(self, attack: Attack) -> bool:
        """Run one kind of attack; return whether a message reached a node.

        While the peer connects an epoch may end, after which there is nothing of the new one to repeat.
        """
        async with self._peer(attack.name, certified=attack.certified, targets=attack.targets) as peer:
            messages = list(attack.make(self._context(attack)))
            if attack.burst:
                sent = await self._flood(attack, peer, messages)
            else:
                sent = sum([await self._send(attack, peer, message) for message in messages])
            await trio.sleep(FLOOD_LINGER_SECONDS if attack.burst else LINGER_SECONDS)
        _say(f"{attack.name}: {sent} of {len(messages)} messages sent")
        return sent > 0

    async def _send(self, attack: Attack, peer: Transport, message: Message) -> bool:
        """Publish a message; return whether it reached a peer."""
        reached = await peer.publish(message.topic, message.data)
        if reached:
            self._note(attack, peer, message, reached)
        await trio.sleep(MESSAGE_PAUSE_SECONDS)
        return reached > 0

    async def _flood(self, attack: Attack, peer: Libp2pTransport, messages: Sequence[Message]) -> int:
        """Write full frames directly to the streams: the transport's own queues would limit the rate.

        Return the number of messages that were written to a stream.
        """
        from libp2p.pubsub.pb import rpc_pb2

        gossip = peer._gossip
        sent = 0
        for start in range(0, len(messages), FLOOD_FRAME_MESSAGES):
            frame = messages[start : start + FLOOD_FRAME_MESSAGES]
            rpc = rpc_pb2.RPC(
                publish=[rpc_pb2.Message(data=message.data, topicIDs=[message.topic]) for message in frame]
            )
            streams = list(gossip.peers.values())
            for stream in streams:
                await gossip.write_msg(stream, rpc)
            for message in frame if streams else ():
                self._note(attack, peer, message, len(streams))
                sent += 1
        return sent

    def _note(self, attack: Attack, peer: Transport, message: Message, reached: int) -> None:
        entry = {
            "time": time.time(),
            "kind": attack.name,
            "message": sha256(message.data).hexdigest(),
            "content_id": message.content_id.hex() if message.content_id else None,
            "bait": message.bait,
            "attacker": self._campaign.home.name,
            "peer_id": peer.peer_id,
            "peers": reached,
        }
        self._log.write(json.dumps(entry) + "\n")

    def _context(self, attack: Attack) -> AttackContext:
        identity = self._campaign.identity(attack.name)
        return AttackContext(
            manifest=self._campaign.manifest,
            key=Key(identity.node_seed, identity.node_id, identity.account),
            rng=self._rng,
            now_seconds=time.time(),
            observed=self._observed.all(),
            markers=self._campaign.home.markers,
        )

    @asynccontextmanager
    async def _peer(
        self, kind: str, *, certified: bool, listens: bool = False, targets: int | None = None
    ) -> AsyncIterator[Libp2pTransport]:
        """Yield a running peer whose certificate every target has."""
        from sapo_client.swarm.p2p.libp2p_transport import Libp2pTransport

        identity, manifest = self._campaign.identity(kind), self._campaign.manifest
        chosen = self._campaign.targets[:targets]
        peer = Libp2pTransport(
            identity.node_seed,
            on_bug=lambda error: _say(f"{kind}: {error!r}"),
            bootstrap=chosen,
            dial=DialLimits(target_peers=len(chosen)),
        )
        certificate = _certificate(identity, manifest)
        certificate_server = _CertificateServer((certificate,) if certified else ())
        peer.serve(certificates_protocol(manifest.swarm_id), certificate_server.serve)
        peer.serve(contributions_protocol(manifest.swarm_id), _serve_nothing)
        if listens:
            peer.subscribe(rollouts_topic(manifest.swarm_id), self._observe)
        async with trio.open_nursery() as nursery:
            await nursery.start(peer.run)
            with trio.move_on_after(INTRODUCTION_SECONDS):
                await certificate_server.by(len(chosen))
            if certified:
                await peer.publish(certificates_topic(manifest.swarm_id), certificate)
            await trio.sleep(SETTLE_SECONDS)
            yield peer
            nursery.cancel_scope.cancel()

    def _observe(self, data: bytes, _forwarder: str) -> Verdict:
        """Store an honest rollout; never forward it, for a forwarder is punished for invalid messages."""
        try:
            envelope = parse_envelope(data, self._campaign.manifest.swarm_id)
            rollout = parse_rollout(open_payload(envelope, Kind.ROLLOUT))
        except RemoteProtocolError:
            return Verdict.IGNORE
        if rollout.node in self._honest:
            self._observed.add(ObservedRollout(time.time(), data, envelope, rollout))
        return Verdict.IGNORE

    async def _stop_on_signal(self, scope: trio.CancelScope) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                scope.cancel()


class _CertificateServer:
    """Serves the own certificate, and counts the peers that requested it."""

    def __init__(self, certificates: Sequence[bytes]) -> None:
        self._answer = encode(tuple(certificates))
        self._peers: set[str] = set()
        self._news = trio.Event()

    async def serve(self, peer_id: str, _request: bytes) -> bytes:
        self._peers.add(peer_id)
        self._news.set()
        return self._answer

    async def by(self, count: int) -> None:
        while len(self._peers) < count:
            self._news = trio.Event()
            await self._news.wait()


async def _serve_nothing(_peer_id: str, _request: bytes) -> bytes:
    return encode(())


def _certificate(identity: Identity, manifest: Manifest) -> bytes:
    not_before = int(time.time()) - 60
    binding = NodeBinding(identity.node_id, manifest.swarm_id, not_before, not_before + CERTIFICATE_SECONDS)
    domain = manifest.binding_domain
    return issue_certificate(identity.node_seed, identity.account_key, binding, domain).to_bytes()


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr)


def _parse(arguments: Sequence[str] | None) -> Campaign:
    parser = argparse.ArgumentParser(prog="sapo_client.testnet.attacker", description="Attack a testnet.")
    parser.add_argument("--manifest", type=Path, required=True, help="the swarm")
    parser.add_argument("--home", type=Path, required=True, help="folder of this attacker")
    parser.add_argument("--target", action="append", required=True, help="an honest node; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--offset", type=int, default=0, help="place in the table of attacks to begin at")
    given = parser.parse_args(arguments)
    home = AttackerHome(given.home.name, given.home)
    manifest = manifest_from_json(given.manifest.read_text(encoding="utf-8"))
    return Campaign(
        home=home, manifest=manifest, targets=tuple(given.target), seed=given.seed, offset=given.offset
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Attack until stopped; return the exit code."""
    trio.run(Attacker(_parse(arguments)).run)
    return 0


if __name__ == "__main__":
    sys.exit(main())
