"""Manifests of version 2: another swarm, the same envelopes."""

from collections.abc import Iterator

from vectors.raw import cbor
from vectors.world import ALICE, MANIFESTS, Case, frame, one

from sapo_protocol import ed25519
from sapo_protocol.envelope import Kind, signed_bytes

VERSIONS = ("plain", "version 2", "open gate")


def cases() -> Iterator[Case]:
    """Yield messages of twin swarms that differ in their manifests' version or gate alone."""
    for heard_in in VERSIONS[1:]:
        for signed_for in VERSIONS:
            rule = None if signed_for == heard_in else "R2.3"
            data = ALICE.rollout(MANIFESTS[signed_for])
            yield one(f"a rollout for {signed_for} in {heard_in}", rule, data, manifest=heard_in)
        yield one(
            f"an envelope of version 2 in {heard_in}", "R2.1", _envelope(heard_in, 2), manifest=heard_in
        )
    gated = MANIFESTS["bond gate"]
    yield one("a rollout in a gated swarm", None, ALICE.rollout(gated), manifest="bond gate")
    ungated = ALICE.rollout(MANIFESTS["chained"])
    yield one("a rollout for its ungated twin in a gated swarm", "R2.3", ungated, manifest="bond gate")


def _envelope(name: str, version: int) -> bytes:
    manifest, payload = MANIFESTS[name], cbor(ALICE.fields())
    signature = ed25519.sign(ALICE.seed, signed_bytes(Kind.ROLLOUT, manifest.swarm_id, payload))
    return frame(manifest, version=version, payload=payload, signature=signature)
