"""Address records that a node keeps and forwards, and attacks on them."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from support.calls import calls_of
from support.swarm import Identity, make_manifest, moment

from sapo_client.node.gossip import record_cache
from sapo_client.node.gossip.address_records import widest
from sapo_client.node.gossip.record_directory import (
    CHECKS_OF_SOURCE,
    MAX_OF_ACCOUNT,
    PLACED_SECONDS,
    RECALLED_SECONDS,
    RecordDirectory,
    RecordSource,
)
from sapo_client.node.gossip.record_places import KEPT_PLACES, MAX_ON_ISLAND, Grounds
from sapo_client.swarm.addresses import PeerAddress, network_group_of, parse_address
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_client.swarm.transport import FoundPeer
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.islands.address_record import (
    MAX_RECORDS,
    RECORD_SECONDS,
    RECORD_TOLERANCE_SECONDS,
    issue_record,
    open_record,
)

MANIFEST = make_manifest()
NOW = int(moment(MANIFEST))
OWN, ALICE, BOB = Identity(1), Identity(2), Identity(3)
TELLER, OTHER = "198.51.100.1", "203.0.113.1"


def address(who: Identity, host: str = "192.0.2.1", port: int = 4001) -> str:
    return f"/ip4/{host}/tcp/{port}/p2p/{peer_id_from_key(who.node)}"


def at(host: str, who: Identity | None = None) -> RecordSource:
    """Return a peer at an IP address, who is nobody in particular unless given."""
    return RecordSource(peer_id_from_key((who or Identity(999)).node), host)


def record(who: Identity, *addresses: str, made: int = NOW) -> bytes:
    certificate = who.certificate(MANIFEST).to_bytes()
    return issue_record(who.seed, certificate, MANIFEST.swarm_id, made, addresses or (address(who),))


def on_island_one(_node: NodeId, _account: Account, _now_seconds: float) -> frozenset[int]:
    return frozenset({1})


def directory() -> RecordDirectory:
    return RecordDirectory(
        MANIFEST.swarm_id, MANIFEST.binding_domain, OWN.node, on_island_one, random.Random(7)
    )


def found(who: Identity, *addresses: str, source: str = TELLER) -> FoundPeer:
    group = network_group_of(source)
    return FoundPeer(peer_id_from_key(who.node), addresses or (address(who),), source, frozenset({1}), group)


def test_the_newest_record_of_a_node_is_kept_and_an_old_one_replayed_is_not() -> None:
    known, old = directory(), record(ALICE, address(ALICE, "192.0.2.66"), made=NOW - 10)
    assert known.take(old, at(TELLER), NOW)
    assert known.take(record(ALICE), at(TELLER), NOW)
    assert not known.take(old, at(TELLER), NOW)
    assert known.members({1}, NOW) == (found(ALICE),)
    assert known.answer({1}, OTHER, NOW) == (record(ALICE),)


def test_records_that_are_expired_or_from_the_future_are_refused() -> None:
    known = directory()
    assert not known.take(record(ALICE, made=NOW + RECORD_TOLERANCE_SECONDS + 1), at(TELLER), NOW)
    assert not known.take(record(ALICE, made=NOW - RECORD_SECONDS), at(TELLER), NOW)
    assert known.take(record(ALICE, made=NOW + RECORD_TOLERANCE_SECONDS), at(TELLER), NOW)
    end = NOW + RECORD_TOLERANCE_SECONDS + RECORD_SECONDS
    assert known.members({1}, end - 1) == (found(ALICE),)
    assert known.members({1}, end) == ()
    assert len(known) == 0


def test_no_message_states_a_nodes_island() -> None:
    """A record names no island, so a node that claims all is found only on its own."""
    known = directory()
    known.take(record(ALICE), at(TELLER), NOW)
    assert known.members({0, 2, 3}, NOW) == ()
    assert known.answer({0, 2, 3}, TELLER, NOW) == ()


def test_a_node_that_moves_is_found_on_its_new_island() -> None:
    """Islands are not computed at every question: who asks often would make a node compute much."""
    computed: list[float] = []

    def moves(_node: NodeId, _account: Account, now_seconds: float) -> frozenset[int]:
        computed.append(now_seconds)
        return frozenset({1 if now_seconds < NOW + 10 else 2})

    known = RecordDirectory(MANIFEST.swarm_id, MANIFEST.binding_domain, OWN.node, moves, random.Random(7))
    assert known.take(record(ALICE), at(TELLER), NOW)
    for _ in range(100):
        assert known.answer({1}, OTHER, NOW) == (record(ALICE),)
    assert len(computed) == 2
    later = NOW + PLACED_SECONDS
    assert (known.members({1}, later), known.members({2}, later)) == (
        (),
        (replace(found(ALICE), islands=frozenset({2})),),
    )


def test_a_node_whose_islands_are_unknown_is_not_kept() -> None:
    nowhere = RecordDirectory(
        MANIFEST.swarm_id, MANIFEST.binding_domain, OWN.node, lambda *_: frozenset(), random.Random(7)
    )
    assert not nowhere.take(record(ALICE), at(TELLER), NOW)


def test_what_is_not_signed_by_its_node_is_dropped() -> None:
    known, genuine = directory(), record(ALICE)
    stolen = ALICE.certificate(MANIFEST).to_bytes()
    forged = issue_record(BOB.seed, stolen, MANIFEST.swarm_id, NOW, [address(ALICE)])
    flipped = genuine[:-1] + bytes((genuine[-1] ^ 1,))
    for message in (b"", forged, flipped, genuine + b"\x00", record(OWN)):
        assert not known.take(message, at(TELLER), NOW)
    assert len(known) == 0


def test_an_address_of_another_peer_or_of_another_scope_is_dropped() -> None:
    """Nobody makes a node dial a victim's peer id, or its own machine and network."""
    known = directory()
    for wrong in (address(BOB), address(ALICE, "127.0.0.1"), address(ALICE, "10.0.0.1")):
        assert not known.take(record(ALICE, address(ALICE), wrong), at(TELLER), NOW)
    assert not known.take(record(ALICE, address(ALICE, "0.0.0.0")), at("127.0.0.1"), NOW)
    assert not known.take(record(ALICE, "no-multiaddr"), at(TELLER), NOW)
    assert known.take(record(ALICE, address(ALICE, "10.0.0.1")), at("10.0.0.2"), NOW)
    assert known.answer({1}, TELLER, NOW) == (), "it means another host there"
    assert known.answer({1}, "10.0.0.3", NOW) == (record(ALICE, address(ALICE, "10.0.0.1")),)


def test_a_flood_of_records_displaces_no_others() -> None:
    known = directory()
    honest = [Identity(number) for number in range(2, 6)]
    for who in honest:
        assert known.take(record(who), at(f"203.0.113.{who.number}"), NOW)
    for number in range(100, 200):
        known.take(record(Identity(number)), at(TELLER), NOW)
    members = {peer.peer_id for peer in known.members({1}, NOW)}
    assert len(members) == MAX_ON_ISLAND
    assert {peer_id_from_key(who.node) for who in honest} <= members
    assert len(known.answer({1}, OTHER, NOW)) == MAX_ON_ISLAND <= MAX_RECORDS


def test_signature_checks_are_limited_by_source() -> None:
    known, burst = directory(), int(CHECKS_OF_SOURCE.burst)
    forged = [
        issue_record(BOB.seed, who.certificate(MANIFEST).to_bytes(), MANIFEST.swarm_id, NOW, [address(who)])
        for who in map(Identity, range(100, 100 + burst))
    ]
    for message in forged:
        assert not known.take(message, at(TELLER), NOW)
    assert not known.take(record(ALICE), at(TELLER), NOW)
    assert known.take(record(ALICE), at(OTHER), NOW)
    assert known.take(record(BOB), at(TELLER), NOW + 1 / CHECKS_OF_SOURCE.per_second)


def test_beyond_the_rate_of_its_source_no_signature_is_verified() -> None:
    """A forged record is refused in any case, but to verify it first would cost what the limit bounds."""
    known, burst = directory(), int(CHECKS_OF_SOURCE.burst)
    stolen = ALICE.certificate(MANIFEST).to_bytes()
    forged = issue_record(BOB.seed, stolen, MANIFEST.swarm_id, NOW, [address(ALICE)])
    with calls_of(open_record) as verified:
        for _ in range(2 * burst):
            known.take(forged, at(TELLER), NOW)
    assert verified() == burst


def test_records_that_are_known_take_nothing_from_the_rate_of_their_source() -> None:
    """A peer that is asked every minute answers with the same records again and again."""
    known, old = directory(), record(ALICE, made=NOW - 10)
    assert known.take(record(ALICE), at(TELLER), NOW)
    for _ in range(int(CHECKS_OF_SOURCE.burst)):
        assert not known.take(record(ALICE), at(TELLER), NOW)
        assert not known.take(old, at(TELLER), NOW)
    assert known.take(record(BOB), at(TELLER), NOW)


def test_the_number_of_records_of_an_account_is_bounded() -> None:
    known = directory()
    keys = [Identity(2, key=key) for key in range(MAX_OF_ACCOUNT + 1)]
    for who in keys:
        assert known.take(record(who), at(TELLER), NOW)
    expected = {peer_id_from_key(who.node) for who in keys[1:]}
    assert {peer.peer_id for peer in known.members({1}, NOW)} == expected


def test_a_node_announces_only_addresses_of_the_widest_scope() -> None:
    listed: list[PeerAddress] = []
    for host in ("127.0.0.1", "10.0.0.1", "192.0.2.1", "192.0.2.2"):
        parsed = parse_address(address(ALICE, host))
        assert parsed is not None
        listed.append(parsed)
    assert widest(listed) == tuple(listed[2:])
    assert widest(listed[:2]) == (listed[1],)
    assert widest(()) == ()


def test_the_first_forwarder_of_a_record_does_not_determine_its_group() -> None:
    known = directory()
    for number in range(10, 10 + MAX_ON_ISLAND // 2):
        assert known.take(record(Identity(number)), at(TELLER), NOW)
    assert known.take(record(ALICE), at(TELLER), NOW)
    assert known.take(record(ALICE, made=NOW + 1), at(OTHER, ALICE), NOW)
    assert known.take(record(ALICE, made=NOW + 2), at(TELLER), NOW)
    for number in range(100, 140):
        known.take(record(Identity(number)), at(TELLER), NOW)
    assert peer_id_from_key(ALICE.node) in kept_by(known)


def kept_by(known: RecordDirectory, island: int = 1) -> set[str]:
    return {peer.peer_id for peer in known.members({island}, NOW)}


def ids(people: Iterable[Identity]) -> set[str]:
    return {peer_id_from_key(who.node) for who in people}


def send_attackers_records(known: RecordDirectory) -> None:
    """Send one record from each of two hundred networks, under free accounts and keys."""
    for number in range(200):
        who = Identity(1000 + number)
        known.take(record(who), at(f"{130 + number // 100}.{number % 100}.7.7", who), NOW)


def test_records_from_a_chosen_peer_keep_their_share_of_an_island_under_attack() -> None:
    """One honest relay that this node chose sends records of many nodes; the attackers are inbound peers."""
    known, honest = directory(), [Identity(number) for number in range(2, 12)]
    for who in honest:
        assert known.take(record(who), replace(at(TELLER), chosen=True), NOW)
    send_attackers_records(known)
    assert len(kept_by(known)) == MAX_ON_ISLAND
    assert len(kept_by(known) & ids(honest)) >= KEPT_PLACES[Grounds.CHOSEN]


def test_an_attackers_record_forwarded_by_a_chosen_peer_keeps_its_group() -> None:
    """Else one chosen attacker would have all of them counted apart, by their own networks."""
    known, honest = directory(), [Identity(number) for number in range(2, 8)]
    crowd = [Identity(1000 + number) for number in range(40)]
    for who in honest:
        assert known.take(record(who), replace(at(TELLER), chosen=True), NOW)
    for number, who in enumerate(crowd):
        known.take(record(who), replace(at(OTHER), chosen=True), NOW)
        known.take(record(who), at(f"130.{number}.7.7", who), NOW)
        known.take(record(who, made=NOW + 1), at(f"130.{number}.7.7", who), NOW)
    assert len(kept_by(known) & ids(honest)) >= KEPT_PLACES[Grounds.CHOSEN] // 2


def test_a_record_also_sent_by_a_chosen_peer_counts_as_this_peers() -> None:
    known, honest = directory(), [Identity(number) for number in range(2, 6)]
    for who in honest:
        assert known.take(record(who), at(OTHER), NOW)
        assert not known.take(record(who), replace(at(TELLER), chosen=True), NOW)
    send_attackers_records(known)
    assert ids(honest) <= kept_by(known)


def test_records_from_a_chosen_attacker_leave_others_their_places() -> None:
    """The attacker sends any number of records; each honest node sends its own."""
    known, honest = directory(), [Identity(number) for number in range(2, 14)]
    for number, who in enumerate(honest):
        assert known.take(record(who), at(f"20.{number}.0.1", who), NOW)
    for number in range(60):
        known.take(record(Identity(1000 + number)), replace(at(OTHER), chosen=True), NOW)
    assert ids(honest) <= kept_by(known)


def test_vouched_accounts_keep_half_of_the_records_of_an_island() -> None:
    bonded = [Identity(number) for number in range(2, 2 + KEPT_PLACES[Grounds.VOUCHED])]
    accounts = {who.account for who in bonded}
    known = RecordDirectory(
        MANIFEST.swarm_id,
        MANIFEST.binding_domain,
        OWN.node,
        on_island_one,
        random.Random(7),
        vouches=accounts.__contains__,
    )
    for who in bonded:
        assert known.take(record(who), at(TELLER), NOW)
    send_attackers_records(known)
    for number in range(40):  # and the attackers are chosen
        who = Identity(2000 + number)
        known.take(
            record(who), RecordSource(peer_id_from_key(who.node), f"140.{number}.7.7", chosen=True), NOW
        )
    assert ids(bonded) <= kept_by(known)
    newcomers = kept_by(known) - ids(bonded)
    assert len(newcomers) == MAX_ON_ISLAND - len(bonded)


def test_an_account_that_is_vouched_for_has_one_record_before_another_has_two() -> None:
    rich = [Identity(2, key=key) for key in range(MAX_OF_ACCOUNT)]
    others = [Identity(number) for number in range(3, 3 + MAX_ON_ISLAND - 1)]
    known = RecordDirectory(
        MANIFEST.swarm_id,
        MANIFEST.binding_domain,
        OWN.node,
        on_island_one,
        random.Random(7),
        vouches=lambda _: True,
    )
    for who in (*rich, *others):
        known.take(record(who), at(TELLER), NOW)
    assert ids(others) <= kept_by(known)
    assert len(kept_by(known) & ids(rich)) == 1


def test_nodes_evict_different_records_under_the_same_attack() -> None:
    """What one node forgets another one keeps: the choice depends on a secret of each."""
    people = [Identity(number) for number in range(2, 42)]
    kept = []
    for seed in range(2):
        known = RecordDirectory(
            MANIFEST.swarm_id, MANIFEST.binding_domain, OWN.node, on_island_one, random.Random(seed)
        )
        for number, who in enumerate(people):
            known.take(record(who), at(f"130.{number}.7.7", who), NOW)
        kept.append(kept_by(known))
    assert kept[0] != kept[1]


def test_with_too_many_islands_own_ones_are_evicted_last() -> None:
    people = [Identity(number) for number in range(2, 2 + 60)]
    places = {who.node: number % 6 for number, who in enumerate(people)}
    known = RecordDirectory(
        MANIFEST.swarm_id,
        MANIFEST.binding_domain,
        OWN.node,
        lambda node, *_: frozenset({places[node]}),
        random.Random(7),
        carried=lambda: frozenset({0}),
        max_records=20,
    )
    for number, who in enumerate(people):
        assert known.take(record(who), at(f"130.{number}.7.7", who), NOW) or len(known) == 20
    sizes = [len(kept_by(known, island)) for island in range(6)]
    assert sizes == [10, 2, 2, 2, 2, 2]


def test_an_answer_names_members_of_each_island_that_is_asked_for() -> None:
    """Full islands leave room for one that has a single member."""
    people = [Identity(number) for number in range(2, 2 + 3 * MAX_ON_ISLAND + 1)]
    places = {who.node: number // MAX_ON_ISLAND for number, who in enumerate(people)}
    known = RecordDirectory(
        MANIFEST.swarm_id,
        MANIFEST.binding_domain,
        OWN.node,
        lambda node, *_: frozenset({places[node]}),
        random.Random(7),
    )
    for number, who in enumerate(people):
        assert known.take(record(who), at(f"130.{number}.7.7", who), NOW)
    told = known.answer({0, 1, 2, 3}, OTHER, NOW)
    assert len(told) == MAX_RECORDS
    assert record(people[-1]) in told


def test_stored_records_are_validated_again_after_a_start(tmp_path: Path) -> None:
    file, before = tmp_path / "kept" / "address-records", directory()
    for number, who in enumerate((ALICE, BOB)):
        assert before.take(
            record(who), RecordSource(peer_id_from_key(who.node), f"203.0.113.{number}", True), NOW
        )
    genuine = before.saved({1}, NOW)
    forged = [
        (issue_record(BOB.seed, who.certificate(MANIFEST).to_bytes(), MANIFEST.swarm_id, NOW, [address(who)]))
        for who in map(Identity, (20, 21))
    ]
    record_cache.save(file, [*genuine, *((message, at(TELLER)) for message in forged)])
    after = directory()
    for message, source in record_cache.load(file):
        assert after.recall(message, source, NOW) is None
    assert kept_by(after) == ids([ALICE, BOB])
    assert {message for message, _ in after.saved({1}, NOW)} == {message for message, _ in genuine}
    assert all(source.chosen for _, source in after.saved({1}, NOW)), "what it is ascribed to stays"


def test_a_record_that_ended_while_the_node_was_away_is_dialled_and_not_passed_on() -> None:
    known, later = directory(), NOW + RECORD_SECONDS
    assert known.recall(record(ALICE), at(TELLER), later) == found(ALICE)
    assert (known.members({1}, later), known.answer({1}, OTHER, later)) == ((), ())
    assert known.recall(record(ALICE), at(TELLER), NOW + RECALLED_SECONDS) is None
    assert known.recall(record(ALICE, made=NOW + 3600), at(TELLER), NOW) is None


def test_a_damaged_record_file_is_ignored_and_its_length_bounded(tmp_path: Path) -> None:
    file = tmp_path / "address-records"
    assert record_cache.load(file) == ()
    row = (record(ALICE), at(TELLER))
    record_cache.save(file, [row] * (2 * record_cache.MAX_SAVED))
    assert len(record_cache.load(file)) == record_cache.MAX_SAVED
    whole = file.read_bytes()
    for damaged in (
        b"",
        b"\xff",
        whole[:-1],
        whole + b"\x00",
        whole * 10,
        b"\x81\x00",
        b"\x81\x83\x00\x00\x00",
    ):
        file.write_bytes(damaged)
        assert record_cache.load(file) == ()
