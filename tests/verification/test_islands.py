"""Islands at one node: which messages count where, stored data, and changes of their number."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.swarm import EPOCH, Identity, make_manifest, moment
from support.verification_harness import score_in_process

from sapo_protocol.epochs import beacon, epoch_start_seconds
from sapo_protocol.errors import Verdict
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.islands.homes import drawing_epoch
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule
from sapo_protocol.terms.auditors import Auditors
from sapo_protocol.terms.islands import IslandTerms
from sapo_protocol.topics import certificates_topic, equivocations_topic, rollouts_topic
from sapo_verification.admission.arrivals import Received
from sapo_verification.engine import Engine
from sapo_verification.island_counts import IslandCounts
from sapo_verification.islands import IslandMap
from sapo_verification.types import AdmittedRollout

TERMS = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=4, most_islands=16, count=4)
MANIFEST = make_manifest(version=2, islands=TERMS)
CHANGING = make_manifest(
    version=2,
    islands=replace(TERMS, count=None),
    chain_id=5,
    registry=Account(bytes(20)),
    ledger=Account(bytes(20)),
)
NOW = moment(MANIFEST)
PEOPLE = [Identity(number) for number in range(1, 60)]
OWN = Identity(900)


def known_beacon(epoch: int) -> Digest:
    """Return the beacon of a swarm without a chain."""
    return beacon(MANIFEST.swarm_id, epoch, b"")


@dataclass
class World:
    """One node's engine in a swarm of islands, what it knows of who was paid, and its decisions."""

    manifest: Manifest = MANIFEST
    knows_beacons: bool = True
    joins: bool = True
    paid_by_epoch: dict[int, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine(
            self.manifest,
            ":memory:",
            own=OWN.account,
            check=score_in_process(self.manifest),
            beacon_of=self._beacon_of,
            key=b"key",
        )
        self.islands = self.engine.islands
        for epoch, paid in sorted(self.paid_by_epoch.items()):
            self.islands.learn(epoch, paid)
        if self.joins:
            self.engine.carry(self.islands.all_at(NOW))

    def _beacon_of(self, epoch: int) -> Digest | None:
        return beacon(self.manifest.swarm_id, epoch, b"") if self.knows_beacons else None

    def home(self, who: Identity, epoch: int = EPOCH) -> int:
        """Return a home that must be known."""
        home = self.islands.home(who.account, epoch)
        assert home is not None
        return home

    def introduce(self, *people: Identity, now: float = NOW) -> None:
        """Let the node receive certificates on the home islands of their accounts."""
        for who in people:
            topic = certificates_topic(self.manifest.swarm_id, self.home(who))
            message = who.certificate(self.manifest).to_bytes()
            assert self.engine.receive(topic, message, now).verdict is Verdict.ACCEPT

    def hear(self, who: Identity, island: int, now: float = NOW, **changes: object) -> Received:
        """Return the decision on an identity's rollout over an island's topic."""
        topic = rollouts_topic(self.manifest.swarm_id, island)
        return self.engine.receive(topic, who.message(self.manifest, **changes), now)

    def at_home(self, island: int, epoch: int = EPOCH) -> list[Identity]:
        """Return the people who live on an island."""
        return [who for who in PEOPLE if self.home(who, epoch) == island]


def mover(world: World, epoch: int = EPOCH) -> Identity:
    """Return an identity whose home changes with an epoch."""
    return next(who for who in PEOPLE if world.home(who, epoch - 1) != world.home(who, epoch))


def test_a_rollout_counts_on_the_home_of_its_epoch_alone() -> None:
    world = World()
    who = mover(world)
    world.introduce(who)
    for epoch in (EPOCH - 1, EPOCH):
        for island in range(4):
            received = world.hear(who, island, epoch=epoch, slot=island)
            lives = island == world.home(who, epoch)
            assert received.rule is (None if lives else Rule.ROLLOUT_ISLAND)
            assert received.verdict is (Verdict.ACCEPT if lives else Verdict.IGNORE)
    assert len(world.engine.pool) == 2


def test_an_unknown_beacon_causes_no_penalty() -> None:
    world = World()
    who = PEOPLE[0]
    world.introduce(who)
    stranger = World(knows_beacons=False)
    received = stranger.hear(who, 0)
    assert (received.verdict, received.rule) == (Verdict.IGNORE, Rule.ROLLOUT_ISLAND)


def test_without_a_known_number_of_islands_nothing_is_carried_or_penalised() -> None:
    world = World(CHANGING, joins=False)
    islands = world.islands
    assert islands.count(EPOCH) is None
    assert islands.all_at(NOW) == islands.due(OWN.node, OWN.account, NOW) == frozenset()
    assert islands.proof_islands(PEOPLE[0].account, EPOCH, NOW) == ()
    received = world.hear(PEOPLE[0], 0)
    assert (received.verdict, received.rule) == (Verdict.IGNORE, Rule.ROLLOUT_ISLAND)


def test_the_last_known_number_of_islands_replaces_an_unknown_one() -> None:
    world = World(CHANGING, paid_by_epoch={EPOCH - 3: [100]})
    islands = world.islands
    assert [islands.count(epoch) for epoch in (EPOCH - 4, EPOCH - 3, EPOCH, EPOCH + 1)] == [None, 2, 2, 2]
    assert [islands.knows(epoch) for epoch in (EPOCH - 3, EPOCH)] == [True, False]
    guessed = [world.home(who) for who in PEOPLE]
    assert set(guessed) == {0, 1}
    islands.learn(EPOCH, [200])  # four islands: no home that was guessed before is left
    homes = [world.home(who) for who in PEOPLE]
    assert set(homes) == {0, 1, 2, 3}
    assert [home % 2 for home in homes] == guessed


def test_the_number_of_islands_of_an_epoch_never_changes() -> None:
    """Final epochs were recalled, or another endpoint of the chain is asked: what was published stays."""
    world = World(CHANGING, paid_by_epoch={EPOCH: [100]})
    world.islands.learn(EPOCH, [])
    assert world.islands.count(EPOCH) == 2


def test_the_numbers_of_islands_outlast_a_restart(tmp_path: Path) -> None:
    def restarted() -> IslandMap:
        return IslandMap(CHANGING, known_beacon, IslandCounts(tmp_path / "node.sqlite"))

    first = restarted()
    for epoch in range(200):
        first.learn(epoch, [100] if epoch % 2 else [1])
    second = restarted()
    assert [second.count(epoch) for epoch in (135, 136, 198, 199, 200, 300)] == [None, 1, 1, 2, 2, 2]
    second.learn(199, [1])
    assert restarted().count(199) == 2


@pytest.mark.parametrize(("before", "now"), [([100], [1]), ([1], [100])], ids=["2 to 1", "1 to 2"])
def test_a_node_that_missed_a_change_gives_and_gets_no_penalties(
    before: Sequence[int], now: Sequence[int]
) -> None:
    """Its chain is unreachable or false: the verdict on messages of the other is IGNORE at worst."""
    late, informed = (World(CHANGING, paid_by_epoch={EPOCH - 2: before}) for _ in range(2))
    informed.islands.learn(EPOCH, now)
    informed.engine.carry(informed.islands.all_at(NOW))
    verdicts = set()
    for sender, receiver in ((late, informed), (informed, late)):
        for who in PEOPLE[:20]:
            home = sender.home(who)
            certificate = who.certificate(CHANGING).to_bytes()
            for topic, message in (
                (certificates_topic(CHANGING.swarm_id, home), certificate),
                (rollouts_topic(CHANGING.swarm_id, home), who.message(CHANGING)),
            ):
                if home in receiver.islands.carried:
                    verdicts.add(receiver.engine.receive(topic, message, NOW).verdict)
        assert receiver.engine.reputation.is_newcomer(PEOPLE[0].account)
    assert verdicts == {Verdict.ACCEPT, Verdict.IGNORE}


@pytest.mark.parametrize("manifest", [make_manifest(), make_manifest(version=2)], ids=["1", "2"])
def test_a_swarm_without_islands_needs_no_beacon(manifest: Manifest) -> None:
    world = World(manifest, knows_beacons=False)
    world.introduce(PEOPLE[0])
    assert world.hear(PEOPLE[0], 0).verdict is Verdict.ACCEPT
    assert world.islands.due(OWN.node, OWN.account, NOW) == world.islands.all_at(NOW) == {0}


def test_one_island_needs_no_beacon() -> None:
    one = World(make_manifest(version=2, islands=replace(TERMS, count=1)), knows_beacons=False)
    one.introduce(PEOPLE[0])
    assert one.hear(PEOPLE[0], 0).verdict is Verdict.ACCEPT


def test_certificates_are_accepted_on_islands_of_their_account_around_now() -> None:
    world = World()
    for who in PEOPLE[:12]:
        near = {world.home(who, epoch) for epoch in (EPOCH - 1, EPOCH, EPOCH + 1)}
        for island in range(4):
            topic = certificates_topic(MANIFEST.swarm_id, island)
            received = world.engine.receive(topic, who.certificate(MANIFEST).to_bytes(), NOW)
            expected = {None, Rule.CERTIFICATE_NEW} if island in near else {Rule.CERTIFICATE_ISLAND}
            assert received.rule in expected


def test_an_auditors_certificate_is_accepted_on_every_island() -> None:
    world = World()
    who = PEOPLE[0]
    world.engine.set_auditors(Auditors((who.account,)))
    elsewhere = (world.home(who) + 1) % 4
    topic = certificates_topic(MANIFEST.swarm_id, elsewhere)
    message = who.certificate(MANIFEST).to_bytes()
    assert world.engine.receive(topic, message, NOW).verdict is Verdict.ACCEPT


def test_a_proof_names_the_islands_on_which_it_is_published() -> None:
    world = World()
    who = mover(world)
    world.introduce(who)
    old, new = world.home(who, EPOCH - 1), world.home(who, EPOCH)
    world.hear(who, old, epoch=EPOCH - 1)
    received = world.hear(who, old, epoch=EPOCH - 1, completions=(b"9",))
    assert received.rule is Rule.ONE_CONTENT
    assert set(received.islands) == {old, new}
    assert received.proof is not None
    other = World()
    other.introduce(who)
    wrong = next(iter({0, 1, 2, 3} - {old, new, world.home(who, EPOCH + 1)}))
    verdicts = {
        island: other.engine.receive(equivocations_topic(MANIFEST.swarm_id, island), received.proof, NOW).rule
        for island in (wrong, new)
    }
    assert verdicts == {wrong: Rule.PROOF_ISLAND, new: None}


def test_responses_are_accepted_only_for_carried_islands() -> None:
    world = World()
    who = PEOPLE[0]
    world.introduce(who)
    topic = rollouts_topic(MANIFEST.swarm_id)
    home = world.home(who)
    world.engine.carry({(home + 1) % 4})
    first = world.engine.receive(topic, who.message(MANIFEST), NOW, live=False)
    world.engine.carry({home})
    second = world.engine.receive(topic, who.message(MANIFEST), NOW, live=False)
    assert (first.rule, second.rule) == (Rule.ROLLOUT_ISLAND, None)


def test_certificates_of_other_islands_are_forgotten() -> None:
    world = World()
    world.introduce(*PEOPLE)
    world.engine.certificates.admit(OWN.certificate(MANIFEST).to_bytes(), NOW)
    auditor = PEOPLE[0]
    world.engine.set_auditors(Auditors((auditor.account,)))
    world.engine.carry({2})
    world.engine.forget(EPOCH)
    start = epoch_start_seconds(MANIFEST, EPOCH)
    near = {who.account for who in PEOPLE if world.islands.is_near(who.account, start)}
    kept = {who.account for who in (*PEOPLE, OWN) if world.engine.certificates.accounts_of(who.node)}
    assert kept == near | {OWN.account}
    assert auditor.account in kept
    assert 0 < len(near) < len(PEOPLE)


def test_no_certificate_is_forgotten_while_homes_are_unknown() -> None:
    """After a restart: the chain is away, or the beacons of the homes' periods are still being recalled."""
    world = World()
    world.introduce(*PEOPLE)
    world.knows_beacons = False
    world.islands._homes.clear()
    world.engine.forget(EPOCH)
    assert len(world.engine.certificates) == len(PEOPLE)


def test_no_certificate_is_forgotten_before_the_node_has_joined_its_islands() -> None:
    world = World(joins=False)
    for who in PEOPLE:
        world.engine.certificates.admit(who.certificate(MANIFEST).to_bytes(), NOW)
    world.engine.forget(EPOCH)
    assert len(world.engine.certificates) == len(PEOPLE)


def test_an_author_without_a_certificate_is_named() -> None:
    world = World()
    received = world.hear(PEOPLE[0], world.home(PEOPLE[0]))
    expected = Received(Verdict.IGNORE, Rule.AUTHOR_INTRODUCED, unknown=PEOPLE[0].node)
    assert received == expected


@pytest.mark.parametrize(("length", "overlap"), [(60, 15), (240, 60), (7200, 60)])
def test_a_node_carries_home_and_visit_and_around_a_turn_those_of_both_epochs(
    length: int, overlap: int
) -> None:
    manifest = make_manifest(version=2, islands=TERMS, epoch_seconds=length)
    islands = IslandMap(manifest, known_beacon)
    for epoch in range(1, 40):
        start = epoch_start_seconds(manifest, epoch)
        for since_start, carried in (
            (0.0, {epoch - 1, epoch}),
            (overlap + 0.4, {epoch - 1, epoch}),  # the clocks' tolerance
            (overlap + 0.6, {epoch}),
            (length - overlap - 0.1, {epoch}),
            (length - overlap, {epoch, epoch + 1}),
        ):
            now = start + since_start
            assert set(islands.carried_epochs(now)) == carried
            assert islands.due(OWN.node, OWN.account, now) == {
                island
                for one in carried
                for island in (islands.home(OWN.account, one), islands.visit(OWN.node, OWN.account, one))
            }


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 4]), min_size=4, max_size=8), st.integers(0, 1000))
def test_every_rollout_counts_once_while_the_number_of_islands_changes(numbers: list[int], seed: int) -> None:
    """K changes from epoch to epoch, up and down: each rollout has one island, and it is carried."""
    terms = replace(TERMS, count=None, most_accounts=2, least_accounts=1)
    chain = {"chain_id": 5, "registry": Account(bytes(20)), "ledger": Account(bytes(20))}
    manifest = make_manifest(version=2, islands=terms, **chain)
    island_map = IslandMap(manifest, known_beacon)
    for epoch, number in enumerate(numbers):
        island_map.learn(epoch, [2 * number])
    for epoch, number in enumerate(numbers):
        assert island_map.count(epoch) == number
        for who in PEOPLE[seed % 20 : seed % 20 + 3]:
            home = island_map.home(who.account, epoch)
            assert home is not None
            assert 0 <= home < number
            start = epoch_start_seconds(manifest, epoch)
            changes = numbers[epoch + 1 : epoch + 2] not in ([], [number])
            for since_start in (-0.5, 0.0, 59.9, 60.0, 75.4, 119.9, 120.4):  # it is timely at all of these
                now = max(0.0, start + since_start)
                assert home in island_map.all_at(now), "an auditor hears it"
                is_carried = home in island_map.due(who.node, who.account, now)
                assert is_carried or (since_start > 75.4 and not changes), "its author hears it"


def test_homes_are_drawn_at_least_an_epoch_ahead() -> None:
    for who in PEOPLE:
        for epoch in range(1, 30):
            drawn = drawing_epoch(MANIFEST.swarm_id, who.account, epoch, TERMS.period_epochs)
            assert drawn < epoch


def test_changing_from_one_to_two_to_one_islands_under_load_loses_and_doubles_nothing() -> None:
    """Every rollout of three epochs is heard by a node that carries all: admitted once, none refused."""
    world = World(CHANGING, paid_by_epoch={EPOCH - 2: [1], EPOCH: [100], EPOCH + 1: [1]})
    manifest = world.manifest
    authors = PEOPLE[:12]
    admitted: list[ContentId] = []
    refused: list[Rule] = []
    for epoch in (EPOCH - 1, EPOCH, EPOCH + 1):
        now = moment(manifest, epoch)
        world.engine.carry(world.islands.all_at(now))
        for who in authors:
            message = who.certificate(manifest).to_bytes()
            topic = certificates_topic(manifest.swarm_id, world.home(who, epoch))
            world.engine.receive(topic, message, now)
            late = epoch - 1 if epoch >= EPOCH else epoch
            for one, slot in ((late, 2 + epoch), (epoch, 0), (epoch, 1)):  # one comes an epoch late
                for island in (0, 1):
                    topic = rollouts_topic(manifest.swarm_id, island)
                    if island not in world.islands.carried:
                        continue
                    message = who.message(manifest, epoch=one, slot=slot)
                    received = world.engine.receive(topic, message, now)
                    if received.verdict is Verdict.ACCEPT:
                        assert isinstance(received.admitted, AdmittedRollout)
                        admitted.append(received.admitted.content_id)
                    else:
                        assert received.rule is not None
                        refused.append(received.rule)
    assert len(admitted) == len(set(admitted)) == len(authors) * 9
    assert set(refused) <= {Rule.ROLLOUT_ISLAND, Rule.ROLLOUT_NEW}
