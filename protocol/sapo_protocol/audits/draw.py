"""The draw: which accounts are audited in an epoch, by which of their groups, and what these are worth."""

from itertools import count

from sapo_protocol.epochs import epoch_start_seconds, tagged_digest
from sapo_protocol.identifiers import Account, Digest, SwarmId
from sapo_protocol.manifest import Manifest
from sapo_protocol.settlement import grace_seconds
from sapo_protocol.terms.audits import AuditTerms

_PENALTY = 2
"""Groups that the account loses for a failed one, itself included. With fewer, false commitments would
pay."""

_DRAW_GRACES = 2
"""Graces from an epoch's end to the draw's block: one more than to the commitments' deadline, as clocks
differ."""


def draw_seconds(manifest: Manifest, epoch: int) -> float:
    """Return the Unix time after which the first block draws an epoch's groups."""
    return epoch_start_seconds(manifest, epoch + 1) + _DRAW_GRACES * grace_seconds(manifest)


def draw(swarm_id: SwarmId, epoch: int, block_hash: bytes) -> Digest:
    """Return the randomness of an epoch's audit."""
    return tagged_digest("draw", swarm_id, epoch.to_bytes(8, "big"), block_hash)


def is_drawn(drawn: Digest, account: Account, terms: AuditTerms) -> bool:
    """Whether an account is audited in a draw."""
    return _number(drawn, account) % terms.one_in == 0


def drawn_slots(
    drawn: Digest, account: Account, slots: tuple[int, ...], terms: AuditTerms
) -> tuple[int, ...]:
    """Return which of an account's committed slots are drawn, ascending: ``terms.samples`` of them, or
    all."""
    places: set[int] = set()
    wanted = min(terms.samples, len(slots))
    for turn in count():
        if len(places) == wanted:
            break
        places.add(_number(drawn, account, turn.to_bytes(4, "big")) % len(slots))
    return tuple(slots[place] for place in sorted(places))


def sampled_points(
    committed: int, drawn: int, failed: int, *, cap: int, terms: AuditTerms, undecided: int = 0
) -> int:
    """Return the points of a drawn account.

    Args:
        committed: groups that it has committed to.
        drawn: of these, at least one.
        failed: of the drawn ones.
        cap: most points of the account in a full count.
        undecided: of the drawn ones, those that the auditor was too busy for: they earn and cost nothing.
    """
    worth = committed * max(0, drawn - _PENALTY * failed - undecided) // drawn
    return terms.one_in * min(cap, worth)


def _number(drawn: Digest, *parts: bytes) -> int:
    return int.from_bytes(tagged_digest("drawn", drawn, *parts)[:8], "big")
