"""GossipSub router with bounded memory and without the harmful features of the stock router.

Own messages are flooded to every subscribed peer, others' are forwarded in the mesh; IHAVE and IWANT
repair what was lost. Differences from the stock router, each a fault that was found by running it:

* the signed peer record that stock attaches to every RPC (and verifies on every RPC) is neither sent
  nor read: addresses travel in our own peer exchange;
* IWANT serves each message a few times per peer, and no more at a time than the peer's queue has room for
  (`outbound_queue.py`): 8 KiB of ids ask for 16 MiB of messages; the queues of all peers hold the same object
  of a message; IHAVE asks for a bounded number of ids, at a rate (`swarm/requested.py`);
* control messages about topics that we did not join are not stored (stock keeps a back-off for
  every topic name that a peer invents), and one RPC has one of a kind for a topic;
* above a rate GRAFTs and PRUNEs are not read;
* IDONTWANT is sent only for messages large enough to pay for it;
* recent messages are announced to a new subscriber, once per connection and at once, but not sent without a
request, since most are known to it; and of the peers that announce a message one is asked for it at a time
(`swarm/requested.py`); * IHAVE goes to all peers outside the mesh in turn, also to pruned ones: stock draws
six of them at random at each heartbeat, so that most messages are never announced to a peer of a large node,
and sends no IHAVE to a pruned peer for a minute; * in a mesh that delivers too few messages, the neighbour
that delivered least is replaced by a peer that had the missing messages (`swarm/supply.py`), and a mesh that
is too large keeps those that deliver most; it is smaller if the node sends more than its budget
(`swarm/upload_budget.py`); * the adaptive, spam, equivocation and eclipse features, stock's opportunistic
grafting and peer
  replacement are off: they keep full messages without bound, drop honest relays above ten messages a
  second, and change a healthy mesh without need.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

import trio
from libp2p.custom_types import MessageID, TProtocol
from libp2p.peer.id import ID
from libp2p.pubsub.gossipsub import GossipSub
from libp2p.pubsub.pb import rpc_pb2
from libp2p.pubsub.pubsub import Pubsub
from libp2p.pubsub.rpc_queue import RpcQueue

from sapo_client.swarm.counters import TransportCounters
from sapo_client.swarm.fair_queue import newest_in_turns
from sapo_client.swarm.intake import message_id
from sapo_client.swarm.limits import Rate, TransportLimits
from sapo_client.swarm.p2p.message_cache import ContentCache
from sapo_client.swarm.p2p.outbound_queue import OutboundQueue
from sapo_client.swarm.p2p.score_bridge import ScoreBridge
from sapo_client.swarm.rate_limit import KeyedBuckets
from sapo_client.swarm.requested import Requested
from sapo_client.swarm.supply import Supply
from sapo_client.swarm.upload_budget import MIN_NEIGHBOURS, UploadBudget

PROTOCOLS: Final = (TProtocol("/meshsub/1.2.0"), TProtocol("/meshsub/1.1.0"))
HEARTBEAT_SECONDS: Final = 1  # gossipsub's own; an idle node with nine peers uses 0.15 % of a core
# With 30 % silent members and 2 % loss, a mesh of degree 4 leaves the worst message at 88 % of 24 nodes
# before IHAVE repairs it, one of degree 6 at all of them. At most 9 instead of gossipsub's 12: a copy
# beyond the first costs half a millisecond.
DEGREE, DEGREE_LOW, DEGREE_HIGH = 6, 4, 9
_WINDOW_HEARTBEATS: Final = 3  # announced by IHAVE
_HISTORY_HEARTBEATS: Final = 30  # announced to a new subscriber: who finds no honest peer sooner catches up
_INTRODUCTIONS: Final = Rate(
    per_second=1, burst=64
)  # topics announced at once to a peer, however it connects
_MIN_IDONTWANT_BYTES: Final = 16 * 1024  # below, the announcement costs more than the copy it saves
_MAX_CONTROL_ENTRIES: Final = 64  # topics in one control message; a node joins four to sixteen
_GRAFTS: Final = Rate(per_second=10, burst=64)  # of a peer; a heartbeat has one for each of its topics
_MAX_RATED: Final = 256  # peers whose rates are remembered
_MAX_BACK_OFFS: Final = 1024  # peers of a topic that may not be grafted yet; peer ids are free
_MAX_BACK_OFF_SECONDS: Final = 600  # that a peer may ask for; ours is a minute
_MAX_IDS: Final = 256  # ids asked for or served per control entry
_MAX_RETRANSMISSIONS: Final = 3  # go-libp2p's GossipRetransmission
_ID_BYTES: Final = 32


class _TopicEntry(Protocol):
    """A control message about one topic."""

    topicID: str  # noqa: N815  the name in gossipsub's schema


_Entry = TypeVar("_Entry", bound=_TopicEntry)


class Mesh(GossipSub):
    """Router that decides which message is forwarded to which peers."""

    mcache: ContentCache
    scorer: ScoreBridge
    pubsub: Pubsub

    def __init__(
        self,
        counters: TransportCounters,
        scorer: ScoreBridge,
        knows: Callable[[bytes, float], bool],
        author_of: Callable[[str, bytes, str], Hashable],
    ) -> None:
        super().__init__(
            protocols=PROTOCOLS,
            degree=DEGREE,
            degree_low=DEGREE_LOW,
            degree_high=DEGREE_HIGH,
            heartbeat_interval=HEARTBEAT_SECONDS,
            adaptive_gossip_enabled=False,
            spam_protection_enabled=False,
            eclipse_protection_enabled=False,
        )
        self.max_iwant_requests_per_second = _MAX_CONTROL_ENTRIES  # a new peer asks for each topic by itself
        self.mcache = ContentCache(_WINDOW_HEARTBEATS, _HISTORY_HEARTBEATS)
        self.scorer = scorer
        self._counters = counters
        self._author_of = author_of
        self._grafts = KeyedBuckets(_GRAFTS, _MAX_RATED)
        self._prunes = KeyedBuckets(_GRAFTS, _MAX_RATED)
        self._introductions = KeyedBuckets(_INTRODUCTIONS, _MAX_RATED)
        self._introduced: dict[ID, set[str]] = defaultdict(set)
        self._supply: Supply[ID] = Supply(random.Random())
        self._requested: Requested[ID] = Requested(random.Random(), asked=self._supply.asked, knows=knows)
        self._budget = UploadBudget(MIN_NEIGHBOURS, DEGREE_HIGH, HEARTBEAT_SECONDS)

    # Messages

    def forward(self, message: rpc_pb2.Message, came_from: ID | None) -> int:
        """Queue a message; return how many peers' queues took it. `came_from` is None for our own.

        Our own go first: a node that has much to forward would otherwise not be heard.
        """
        topic, identity = message.topicIDs[0], message_id(message.topicIDs[0], message.data)
        author = None if came_from is None else self._author_of(topic, message.data, str(came_from))
        rpc = self.mcache.to_rpc(message, author)
        if came_from is not None:
            self._supply.came(topic, identity, came_from)
        if came_from is not None and len(message.data) >= _MIN_IDONTWANT_BYTES:
            self._announce(identity, topic, came_from)
        receivers = self._receivers(topic, identity, came_from)
        return sum(self._enqueue(peer, rpc, priority=came_from is None) for peer in receivers)

    def _receivers(self, topic: str, identity: bytes, came_from: ID | None) -> list[ID]:
        subscribed = self.pubsub.peer_topics.get(topic, set())
        having = self._requested.announced_by(identity)
        chosen = subscribed if came_from is None else self.mesh.get(topic, set()) - having
        return [
            peer
            for peer in chosen
            if peer != came_from
            and identity not in self.dont_send_message_ids.get(peer, ())
            and self.scorer.allow_publish(peer, [topic])
        ]

    def _announce(self, identity: bytes, topic: str, came_from: ID) -> None:
        dont_want = rpc_pb2.ControlIDontWant(messageIDs=[identity])
        rpc = rpc_pb2.RPC(control=rpc_pb2.ControlMessage(idontwant=[dont_want]))
        for peer in self.mesh.get(topic, set()):
            if peer != came_from and self.supports_protocol_feature(peer, "idontwant"):
                self._enqueue(peer, rpc, priority=True)

    def _enqueue(self, peer: ID, rpc: rpc_pb2.RPC, *, priority: bool = False) -> bool:
        queue = self.pubsub.peer_queues.get(peer)
        if queue is None:
            return False
        taken = queue.push(rpc, priority=priority)
        self._budget.sent(rpc.ByteSize() if taken else 0)
        self._counters.dropped_before_sending += not taken
        return taken

    def bound(self, queue: RpcQueue, limits: TransportLimits) -> None:
        """Bound the queue of a peer, in which authors take turns from now on."""

        def count() -> None:
            self._counters.dropped_before_sending += 1

        OutboundQueue.bound(queue, limits, self.mcache.author_of, count)

    async def send_recent_messages(self, peer_id: ID, topic: str) -> None:
        """Announce all that is held to a peer that just subscribed, once per topic and connection."""
        if topic in self._introduced[peer_id] or topic not in self.mesh:
            return
        self._introduced[peer_id].add(topic)
        identities = self._most(self.mcache.recent(topic))
        if identities and self._introductions.take(str(peer_id), trio.current_time()):
            await self._send_control(peer_id, (), (), {topic: identities})

    def remove_peer(self, peer_id: ID) -> None:
        """Forget a peer that left."""
        super().remove_peer(peer_id)
        self._introduced.pop(peer_id, None)
        self._requested.left(peer_id)

    # Control

    async def handle_rpc(self, rpc: rpc_pb2.RPC, sender_peer_id: ID) -> None:
        """Handle the control part of a peer's RPC."""
        control = rpc.control
        for ihave in self._joined(control.ihave):
            await self.handle_ihave(ihave, sender_peer_id)
        for iwant in control.iwant[:_MAX_CONTROL_ENTRIES]:
            await self.handle_iwant(iwant, sender_peer_id)
        for graft in self._joined(control.graft):
            if self._grafts.take(str(sender_peer_id), trio.current_time()):
                await self.handle_graft(graft, sender_peer_id)
        for prune in self._joined(control.prune):
            del prune.peers[:]  # peers are exchanged by our own protocol
            prune.backoff = min(prune.backoff, _MAX_BACK_OFF_SECONDS)
            if self._prunes.take(str(sender_peer_id), trio.current_time()):
                await self.handle_prune(prune, sender_peer_id)
        for dont_want in control.idontwant[:_MAX_CONTROL_ENTRIES]:
            await self.handle_idontwant(dont_want, sender_peer_id)

    def _add_back_off(self, peer: ID, topic: str, is_unsubscribe: bool, backoff_duration: int = 0) -> None:
        """Note until when a peer may not be grafted; stock keeps one for every peer id that ever was."""
        super()._add_back_off(peer, topic, is_unsubscribe, backoff_duration)
        back_offs = self.back_off[topic]
        if len(back_offs) > _MAX_BACK_OFFS:
            del back_offs[next(iter(back_offs))]

    def _joined(self, entries: Sequence[_Entry]) -> list[_Entry]:
        """Return the last entry of each topic that we joined."""
        by_topic = {entry.topicID: entry for entry in entries[:_MAX_CONTROL_ENTRIES]}
        return [entry for topic, entry in by_topic.items() if topic in self.mesh]

    async def handle_ihave(self, ihave_msg: rpc_pb2.ControlIHave, sender_peer_id: ID) -> None:
        """Ask for the announced messages that we do not know, and were not promised by another peer."""
        if not self._check_ihave_rate_limit(sender_peer_id, ihave_msg.topicID):
            return
        announced = [identity for identity in ihave_msg.messageIDs[:_MAX_IDS] if len(identity) == _ID_BYTES]
        wanted = self._requested.offered(sender_peer_id, ihave_msg.topicID, announced, trio.current_time())
        if wanted:
            await self._ask(sender_peer_id, wanted)

    async def _ask(self, peer: ID, identities: Sequence[bytes]) -> None:
        for start in range(0, len(identities), _MAX_IDS):
            await self.emit_iwant([MessageID(one) for one in identities[start : start + _MAX_IDS]], peer)

    async def handle_iwant(self, iwant_msg: rpc_pb2.ControlIWant, sender_peer_id: ID) -> None:
        """Send the requested messages, each in an RPC of its own; those without room may be requested
        again."""
        if not self._check_iwant_rate_limit(sender_peer_id):
            return
        asker = sender_peer_id.to_bytes()
        for identity in dict.fromkeys(iwant_msg.messageIDs[:_MAX_IDS]):
            rpc = self.mcache.get_for(identity, asker, max_times=_MAX_RETRANSMISSIONS)
            if rpc is not None and self._enqueue(sender_peer_id, rpc):
                self.mcache.was_sent(identity, asker)

    async def emit_control_message(self, control_msg: rpc_pb2.ControlMessage, to_peer: ID) -> None:
        """Queue a control message, ahead of the messages that wait."""
        await trio.lowlevel.checkpoint()
        self._enqueue(to_peer, rpc_pb2.RPC(control=control_msg), priority=True)

    # Heartbeat

    async def heartbeat(self) -> None:
        """Repair the mesh, announce recent messages and drop old ones, until cancelled."""
        await trio.sleep(self.heartbeat_initial_delay)
        while True:
            self._follow_budget()
            grafts, prunes = self.mesh_heartbeat()
            self._exchange_neighbours(grafts, prunes)
            announcements = self.gossip_heartbeat()
            for peer in {*grafts, *prunes, *announcements}:
                await self._send_control(
                    peer, grafts.get(peer, ()), prunes.get(peer, ()), announcements.get(peer, {})
                )
            for peer, identities in self._requested.overdue(trio.current_time()).items():
                await self._ask(peer, identities)
            self.mcache.shift()
            self._supply.shift()
            self._prune_idontwant_entries()
            self._periodic_security_cleanup()
            await trio.sleep(self.heartbeat_interval)

    def _follow_budget(self) -> None:
        """Adapt the number of neighbours to the upload of the last heartbeats."""
        self.degree_high = self._budget.beat()
        self.degree = min(DEGREE, self.degree_high)
        self.degree_low = min(DEGREE_LOW, self.degree)

    async def _send_control(
        self, peer: ID, grafts: Iterable[str], prunes: Iterable[str], announcements: dict[str, list[bytes]]
    ) -> None:
        control = rpc_pb2.ControlMessage(
            graft=[rpc_pb2.ControlGraft(topicID=topic) for topic in grafts],
            prune=[rpc_pb2.ControlPrune(topicID=topic, backoff=self.prune_back_off) for topic in prunes],
            ihave=[
                rpc_pb2.ControlIHave(topicID=topic, messageIDs=identities)
                for topic, identities in announcements.items()
            ],
        )
        await self.emit_control_message(control, peer)

    def _exchange_neighbours(
        self, grafts: defaultdict[ID, list[str]], prunes: defaultdict[ID, list[str]]
    ) -> None:
        """Add useful peers to a mesh that delivers too few messages; see `Supply.exchange`."""
        self._supply.keep_topics(self.mesh)
        for topic, neighbours in self.mesh.items():
            candidates = [
                peer
                for peer in self._beside_mesh(topic)
                if not self._check_back_off(peer, topic) and self.scorer.score(peer, [topic]) >= 0
            ]
            found = self._supply.exchange(topic, neighbours, candidates, self.degree)
            if found is None:
                continue
            neighbours.add(found.graft)
            grafts[found.graft].append(topic)
            if found.prune is not None:
                neighbours.discard(found.prune)
                self._add_back_off(found.prune, topic, False)
                prunes[found.prune].append(topic)

    def _beside_mesh(self, topic: str) -> list[ID]:
        """Return the connected peers that joined a topic and are not in its mesh."""
        others = self.pubsub.peer_topics.get(topic, set()) - self.mesh[topic]
        return [
            peer
            for peer in others
            if peer in self.pubsub.peer_queues and self.scorer.allow_publish(peer, [topic])
        ]

    def gossip_heartbeat(self) -> defaultdict[ID, dict[str, list[bytes]]]:
        """Return the announced ids, by peer and topic: those of the messages of the last heartbeats."""
        announced: defaultdict[ID, dict[str, list[bytes]]] = defaultdict(dict)
        for topic in self.mesh:
            identities = self._most(self.mcache.window(topic))
            if not identities:
                continue
            new = [peer for peer in self.mesh[topic] if not self._supply.is_settled(topic, peer)]
            others = [*self._beside_mesh(topic), *new]
            for peer in self._supply.to_tell(topic, others, sparingly=self._budget.is_overdrawn):
                announced[peer][topic] = identities
        return announced

    def _most(self, identities: Iterable[bytes]) -> list[bytes]:
        """Return as many ids as one announcement has; of too many, each author's newest."""
        return newest_in_turns(tuple(identities), self.mcache.author_of_id, _MAX_IDS)

    def _select_peers_for_pruning(self, topic: str, num_to_prune: int) -> list[ID]:
        """Return the neighbours to remove: those with faults, then those that deliver least, then the lowest
        scores.

        Delivering nothing is not a fault, so it costs the place in the mesh but no score.
        """
        members = list(self.mesh[topic])
        random.shuffle(members)
        scores = {peer: self.scorer.score(peer, [topic]) for peer in members}
        brought = self._supply.brought(topic, members)
        members.sort(key=lambda peer: (scores[peer] >= 0, brought[peer], scores[peer]))
        return members[:num_to_prune]

    def _perform_opportunistic_grafting(self, topic: str, peers_to_graft: defaultdict[ID, list[str]]) -> int:
        return 0
