"""Cases of many genuine messages of few accounts: places, renewals, nodes that lost their place, proofs.

What a node remembers decides these. Every choice comes from one seeded generator, so a number names a case.
"""

import random
from typing import Any

from vectors.cases_commitment import commitment
from vectors.cases_contribution import sealed
from vectors.cases_equivocation import paired
from vectors.world import EPOCH, EPOCH_SECONDS, GENESIS, MANIFESTS, NOW_MS, Identity

from sapo_protocol.envelope import Kind
from sapo_protocol.manifest import Manifest

NODES = {who: [Identity(who, key) for key in range(6)] for who in ("alice", "bob")}
DAY = 86_400
KINDS = (Kind.TALLY, Kind.PROPOSAL, Kind.APPROVAL)
NAMES = tuple(name for name in MANIFESTS if name not in ("long epochs", "ladders"))


def crowded_case(seed: int, number: int) -> dict[str, Any]:
    """Return a case without outcomes, in the form of ``mutated_case``."""
    rng = random.Random(f"crowd:{seed}:{number}")
    name = rng.choice(NAMES)
    manifest, wants_auditors = MANIFESTS[name], rng.random() < 0.7
    accounts = [nodes[0].account.hex() for nodes in NODES.values()]
    state: dict[str, Any] = {"certificates": [], "seen": [], "auditors": accounts if wants_auditors else []}
    if manifest.gate is not None and rng.random() < 0.8:
        state["bonds"] = [
            [rng.randrange(1, 5), {who: str(rng.randrange(3)) for who in accounts}] for _ in range(2)
        ]
        state["bonds"].sort(key=lambda row: row[0])
    messages: list[dict[str, Any]] = []
    offset_ms = 0
    for _ in range(rng.randrange(8, 28)):
        offset_ms += rng.choice((*[0] * 12, 1, 1000, 30_000, 60_000))
        messages.append({**_message(rng, manifest, messages), "offset_ms": offset_ms})
    known = [rng.choice(nodes).certificate(manifest).hex() for nodes in NODES.values() for _ in range(2)]
    if manifest.islands is not None or rng.random() < 0.3:
        known = []
    known = list(dict.fromkeys(known))
    return {"manifest": name, "state": state, "certificates": known, "now_ms": NOW_MS, "messages": messages}


def _message(rng: random.Random, manifest: Manifest, before: list[dict[str, Any]]) -> dict[str, Any]:
    who = rng.choice(NODES[rng.choices(("alice", "bob"), (4, 1))[0]])
    who = NODES[who.name][0] if rng.random() < 0.6 else who
    island = rng.randrange(4) if manifest.islands is not None and rng.random() < 0.7 else 0
    where = f"/{island}" if island else ""
    match rng.choices(range(6), (3, 4, 4, 2, 3, 1))[0]:
        case 0:
            begin = GENESIS + rng.choice((0, 0, 0, EPOCH * EPOCH_SECONDS + 60))
            end = GENESIS + DAY + rng.choice((0, 3600, 3601, 7200)) if rng.random() < 0.7 else begin + 300
            return {"topic": "certificates" + where, "bytes": who.certificate(manifest, begin, end).hex()}
        case 1:
            return {"topic": "rollouts" + where, "bytes": _rollout(rng, who, manifest).hex()}
        case 2:
            return {"topic": "contributions", "bytes": _contribution(rng, who, manifest).hex()}
        case 3:
            other = rng.choice(NODES[who.name])
            data = paired(_rollout(rng, who, manifest), _rollout(rng, other, manifest), manifest)
            return {"topic": "equivocations" + where, "bytes": data.hex()}
        case 4 if manifest.audits is not None:
            data = commitment(who, manifest, f2=2, f4=bytes((rng.randrange(4),)) * 32)
            return {"topic": "commitments" + where, "bytes": data.hex()}
        case _ if before:
            again = rng.choice(before)
            return {"topic": again["topic"], "bytes": again["bytes"]}
    return {"topic": "rollouts" + where, "bytes": _rollout(rng, who, manifest).hex()}


def _rollout(rng: random.Random, who: Identity, manifest: Manifest) -> bytes:
    """Return a rollout of one of few slots and contents."""
    return who.rollout(manifest, f2=rng.choice((3, 3, 2)), f3=0, f5=[b"7", b"%d" % rng.randrange(3)])


def _contribution(rng: random.Random, who: Identity, manifest: Manifest) -> bytes:
    """Return one of few contributions, also of turns that are another auditor's."""
    kind = rng.choice(KINDS)
    mark = bytes((rng.randrange(5),)) * 32
    changes: dict[str, Any] = {"f2": rng.choice((2, 2, 2, 2, 1))}
    if kind is Kind.TALLY:
        changes["f4"] = mark
    elif kind is Kind.PROPOSAL:
        changes["f3"] = [mark]
    else:
        changes["f3"] = mark
    if kind is not Kind.TALLY and rng.random() < 0.4:
        changes["f5"] = rng.choice((1, 1, 2, 16, 17))
    return sealed(kind, who, manifest, **changes)
