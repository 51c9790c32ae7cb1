"""More accounts than fit into a message: ever paid, in one epoch, and the handling of their pages."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import pytest
import trio
from support.contributions import tally_of
from support.swarm import Identity, make_chain_manifest

from sapo_client.node.auditing.agreement import Agreement, AgreementTerms, ChainState
from sapo_client.node.auditing.pages import PageExchange
from sapo_client.node.auditing.settlement import cumulative_points
from sapo_client.node.gossip.list_uploads import ListUploads
from sapo_client.node.runtime.context import Author
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_client.swarm.transport import Handler
from sapo_protocol import merkle
from sapo_protocol.contributions import Proposal, page_digest, to_pages
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, SignedEnvelope, parse_envelope, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.requests import to_response
from sapo_protocol.terms.auditors import Auditors
from sapo_protocol.topics import pages_protocol
from sapo_verification.admission.contribution_store import ContributionStore
from sapo_verification.admission.contributions import parse_contribution
from sapo_verification.signing.database import SigningDatabase
from sapo_verification.working import Working

T = TypeVar("T")

MANIFEST = make_chain_manifest()
AUDITORS = tuple(sorted((Identity(number) for number in range(11, 15)), key=lambda one: one.account))
TERMS = AgreementTerms(
    auditors=Auditors(tuple(one.account for one in AUDITORS)).of,
    quorum=3,
    points_cap=16,
    epoch_budget=2**32 - 1,
)
PER_MESSAGE = 1024


def crowd(first: int, count: int) -> dict[Account, int]:
    """Accounts with points, other ones for other numbers."""
    numbers = range(first, first + count)
    return {Account(sha256(b"%d" % number).digest()[:20]): 1 + number % 16 for number in numbers}


class AuditorOfMany:
    """One auditor's agreement and store; messages of others arrive when the test delivers them."""

    def __init__(self, identity: Identity, contributions: ContributionStore | None = None) -> None:
        self.contributions = contributions or ContributionStore(":memory:", MANIFEST.swarm_id)
        self.identity = identity
        self.agreement = Agreement(
            author=Author(identity.seed, identity.node, identity.account),
            account_key=identity.secret,
            manifest=MANIFEST,
            terms=TERMS,
            contributions=self.contributions,
            signing=SigningDatabase(":memory:"),
        )

    def receive(self, envelopes: Iterable[SignedEnvelope], now: float) -> None:
        for envelope in envelopes:
            if not self.contributions.has(envelope.content_id):
                content = parse_contribution(envelope)
                self.contributions.add(
                    envelope.content_id, envelope.kind, content, envelope.to_bytes(), received_seconds=now
                )

    def fetch_pages(self, others: Sequence[AuditorOfMany], now: float) -> int:
        """Ask the others for all missing pages, and return for how many."""
        missing = self.contributions.missing_pages(10_000)
        for other in others:
            self.contributions.add_pages(other.contributions.pages(missing), received_seconds=now)
        return len(missing)


def settle(
    everybody: Sequence[AuditorOfMany], epoch: int, points: Mapping[Account, int], state: ChainState
) -> int:
    """Play an epoch to a posting of the whole quorum; return how many pages were asked for."""
    end = epoch_start_seconds(MANIFEST, epoch + 1)
    grace = min(30.0, 0.1 * MANIFEST.epoch_seconds)
    entries = tuple(sorted(points.items()))
    tallies = [
        # one of them misses an account, which moves nobody's median, and everybody on the pages behind it
        one.agreement.tally(epoch, entries[one is everybody[-1] :], merkle.EMPTY_ROOT, end + grace)
        for one in everybody
    ]
    asked = 0
    for one in everybody:
        one.receive(tallies, end + grace)
        asked += one.fetch_pages(everybody, end + grace)
    for turn in range(4):
        now = end + (2 + turn) * grace
        said = [envelope for one in everybody for envelope in one.agreement.step(now, state).messages]
        for one in everybody:
            one.receive(said, now)
        if said:
            break
    approved = [envelope for one in everybody for envelope in one.agreement.step(now, state).messages]
    for one in everybody:
        one.receive(approved, now)
    return asked


def posted(everybody: Sequence[AuditorOfMany], epoch: int, state: ChainState) -> ChainState:
    """Return the chain's state once the first posting that an auditor makes is final."""
    now = epoch_start_seconds(MANIFEST, epoch + 1) + 8 * min(30.0, 0.1 * MANIFEST.epoch_seconds)
    postings = [posting for one in everybody for posting in one.agreement.step(now, state).postings]
    roots = {posting.statement.root for posting in postings}
    assert len(roots) == 1, "all post one root"
    assert all(len(posting.signatures) >= TERMS.quorum for posting in postings)
    root = roots.pop()
    for one in everybody:
        one.contributions.note_posted(epoch, ContentId(root.archive_digest), is_final=True)
    return ChainState(root, None, state.granted_points + root.total, frozenset(TERMS.auditors(0)))


def test_settlement_continues_with_more_paid_accounts_than_fit_into_a_message() -> None:
    """The 1,025th account ever paid ended settlement for good; here each epoch pays another thousand."""
    everybody = [AuditorOfMany(identity) for identity in AUDITORS]
    state = ChainState(None, None, 0, frozenset(TERMS.auditors(0)))
    paid: dict[Account, int] = {}
    for epoch in range(3):
        points = crowd(1000 * epoch, 1000)
        paid |= points
        assert settle(everybody, epoch, points, state) == 0, "a tally fits, and shares are worked out"
        state = posted(everybody, epoch, state)
        assert state.last is not None
        assert state.base_root == merkle.sum_root(sorted(paid.items()))
        assert all(cumulative_points(one.contributions, state.last) == paid for one in everybody)
    assert len(paid) == 3000 > PER_MESSAGE


@pytest.mark.parametrize("count", [PER_MESSAGE + 1, 5_000])
def test_settlement_continues_when_more_accounts_earn_in_one_epoch(count: int) -> None:
    everybody = [AuditorOfMany(identity) for identity in AUDITORS]
    state = ChainState(None, None, 0, frozenset(TERMS.auditors(0)))
    points = crowd(0, count)
    assert settle(everybody, 0, points, state) > 0
    state = posted(everybody, 0, state)
    assert state.base_root == merkle.sum_root(sorted(points.items()))
    # who was away holds the message that the chain names, fetches its pages, and can claim and go on
    late = AuditorOfMany(Identity(99))
    assert state.last is not None
    proposal = ContentId(state.last.archive_digest)
    late.contributions.note_posted(0, proposal, is_final=True)
    late.receive([message_of(everybody[0], proposal)], 0.0)
    assert cumulative_points(late.contributions, state.last) is None
    late.fetch_pages(everybody, 0.0)
    assert cumulative_points(late.contributions, state.last) == points


def message_of(auditor: AuditorOfMany, content_id: ContentId) -> SignedEnvelope:
    """Return a stored message."""
    envelopes = (parse_envelope(data, MANIFEST.swarm_id) for data in auditor.contributions.envelopes(0))
    return next(envelope for envelope in envelopes if envelope.content_id == content_id)


def test_a_message_whose_pages_are_withheld_is_ignored(tmp_path: Path) -> None:
    author, reader = (
        AuditorOfMany(AUDITORS[0]),
        ContributionStore(tmp_path / "node.sqlite", MANIFEST.swarm_id),
    )
    entries = tuple(sorted(crowd(0, 3 * PER_MESSAGE).items()))
    sent = author.agreement.tally(4, entries, merkle.EMPTY_ROOT, 0.0)
    tally = parse_contribution(sent)
    reader.add(sent.content_id, sent.kind, tally, sent.to_bytes(), received_seconds=5.0)
    missing = reader.missing_pages(10)
    pages = author.contributions.pages(missing)
    assert (len(missing), len(pages)) == (3, 3)
    reader.add_pages([*pages[:2], b"noise", encode(((b"x", 1),)), pages[2] + b"\x00"], received_seconds=6.0)
    assert (reader.tallies(4), reader.settled_tallies(4, 99.0)) == ({}, {})
    assert [page_digest(pages[2])] == list(reader.missing_pages(10))
    reader.add_pages([pages[2]], received_seconds=7.0)
    assert reader.tallies(4)[sent.content_id].points == entries
    assert reader.received_seconds(sent.content_id) == 7.0, "it counts as received when its last page is"
    assert (reader.settled_tallies(4, 6.5), list(reader.settled_tallies(4, 7.0))) == ({}, [sent.content_id])
    reader.add_pages(pages, received_seconds=8.0)
    assert reader.received_seconds(sent.content_id) == 7.0, "pages that are here change nothing"
    again = ContributionStore(tmp_path / "node.sqlite", MANIFEST.swarm_id)
    assert again.tallies(4)[sent.content_id].points == entries


@pytest.mark.parametrize(
    "pages",
    [
        [b"\xff"],
        [encode(())],
        [encode(7)],
        [encode(((bytes(20), 1), (bytes(20), 2)))],
        [encode(((bytes(19), 1),))],
        [encode(((bytes(20), 1, 2),))],
        [encode(((bytes(20), b"1"),))],
        [encode(((b"\x02" * 20, 1),)), encode(((b"\x01" * 20, 1),))],
    ],
)
def test_pages_with_other_entries_never_make_a_tally(pages: list[bytes]) -> None:
    author, reader = AUDITORS[0], ContributionStore(":memory:", MANIFEST.swarm_id)
    told = replace(tally_of(author, 4, {}), pages=tuple(map(page_digest, pages)))
    sent = seal(Kind.TALLY, MANIFEST.swarm_id, told.to_payload(), author.seed)
    reader.add(sent.content_id, Kind.TALLY, parse_contribution(sent), sent.to_bytes())
    reader.add_pages(pages)
    assert reader.missing_pages(10) == ()
    assert (reader.tallies(4), reader.tally(sent.content_id)) == ({}, None)


def told_pages(author: Identity, pages: Sequence[bytes], epoch: int = 4) -> SignedEnvelope:
    """A tally that names some pages, whatever they hold."""
    told = replace(tally_of(author, epoch, {}), pages=tuple(map(page_digest, pages)))
    return seal(Kind.TALLY, MANIFEST.swarm_id, told.to_payload(), author.seed)


def test_unsorted_pages_are_read_once_and_dropped() -> None:
    reader, author = AuditorOfMany(AUDITORS[0]), AUDITORS[1]
    entries = tuple(sorted(crowd(0, 3 * PER_MESSAGE).items()))
    honest, pages = reader.agreement.tally(4, entries, merkle.EMPTY_ROOT, 1.0), to_pages(entries)
    wrong = [pages[0], pages[2], pages[1]]  # they do not ascend, as only the end of the list shows
    later = encode(((b"\x00" * 20, 1),))
    reader.receive([told_pages(author, wrong), told_pages(author, [pages[0], later])], 1.0)
    reader.contributions.add_pages([later])
    assert reader.contributions.missing_pages(10) == ()
    assert list(reader.contributions.tallies(4)) == [honest.content_id]
    digests = [page_digest(page) for page in (*pages, later)]
    assert reader.contributions.pages(digests) == pages, "none but those that another tally names"
    assert reader.contributions.missing_pages(10) == ()
    assert reader.contributions.tallies(4)[honest.content_id].points == entries


def test_a_page_longer_than_any_list_is_not_stored() -> None:
    reader, author = AuditorOfMany(AUDITORS[0]), AUDITORS[1]
    largest = encode(tuple((b"%020d" % number, 2**64 - 1, 2**64 - 1) for number in range(PER_MESSAGE)))
    longer = largest + b"\x00"
    reader.receive([told_pages(author, [largest, longer])], 1.0)
    reader.contributions.add_pages([largest, longer])
    assert reader.contributions.pages([page_digest(largest), page_digest(longer)]) == (largest,)


def test_missing_pages_delay_no_message() -> None:
    """Two dishonest auditors of seven name pages that are requested first, in every stored epoch."""
    reader, honest = AuditorOfMany(AUDITORS[0]), AuditorOfMany(AUDITORS[1])
    liars = [Identity(number) for number in range(60, 62)]
    for epoch in range(2, 6):
        for number, liar in enumerate(liars):
            for place in range(2):
                names = ((b"%d %d %d %d" % (epoch, number, place, page)) for page in range(256))
                digests = tuple(Digest(bytes(8) + sha256(name).digest()[8:]) for name in names)
                told = replace(tally_of(liar, epoch, {}), pages=digests)
                reader.receive([seal(Kind.TALLY, MANIFEST.swarm_id, told.to_payload(), liar.seed)], 1.0)
    entries = tuple(sorted(crowd(0, 40 * PER_MESSAGE).items()))
    sent = honest.agreement.tally(4, entries, merkle.EMPTY_ROOT, 0.0)
    reader.receive([sent], 1.0)
    for _ in range(2):  # rounds of as many as a node asks for in a second
        missing = reader.contributions.missing_pages(1024)
        reader.contributions.add_pages(honest.contributions.pages(missing))
    assert reader.contributions.tallies(4)[sent.content_id].points == entries


def test_pages_that_are_stored_already_change_nothing() -> None:
    author, reader = AuditorOfMany(AUDITORS[0]), AuditorOfMany(AUDITORS[1])
    sent = author.agreement.tally(4, tuple(sorted(crowd(0, 1500).items())), merkle.EMPTY_ROOT, 0.0)
    reader.receive([sent], 1.0)
    pages = author.contributions.pages(reader.contributions.missing_pages(10))
    reader.contributions.add_pages(pages)
    revision = reader.contributions.revision
    reader.contributions.add_pages(pages)
    assert reader.contributions.revision == revision


def test_a_proposal_with_other_pages_is_settled_once() -> None:
    offered = []

    class CountingStore(ContributionStore):
        def add_pages(self, pages: Iterable[bytes], *, received_seconds: float = 0.0) -> None:
            offered.append(pages)
            super().add_pages(pages, received_seconds=received_seconds)

    liar = AUDITORS[2]
    reader = AuditorOfMany(AUDITORS[0], CountingStore(":memory:", MANIFEST.swarm_id))
    told = [tally_of(one, 0, crowd(0, 3)) for one in AUDITORS[:3]]
    sent = [
        seal(Kind.TALLY, MANIFEST.swarm_id, tally.to_payload(), one.seed)
        for one, tally in zip(AUDITORS, told, strict=False)
    ]
    tallies = tuple(sorted(envelope.content_id for envelope in sent))
    false = Proposal(liar.node, liar.account, 0, tallies, (), turn=2, pages=(page_digest(b"false"),))
    sent.append(seal(Kind.PROPOSAL, MANIFEST.swarm_id, false.to_payload(), liar.seed))
    end, grace = epoch_start_seconds(MANIFEST, 1), min(30.0, 0.1 * MANIFEST.epoch_seconds)
    reader.receive(sent, end + grace)
    for look in range(3):
        step = reader.agreement.step(end + 4.8 * grace + look, ChainState(None, None, 0, frozenset()))
        assert step.messages == ()
    assert len(offered) == 1


def test_old_pages_are_dropped_except_those_of_the_newest_postings() -> None:
    everybody = [AuditorOfMany(identity) for identity in AUDITORS]
    state = ChainState(None, None, 0, frozenset(TERMS.auditors(0)))
    settle(everybody, 0, crowd(0, 1500), state)
    state = posted(everybody, 0, state)
    store = everybody[0].contributions
    named = [digest for tally in store.tallies(0).values() for digest in tally.pages]
    store.forget(before_epoch=17)
    assert store.pages(named) == ()
    assert store.missing_pages(10) == ()
    assert cumulative_points(store, state.last) == crowd(0, 1500)


async def test_pages_are_fetched_from_whichever_peer_has_them() -> None:
    hub, owner, reader = MemoryHub(), AuditorOfMany(AUDITORS[0]), AuditorOfMany(AUDITORS[1])
    sent = owner.agreement.tally(4, tuple(sorted(crowd(0, 2500).items())), merkle.EMPTY_ROOT, 0.0)
    reader.receive([sent], 1.0)
    protocol = pages_protocol(MANIFEST.swarm_id)

    async def withholding(peer_id: str, request: bytes) -> bytes:
        return to_response(())

    async def noisy(peer_id: str, request: bytes) -> bytes:
        return b"\xff\xff"

    async def lying(peer_id: str, request: bytes) -> bytes:
        return to_response((encode(((bytes(20), 2**40),)),))

    async with trio.open_nursery() as nursery:
        nodes = [await _node(hub, identity, nursery) for identity in (Identity(n) for n in range(50, 55))]
        exchanges = [_exchange(nodes[0], reader), _exchange(nodes[1], owner)]
        exchanges[1].serve()
        answers: list[Handler] = [withholding, noisy, lying]
        for node, answer in zip(nodes[2:], answers, strict=True):
            node.serve(protocol, answer)
        for node in nodes[1:]:
            await nodes[0].connect(node.addresses[0])
        for _ in range(len(nodes) - 1):  # each round asks another peer
            await exchanges[0].look()
        assert reader.contributions.missing_pages(1) == ()
        assert reader.contributions.tallies(4)[sent.content_id].points == tuple(
            sorted(crowd(0, 2500).items())
        )
        nursery.cancel_scope.cancel()


def _exchange(transport: MemoryTransport, auditor: AuditorOfMany) -> PageExchange:
    return PageExchange(
        transport=transport,
        uploads=ListUploads(transport),
        contributions=auditor.contributions,
        swarm_id=MANIFEST.swarm_id,
        clock=lambda: 2.0,
    )


async def _node(hub: MemoryHub, identity: Identity, nursery: trio.Nursery) -> MemoryTransport:
    def raise_(error: Exception) -> None:
        raise error

    transport = MemoryTransport(hub, peer_id_from_key(identity.node), on_bug=raise_, host="127.0.0.1")
    await nursery.start(transport.run)
    return transport


def test_the_first_posting_has_a_quorum_of_signatures_and_later_ones_all() -> None:
    """Each signature costs 11,000 gas; spare ones are for a signer that takes out its bond in between."""
    everybody = [AuditorOfMany(identity) for identity in AUDITORS]
    state = ChainState(None, None, 0, frozenset(TERMS.auditors(0)))
    settle(everybody, 0, crowd(0, 3), state)
    end, grace = epoch_start_seconds(MANIFEST, 1), min(30.0, 0.1 * MANIFEST.epoch_seconds)
    for turn, expected in ((0, [3]), (1, [4, 4, 4, 4])):
        steps = [one.agreement.step(end + (2 + turn) * grace, state) for one in everybody]
        assert [len(posting.signatures) for step in steps for posting in step.postings] == expected


def longest_section(working: Working[T]) -> tuple[T, int]:
    """Run all parts, and return the result and the calls of the longest section between two parts."""
    sections: list[int] = []

    def count(_: object, event: str, __: object) -> None:
        sections[-1] += event in ("call", "c_call")

    result = None
    while True:
        sections.append(0)
        sys.setprofile(count)
        try:
            part = working.send(result)
        except StopIteration as done:
            value: T = done.value
            return value, max(sections)
        finally:
            sys.setprofile(None)
        result = part()


def sections_of_an_epoch(count: int) -> dict[str, int]:
    """The longest section of each step of an epoch with so many accounts, in calls."""
    everybody = [AuditorOfMany(identity) for identity in AUDITORS]
    state = ChainState(None, None, 0, frozenset(TERMS.auditors(0)))
    end, grace = epoch_start_seconds(MANIFEST, 1), min(30.0, 0.1 * MANIFEST.epoch_seconds)
    entries = tuple(sorted(crowd(0, count).items()))
    longest, tallies = dict[str, int](), list[SignedEnvelope]()
    for one in everybody:
        working = one.agreement.tallying(0, entries, merkle.EMPTY_ROOT, end + grace)
        sent, longest["tally"] = longest_section(working)
        tallies.append(sent)
    first, second, *_ = sorted(everybody, key=lambda one: one.identity.account != TERMS.auditors(0)[0])
    for one in (first, second):
        one.receive(tallies, end + grace)
        one.fetch_pages(everybody, end + grace)
    proposed, longest["proposal"] = longest_section(first.agreement.stepping(end + 2 * grace, state))
    second.receive(proposed.messages, end + 2 * grace)
    approved, longest["approval"] = longest_section(second.agreement.stepping(end + 2 * grace, state))
    assert [message.kind for message in proposed.messages] == [Kind.PROPOSAL, Kind.APPROVAL]
    assert [message.kind for message in approved.messages] == [Kind.APPROVAL]
    return longest


def test_uninterrupted_sections_do_not_grow_with_the_number_of_accounts() -> None:
    """A proposal of 100,000 accounts held up the node for nine seconds.

    What is left between two parts grows by some calls for each page of 1,024 accounts.
    """
    few, many = sections_of_an_epoch(PER_MESSAGE + 1), sections_of_an_epoch(5 * PER_MESSAGE)
    print(f"\ncalls between two parts: {few}, {many}")
    assert all(many[step] - few[step] < PER_MESSAGE for step in few)
