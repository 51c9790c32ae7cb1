"""Messages of a later version: of a kind, or with keys, that are reserved today."""

from collections.abc import Mapping

from support.swarm import Identity, make_manifest

from sapo_protocol import ed25519
from sapo_protocol.constants import LAST_RESERVED, PROTOCOL_VERSION
from sapo_protocol.decoding import Value
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind, signed_bytes
from sapo_protocol.manifest import Manifest

ALICE = Identity(1)


def later_kind(payload: bytes = b"", kind: int = LAST_RESERVED, manifest: Manifest | None = None) -> bytes:
    """Return a message of a reserved kind; what it says and who signed it cannot be known."""
    swarm = bytes((manifest or make_manifest()).swarm_id)
    return encode({0: PROTOCOL_VERSION, 1: kind, 2: swarm, 3: payload, 4: bytes(ed25519.SIGNATURE_BYTES)})


def later_rollout(
    author: Identity = ALICE,
    more: Mapping[int, Value] = {LAST_RESERVED: b"hidden"},
    manifest: Manifest | None = None,
    **changes: object,
) -> bytes:
    """Return a rollout with further keys under a genuine signature of its author."""
    swarm = (manifest or make_manifest()).swarm_id
    rollout = author.rollout(**changes)
    payload = encode(
        {
            0: bytes(rollout.node),
            1: bytes(rollout.account),
            2: rollout.epoch,
            3: rollout.slot,
            4: rollout.family,
            5: rollout.completions,
            **more,
        }
    )
    signature = ed25519.sign(author.seed, signed_bytes(Kind.ROLLOUT, swarm, payload))
    return encode({0: PROTOCOL_VERSION, 1: int(Kind.ROLLOUT), 2: bytes(swarm), 3: payload, 4: signature})
