"""Epochs and their beacons.

An epoch is a fixed window counted from genesis; its beacon becomes known when it begins.
"""

from hashlib import sha256

from sapo_protocol.constants import (
    CLOCK_SLACK_SECONDS,
    CONTRIBUTION_EPOCHS,
    EPOCH_WINDOW,
    OVERLAP_SECONDS,
    PROTOCOL_VERSION,
)
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.identifiers import Digest, SwarmId
from sapo_protocol.manifest import Manifest
from sapo_protocol.rules import Rule


class NotBegun(RemoteProtocolError):
    """Refusal of a message of an epoch that has not begun by the receiver's clock.

    Attributes:
        begins_seconds: Unix time from which on it is not refused for that.
    """

    def __init__(self, epoch: int, begins_seconds: float) -> None:
        super().__init__(Rule.EPOCH_BEGUN, f"epoch {epoch} has not begun")
        self.begins_seconds = begins_seconds


def epoch_at(manifest: Manifest, now_seconds: float) -> int:
    """Return the epoch of a moment.

    Raises:
        LocalProtocolError: the swarm has not begun.
    """
    if now_seconds < manifest.genesis_seconds:
        raise LocalProtocolError(f"the swarm begins at Unix time {manifest.genesis_seconds}")
    return int((now_seconds - manifest.genesis_seconds) // manifest.epoch_seconds)


def present_epoch(manifest: Manifest, now_seconds: float) -> int:
    """Return the epoch of a moment, the first one before the swarm begins."""
    return epoch_at(manifest, max(now_seconds, manifest.genesis_seconds))


def epoch_start_seconds(manifest: Manifest, epoch: int) -> int:
    """Return the Unix time at which an epoch begins."""
    return manifest.genesis_seconds + epoch * manifest.epoch_seconds


def overlap_seconds(manifest: Manifest) -> float:
    """Return for how long before and after an epoch a node carries its islands."""
    return min(OVERLAP_SECONDS, manifest.epoch_seconds / 4)


def require_current(manifest: Manifest, epoch: int, now_seconds: float) -> None:
    """Raise unless rollouts of the epoch are accepted at this moment (stage 3).

    Raises:
        RemoteProtocolError: ``EPOCH_FUTURE`` or ``EPOCH_PAST``.
    """
    require_begun(manifest, epoch, now_seconds)
    since_start = now_seconds - epoch_start_seconds(manifest, epoch)
    if since_start >= (1 + EPOCH_WINDOW) * manifest.epoch_seconds + CLOCK_SLACK_SECONDS:
        raise RemoteProtocolError(Rule.ROLLOUT_IN_TIME, f"epoch {epoch} is over")


def require_begun(manifest: Manifest, epoch: int, now_seconds: float) -> None:
    """Raise unless the epoch has begun.

    Raises:
        NotBegun: it has not.
    """
    begins_seconds = epoch_start_seconds(manifest, epoch) - CLOCK_SLACK_SECONDS
    if now_seconds < begins_seconds:
        raise NotBegun(epoch, begins_seconds)


def require_over(manifest: Manifest, epoch: int, now_seconds: float) -> None:
    """Raise unless the epoch is over, so that its contributions can be counted.

    Raises:
        RemoteProtocolError: ``EPOCH_FUTURE``.
    """
    if now_seconds < epoch_start_seconds(manifest, epoch + 1):
        raise RemoteProtocolError(Rule.CONTRIBUTION_EPOCH_OVER, f"epoch {epoch} is not over")


def require_remembered(manifest: Manifest, epoch: int, now_seconds: float) -> None:
    """Raise if the epoch ended so long ago that its contributions are forgotten.

    Raises:
        RemoteProtocolError: ``EPOCH_PAST``.
    """
    if now_seconds >= epoch_start_seconds(manifest, epoch + 1 + CONTRIBUTION_EPOCHS):
        raise RemoteProtocolError(Rule.CONTRIBUTION_IN_TIME, f"epoch {epoch} was settled long ago")


def beacon(swarm_id: SwarmId, epoch: int, block_hash: bytes) -> Digest:
    """Return the beacon, which is the randomness of an epoch.

    Args:
        block_hash: hash of the last block that was final before the epoch began;
            empty in a swarm without a chain, which pays nothing.
    """
    return tagged_digest("beacon", swarm_id, epoch.to_bytes(8, "big"), block_hash)


def tagged_digest(name: str, *parts: bytes) -> Digest:
    """Return the SHA-256 of the concatenated parts after a tag ``sapo/1/<name>``, for domain separation."""
    return Digest(sha256(f"sapo/{PROTOCOL_VERSION}/{name}".encode() + b"\x00" + b"".join(parts)).digest())
