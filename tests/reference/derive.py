"""Sections 2, 5 and 7: swarm id, epochs, beacon, seed, Merkle trees and settlement."""

import json
from fractions import Fraction
from hashlib import sha256
from typing import Any

import cbor2
from reference import ethereum


def tagged(name: str, *parts: bytes) -> bytes:
    """Return ``H(tag(name) || ...)``."""
    return sha256(b"sapo/1/" + name.encode() + b"\0" + b"".join(parts)).digest()


def swarm_id(manifest: dict[str, Any]) -> bytes:
    """Return the id of the swarm that a manifest file describes."""
    return tagged("manifest", manifest_bytes(manifest))


def manifest_bytes(manifest: dict[str, Any]) -> bytes:
    """Return the CBOR form of a manifest file."""
    limits, suite = manifest["limits"], manifest["suite"]
    document = {
        0: manifest.get("version", 1),
        1: manifest["chain_id"],
        2: unhex(manifest["registry"] or ""),
        3: unhex(manifest["ledger"] or ""),
        4: manifest["finality_seconds"],
        5: manifest["genesis_seconds"],
        6: manifest["epoch_seconds"],
        7: {
            0: suite["reasoning_gym"],
            1: [_family(family) for family in suite["families"]],
            2: unhex(suite["sample_digest"]),
        },
        8: {0: limits["slots_per_epoch"], 1: limits["max_completions"], 2: limits["points_per_epoch"]},
    }
    if manifest.get("gate") is not None:
        document[9] = _gate(manifest["gate"])
    if manifest.get("difficulty") is not None:
        names = ("ladders", "step", "floor", "groups", "completions")
        document[10] = {key: manifest["difficulty"][name] for key, name in enumerate(names)}
    if manifest.get("islands") is not None:
        names = ("most_accounts", "least_accounts", "period_epochs", "most_islands", "count")
        numbers = {key: manifest["islands"].get(name) for key, name in enumerate(names)}
        document[11] = {key: number for key, number in numbers.items() if number is not None}
    if manifest.get("audits") is not None:
        document[12] = {0: manifest["audits"]["samples"], 1: manifest["audits"]["one_in"]}
    return cbor2.dumps(document, canonical=True)


def _gate(gate: dict[str, Any]) -> dict[int, Any]:
    if gate["kind"] == "open":
        return {0: 0}
    if gate["kind"] == "eas":
        attesters = [unhex(one) for one in gate["attesters"]]
        return {
            0: 2,
            1: unhex(gate["contract"]),
            2: unhex(gate["schema"]),
            3: attesters,
            4: gate["after_block"],
        }
    digits = f"{int(gate['unit']):x}"
    unit = unhex(digits if len(digits) % 2 == 0 else "0" + digits)
    return {0: 1, 1: unhex(gate["contract"]), 2: unit, 3: gate["exit_seconds"]}


def _family(family: dict[str, Any]) -> list[Any]:
    config = json.dumps(family["config"], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    names = ("scorer", "prompt", "answer", "max_completion_bytes")
    return [family["name"], family["level"], config, *(family[name] for name in names)]


def unhex(text: str) -> bytes:
    """Return bytes from hexadecimal, with or without ``0x``."""
    return bytes.fromhex(text.removeprefix("0x"))


def points_cap(points_per_epoch: int, unit: int, bonded: int) -> int:
    """Return the most points of an account with a bond: its part of a whole account's, rounded down."""
    return points_per_epoch * min(bonded, unit) // unit


def counts_attestation(gate: dict[str, Any], attestation: dict[str, Any]) -> bool:
    """Return whether an attestation counts after a block, by the times of both."""
    if unhex(attestation["attester"]) not in map(unhex, gate["attesters"]):
        return False
    if unhex(attestation["schema"]) != unhex(gate["schema"]):
        return False
    names = ("since", "attested", "block", "expiration", "revocation")
    since, attested, block, *ends = (int(attestation[f"{name}_seconds"]) for name in names)
    return since < attested <= block and not any(end in range(1, block + 1) for end in ends)


def start(manifest: dict[str, Any], epoch: int) -> int:
    """Return when an epoch begins, in milliseconds."""
    genesis: int = manifest["genesis_seconds"]
    length: int = manifest["epoch_seconds"]
    return 1000 * (genesis + epoch * length)


def epoch_of(manifest: dict[str, Any], now_ms: int) -> int:
    """Return the epoch of a moment."""
    length: int = manifest["epoch_seconds"]
    return (now_ms - start(manifest, 0)) // (1000 * length)


def turn_begins(manifest: dict[str, Any], turn: int) -> Fraction:
    """Return when a turn begins, in seconds after its epoch's end."""
    grace = min(Fraction(30), Fraction(manifest["epoch_seconds"], 10))
    graces = 2 + sum(1 << earlier // 16 for earlier in range(turn))
    later = 0 if manifest.get("audits") is None else manifest["finality_seconds"] + 3 * grace
    return graces * grace + later


def turns(manifest: dict[str, Any]) -> int:
    """Return how many turns an epoch has: those that begin before the second epoch after it has ended."""
    count = 0
    while turn_begins(manifest, count) < 2 * manifest["epoch_seconds"]:
        count += 1
    return count


def turn_at(manifest: dict[str, Any], age: Fraction) -> int:
    """Return the number of the turn at an age, -1 before the first."""
    turn = -1
    while turn_begins(manifest, turn + 1) <= age:
        turn += 1
    return turn


def beacon(swarm: bytes, epoch: int, block_hash: bytes) -> bytes:
    """Return the beacon of an epoch."""
    return tagged("beacon", swarm, epoch.to_bytes(8, "big"), block_hash)


def seed(swarm: bytes, beacon_: bytes, account: bytes, family: int, slot: int) -> int:
    """Return the seed of a slot's task."""
    digest = tagged("seed", swarm, beacon_, account, family.to_bytes(2, "big"), slot.to_bytes(4, "big"))
    return int.from_bytes(digest[:4], "big") // 2


def island_count(islands: dict[str, Any] | None, paid: list[int], one_in: int = 1) -> int:
    """Return how many islands there are after the last final epochs, oldest first."""
    if islands is None:
        return 1
    if islands.get("count") is not None:
        constant: int = islands["count"]
        return constant
    now = 1
    all_accounts = [one_in * found for found in paid]
    for place, accounts in enumerate(all_accounts):
        while accounts > islands["most_accounts"] * now and now < islands["most_islands"]:
            now += now
        last_six = all_accounts[: place + 1][-6:]
        few = islands["least_accounts"]
        while len(last_six) == 6 and now > 1 and all(one < few * now for one in last_six):
            now //= 2
    return now


def paid_before(epoch: int, final: list[tuple[int, list[int]]]) -> list[int]:
    """Return how many accounts have points in each epoch that the islands of an epoch rest on.

    Of final epochs their numbers and the points of everybody named in them, oldest first.
    """
    begin = (epoch - 1 if epoch else 0) - 12
    window = [points for number, points in final if number >= begin]
    if not window and final:
        window = [final[-1][1]]
    return [len([one for one in points if one != 0]) for points in window]


def drawn(swarm: bytes, who: bytes, epoch: int, period: int) -> int:
    """Return the epoch whose beacon draws an island for an account or a node key."""
    offset = int.from_bytes(tagged("island-offset", swarm, who)[:8], "big") % period
    begin = last = epoch - 1 if epoch else 0
    while begin > 0 and (begin + offset) % period:
        begin -= 1
    assert last - begin < period
    return begin


def home(swarm: bytes, beacon_: bytes, account: bytes, count: int) -> int:
    """Return the island of an account under the beacon that draws it."""
    return int.from_bytes(tagged("island", swarm, beacon_, account)[:8], "big") % count


def visit(swarm: bytes, beacon_: bytes, node_key: bytes, *, home_: int, count: int) -> int:
    """Return the island that a node visits: one of the others in ascending order."""
    others = [island for island in range(count) if island != home_] or [home_]
    return others[int.from_bytes(tagged("visit", swarm, beacon_, node_key)[:8], "big") % len(others)]


def leaf(account: bytes, value: int) -> bytes:
    """Return a leaf of the Merkle tree."""
    return sha256(b"\0" + account + value.to_bytes(32, "big")).digest()


def node(a: bytes, b: bytes) -> bytes:
    """Return a node above two others."""
    return sha256(b"\1" + min(a, b) + max(a, b)).digest()


def root(leaves: list[bytes]) -> bytes:
    """Return the root over leaves."""
    if not leaves:
        return bytes(32)
    if len(leaves) == 1:
        return leaves[0]
    pairs = [leaves[i : i + 2] for i in range(0, len(leaves), 2)]
    return root([pair[0] if len(pair) == 1 else node(*pair) for pair in pairs])


def climb(leaf_: bytes, proof: list[bytes]) -> bytes:
    """Return the root that a proof leads to."""
    for sibling in proof:
        leaf_ = node(leaf_, sibling)
    return leaf_


def word(entries: list[tuple[bytes, int]], level: int = 0) -> bytes:
    """Return the word over accounts and values that share their first bits."""
    total = sum(value for _, value in entries).to_bytes(8, "big")
    if not entries:
        return bytes(32)
    if len(entries) == 1:
        return ethereum.keccak(entries[0][0] + total)[:24] + total
    sides: tuple[list[tuple[bytes, int]], list[tuple[bytes, int]]] = ([], [])
    for account, value in entries:
        sides[account[level // 8] >> (7 - level % 8) & 1].append((account, value))
    return ethereum.keccak(word(sides[0], level + 1) + word(sides[1], level + 1))[:24] + total


def reached(account: bytes, holder: bytes, value: int, beside: list[bytes]) -> bytes | None:
    """Return the root that an account's place leads to; None if the place is not on the account's way."""
    bits = [account[level // 8] >> (7 - level % 8) & 1 for level in range(160)]
    others = [holder[level // 8] >> (7 - level % 8) & 1 for level in range(160)]
    if holder != bytes(20) and others[: len(beside)] != bits[: len(beside)]:
        return None
    at = word([(holder, value)] if holder != bytes(20) else [])
    for bit, other in zip(reversed(bits[: len(beside)]), beside, strict=True):
        total = int.from_bytes(at[24:], "big") + int.from_bytes(other[24:], "big")
        pair = other + at if bit else at + other
        at = ethereum.keccak(pair)[:24] + total.to_bytes(8, "big")
    return at


def settle(
    tallies: list[dict[str, int]], previous: dict[str, int], most: int, budget: int
) -> list[list[Any]]:
    """Return [account, points, cumulative] of each account, by the lower median of its counts."""
    earned = {}
    for account in sorted(set(previous) | {name for tally in tallies for name in tally}):
        counts = sorted(tally.get(account, 0) for tally in tallies)
        earned[account] = min(most, counts[(len(counts) - 1) // 2])
    asked, shares = sum(earned.values()), []
    for account, points in earned.items():
        if asked > budget:
            points = points * budget // asked
        if previous.get(account, 0) + points:
            shares.append([account, points, previous.get(account, 0) + points])
    return shares


def successor_digest(document: bytes) -> bytes:
    """Section 2.1: the name under which a document is announced."""
    return tagged("successor", document)


def successors(
    manifest: dict[str, Any], announced: list[tuple[int, str]]
) -> list[tuple[int, dict[str, Any]]]:
    """Section 2.1: those of the announced documents that count, with their epochs."""
    counted: list[tuple[int, dict[str, Any]]] = []
    suite = manifest["suite"]
    for epoch, text in announced:
        document = json.loads(text)
        families = document["suite"]["families"]
        if unhex(document["lineage"]) != swarm_id(manifest):
            continue
        if document["suite"]["reasoning_gym"] != suite["reasoning_gym"]:
            continue
        if families[: len(suite["families"])] != suite["families"]:
            continue
        if not manifest["chain_id"] or not _may_change(manifest, suite, document):
            continue
        suite = document["suite"]
        counted.append((epoch, document))
    return counted


def _may_change(manifest: dict[str, Any], suite: dict[str, Any], document: dict[str, Any]) -> bool:
    """Section 2.1, ladders, and section 2, audits: what a document leaves as it is."""
    if manifest.get("audits") is not None and document["slots_per_epoch"] > 65_536:
        return False
    if (ladders := manifest.get("difficulty")) is None:
        return True
    same = document["suite"] == suite and not document.get("retired")
    return same and int(ladders["completions"]) <= int(document["max_completions"])


def terms_at(
    manifest: dict[str, Any], counted: list[tuple[int, dict[str, Any]]], epoch: int
) -> tuple[int, int, list[int]]:
    """Section 2.1: slots, completions and families of an epoch."""
    begun = [document for since, document in counted if since <= epoch]
    if not begun:
        limits, families = manifest["limits"], manifest["suite"]["families"]
        return limits["slots_per_epoch"], limits["max_completions"], [*range(len(families))]
    newest = begun[-1]
    places = [place for place in range(len(newest["suite"]["families"])) if place not in newest["retired"]]
    return newest["slots_per_epoch"], newest["max_completions"], places


def auditors(founders: list[str], replacements: list[tuple[int, str, str]], epoch: int) -> list[str]:
    """Section 7.1: the auditors of an epoch, ascending."""
    holders = [*founders]
    for since, leaving, entering in replacements:
        if since <= epoch:
            holders[holders.index(leaving)] = entering
    return sorted(holders)
