"""How the reference implementation says no: section 6 of the specification as one table."""

VERDICTS = {
    "flood": "ignore",
    "oversize": "reject",
    "not_canonical": "reject",
    "schema": "reject",
    "out_of_bounds": "reject",
    "wrong_version": "reject",
    "wrong_kind": "reject",
    "wrong_swarm": "reject",
    "epoch_past": "ignore",
    "epoch_future": "ignore",
    "seen": "ignore",
    "certificate_unknown": "ignore",
    "certificate_expired": "ignore",
    "certificate_malformed": "reject",
    "not_an_auditor": "ignore",
    "slot_over_quota": "reject",
    "unknown_family": "reject",
    "bad_signature": "reject",
    "equivocation": "ignore",
}


class Refused(Exception):
    """A message goes no further; the reason is the specification's word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def require(holds: bool, reason: str) -> None:
    """Nothing, if a rule is kept."""
    if not holds:
        raise Refused(reason)
