"""Random questions to the readers about what is derived: roots, shares, homes, turns, draws, records.

The package's answers have the form of the vectors, with which other tests compare the Python reference.
"""

import random
from collections.abc import Callable
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

from reader.hazards import INTEGERS
from reader.questions import Question
from support.verdicts import ruling_of
from vectors.derivations import _proposal_root
from vectors.derivations_difficulty import _points, _terms
from vectors.world import ALICE, ATTESTERS, CHAINED, MANIFESTS, PLAIN

from sapo_protocol import merkle
from sapo_protocol.audits.commitment import commit, require_in_time
from sapo_protocol.audits.draw import draw, draw_seconds, drawn_slots, is_drawn, sampled_points
from sapo_protocol.audits.tree import ContentTree
from sapo_protocol.contributions import Proposal, Share, Tally, settle
from sapo_protocol.epochs import (
    beacon,
    epoch_at,
    epoch_start_seconds,
    require_begun,
    require_current,
    require_over,
    require_remembered,
)
from sapo_protocol.identifiers import Account, ContentId, Digest, NodeId
from sapo_protocol.islands.count import island_count
from sapo_protocol.islands.homes import drawing_epoch, home_island, visited_island
from sapo_protocol.rules import Rule
from sapo_protocol.settlement import turn_count, turn_to_propose
from sapo_protocol.tasks import assigned_task
from sapo_protocol.terms.auditors import Auditors, Replacement
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.terms.difficulty import (
    Difficulty,
    GroupOutcome,
    Outcomes,
    median_outcomes,
    middle_outcomes,
)
from sapo_protocol.terms.gate import Attestation, BondGate, EasGate, points_cap
from sapo_protocol.terms.islands import IslandTerms

LARGEST = 2**64 - 1


def _ask(list_: str, vector: dict[str, Any], package: dict[str, Any], file: str = "derivations") -> Question:
    return Question("check", {"file": file, "list": list_, "vector": vector}, package)


def _accounts(rng: random.Random, count: int) -> list[Account]:
    """Return different accounts, some of which share all but their last bits."""
    found = {Account(rng.randbytes(20)) for _ in range(count)}
    if found and rng.random() < 0.5:
        near = rng.choice(sorted(found))
        found.add(Account(near[:19] + bytes((near[19] ^ rng.choice((1, 2, 128)),))))
    return sorted(found - {Account(bytes(20))})


def settlements(rng: random.Random) -> Question:
    """Return tallies, with what is settled of them."""
    accounts = _accounts(rng, rng.randrange(6))
    most, budget = rng.choice((0, 1, 16, 512, 2**32, 2**53 + 1)), rng.choice((0, 1, 29, 1000, 2**32 - 1))
    amounts = (0, 1, 2, 3, 15, 16, 17, 511, 512, 2**32 - 1, 2**53 - 1, 2**53 + 1, LARGEST)
    counts = [
        {account: rng.choice(amounts) for account in accounts if rng.random() < 0.8}
        for _ in range(rng.randrange(1, 7))
    ]
    previous = {account: rng.choice((0, 1, 7, 2**53 + 1)) for account in accounts if rng.random() < 0.5}
    tallies = [
        Tally(
            node=ALICE.node,
            account=ALICE.account,
            epoch=3,
            points=tuple(sorted(count.items())),
            evidence_root=Digest(bytes(32)),
        )
        for count in counts
    ]
    shares = settle(tallies, previous, points_per_epoch=most, epoch_budget=budget)
    proposal = Proposal(node=ALICE.node, account=ALICE.account, epoch=3, tallies=(), shares=shares)
    root = proposal.root(ContentId(rng.randbytes(32)))
    vector = {
        "tallies": [{account.hex(): str(value) for account, value in count.items()} for count in counts],
        "previous": {account.hex(): str(value) for account, value in previous.items()},
        "points_per_epoch": str(most),
        "epoch_budget": str(budget),
        "proposal_id": root.archive_digest.hex(),
    }
    found = {
        "shares": [[s.account.hex(), str(s.points), str(s.cumulative)] for s in shares],
        "epoch_root": {
            name: value.hex() if isinstance(value, bytes) else str(value)
            for name, value in asdict(root).items()
        },
        "digest": root.digest(CHAINED.ledger_domain).hex(),
    }
    return _ask("settlements", vector, found)


def proposal_roots(rng: random.Random) -> Question:
    """Return a proposal with any shares, and what auditors sign of it."""
    numbers = (0, 0, 1, 7, 2**32, 2**53 + 1)
    accounts = _accounts(rng, rng.randrange(6))
    rows = [(account, sorted(rng.choices(numbers, k=2))) for account in accounts]
    shares = tuple(Share(account, points, cumulative) for account, (points, cumulative) in rows)
    turn, tallies = rng.choice((0, 1, 16, 2**32 - 1)), (ContentId(rng.randbytes(32)),)
    proposal = Proposal(
        node=ALICE.node, account=ALICE.account, epoch=3, tallies=tallies, shares=shares, turn=turn
    )
    vector = _proposal_root(proposal)
    asked = {name: vector.pop(name) for name in ("manifest", "envelope")}
    return _ask("proposal_roots", asked, vector)


def point_trees(rng: random.Random) -> Question:
    """Return a tree of points, and the places of accounts that are in it or not."""
    accounts = _accounts(rng, rng.randrange(9))
    entries = [(account, rng.choice((1, 2, 2**32, 2**53 + 1))) for account in accounts]
    asked = [*accounts, *_accounts(rng, 2)]
    places = []
    for account in asked:
        place = merkle.sum_place(entries, account)
        steps = [step.hex() for step in place.proof]
        row = {
            "account": account.hex(),
            "holder": place.holder.hex(),
            "value": str(place.value),
            "proof": steps,
        }
        places.append(row)
    vector = {
        "entries": [[account.hex(), str(value)] for account, value in entries],
        "places": [{"account": account.hex()} for account in asked],
    }
    return _ask("trees_of_points", vector, {"root": merkle.sum_root(entries).hex(), "places": places})


def merkle_trees(rng: random.Random) -> Question:
    """Return a Merkle tree of values with its proofs."""
    entries = [
        (account, rng.choice((0, 1, LARGEST, 2**256 - 1))) for account in _accounts(rng, rng.randrange(12))
    ]
    leaves = [merkle.leaf(account, value) for account, value in entries]
    proofs = [[step.hex() for step in merkle.proof(leaves, place)] for place in range(len(leaves))]
    found = {"leaves": [leaf.hex() for leaf in leaves], "root": merkle.root(leaves).hex(), "proofs": proofs}
    return _ask("merkle", {"entries": [[a.hex(), str(v)] for a, v in entries]}, found)


def epochs(rng: random.Random) -> Question:
    """Return the epoch of a second."""
    name = rng.choice(list(MANIFESTS))
    manifest = MANIFESTS[name]
    seconds = manifest.genesis_seconds + rng.choice((rng.randrange(-200, 10**6), *INTEGERS[:-6]))
    if seconds < manifest.genesis_seconds:
        seconds = manifest.genesis_seconds
    epoch = epoch_at(manifest, seconds)
    found = {"epoch": epoch, "start_seconds": epoch_start_seconds(manifest, epoch)}
    return _ask("epochs", {"manifest": name, "unix_seconds": seconds}, found)


def seeds(rng: random.Random) -> Question:
    """Return a beacon and a slot's seed."""
    name, epoch = rng.choice(list(MANIFESTS)), rng.choice(INTEGERS)
    swarm, block = MANIFESTS[name].swarm_id, rng.choice((b"", rng.randbytes(32)))
    value = beacon(swarm, epoch, block)
    account, family, place = Account(rng.randbytes(20)), rng.randrange(256), rng.choice((0, 1, 2**32 - 1))
    task = assigned_task(swarm, value, account, family, place)
    slot = {"account": account.hex(), "family": family, "slot": place}
    vector = {"manifest": name, "epoch": epoch, "block_hash": block.hex(), "seeds": [slot]}
    return _ask("beacons", vector, {"beacon": value.hex(), "seeds": [{**slot, "seed": task.seed}]})


def homes(rng: random.Random) -> Question:
    """Return where an account lives, and what a node of it visits."""
    name = rng.choice(("one island", "four islands"))
    manifest = MANIFESTS[name]
    terms, swarm = manifest.islands, manifest.swarm_id
    assert terms is not None
    account, node, epoch = (
        Account(rng.randbytes(20)),
        NodeId(rng.randbytes(32)),
        rng.choice((*range(9), *INTEGERS)),
    )
    drawn = [drawing_epoch(swarm, one, epoch, terms.period_epochs) for one in (account, node)]
    beacons, count = [beacon(swarm, one, b"") for one in drawn], island_count(terms)
    home = home_island(swarm, beacons[0], account, count)
    found = {
        "home_drawn": drawn[0],
        "visit_drawn": drawn[1],
        "home": home,
        "visit": visited_island(swarm, beacons[1], node, home=home, count=count),
    }
    return _ask(
        "islands", {"manifest": name, "account": account.hex(), "node": node.hex(), "epoch": epoch}, found
    )


def island_counts(rng: random.Random) -> Question:
    """Return the number of islands after final epochs."""
    most = rng.choice((2, 3, 64, 100, 2**32 - 1))
    terms = IslandTerms(most, rng.randint(1, most // 2), 2, 2 ** rng.randrange(17))
    paid = [
        rng.choice((0, 1, 2, 3, 64, 65, rng.randrange(1000), 2**33, 2**53 + 1))
        for _ in range(rng.randrange(13))
    ]
    one_in = 2 ** rng.randrange(17)
    vector = {"islands": asdict(terms), "paid": paid, "one_in": one_in}
    return _ask("island_counts", vector, {"count": island_count(terms, paid, one_in)})


def turns(rng: random.Random) -> Question:
    """Return the number of turns of an epoch, and the turns of ages."""
    seconds = rng.choice((rng.randrange(1, 700), rng.randrange(1, 10**5)))
    manifest = replace(PLAIN, epoch_seconds=seconds)
    ages = sorted(rng.randrange(2 * seconds + 1) for _ in range(6))
    found = [[age, max(-1, turn_to_propose(manifest, age)[0])] for age in ages]
    vector = {"epoch_seconds": seconds, "ages": [[age, 0] for age in ages]}
    return _ask("turns", vector, {"turns": turn_count(manifest), "ages": found})


def caps(rng: random.Random) -> Question:
    """Return the most points of an account with a bond."""
    unit = rng.choice((1, 3, 7, 2**53 + 1, rng.randrange(1, 2**96)))
    bonded = rng.choice((0, 1, unit - 1, unit, unit + 1, rng.randrange(2**96), rng.randrange(unit)))
    most = rng.choice((0, 1, 16, 512, 2**53 + 1, LARGEST))
    cap = points_cap(most, BondGate(Account(bytes(20)), unit, 0).units(bonded))
    vector = {"points_per_epoch": str(most), "unit": str(unit), "bonded": str(bonded)}
    return _ask("caps", vector, {"cap": str(cap)})


def attestations(rng: random.Random) -> Question:
    """Return whether an attestation counts after a block."""
    gate = MANIFESTS["eas gate"].gate
    assert isinstance(gate, EasGate)
    times = [rng.choice((0, 1, 499, 500, 501, 999, 1000, 1001, LARGEST)) for _ in range(3)]
    attestation = Attestation(gate.schema, ALICE.account, rng.choice(ATTESTERS[:3]), *times)
    since, block = rng.choice((0, 500, 1000)), rng.choice((499, 500, 1000))
    vector = {
        name: value.hex() if isinstance(value, bytes) else str(value)
        for name, value in asdict(attestation).items()
    }
    vector |= {"since_seconds": str(since), "block_seconds": str(block)}
    found = gate.accepts(attestation, since_seconds=since, block_seconds=block)
    return _ask("attestations", vector, {"counts": found})


def auditors(rng: random.Random) -> Question:
    """Return the auditors of epochs after replacements."""
    accounts = _accounts(rng, 9)[:8]
    founders, newcomers = accounts[:3], accounts[3:6]
    replacements, present, epoch = [], list(founders), 0
    for entering in newcomers[: rng.randrange(4)]:
        epoch += rng.randrange(1, 9)
        leaving = rng.choice(present)
        present = [entering if one == leaving else one for one in present]
        replacements.append(Replacement(epoch, leaving, entering))
    known = Auditors(tuple(founders), tuple(replacements))
    asked = sorted(rng.randrange(30) for _ in range(4))
    vector = {
        "founders": [account.hex() for account in founders],
        "replacements": [[one.epoch, one.leaving.hex(), one.entering.hex()] for one in replacements],
        "epochs": [[one, []] for one in asked],
    }
    return _ask(
        "auditors", vector, {"epochs": [[one, [who.hex() for who in known.of(one)]] for one in asked]}
    )


def records(rng: random.Random) -> Question:
    """Return what becomes of the record of a swarm with ladders."""
    ladders = rng.choice((((1, 3, 2),), ((0, 1), (3, 2)), ((3, 0, 1, 2),)))
    difficulty = Difficulty(ladders, rng.randint(1, 1000), rng.choice((0, 1, 125, 500, 1000)), 32, 2)
    record, steps, mean = difficulty.start(4), [], [rng.randrange(40) for _ in range(3)]
    for _ in range(6):
        tallies = [
            [
                Outcomes(*(rng.choice((rng.randint(0, most), most, 0)) for most in mean))
                for _family in range(4)
            ]
            for _auditor in range(rng.randrange(1, 5))
        ]
        if rng.random() < 0.1:
            tallies[0][rng.randrange(4)] = Outcomes(*rng.choices((LARGEST, 2**32 - 1, 2**32, 2**53 + 1), k=3))
        record = difficulty.follow(record, median_outcomes(tallies))
        lots = [rng.choice((0, 2**32 - 1, rng.randrange(2**32))) for _ in range(4)]
        groups = tuple(rng.randrange(40) for _ in range(4))
        steps.append(
            {
                "tallies": [[[str(number) for number in row] for row in tally] for tally in tallies],
                "record": [[str(number) for number in row] for row in record],
                "mix": list(difficulty.mix(record)),
                "allowed": [[lot, list(difficulty.families_of(record, lot))] for lot in lots],
                "points": [_points(groups, record)],
            }
        )
    start = [[str(number) for number in row] for row in difficulty.start(4)]
    vector = {"difficulty": _terms(difficulty), "families": 4, "epochs": steps}
    return _ask("records", vector, {"start": start, "epochs": steps}, "difficulty")


def middles(rng: random.Random) -> Question:
    """Return the groups that an auditor counts of a family."""
    accounts = _accounts(rng, rng.randrange(8))
    rng.shuffle(accounts)
    groups = {who.hex(): "".join(rng.choices("rmw", (3, 2, 2), k=rng.randint(1, 12))) for who in accounts}
    found: dict[bytes, list[GroupOutcome]] = {
        Account.from_hex(who): [GroupOutcome("rmw".index(letter)) for letter in letters]
        for who, letters in groups.items()
    }
    vector = {"accounts": [list(row) for row in groups.items()]}
    return _ask("middles", vector, {"outcomes": list(middle_outcomes(found))}, "difficulty")


def content_trees(rng: random.Random) -> Question:
    """Return the tree of a commitment with all paths."""
    contents = [ContentId(rng.randbytes(32)) for _ in range(rng.randrange(1, 20))]
    tree = ContentTree(contents)
    paths = [[word.hex() for word in tree.path(place)] for place in range(len(contents))]
    vector = {"contents": [content.hex() for content in contents]}
    return _ask("trees", vector, {"root": tree.root.hex(), "paths": paths}, "audits")


def draws(rng: random.Random) -> Question:
    """Return which accounts and slots are drawn."""
    name = rng.choice(("sampled", "sampled on islands"))
    terms, block, epoch = (
        AuditTerms(rng.randint(1, 8), 2 ** rng.randrange(4)),
        rng.randbytes(32),
        rng.randrange(2**40),
    )
    drawn = draw(MANIFESTS[name].swarm_id, epoch, block)
    rows = []
    for account in _accounts(rng, 3):
        slots = tuple(sorted(rng.sample(range(rng.choice((8, 16, 65_536))), rng.randint(1, 8))))
        contents = [(slot, ContentId(sha256(b"%d" % slot).digest())) for slot in slots]
        payload = commit(ALICE.node, account, epoch, contents).to_payload()
        length = slots[-1] // 8 + 1
        rows.append(
            {
                "account": account.hex(),
                "is_drawn": is_drawn(drawn, account, terms),
                "slots": list(slots),
                "bits": payload[-35 - length : -35].hex(),
                "drawn": list(drawn_slots(drawn, account, slots, terms)),
            }
        )
    vector = {
        "manifest": name,
        "samples": terms.samples,
        "one_in": terms.one_in,
        "epoch": epoch,
        "block_hash": block.hex(),
        "accounts": [{"account": row["account"], "slots": row["slots"]} for row in rows],
    }
    begin = round(1000 * draw_seconds(MANIFESTS[name], epoch))
    return _ask("draws", vector, {"block_from_ms": begin, "draw": drawn.hex(), "accounts": rows}, "audits")


def audit_points(rng: random.Random) -> Question:
    """Return the points of an account whose groups were drawn."""
    drawn = rng.randint(1, 8)
    committed, failed = rng.choice((drawn, drawn + rng.randrange(70_000))), rng.randint(0, drawn)
    undecided = rng.randint(0, drawn - failed)
    cap, one_in = rng.choice((0, 1, 16, 512, 2**53 + 1)), 2 ** rng.randrange(17)
    terms = AuditTerms(8, one_in)
    points = sampled_points(committed, drawn, failed, undecided=undecided, cap=cap, terms=terms)
    vector = {"committed": committed, "drawn": drawn, "failed": failed, "undecided": undecided, "cap": cap}
    return _ask("points", {**vector, "one_in": one_in}, {"points": points}, "audits")


def moments(rng: random.Random) -> Question:
    """Return a moment at a border of some epoch's times, or a millisecond beside it."""
    length, genesis = (
        rng.choice((1, 3, 7, 13, 60, 292, 3600, 86_399)),
        rng.choice((0, 1, 1_800_000_000, 2**40)),
    )
    manifest = replace(PLAIN, genesis_seconds=genesis, epoch_seconds=length)
    epoch = rng.choice((0, 1, 3, 1000, 2**20 + 1))
    border = rng.choice((0, 1, 2, 13, 17)) * 1000 * length
    more = rng.choice((0, 500, -500, min(30_000, 100 * length) + 500))
    ms = max(0, 1000 * (genesis + epoch * length) + border + more + rng.choice((-1, 0, 1)))
    commitment = commit(ALICE.node, ALICE.account, epoch, [(0, ContentId(bytes(32)))])
    checks: tuple[Callable[[float], None], ...] = (
        lambda now: require_begun(manifest, epoch, now),
        lambda now: require_current(manifest, epoch, now),
        lambda now: require_over(manifest, epoch, now),
        lambda now: require_remembered(manifest, epoch, now),
        lambda now: require_in_time(commitment, manifest, now),
    )
    broken = [ruling_of(check, ms / 1000) for check in checks]
    found = [
        broken[0] is None,
        broken[1] is not Rule.ROLLOUT_IN_TIME,
        broken[2] is None,
        broken[3] is None,
        broken[4] is not Rule.COMMITMENT_EPOCH_OVER,
        broken[4] is not Rule.COMMITMENT_IN_TIME,
    ]
    fields = {"genesis_seconds": genesis, "epoch_seconds": length, "epoch": epoch, "ms": ms}
    return Question("moments", fields, found)


DERIVATIONS: dict[str, Callable[[random.Random], Question]] = {
    "settlements": settlements,
    "roots of proposals": proposal_roots,
    "trees of points": point_trees,
    "Merkle trees": merkle_trees,
    "epochs": epochs,
    "moments": moments,
    "seeds": seeds,
    "homes": homes,
    "numbers of islands": island_counts,
    "turns": turns,
    "caps": caps,
    "attestations": attestations,
    "auditors": auditors,
    "records": records,
    "middles": middles,
    "trees of contents": content_trees,
    "draws": draws,
    "points of a sample": audit_points,
}
"""By name, all kinds of questions of this file."""
