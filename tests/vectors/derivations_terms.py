"""Terms by epoch and names of the transport, from values alone: successors, auditors, topics, message ids."""

from dataclasses import replace
from hashlib import sha256
from typing import Any

from vectors.world import ALICE, CHAINED, LADDERS, MANIFESTS, PLAIN, Identity

from sapo_protocol import topics
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import successor_from_json, successor_to_json
from sapo_protocol.terms.auditors import Auditors, Replacement
from sapo_protocol.terms.successor import Successor, successor_digest

PEOPLE = [Identity(f"account {number}") for number in range(9)]
ACCOUNTS = sorted(person.account for person in PEOPLE)

TOPICS = {
    "rollouts": topics.rollouts_topic,
    "certificates": topics.certificates_topic,
    "equivocations": topics.equivocations_topic,
    "commitments": topics.commitments_topic,
}
"""Those of one island; contributions have one topic for all of them."""

PROTOCOLS = {
    "certificates": topics.certificates_protocol,
    "rollout-ids": topics.rollout_ids_protocol,
    "rollouts": topics.rollouts_protocol,
    "contributions": topics.contributions_protocol,
    "equivocations": topics.equivocations_protocol,
    "addresses": topics.addresses_protocol,
    "pages": topics.pages_protocol,
    "successors": topics.successors_protocol,
    "groups": topics.groups_protocol,
}

Announced = dict[str, list[tuple[int, bytes]]]


def everything() -> dict[str, Any]:
    """Return all derivations of this file by name."""
    return {
        "successors": successors(),
        "auditors": auditors(),
        "names": names(),
        "message_ids": message_ids(),
    }


def _document(manifest: Manifest, **changes: Any) -> bytes:
    limits = manifest.limits
    terms = Successor(manifest.swarm_id, manifest.suite, limits.slots_per_epoch, limits.max_completions)
    return successor_to_json(replace(terms, **changes))


def successors() -> list[dict[str, Any]]:
    """Return what is in force by epoch after announcements of documents, of which some count for nothing."""
    found = [
        ("chained", _of_a_chain()),
        ("plain", {"a swarm without a chain": [(20, _document(PLAIN, slots_per_epoch=1))]}),
        ("ladders on a chain", _of_ladders()),
        ("sampled", _of_audits()),
    ]
    return [_succession(of, name, rows) for of, cases in found for name, rows in cases.items()]


def _of_a_chain() -> Announced:
    suite = CHAINED.suite
    more = replace(suite, families=(*suite.families, replace(suite.families[0], level="another")))

    def document(**changes: Any) -> bytes:
        return _document(CHAINED, **changes)

    return {
        "none": [],
        "other limits": [(20, document(slots_per_epoch=1, max_completions=16))],
        "a family more": [(20, document(suite=more))],
        "a family retires and comes back": [
            (20, document(suite=more, retired=(0,))),
            (40, document(suite=more)),
        ],
        "another lineage": [(20, document(lineage=PLAIN.swarm_id))],
        "fewer families": [(20, document(suite=more)), (40, document())],
        "families in other places": [(20, document(suite=replace(more, families=more.families[::-1])))],
        "another release": [(20, document(suite=replace(more, reasoning_gym="0")))],
        "another sample digest": [(20, document(suite=replace(suite, sample_digest=Digest(bytes(32)))))],
        "one that counts after one that does not": [
            (20, document(lineage=PLAIN.swarm_id)),
            (28, document(suite=more)),
        ],
    }


def _of_ladders() -> Announced:
    manifest = MANIFESTS["ladders on a chain"]
    suite, difficulty = manifest.suite, manifest.difficulty
    assert difficulty is not None
    more = replace(suite, families=(*suite.families, replace(suite.families[0], level="another")))
    fewest = difficulty.completions

    def document(**changes: Any) -> bytes:
        return _document(manifest, **changes)

    return {
        "ladders: other limits": [(20, document(slots_per_epoch=1, max_completions=fewest))],
        "ladders: a family more": [(20, document(suite=more))],
        "ladders: a family retires": [(20, document(retired=(0,)))],
        "ladders: another sample digest": [
            (20, document(suite=replace(suite, sample_digest=Digest(bytes(32)))))
        ],
        "ladders: fewer completions than a group that counts has": [
            (20, document(max_completions=fewest - 1))
        ],
    }


def _of_audits() -> Announced:
    """A commitment has a bit for each slot in at most 8,192 bytes."""
    manifest = MANIFESTS["sampled"]
    return {
        "audits by sample: as many slots as a commitment names": [
            (20, _document(manifest, slots_per_epoch=65_536))
        ],
        "audits by sample: a slot more": [(20, _document(manifest, slots_per_epoch=65_537))],
    }


def _succession(of: str, name: str, announced: list[tuple[int, bytes]]) -> dict[str, Any]:
    manifest, rows = MANIFESTS[of], []
    for epoch, document in announced:
        try:
            manifest = manifest.succeeded_by(epoch, successor_from_json(document))
            counts = True
        except LocalProtocolError:
            counts = False
        digest = successor_digest(document).hex()
        rows.append({"epoch": epoch, "document": document.decode(), "digest": digest, "counts": counts})
    return {
        "name": name,
        "manifest": of,
        "announced": rows,
        "epochs": [
            {
                "epoch": epoch,
                "slots_per_epoch": manifest.limits_at(epoch).slots_per_epoch,
                "max_completions": manifest.limits_at(epoch).max_completions,
                "families": list(manifest.families_at(epoch)),
            }
            for epoch in (0, 19, 20, 39, 40, 2**40 - 1)
        ],
    }


def auditors() -> list[dict[str, Any]]:
    """Return the auditors by epoch after replacements."""
    a, b, c, d, e = ACCOUNTS[:5]
    return [
        _auditors(Auditors((a, b, c), tuple(Replacement(*change) for change in changes)))
        for changes in ((), ((20, b, d),), ((20, b, d), (28, d, e)), ((20, a, e), (28, c, d)))
    ]


def _auditors(known: Auditors) -> dict[str, Any]:
    return {
        "founders": [account.hex() for account in known.founders],
        "replacements": [
            [each.epoch, each.leaving.hex(), each.entering.hex()] for each in known.replacements
        ],
        "epochs": [
            [epoch, [account.hex() for account in known.of(epoch)]]
            for epoch in (0, 19, 20, 27, 28, 36, 2**40)
        ],
    }


def names() -> list[dict[str, Any]]:
    """Return the names of an island's topics and of a swarm's request protocols."""
    found = []
    for name, island in (("plain", 0), ("four islands", 0), ("four islands", 3), ("chained", 65_535)):
        swarm = MANIFESTS[name].swarm_id
        named = {kind: topic(swarm, island) for kind, topic in TOPICS.items()}
        named["contributions"] = topics.contributions_topic(swarm)
        protocols = {kind: protocol(swarm) for kind, protocol in PROTOCOLS.items()}
        found.append({"manifest": name, "island": island, "topics": named, "protocols": protocols})
    return found


def message_ids() -> list[dict[str, Any]]:
    """Return the ids that gossip gives to messages; a test of the client compares its own with them."""
    rollout = ALICE.rollout()
    heard = [
        (topics.rollouts_topic(PLAIN.swarm_id), rollout),
        (topics.rollouts_topic(PLAIN.swarm_id, 5), rollout),
        (topics.rollouts_topic(LADDERS.swarm_id), rollout),
        (topics.rollouts_topic(PLAIN.swarm_id), b""),
    ]
    return [
        {"topic": topic, "data": data.hex(), "id": sha256(topic.encode() + b"\0" + data).hexdigest()}
        for topic, data in heard
    ]
