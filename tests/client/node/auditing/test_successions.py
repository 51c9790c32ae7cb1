"""A node's handling of announcements on its ledger, honest and dishonest ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import trio
from support.auditor_harness import AUDITORS, CROWD, Funded
from support.ledger import BOB, Contracts, address, found, keys, refused_as
from support.weekday_policy import FAMILY

from sapo_client.errors import SapoError
from sapo_client.ledger.service import LedgerClient
from sapo_client.node.auditing.successions import SuccessionParts, Successions
from sapo_client.node.gossip import list_uploads
from sapo_client.node.gossip.list_uploads import ListUploads
from sapo_client.node.gossip.sync import MAX_ANSWER_BYTES
from sapo_client.node.runtime.successor_folder import SuccessorFolder
from sapo_client.observe.events import EventLog, read_events
from sapo_client.swarm.limits import Rate
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol import secp256k1
from sapo_protocol.eip712 import SuccessionNotice
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Digest, SwarmId
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import successor_to_json
from sapo_protocol.requests import parse_response, to_page_request, to_response
from sapo_protocol.suite import Suite
from sapo_protocol.terms.successor import MAX_SUCCESSOR_BYTES, Successor, successor_digest
from sapo_protocol.topics import successors_protocol
from sapo_verification.admission.rollouts import TermsInForce
from sapo_verification.jail.launch import sample_digest
from sapo_verification.suites.catalogue import REASONING_GYM, family

NOW = 102
ACTIVATION = NOW + 8
GARBAGE = b'{"successor": 1}'


class Site:
    """A chain with three auditors of whom two agree."""

    def __init__(self, root: Path, suite: Suite) -> None:
        self.root, self.hub = root, MemoryHub()
        accounts = tuple(auditor.account for auditor in AUDITORS)
        self.contracts: Contracts = found(root / "chain.sqlite", auditors=accounts, quorum=2)
        self.manifest: Manifest = self.contracts.manifest(suite=suite)

    def now(self) -> float:
        return self.contracts.chain.now_seconds

    def turn_to(self, epoch: int) -> None:
        self.contracts.chain.now_seconds = epoch_start_seconds(self.manifest, epoch + 1) - 1
        self.mine()

    def document(self, **changes: Any) -> bytes:
        """Return terms with other limits; twice the slots if nothing is named."""
        limits = self.manifest.limits
        fields: dict[str, Any] = {
            "lineage": self.manifest.swarm_id,
            "suite": self.manifest.suite,
            "slots_per_epoch": 2 * limits.slots_per_epoch,
            "max_completions": limits.max_completions,
        }
        return successor_to_json(Successor(**{**fields, **changes}))

    def data(self, notice: SuccessionNotice, signers: tuple[Funded, ...] = AUDITORS[:2]) -> bytes:
        digest = notice.digest(self.contracts.domain)
        signed = [secp256k1.sign(one.secret, digest) for one in sorted(signers, key=lambda one: one.account)]
        return self.contracts.ledger.announce(notice, signed)

    def announce(self, successor: Digest, number: int = 0, activation: int = ACTIVATION) -> None:
        data = self.data(SuccessionNotice(number, activation, successor))
        self.contracts.chain.send(BOB, self.contracts.ledger.address, data)
        self.mine()

    def mine(self) -> None:
        """Add a block, so that what the one before it holds is read."""
        self.contracts.chain.send(BOB, address(BOB), b"", value_wei=1)


class Follower:
    """A node's part that follows the announcements, with a folder, a transport and a ledger of its own."""

    def __init__(self, site: Site, number: int) -> None:
        self.site, self.who = site, CROWD[number]
        self.root = site.root / f"follower-{number}"
        self.root.mkdir(exist_ok=True)
        self.folder = SuccessorFolder(self.root / "successors")
        self.events = EventLog(self.root / "events.jsonl")
        self.ledger = LedgerClient(
            manifest=site.manifest,
            account=keys(self.who.number),
            rpc_urls=[site.contracts.chain.url],
            outbox_path=self.root / "outbox.sqlite",
        )
        self.shown: list[str] = []
        self.reopened = 0
        self.open()

    def open(self) -> None:
        """Open the service with the terms that the folder obeys, as a node that opens itself again."""
        self.manifest = self.folder.apply(self.site.manifest)
        self.terms = TermsInForce(self.manifest)
        self.transport = MemoryTransport(self.site.hub, f"peer-{self.who.number}", on_bug=_raise)
        self.service = Successions(
            SuccessionParts(
                manifest=self.manifest,
                folder=self.folder,
                chain=self.ledger,
                in_force=self.terms,
                transport=self.transport,
                uploads=ListUploads(self.transport),
                events=self.events,
                clock=self.site.now,
                node=self.who.node,
                reopen=self._reopen,
                caught_up=lambda: None,
                show=self.shown.append,
            )
        )

    def _reopen(self) -> None:
        self.reopened += 1

    def written(self) -> list[str]:
        return [str(event["event"]) for event in read_events(self.root / "events.jsonl")]


def _raise(error: BaseException, *_: object) -> None:
    raise error


@pytest.fixture
def site(tmp_path: Path, weekdays: Suite) -> Iterator[Site]:
    created = Site(tmp_path, weekdays)
    created.turn_to(NOW)
    yield created
    created.contracts.chain.close()


@asynccontextmanager
async def connected(*followers: Follower) -> Any:
    """Run the followers' transports, all connected, and let each answer the others."""
    async with trio.open_nursery() as nursery:
        for follower in followers:
            await nursery.start(follower.transport.run)
            follower.service.begin()
        for one in followers:
            for other in followers:
                if one is not other:
                    await one.transport.connect(other.transport.addresses[0])
        yield
        nursery.cancel_scope.cancel()


async def test_a_successor_document_is_fetched_from_a_peer_and_takes_effect_at_its_epoch(site: Site) -> None:
    author, reader = Follower(site, 0), Follower(site, 1)
    document = site.document()
    digest = author.folder.add(document)
    site.announce(digest)
    async with connected(author, reader):
        assert not reader.service.holds(0)  # before the chain has answered nothing is certain
        await reader.service.look()
        assert reader.folder.document(digest) == document
        assert (reader.terms.known_until, reader.reopened) == (NOW + 4, 0)
        coming = reader.service.coming()
        assert coming is not None
        assert (coming.activation_epoch, coming.epochs, coming.trouble) == (
            ACTIVATION,
            ACTIVATION - NOW,
            None,
        )
        before = site.manifest.limits.slots_per_epoch
        name = f"successor {str(digest)[:18]} of this swarm's terms, from epoch {ACTIVATION} on"
        assert reader.shown == [f"{name}: slots per epoch: {2 * before} instead of {before}"]
        site.turn_to(ACTIVATION - 1)  # every node's turn has come
        await reader.service.look()
        assert (reader.terms.known_until, reader.reopened) == (ACTIVATION - 1, 1)
    reader.open()
    async with connected(reader):
        await reader.service.look()
        assert (reader.terms.known_until, reader.reopened) == (ACTIVATION + 3, 1)
        assert (
            reader.manifest.limits_at(ACTIVATION).slots_per_epoch == 2 * site.manifest.limits.slots_per_epoch
        )
    site.turn_to(ACTIVATION)
    assert reader.service.coming() is None  # in force
    assert reader.written() == ["successor_announced", "successor_obeyed", "successor_announced"]


async def test_repeated_requests_for_a_document_are_limited_to_a_networks_share(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four at once, where as many are a network's burst; a peer elsewhere has its own."""
    author, document = Follower(site, 0), site.document()
    request = to_page_request([author.folder.add(document)])
    limit = Rate(per_second=1, burst=4 * len(document))
    monkeypatch.setattr(list_uploads, "LISTS_TO_NETWORK", limit)
    author.open()
    hosts = {"mallory": "203.0.113.7", "mallory-2": "203.0.113.7", "bob": "198.51.100.9"}
    peers = {name: MemoryTransport(site.hub, name, on_bug=_raise, host=host) for name, host in hosts.items()}

    async def copies_for(name: str) -> int:
        answer = await peers[name].request(
            author.transport.peer_id,
            successors_protocol(site.manifest.swarm_id),
            request,
            max_response_bytes=MAX_ANSWER_BYTES,
        )
        return parse_response(answer).count(document)

    async with connected(author), trio.open_nursery() as nursery:
        for peer in peers.values():
            await nursery.start(peer.run)
            await peer.connect(author.transport.addresses[0])
        given = [await copies_for(name) for _ in range(4) for name in ("mallory", "mallory-2")]
        assert given == [1, 1, 1, 1, 0, 0, 0, 0]
        assert await copies_for("bob") == 1
        nursery.cancel_scope.cancel()


async def test_a_node_that_was_away_finds_two_successors_in_a_row(site: Site) -> None:
    author, late = Follower(site, 0), Follower(site, 1)
    more = (*site.manifest.suite.families, family(FAMILY, "nano-2"))
    first = author.folder.add(site.document())
    suite = Suite(REASONING_GYM, more, sample_digest(more))
    second = author.folder.add(site.document(suite=suite, retired=(0,)))
    site.announce(first)
    site.turn_to(ACTIVATION)
    site.announce(second, 1, 2 * ACTIVATION)
    site.turn_to(2 * ACTIVATION + 1)
    async with connected(author, late):
        while not late.reopened:
            await late.service.look()
    late.open()
    assert [each.activation_epoch for each in late.manifest.successions] == [ACTIVATION, 2 * ACTIVATION]
    found = [tuple(late.manifest.families_at(epoch)) for epoch in (ACTIVATION, 2 * ACTIVATION)]
    assert found == [(0,), (1,)]


def test_a_minority_announces_nothing_and_nothing_is_announced_twice(site: Site) -> None:
    digest = successor_digest(site.document())
    notice, ledger, chain = (
        SuccessionNotice(0, ACTIVATION, digest),
        site.contracts.ledger,
        site.contracts.chain,
    )
    few = site.data(notice, AUDITORS[:1])
    assert refused_as(lambda: chain.send(BOB, ledger.address, few)) == "TooFewSignatures"
    stranger = site.data(notice, (AUDITORS[0], CROWD[0]))
    assert refused_as(lambda: chain.send(BOB, ledger.address, stranger)) == "NotAuditor"
    enough = site.data(notice)
    chain.send(BOB, ledger.address, enough)
    assert refused_as(lambda: chain.send(BOB, ledger.address, enough)) == "WrongNumber"
    site.turn_to(ACTIVATION)
    assert refused_as(lambda: chain.send(BOB, ledger.address, enough)) == "WrongNumber"


async def test_a_successor_of_another_swarm_is_ignored_and_reported(site: Site) -> None:
    author, reader = Follower(site, 0), Follower(site, 1)
    digest = author.folder.add(site.document(lineage=SwarmId(sha256(b"another").digest())))
    site.announce(digest)
    site.turn_to(ACTIVATION - 1)
    async with connected(author, reader):
        await reader.service.look()
        assert (reader.terms.known_until, reader.reopened) == (ACTIVATION + 3, 0)
    assert reader.written() == ["successor_void"]
    assert "counts for nothing: it is a successor of another swarm" in reader.shown[0]


async def test_a_missing_document_stops_unknown_terms_without_penalty(site: Site) -> None:
    reader, other = Follower(site, 0), Follower(site, 1)
    digest = successor_digest(site.document())
    site.announce(digest)
    site.turn_to(ACTIVATION - 1)
    async with connected(reader, other):
        for _ in range(3):
            await reader.service.look()
        assert (reader.terms.known_until, reader.reopened) == (ACTIVATION - 1, 0)
        facts, coming = reader.service.unfollowed(), reader.service.coming()
        assert facts is not None
        assert coming is not None
        assert (coming.name, coming.epochs, coming.trouble) == (facts.name, facts.epochs, facts.trouble)
        assert (facts.trouble, facts.epochs) == ("no peer has sent its document yet", 1)
        assert reader.written() == ["successor_trouble"]  # said once
        other.folder.add(site.document())  # at last
        await reader.service.look()
        assert (reader.reopened, reader.service.unfollowed()) == (1, None)


@pytest.mark.parametrize(
    "answers",
    [
        (GARBAGE,),
        (),
        (b"x" * (MAX_SUCCESSOR_BYTES + 1),),
    ],
)
async def test_a_peer_that_answers_with_something_else_changes_nothing(
    site: Site, answers: tuple[bytes, ...]
) -> None:
    liar, author, reader = (Follower(site, number) for number in range(3))
    digest = author.folder.add(site.document())
    site.announce(digest)
    async with connected(liar, author, reader):

        async def lie(_peer: str, _request: bytes) -> bytes:
            return to_response(answers)

        liar.transport.serve(successors_protocol(site.manifest.swarm_id), lie)
        for _ in range(3):  # one peer after the other is asked
            await reader.service.look()
        assert reader.folder.document(digest) == site.document()
    held = [path.name for path in (reader.root / "successors").iterdir()]
    assert held == [f"{digest}.json"]


async def test_unreadable_terms_stop_the_node_before_they_take_effect(site: Site) -> None:
    reader = Follower(site, 0)
    site.announce(reader.folder.add(GARBAGE))
    async with connected(reader):
        await reader.service.look()
        assert "this release of sapo cannot read it" in reader.shown[0]
        site.turn_to(ACTIVATION - 1)
        with pytest.raises(SapoError, match="this node stops"):
            await reader.service.look()
