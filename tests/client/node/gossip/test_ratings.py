"""Ratings of peers: a node's audits of an account change its nodes' transport scores."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from support.gossip_harness import UNPACED, GossipHarness
from support.nodes import until
from support.swarm import EPOCH, GENESIS_SECONDS, Identity, make_chain_manifest, make_manifest, moment
from trio.testing import MockClock

from sapo_client.node.auditing.chain import NoChain
from sapo_client.node.gossip.ratings import BANNED, TRUSTED, Ratings, Vouched
from sapo_client.node.metrics_poller import MetricsPoller
from sapo_client.swarm.limits import ScoreLimits, TransportLimits
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.simulated.memory import MemoryHub, MemoryTransport
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.errors import Reason
from sapo_protocol.identifiers import Account
from sapo_protocol.terms.gate import BondGate
from sapo_protocol.topics import rollouts_topic
from sapo_verification.reputation.evidence import AUDITS_BEFORE_WEIGHT, BAN_EPOCHS

MANIFEST = make_manifest()
ALICE, BOB, CAROL = (Identity(number) for number in (1, 2, 3))


@pytest.fixture
def alice(tmp_path: Path) -> GossipHarness:
    return GossipHarness(MemoryHub(), ALICE, MANIFEST, tmp_path / "alice")


def peer_of(identity: Identity) -> str:
    return peer_id_from_key(identity.node)


def rating(node: GossipHarness, identity: Identity, epoch: int = EPOCH) -> float | None:
    return Ratings(node.certificates, node.reputation).of([peer_of(identity)], epoch).get(peer_of(identity))


def introduce(node: GossipHarness, *people: Identity) -> None:
    for identity in people:
        node.certificates.admit(identity.certificate(MANIFEST).to_bytes(), node.now())


def test_an_accounts_behaviour_determines_its_peers_ratings(alice: GossipHarness) -> None:
    assert rating(alice, BOB) is None, "nobody knows who that is"
    introduce(alice, BOB, Identity(2, key=1))
    assert rating(alice, BOB) == 0.0, "a newcomer"
    for _ in range(2 * AUDITS_BEFORE_WEIGHT):
        alice.reputation.record_good(BOB.account, 0, EPOCH)
    trusted = rating(alice, BOB)
    assert trusted is not None
    assert 0.5 * TRUSTED < trusted < TRUSTED
    assert rating(alice, Identity(2, key=1)) == trusted, "every key of the account"
    for _ in range(20):
        alice.reputation.record_fault(BOB.account, 0, EPOCH, Reason.CHECKER_TIMEOUT)
    careless = rating(alice, BOB)
    assert careless is not None
    assert BANNED < careless < trusted
    alice.reputation.record_fault(BOB.account, 0, EPOCH, Reason.EQUIVOCATION)
    assert rating(alice, BOB) == BANNED
    after = rating(alice, BOB, EPOCH + BAN_EPOCHS)
    assert after is not None
    assert after > BANNED


def test_groups_without_signal_do_not_lower_the_rating(alice: GossipHarness) -> None:
    introduce(alice, BOB)
    for _ in range(3 * AUDITS_BEFORE_WEIGHT):
        alice.reputation.record_fault(BOB.account, 0, EPOCH, Reason.NO_SIGNAL)
    weak = rating(alice, BOB)
    assert weak is not None
    assert weak >= 0.0


async def test_groups_that_failed_do_not_vouch_for_an_account(alice: GossipHarness) -> None:
    """Such groups cost nothing to make, so keeping many accounts like these has no price."""
    introduce(alice, BOB, CAROL)
    for _ in range(3 * AUDITS_BEFORE_WEIGHT):
        alice.reputation.record_fault(BOB.account, 0, EPOCH, Reason.NO_SIGNAL)
        alice.reputation.record_fault(CAROL.account, 0, EPOCH, Reason.TEXT_POLICY)
    ratings = Ratings(alice.certificates, alice.reputation)
    assert await ratings.vouched(EPOCH) == Vouched(frozenset(), frozenset())
    assert [ratings.vouches_for(who.account, EPOCH) for who in (BOB, CAROL)] == [False, False]


def test_a_peer_with_several_accounts_has_the_rating_of_the_worst(alice: GossipHarness) -> None:
    introduce(alice, BOB)
    both = Ratings(alice.certificates, alice.reputation)
    assert dict(both.of([peer_of(BOB), peer_of(CAROL), "no peer id"], EPOCH)) == {peer_of(BOB): 0.0}
    manifest = alice.engine.manifest
    binding = NodeBinding(BOB.node, manifest.swarm_id, GENESIS_SECONDS, GENESIS_SECONDS + 86_400)
    second = issue_certificate(BOB.seed, CAROL.secret, binding, manifest.binding_domain)
    alice.certificates.admit(second.to_bytes(), moment(manifest))
    alice.reputation.record_fault(CAROL.account, 0, EPOCH, Reason.EQUIVOCATION)
    assert rating(alice, BOB) == BANNED


async def test_peers_are_vouched_for_by_what_their_accounts_did(alice: GossipHarness) -> None:
    ratings = Ratings(alice.certificates, alice.reputation)
    introduce(alice, BOB, CAROL)
    assert await ratings.vouched(EPOCH) == Vouched(frozenset(), frozenset()), "newcomers"
    for _ in range(2 * AUDITS_BEFORE_WEIGHT):
        for identity in (BOB, CAROL):
            alice.reputation.record_good(identity.account, 0, EPOCH)
    assert await ratings.vouched(EPOCH) == Vouched(frozenset({peer_of(BOB), peer_of(CAROL)}), frozenset())
    alice.reputation.record_fault(CAROL.account, 0, EPOCH, Reason.EQUIVOCATION)
    assert await ratings.vouched(EPOCH) == Vouched(frozenset({peer_of(BOB)}), frozenset())


async def test_under_a_gate_bonded_accounts_are_vouched_for_before_they_earn(tmp_path: Path) -> None:
    """Also those of whom only an address record is known; not while no bonds are, and never banned ones."""
    gate = BondGate(Account(b"\x04" * 20), unit=100, exit_seconds=2**32)
    node = GossipHarness(MemoryHub(), ALICE, make_chain_manifest(version=2, gate=gate), tmp_path / "gated")
    ratings, dave = Ratings(node.certificates, node.reputation), Identity(4)
    for identity in (BOB, CAROL):
        node.certificates.admit(identity.certificate(node.manifest).to_bytes(), node.now())
    others = [(dave.node, dave.account), (Identity(5).node, Identity(5).account)]
    assert await ratings.vouched(EPOCH, others) == Vouched(frozenset(), frozenset()), "no bonds are known yet"
    assert not ratings.vouches_for(BOB.account, EPOCH)
    node.engine.standing.learn(EPOCH, {who.account: 100 for who in (BOB, CAROL, dave)})
    bonded = frozenset(map(peer_of, (BOB, CAROL, dave)))
    assert await ratings.vouched(EPOCH, others) == Vouched(frozenset(), bonded)
    assert [ratings.vouches_for(who.account, EPOCH) for who in (BOB, Identity(5))] == [True, False]
    for _ in range(2 * AUDITS_BEFORE_WEIGHT):
        node.reputation.record_good(BOB.account, 0, EPOCH)
    node.reputation.record_fault(CAROL.account, 0, EPOCH, Reason.EQUIVOCATION)
    earned = frozenset({peer_of(BOB)})
    assert await ratings.vouched(EPOCH, others) == Vouched(earned, frozenset({peer_of(dave)}))
    assert not ratings.vouches_for(CAROL.account, EPOCH)


def test_accounts_that_share_a_bond_have_the_places_of_one(tmp_path: Path) -> None:
    """Who divides four bonds among sixteen accounts is vouched for about four times, by nobody's choice."""
    gate = BondGate(Account(b"\x04" * 20), unit=100, exit_seconds=2**32)
    node = GossipHarness(MemoryHub(), ALICE, make_chain_manifest(version=2, gate=gate), tmp_path / "gated")
    accounts = [Account(number.to_bytes(20, "big")) for number in range(1, 801)]
    node.engine.standing.learn(0, dict.fromkeys(accounts, 25))
    ratings, other = (Ratings(node.certificates, node.reputation) for _ in range(2))
    drawn = {each for each in accounts if ratings.vouches_for(each, EPOCH)}
    assert 100 < len(drawn) < 300, (
        "of 800 quarters 200, and hardly ever eight standard deviations more or less"
    )
    assert drawn != {each for each in accounts if other.vouches_for(each, EPOCH)}, "each node draws others"


def test_no_rating_alone_reaches_the_disconnect_threshold() -> None:
    limits = ScoreLimits()
    assert limits.disconnect_below < limits.lowest_rating <= BANNED < 0 < TRUSTED <= limits.highest_rating


def watch(node: GossipHarness) -> MetricsPoller:
    ratings = Ratings(node.certificates, node.reputation)
    return MetricsPoller(
        manifest=MANIFEST,
        transport=node.transport,
        chain=NoChain(),
        ratings=ratings,
        engine=node.engine,
        records=node.gossip.records.directory,
        telemetry=node.telemetry,
        clock=node.now,
    )


@pytest.mark.parametrize(("banned", "connected_after"), [(False, True), (True, False)])
async def test_the_first_reject_of_a_banned_account_ends_the_connection(
    alice: GossipHarness, banned: bool, connected_after: bool, autojump_clock: MockClock
) -> None:
    bob = MemoryTransport(alice.hub, peer_of(BOB), on_bug=_raise)
    introduce(alice, BOB)
    async with trio.open_nursery() as nursery:
        await nursery.start(alice.transport.run)
        await nursery.start(bob.run)
        nursery.start_soon(alice.run)
        nursery.start_soon(watch(alice).run)
        await bob.connect(alice.address)
        if banned:
            alice.reputation.record_fault(BOB.account, 0, EPOCH, Reason.EQUIVOCATION)
        await trio.sleep(15)
        assert len(alice.transport.peers()) == 1, "a ban silences; it does not disconnect"
        await bob.publish(rollouts_topic(MANIFEST.swarm_id), b"noise")
        await until(lambda: alice.events("refused"))
        assert bool(alice.transport.peers()) is connected_after
        nursery.cancel_scope.cancel()


async def test_a_flood_is_reported_with_its_forwarder(tmp_path: Path, autojump_clock: MockClock) -> None:
    alice = GossipHarness(MemoryHub(), ALICE, MANIFEST, tmp_path, clock=lambda: moment(MANIFEST))
    bob = MemoryTransport(alice.hub, peer_of(BOB), on_bug=_raise, limits=UNPACED)
    burst = int(TransportLimits().messages.burst)
    async with trio.open_nursery() as nursery:
        await nursery.start(alice.transport.run)
        await nursery.start(bob.run)
        nursery.start_soon(watch(alice).run)
        await bob.connect(alice.address)
        for number in range(burst + 3):
            await bob.publish("a topic of no interest", b"%d" % number)
        await until(lambda: alice.events("refused"))
        nursery.cancel_scope.cancel()
    [event] = alice.events("refused")
    told = {key: event[key] for key in ("reason", "forwarder", "count")}
    assert told == {"reason": "flood", "forwarder": peer_of(BOB), "count": 3}
    assert alice.telemetry.refusals == {Reason.FLOOD: 3}


def _raise(error: Exception) -> None:
    raise error
