"""How a running node follows its swarm's ledger from one set of terms to the next.

The ledger announces a successor by the digest of its document, at least eight epochs ahead; four epochs
before the activation the announcement stays. The document is fetched from peers by that digest and shown to
the operator. In the last four epochs, each node at a time of its own, the node ends its round and opens
itself again with both sets of terms. At the activation nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.records import AnnouncedTerms
from sapo_client.node.auditing.chain import ChainRole
from sapo_client.node.gossip.list_uploads import ListUploads
from sapo_client.node.gossip.sync import MAX_ANSWER_BYTES
from sapo_client.node.runtime.clock import Clock
from sapo_client.node.runtime.manifests import require_same_suite
from sapo_client.node.runtime.successor_folder import SuccessorFolder, what_changes
from sapo_client.observe.events import EventLog
from sapo_client.observe.health import ChangeFacts
from sapo_client.observe.reports import ChangeReport
from sapo_client.swarm.transport import Transport, TransportError
from sapo_protocol.epochs import epoch_start_seconds, present_epoch
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.identifiers import Digest, NodeId
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import successor_from_json
from sapo_protocol.requests import parse_page_request, parse_response, to_page_request
from sapo_protocol.terms.successor import SETTLED_NOTICE_EPOCHS, Successor, successor_digest
from sapo_protocol.topics import successors_protocol
from sapo_verification.admission.rollouts import TermsInForce

_LOOKS_PER_EPOCH: Final = 16
_MAX_PAUSE_SECONDS: Final = 30.0
_MIN_PAUSE_SECONDS: Final = 0.25

_MAX_AT_ONCE: Final = 3
"""Documents that are asked for at once: they fit into one answer, however long they are."""

_TURN_SHARE: Final = 0.75
"""Of the epochs in which nodes open themselves again: the last one is for whoever was away."""


@dataclass(frozen=True, slots=True)
class SuccessionParts:
    """The parts that are needed to follow announcements.

    Attributes:
        manifest: with the successors that are obeyed.
        node: this node's key, from which its time to open again follows.
        uploads: bounds what a network may have of the documents.
        in_force: receives the time until which the terms are certain.
        reopen: ends the node after its round, to be opened again.
        caught_up: called when the announcements were read for the first time.
        show: takes a line for the terminal.
    """

    manifest: Manifest
    folder: SuccessorFolder
    chain: ChainRole
    in_force: TermsInForce
    transport: Transport
    uploads: ListUploads
    events: EventLog
    clock: Clock
    node: NodeId
    reopen: Callable[[], None]
    caught_up: Callable[[], None]
    show: Callable[[str], None]


_UNREAD: Final = object()


@dataclass(slots=True)
class _State:
    """The known announcements, and their progress.

    Attributes:
        read: what each announced document says, None for one that breaks the swarm's rules: it counts for
            nothing, and all nodes of its version of documents agree on that.
        unusable: why this release cannot obey an announced document.
        told: announcements that the operator has seen, with what is wrong with them.
    """

    announced: Sequence[AnnouncedTerms] = ()
    read: dict[AnnouncedTerms, Successor | None] = field(default_factory=dict)
    unusable: dict[AnnouncedTerms, str] = field(default_factory=dict)
    told: set[tuple[AnnouncedTerms, str | None]] = field(default_factory=set)
    round: int = 0
    has_read: bool = False


class Successions:
    """Service that reads the announcements, fetches what they name, and has the node opened again."""

    def __init__(self, parts: SuccessionParts) -> None:
        self._parts = parts
        self._protocol = successors_protocol(parts.manifest.swarm_id)
        self._first = parts.manifest.first or parts.manifest
        self._state = _State()
        self.is_active: Final = parts.manifest.has_chain

    def begin(self) -> None:
        """Answer peers from now on, and take no terms for certain before the chain has answered."""
        if not self.is_active:
            return
        self._parts.in_force.known_until = -1

        async def answer(peer_id: str, request: bytes) -> bytes:
            held = map(self._parts.folder.document, parse_page_request(request))
            documents = tuple(document for document in held if document is not None)
            return self._parts.uploads.response(peer_id, documents)

        self._parts.transport.serve(self._protocol, answer)

    def holds(self, epoch: int) -> bool:
        """Whether this node knows for certain which terms are in force in an epoch, and obeys them."""
        known_until = self._parts.in_force.known_until
        return known_until is None or epoch <= known_until

    def unfollowed(self) -> ChangeFacts | None:
        """Return the first announced terms that this node cannot go over to yet, if there are any."""
        for announcement in self._state.announced:
            if (why := self._trouble_with(announcement)) is not None:
                epochs = announcement.activation_epoch - self._epoch()
                return ChangeFacts(self._name(announcement), why, epochs)
        return None

    def coming(self) -> ChangeReport | None:
        """Return the first announced terms that are not in force yet, if there are any."""
        epoch = self._epoch()
        for announcement in self._state.announced:
            counts = self._state.read.get(announcement, _UNREAD) is not None
            if counts and announcement.activation_epoch > epoch:
                return ChangeReport(
                    name=self._name(announcement),
                    activation_epoch=announcement.activation_epoch,
                    epochs=announcement.activation_epoch - epoch,
                    trouble=self._trouble_with(announcement),
                )
        return None

    def _epoch(self) -> int:
        return present_epoch(self._parts.manifest, self._parts.clock())

    async def run(self) -> None:
        """Follow the announcements until cancelled; may be run again after that.

        Raises:
            SapoError: the next epoch obeys terms that this release cannot obey.
        """
        if not self.is_active:
            return
        longest = self._parts.manifest.epoch_seconds / _LOOKS_PER_EPOCH
        pause_seconds = max(_MIN_PAUSE_SECONDS, min(_MAX_PAUSE_SECONDS, longest))
        while True:
            await self.look()
            await trio.sleep(pause_seconds)

    async def look(self) -> None:
        """Read the announcements once, fetch what is missing, and act on what is due.

        Raises:
            SapoError: as ``run``.
        """
        manifest, now = self._parts.manifest, self._parts.clock()
        epoch = present_epoch(manifest, now)
        try:
            before = epoch_start_seconds(manifest, epoch) - manifest.finality_seconds
            await self._parts.chain.block_hash_before(before)  # an endpoint that is behind raises this here
            found = await self._parts.chain.successions()
        except LedgerError:  # reported by the health; terms stay certain as long as before
            return
        announced = [each.terms for each in found if each.terms is not None]
        self._note_withdrawn(announced)
        self._state.announced = announced
        await self._read_documents()
        self._tell()
        self._settle(epoch)
        if not self._state.has_read and self.holds(epoch):
            self._state.has_read = True
            self._parts.caught_up()
        self._act(epoch, now)

    async def _read_documents(self) -> None:
        """Fetch the documents that are missing, and see what this release makes of them."""
        parts, state = self._parts, self._state
        missing = [one.successor for one in state.announced if parts.folder.document(one.successor) is None]
        if missing:
            await self._fetch(missing)
        manifest = self._first
        for announcement in state.announced:
            document = parts.folder.document(announcement.successor)
            if document is None:
                return  # what comes after it cannot be judged
            if announcement not in state.read and announcement not in state.unusable:
                await self._judge(announcement, manifest, document)
            if (successor := state.read.get(announcement)) is not None:
                manifest = manifest.succeeded_by(announcement.activation_epoch, successor)

    async def _judge(self, announcement: AnnouncedTerms, before: Manifest, document: bytes) -> None:
        state, digest = self._state, announcement.successor
        try:
            successor = successor_from_json(document)
        except LocalProtocolError as error:
            state.unusable[announcement] = f"this release of sapo cannot read it: {error}"
            return
        try:
            after = before.succeeded_by(announcement.activation_epoch, successor)
        except LocalProtocolError as error:
            state.read[announcement] = None
            self._parts.events.write("successor_void", successor=digest, why=str(error))
            self._parts.show(f"warning: {self._name(announcement)} counts for nothing: {error}")
            return
        try:
            await trio.to_thread.run_sync(require_same_suite, after)
        except SapoError as error:
            if error.transient:  # no information about the terms: the service is started again
                raise
            state.unusable[announcement] = f"{error}; {error.hint}"
            return
        state.read[announcement] = successor
        changes = what_changes(before, successor)
        self._parts.events.write(
            "successor_announced",
            successor=digest,
            activation_epoch=announcement.activation_epoch,
            changes=changes,
        )
        if announcement.activation_epoch not in self._obeyed():
            self._parts.show(f"{self._name(announcement)}: {'; '.join(changes)}")

    async def _fetch(self, missing: Sequence[Digest]) -> None:
        """Ask one peer, each time another one; what is not asked for is dropped."""
        parts, peers = self._parts, [peer.peer_id for peer in self._parts.transport.peers()]
        if not peers:
            return
        self._state.round += 1
        peer_id = peers[self._state.round % len(peers)]
        try:
            answer = await parts.transport.request(
                peer_id,
                self._protocol,
                to_page_request(missing[:_MAX_AT_ONCE]),
                max_response_bytes=MAX_ANSWER_BYTES,
            )
            documents = parse_response(answer)
        except (TransportError, RemoteProtocolError) as error:
            parts.events.write("successor_refused", peer_id=peer_id, why=str(error))
            return
        for document in documents:
            if successor_digest(document) not in missing:
                parts.events.write("successor_refused", peer_id=peer_id, why="it has another digest")
                continue
            try:
                parts.folder.add(document)
            except LocalProtocolError as error:
                parts.events.write("successor_refused", peer_id=peer_id, why=str(error))

    def _settle(self, epoch: int) -> None:
        """Take terms for certain as far as the announcements that stay are obeyed by this process."""
        until, obeyed = epoch + SETTLED_NOTICE_EPOCHS, self._obeyed()
        for announcement in self._settled(epoch):
            if self._state.read.get(announcement, _UNREAD) is None:
                continue
            if announcement.activation_epoch not in obeyed:
                until = min(until, announcement.activation_epoch - 1)
        self._parts.in_force.known_until = until

    def _settled(self, epoch: int) -> list[AnnouncedTerms]:
        return [
            each for each in self._state.announced if each.activation_epoch <= epoch + SETTLED_NOTICE_EPOCHS
        ]

    def _obeyed(self) -> set[int]:
        return {each.activation_epoch for each in self._parts.manifest.successions}

    def _act(self, epoch: int, now: float) -> None:
        """Have the node opened again if a successor is settled and held; stop if it cannot be obeyed."""
        state, obeyed = self._state, self._obeyed()
        ready: list[tuple[int, Digest]] = []
        due_seconds = 0.0
        for announcement in self._settled(epoch):
            if announcement in state.unusable:
                self._stop_in_time(announcement, now)
                break
            if announcement not in state.read:
                break
            if state.read[announcement] is None:
                continue
            ready.append((announcement.activation_epoch, announcement.successor))
            if announcement.activation_epoch not in obeyed:
                due_seconds = max(due_seconds, self._due_seconds(announcement.activation_epoch))
        if len(ready) > len(obeyed) and now >= due_seconds:
            self._parts.folder.obey(ready)
            self._parts.events.write(
                "successor_obeyed", activation_epoch=ready[-1][0], successor=ready[-1][1]
            )
            self._parts.reopen()

    def _due_seconds(self, activation_epoch: int) -> float:
        """Return when this node opens itself again; nodes are spread, so that the swarm never empties."""
        share = int.from_bytes(self._parts.node[:4], "big") / 2**32
        begin = epoch_start_seconds(self._parts.manifest, max(0, activation_epoch - SETTLED_NOTICE_EPOCHS))
        span = SETTLED_NOTICE_EPOCHS * self._parts.manifest.epoch_seconds
        return begin + share * _TURN_SHARE * span

    def _stop_in_time(self, announcement: AnnouncedTerms, now: float) -> None:
        manifest = self._parts.manifest
        last = epoch_start_seconds(manifest, announcement.activation_epoch) - manifest.epoch_seconds / 8
        if now >= last:
            raise SapoError(
                f"this node stops: {self._name(announcement)}, and {self._state.unusable[announcement]}",
                hint="install a release of sapo that can obey it, and start the node again: it goes on from"
                " its last checkpoint, with its points and reputation",
                exit_code=ExitCode.CONFIG,
            )

    def _trouble_with(self, announcement: AnnouncedTerms) -> str | None:
        if (why := self._state.unusable.get(announcement)) is not None:
            return why
        if self._parts.folder.document(announcement.successor) is None:
            return "no peer has sent its document yet"
        return None

    def _tell(self) -> None:
        """Report the fault of each announcement to the operator once."""
        for announcement in self._state.announced:
            why = self._trouble_with(announcement)
            if why is not None and (announcement, why) not in self._state.told:
                self._state.told.add((announcement, why))
                self._parts.events.write("successor_trouble", successor=announcement.successor, why=why)
                self._parts.show(f"warning: {self._name(announcement)}: {why}")

    def _note_withdrawn(self, announced: Sequence[AnnouncedTerms]) -> None:
        for gone in [each for each in self._state.announced if each not in announced]:
            self._parts.events.write("successor_withdrawn", successor=gone.successor)
            self._parts.show(f"{self._name(gone)} was withdrawn")

    def _name(self, announcement: AnnouncedTerms) -> str:
        short = str(announcement.successor)[:18]
        return f"successor {short} of this swarm's terms, from epoch {announcement.activation_epoch} on"
