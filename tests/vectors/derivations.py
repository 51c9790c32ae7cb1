"""Derivations from values alone: ids, beacons, seeds, roots and proofs, digests, settlements."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any

from vectors import derivations_terms
from vectors.world import ALICE, BOB, CHAINED, MANIFESTS, NOW_MS, PLAIN

from sapo_protocol import merkle, secp256k1
from sapo_protocol.constants import PROTOCOL_VERSION
from sapo_protocol.contributions import (
    Proposal,
    Share,
    Tally,
    page_digest,
    parse_proposal,
    settle,
    to_pages,
)
from sapo_protocol.eip712 import (
    Domain,
    EpochApproval,
    EpochRoot,
    NodeBinding,
    Statement,
    SuccessionNotice,
    SuccessionWithdrawal,
)
from sapo_protocol.envelope import Kind, parse_envelope
from sapo_protocol.epochs import beacon, epoch_at, epoch_start_seconds
from sapo_protocol.identifiers import Account, ContentId, Digest
from sapo_protocol.islands.count import counted_epochs, island_count, paid_accounts
from sapo_protocol.islands.homes import drawing_epoch, home_island, visited_island
from sapo_protocol.settlement import turn_count, turn_to_propose
from sapo_protocol.tasks import assigned_task
from sapo_protocol.terms.gate import Attestation, BondGate, EasGate, points_cap
from sapo_protocol.terms.islands import IslandTerms

PEOPLE = derivations_terms.PEOPLE
ACCOUNTS = derivations_terms.ACCOUNTS


def swarms() -> list[dict[str, Any]]:
    """Return swarm ids, with the bytes that they are digests of."""
    return [
        {"manifest": name, "cbor": manifest.to_bytes().hex(), "swarm_id": manifest.swarm_id.hex()}
        for name, manifest in MANIFESTS.items()
    ]


def contents() -> list[dict[str, Any]]:
    """Return content ids of messages; the signature is no part of them."""
    found = []
    forged = ALICE.rollout()[:-64] + bytes(64)
    for name, data in {
        "a rollout": ALICE.rollout(),
        "the same, not signed": forged,
        "a second rollout": ALICE.rollout(f5=[b"9"]),
        "a certificate": ALICE.certificate(),
        "a rollout on a chain": ALICE.rollout(CHAINED),
    }.items():
        swarm = CHAINED if "chain" in name else PLAIN
        envelope = parse_envelope(data, swarm.swarm_id)
        found.append({"name": name, "envelope": data.hex(), "content_id": envelope.content_id.hex()})
    return found


def epochs() -> list[dict[str, Any]]:
    """Return epochs of moments."""
    found = []
    for name in ("plain", "long epochs"):
        manifest = MANIFESTS[name]
        genesis, length = manifest.genesis_seconds, manifest.epoch_seconds
        for seconds in (0, 1, length - 1, length, length + 1, 10 * length, 10**9):
            epoch = epoch_at(manifest, genesis + seconds)
            start = epoch_start_seconds(manifest, epoch)
            found.append(
                {"manifest": name, "unix_seconds": genesis + seconds, "epoch": epoch, "start_seconds": start}
            )
    return found


def beacons() -> list[dict[str, Any]]:
    """Return beacons, and the seeds of slots under them."""
    found = []
    for name in ("plain", "chained", "other chain"):
        swarm = MANIFESTS[name].swarm_id
        for epoch in (0, 3, 255, 2**32, 2**64 - 1):
            block = b"" if name == "plain" else sha256(b"block %d" % epoch).digest()
            value = beacon(swarm, epoch, block)
            found.append(
                {
                    "manifest": name,
                    "epoch": epoch,
                    "block_hash": block.hex(),
                    "beacon": value.hex(),
                    "seeds": list(_seeds(name, value)),
                }
            )
    return found


def _seeds(name: str, value: Digest) -> Iterator[dict[str, Any]]:
    for who in (ALICE, BOB):
        for family, slot in ((0, 0), (0, 1), (1, 0), (2, 31), (255, 2**32 - 1)):
            task = assigned_task(MANIFESTS[name].swarm_id, value, who.account, family, slot)
            yield {"account": who.account.hex(), "family": family, "slot": slot, "seed": task.seed}


def islands() -> list[dict[str, Any]]:
    """Return homes and visits of a few people in swarms of islands."""
    found = []
    for name, epochs_ in (("one island", (0, 5)), ("four islands", (*range(10), 255, 256, 2**32))):
        manifest = MANIFESTS[name]
        terms, swarm = manifest.islands, manifest.swarm_id
        assert terms is not None
        for who, epoch in ((who, epoch) for who in PEOPLE[:4] for epoch in epochs_):
            drawn = [drawing_epoch(swarm, one, epoch, terms.period_epochs) for one in (who.account, who.node)]
            beacons_, count = [beacon(swarm, one, b"") for one in drawn], island_count(terms)
            home = home_island(swarm, beacons_[0], who.account, count)
            visit = visited_island(swarm, beacons_[1], who.node, home=home, count=count)
            found.append(
                {
                    "manifest": name,
                    "account": who.account.hex(),
                    "node": who.node.hex(),
                    "epoch": epoch,
                    "home_drawn": drawn[0],
                    "visit_drawn": drawn[1],
                    "home": home,
                    "visit": visit,
                }
            )
    return found


def island_counts() -> list[dict[str, Any]]:
    """Return numbers of islands after some final epochs."""
    terms = IslandTerms(most_accounts=64, least_accounts=24, period_epochs=144, most_islands=64)
    constant = replace(terms, count=8)
    steady, few = [100] * 12, [47] * 6
    cases = [
        (terms, paid)
        for paid in (
            [],
            [0],
            [64],
            [65],
            [128],
            [129],
            [10**6],
            [64, 65],
            [65, 48, 47],
            [65, 64, 48],
            [65, *few[1:]],
            [65, *few],
            [65, *few, 47],
            [*few, 65, *few[1:]],
            [*few, 65, *few],
            [65, *few[1:], 48, *few],
            [300, *few],
            [300, *few, 0],
            [48, 66, 47, 90, 47, 90],
            [300, 192, 191, 96, 95, 47, 0],
            [0, 10**6, 0],
            [10**9, *steady[1:]],
            [150, *steady[1:]],
            steady,
        )
    ]
    return [
        {
            "islands": asdict(one),
            "paid": paid,
            "one_in": one_in,
            "count": island_count(one, paid, one_in),
        }
        for one, paid, one_in in (
            *((terms_, paid, 1) for terms_, paid in cases),
            (constant, [10**6], 1),
            (constant, [], 1),
            (constant, [10**6], 4),
            (terms, [16], 4),
            (terms, [17], 4),
            (terms, [17, 12], 4),
            (terms, [17, 11], 4),
            (terms, [1], 128),
        )
    ]


def paid_accounts_before() -> list[dict[str, Any]]:
    """Return how many accounts were paid in the epochs that the islands of an epoch rest on."""
    points = [[0, 7, 1], [], [0, 0], [5], [2, 3, 0, 1]]
    cases = [
        (epoch, [(number, points[number % 5]) for number in numbers])
        for epoch, numbers in (
            (0, ()),
            (1, ()),
            (2, (0,)),
            (13, range(12)),
            (14, range(13)),
            (30, range(29)),
            (30, (16,)),
            (30, (17,)),
            (30, (4, 16)),
            (30, (15, 18, 20, 28)),
            (2**32, (2**32 - 14, 2**32 - 13)),
        )
    ]
    return [
        {
            "epoch": epoch,
            "final": [[number, list(one)] for number, one in final],
            "paid": _paid(epoch, final),
        }
        for epoch, final in cases
    ]


def _paid(epoch: int, final: list[tuple[int, list[int]]]) -> list[int]:
    counted = counted_epochs([number for number, _ in final], epoch)
    proposals = {
        number: Proposal(
            epoch=number,
            node=ALICE.node,
            account=ALICE.account,
            tallies=(),
            shares=tuple(
                Share(account, points, points) for account, points in zip(ACCOUNTS, one, strict=False)
            ),
        )
        for number, one in final
    }
    return [paid_accounts(proposals[number]) for number in counted]


def merkle_trees() -> list[dict[str, Any]]:
    """Return roots of trees of many sizes with every proof, and proofs that lead nowhere."""
    found = []
    for size in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9):
        entries = [(account, 10**number) for number, account in enumerate(ACCOUNTS[:size])]
        leaves = [merkle.leaf(account, value) for account, value in entries]
        proofs = [[step.hex() for step in merkle.proof(leaves, index)] for index in range(size)]
        found.append(
            {
                "entries": [[account.hex(), str(value)] for account, value in entries],
                "leaves": [leaf.hex() for leaf in leaves],
                "root": merkle.root(leaves).hex(),
                "proofs": proofs,
            }
        )
    largest = [(ACCOUNTS[0], 2**256 - 1)]
    leaf = merkle.leaf(*largest[0])
    entry = [[ACCOUNTS[0].hex(), str(2**256 - 1)]]
    found.append({"entries": entry, "leaves": [leaf.hex()], "root": leaf.hex(), "proofs": [[]]})
    return found


def trees_of_points() -> list[dict[str, Any]]:
    """Return roots of trees of points, with the places of accounts in them and of others."""
    near = [Account(ACCOUNTS[3][:-1] + bytes([ACCOUNTS[3][-1] ^ 1])), Account(ACCOUNTS[0][:4] + bytes(16))]
    ends = [Account(bytes(19) + b"\x01"), Account(b"\xff" * 20)]
    found = []
    for accounts in (*(ACCOUNTS[:size] for size in (0, 1, 2, 3, 5, 9)), [*ACCOUNTS, *near, *ends]):
        entries = [(account, 10**number) for number, account in enumerate(sorted(accounts))]
        asked = sorted({*accounts, *near, *ends, ACCOUNTS[0]})
        places = ((account, merkle.sum_place(entries, account)) for account in asked)
        found.append(
            {
                "entries": [[account.hex(), str(value)] for account, value in entries],
                "root": merkle.sum_root(entries).hex(),
                "places": [
                    {
                        "account": account.hex(),
                        "holder": place.holder.hex(),
                        "value": str(place.value),
                        "proof": [step.hex() for step in place.proof],
                    }
                    for account, place in places
                ],
            }
        )
    return found


def pages() -> list[dict[str, Any]]:
    """Return the pages of a tally and of a proposal of 1,025 accounts, and their digests."""
    accounts = [Account(number.to_bytes(20, "big")) for number in range(1, 1026)]
    entries = [(account, number) for number, account in enumerate(accounts)]
    shares = [Share(account, number, 2 * number + 1) for number, account in enumerate(accounts)]
    lists: Mapping[int, tuple[bytes, ...]] = {1: to_pages(entries), 2: to_pages(shares)}
    return [
        {
            "numbers": numbers,
            "pages": [page.hex() for page in listed],
            "digests": [page_digest(page).hex() for page in listed],
            "rows": len(accounts),
            "last": [accounts[-1].hex(), len(accounts) - 1, 2 * len(accounts) - 1][: 1 + numbers],
        }
        for numbers, listed in lists.items()
    ]


def typed_data() -> list[dict[str, Any]]:
    """Return EIP-712 digests and signatures, and who signed them."""
    found = []
    for chain_id, contract in (
        (0, bytes(20)),
        (1, b"\x01" * 20),
        (31337, bytes(19) + b"\x02"),
        (2**63, b"\xff" * 20),
    ):
        domain = Domain(chain_id, Account(contract))
        binding = NodeBinding(ALICE.node, PLAIN.swarm_id, 0, 2**64 - 1)
        root = EpochRoot(
            epoch=7,
            base_root=Digest(b"\x04" * 32),
            contribution_root=Digest(b"\x01" * 32),
            cumulative_root=Digest(b"\x02" * 32),
            total=2**200,
            archive_digest=Digest(b"\x03" * 32),
        )
        digest_, number = Digest(b"\x05" * 32), 2**64 - 1
        for statement in (
            binding,
            root,
            EpochApproval(2**32 - 1, root),
            SuccessionNotice(number, 2**40 - 1, digest_, ALICE.account, BOB.account),
            SuccessionNotice(0, 8, leaving=BOB.account, entering=ALICE.account),
            SuccessionNotice(1, 16, digest_),
            SuccessionWithdrawal(number),
        ):
            digest = statement.digest(domain)
            found.append(
                {
                    "type": type(statement).__name__,
                    "chain_id": chain_id,
                    "contract": contract.hex(),
                    "separator": domain.separator.hex(),
                    "message": _readable(statement),
                    "digest": digest.hex(),
                    "signer": ALICE.account.hex(),
                    "signature": secp256k1.sign(ALICE.secret, digest).hex(),
                }
            )
    return found


def _readable(statement: Statement | EpochApproval) -> dict[str, Any]:
    if isinstance(statement, EpochApproval):
        return {"turn": str(statement.turn), "root": _readable(statement.root)}
    names = statement.__slots__
    values = ((name, getattr(statement, name)) for name in names)
    return {name: str(value) if isinstance(value, int) else value.hex() for name, value in values}


def settlements() -> list[dict[str, Any]]:
    """Return shares from tallies, and the epoch root that they become."""
    a, b, c, d = ACCOUNTS[:4]
    ample = 2**32 - 1
    scenes: Mapping[str, tuple[list[dict[Account, int]], dict[Account, int], int, int]] = {
        "one tally": ([{a: 3, b: 5}], {}, 16, ample),
        "two tallies, the lower counts": ([{a: 3}, {a: 5}], {}, 16, ample),
        "three tallies, the median": ([{a: 3}, {a: 5}, {a: 900}], {}, 16, ample),
        "not named is zero": ([{a: 4}, {}, {b: 6}], {}, 16, ample),
        "clipped": ([{a: 40, b: 16}, {a: 17, b: 99}], {}, 16, ample),
        "added to what was": ([{a: 3}], {a: 10, c: 7}, 16, ample),
        "nobody": ([{}], {}, 16, ample),
        "zero points": ([{a: 0, b: 1}], {d: 0}, 16, ample),
        "four tallies": ([{a: 1, b: 4}, {a: 2, b: 3}, {a: 3, b: 2}, {a: 4, b: 1}], {c: 1}, 16, ample),
        "large": ([{a: 2**63 - 1}], {a: 2**63}, 2**64 - 1, 2**64 - 1),
        "the budget, to the point": ([{a: 16, b: 9, c: 5}], {}, 16, 30),
        "over the budget, rounded down": ([{a: 16, b: 9, c: 5}], {b: 7}, 16, 29),
        "over the budget, clipped before": ([{a: 90, b: 16, c: 1}], {}, 16, 20),
        "over the budget, too little for some": ([{a: 16, b: 16, c: 1, d: 1}], {d: 2}, 16, 17),
        "a budget of nothing": ([{a: 16}], {b: 3}, 16, 0),
        "a large budget": ([{a: 2**32 - 2, b: 2**32 - 3, c: 7}], {}, 2**32 - 1, ample),
    }
    return [_settlement(name, *scene) for name, scene in scenes.items()]


def _settlement(
    name: str, counts: list[dict[Account, int]], previous: dict[Account, int], most: int, budget: int
) -> dict[str, Any]:
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
    root = proposal.root(ContentId(sha256(name.encode()).digest()))
    return {
        "name": name,
        "tallies": [{account.hex(): str(value) for account, value in count.items()} for count in counts],
        "previous": {account.hex(): str(value) for account, value in previous.items()},
        "points_per_epoch": str(most),
        "epoch_budget": str(budget),
        "shares": [[s.account.hex(), str(s.points), str(s.cumulative)] for s in shares],
        "proposal_id": root.archive_digest.hex(),
        "epoch_root": _readable(root),
        "digest": root.digest(CHAINED.ledger_domain).hex(),
    }


def proposal_roots() -> list[dict[str, Any]]:
    """Return epoch roots of whole proposals, by their content ids."""
    shares = tuple(Share(account, number % 3, number + 1) for number, account in enumerate(ACCOUNTS))
    proposal = Proposal(
        node=ALICE.node, account=ALICE.account, epoch=3, tallies=(ContentId(bytes(32)),), shares=shares
    )
    return [_proposal_root(replace(proposal, turn=turn)) for turn in (0, 1, 16)]


def _proposal_root(proposal: Proposal) -> dict[str, Any]:
    data = ALICE.signed(proposal.to_payload(), CHAINED, Kind.PROPOSAL)
    envelope = parse_envelope(data, CHAINED.swarm_id)
    approval = parse_proposal(envelope.payload).approval(envelope.content_id)
    return {
        "manifest": "chained",
        "envelope": data.hex(),
        "epoch_root": _readable(approval.root),
        "digest": approval.root.digest(CHAINED.ledger_domain).hex(),
        "approval_digest": approval.digest(CHAINED.ledger_domain).hex(),
    }


def turns() -> list[dict[str, Any]]:
    """Return how many turns the epochs of a length have, and the turns of some ages."""
    found = []
    for seconds in (1, 60, 292, 299, 300, 600, 3600, 86_400):
        manifest = replace(PLAIN, epoch_seconds=seconds)
        ages = [seconds * part // 16 for part in range(1, 33)]
        found.append(
            {
                "epoch_seconds": seconds,
                "turns": turn_count(manifest),
                "ages": [[age, max(-1, turn_to_propose(manifest, age)[0])] for age in ages],
            }
        )
    return found


def caps() -> list[dict[str, Any]]:
    """Return the most points of accounts under a bond gate."""
    found = []
    for most in (0, 1, 16, 512, 2**64 - 1):
        for unit in (1, 3, 10**20, 2**96 - 1):
            gate = BondGate(Account(bytes(20)), unit, 0)
            for bonded in sorted(
                {0, 1, unit // 64, unit // 3, unit // 2, unit - 1, unit, unit + 1, 2**96 - 1}
            ):
                cap = points_cap(most, gate.units(bonded))
                found.append(
                    {"points_per_epoch": str(most), "unit": str(unit), "bonded": str(bonded), "cap": str(cap)}
                )
    return found


def attestations() -> list[dict[str, Any]]:
    """Return whether attestations count under the gate that asks for one, after a block."""
    gate = MANIFESTS["eas gate"].gate
    assert isinstance(gate, EasGate)
    recipient, since, at = Account(bytes(19) + b"\x63"), 500, 1000
    right = Attestation(gate.schema, recipient, gate.attesters[0], at - 1, 0, 0)
    times = (
        {field: seconds}
        for field in ("attested_seconds", "expiration_seconds", "revocation_seconds")
        for seconds in (0, 1, since, since + 1, at - 1, at, at + 1, 2**64 - 1)
    )
    changes: list[dict[str, Any]] = [
        *times,
        {"attester": gate.attesters[1]},
        {"attester": recipient},
        {"attester": Account(bytes(Account.SIZE))},
        {"schema": Digest(bytes(Digest.SIZE))},
        {"expiration_seconds": at + 1, "revocation_seconds": at},
        {"expiration_seconds": at, "revocation_seconds": at + 1},
        {"expiration_seconds": at + 1, "revocation_seconds": at + 1},
    ]
    found = []
    for change in changes:
        attestation = replace(right, **change)
        facts = {
            name: str(value) if isinstance(value, int) else value.hex()
            for name, value in asdict(attestation).items()
        }
        counts = gate.accepts(attestation, since_seconds=since, block_seconds=at)
        moments = {"since_seconds": str(since), "block_seconds": str(at)}
        found.append({**facts, **moments, "counts": counts})
    return found


def everything() -> dict[str, Any]:
    """Return all derivations by name."""
    return {
        "protocol_version": PROTOCOL_VERSION,
        "now_ms": NOW_MS,
        "swarms": swarms(),
        "contents": contents(),
        "epochs": epochs(),
        "beacons": beacons(),
        "islands": islands(),
        "island_counts": island_counts(),
        "paid_accounts": paid_accounts_before(),
        "merkle": merkle_trees(),
        "trees_of_points": trees_of_points(),
        "pages": pages(),
        "typed_data": typed_data(),
        "settlements": settlements(),
        "turns": turns(),
        "caps": caps(),
        "attestations": attestations(),
        "proposal_roots": proposal_roots(),
        **derivations_terms.everything(),
    }
