"""Audits by sample from values alone: trees, draws, points, turns."""

from hashlib import sha256
from typing import Any

from vectors.world import ALICE, BOB, MALLORY, MANIFESTS, STRANGER

from sapo_protocol.audits.commitment import commit
from sapo_protocol.audits.draw import draw, draw_seconds, drawn_slots, is_drawn, sampled_points
from sapo_protocol.audits.tree import ContentTree
from sapo_protocol.identifiers import ContentId
from sapo_protocol.settlement import turn_count, turn_to_propose
from sapo_protocol.terms.audits import AuditTerms


def everything() -> dict[str, Any]:
    """Return all derivations of this file by name."""
    return {"trees": _trees(), "draws": _draws(), "points": _points(), "turns": _turns()}


def _contents(count: int) -> list[ContentId]:
    return [ContentId(sha256(b"content %d" % number).digest()) for number in range(count)]


def _trees() -> list[dict[str, Any]]:
    found = []
    for count in (1, 2, 3, 4, 5, 7, 8, 13):
        tree = ContentTree(_contents(count))
        paths = [[word.hex() for word in tree.path(place)] for place in range(count)]
        contents = [content.hex() for content in tree.contents]
        found.append({"contents": contents, "root": tree.root.hex(), "paths": paths})
    return found


def _draws() -> list[dict[str, Any]]:
    found = []
    for name, samples, one_in in (("sampled", 4, 1), ("sampled", 1, 2), ("sampled on islands", 8, 4)):
        terms, swarm = AuditTerms(samples, one_in), MANIFESTS[name].swarm_id
        drawn = draw(swarm, 7, sha256(b"block").digest())
        accounts = []
        for who in (ALICE, BOB, MALLORY, STRANGER):
            for slots in ((5,), (0, 2, 9), tuple(range(0, 60, 2))):
                taken = drawn_slots(drawn, who.account, slots, terms)
                accounts.append(
                    {
                        "account": who.account.hex(),
                        "is_drawn": is_drawn(drawn, who.account, terms),
                        "slots": list(slots),
                        "bits": _bits(slots),
                        "drawn": list(taken),
                    }
                )
        found.append(
            {
                "manifest": name,
                "samples": samples,
                "one_in": one_in,
                "epoch": 7,
                "block_hash": sha256(b"block").hexdigest(),
                "block_from_ms": round(1000 * draw_seconds(MANIFESTS[name], 7)),
                "draw": drawn.hex(),
                "accounts": accounts,
            }
        )
    return found


def _bits(slots: tuple[int, ...]) -> str:
    groups = zip(slots, _contents(len(slots)), strict=True)
    payload = commit(ALICE.node, ALICE.account, 7, groups).to_payload()
    length = max(slots) // 8 + 1
    return payload[-35 - length : -35].hex()  # behind it the root: its key, two bytes of its head and 32


def _points() -> list[dict[str, Any]]:
    found = []
    for committed, drawn in ((1, 1), (3, 3), (7, 4), (500, 4), (600, 8)):
        for failed in range(drawn + 1):
            for undecided in sorted({0, min(1, drawn - failed), drawn - failed}):
                for cap, one_in in ((512, 1), (0, 2), (512, 4)):
                    groups = {
                        "committed": committed,
                        "drawn": drawn,
                        "failed": failed,
                        "undecided": undecided,
                    }
                    points = sampled_points(**groups, cap=cap, terms=AuditTerms(8, one_in))
                    found.append({**groups, "cap": cap, "one_in": one_in, "points": points})
    return found


def _turns() -> list[dict[str, Any]]:
    manifest = MANIFESTS["sampled"]
    ages = [0, 20, 59, 60, 65, 66, 100, 119]
    turns = [[age, max(-1, turn_to_propose(manifest, age)[0])] for age in ages]
    return [{"manifest": "sampled", "turns": turn_count(manifest), "ages": turns}]
