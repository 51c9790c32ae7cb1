"""How the reference implementation refuses: section 6 of the specification, its rules up to the signature."""

IGNORED = {
    "flood": "R0.1",
    "reserved": "R1.0.16 R1.1.5 R1.2.9 R1.3.9 R1.4.12 R1.5.5 R1.6.5 R1.7.5 R2.6",
    "epoch_future": "R3.1 R3.3 R3.6",
    "epoch_past": "R3.2 R3.4 R3.5 R3.7",
    "seen": "R4.1 R4.2 R4.3 R4.4 R4.6",
    "contribution_quota": "R4.5 R4.7",
    "certificate_unknown": "R5.1",
    "certificate_expired": "R5.2 R5.5",
    "not_an_auditor": "R5.3",
    "no_bond": "R5.6",
    "not_its_turn": "R6.6",
    "equivocation": "R6.4",
    "wrong_island": "R6.7 R6.8 R6.9",
    "terms_unknown": "R6.11",
}
REJECTED = {
    "oversize": "R0.2",
    "not_canonical": "R1.0.2 R1.0.3 R1.0.4 R1.0.5 R1.0.6 R1.0.7 R1.0.8 R1.0.9 R1.0.10 R1.0.11",
    "schema": "R1.0.12 R1.0.13 R1.0.15 R1.1.1 R1.1.2 R1.2.1 R1.2.2 R1.2.8 R1.3.1 R1.3.2 R1.4.1 R1.4.2 "
    "R1.5.1 R1.5.2 R1.6.1 R1.6.2 R1.7.1 R1.7.2",
    "out_of_bounds": "R1.0.1 R1.0.14 R1.1.3 R1.1.4 R1.2.3 R1.2.4 R1.2.5 R1.2.6 R1.2.7 R1.3.3 R1.3.4 R1.3.5 "
    "R1.3.6 R1.3.7 R1.4.9 R1.4.10 R6.10 "
    "R1.3.8 R1.4.3 R1.4.4 R1.4.5 R1.4.6 R1.4.7 R1.4.8 R1.4.11 R1.5.3 R1.5.4 R1.6.3 R1.6.4 R6.2 R6.5 "
    "R1.7.3 R1.7.4",
    "wrong_version": "R2.1",
    "wrong_kind": "R2.2 R2.4 R2.5",
    "wrong_swarm": "R2.3",
    "certificate_malformed": "R5.4",
    "slot_over_quota": "R6.1",
    "unknown_family": "R6.3",
    "bad_signature": "R7.1 R7.2 R7.3",
}
OUTCOMES = {
    rule: (verdict, reason)
    for verdict, reasons in (("ignore", IGNORED), ("reject", REJECTED))
    for reason, rules in reasons.items()
    for rule in rules.split()
}
"""Verdict and reason of each rule."""

Outcome = tuple[str, str | None, str | None]
ACCEPTED: Outcome = ("accept", None, None)


class Refused(Exception):
    """A message goes no further; the rule is the specification's number."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule

    @property
    def outcome(self) -> Outcome:
        """Return verdict, reason and rule."""
        return (*OUTCOMES[self.rule], self.rule)


def require(holds: bool, rule: str) -> None:
    """Refuse by a rule that is not kept."""
    if not holds:
        raise Refused(rule)
