"""What a node's own audits say about its peers, as the application's part of their transport score.

The bounds and what a score leads to are the transport's (`swarm/limits.py`): a rating alone cuts off nobody,
so that a node whose checks are broken does not leave the swarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sapo_client.swarm.peer_id import key_from_peer_id
from sapo_protocol.identifiers import Account, NodeId
from sapo_verification.admission.certificates import CertificateBook
from sapo_verification.reputation.evidence import PRIOR_BAD, PRIOR_GOOD, Reputation

BANNED: Final = -15.0
"""One rejected message more than this, and the connection ends."""

TRUSTED: Final = 5.0
"""Trust keeps a peer in the mesh; it excuses no fault."""


class Ratings:
    """Ratings of peers by the accounts that their certificates name."""

    def __init__(self, certificates: CertificateBook, reputation: Reputation) -> None:
        self._certificates = certificates
        self._reputation = reputation

    def of(self, peer_ids: Iterable[str], epoch: int) -> Mapping[str, float]:
        """Return the rating of every peer with a known account; who speaks for several is as good as the worst."""
        rated: dict[str, float] = {}
        for peer_id in peer_ids:
            if accounts := self._accounts(peer_id):
                rated[peer_id] = min(self._rating(account, epoch) for account in accounts)
        return rated

    def _accounts(self, peer_id: str) -> tuple[Account, ...]:
        key = key_from_peer_id(peer_id)
        return self._certificates.accounts_of(NodeId(key)) if key else ()

    def _rating(self, account: Account, epoch: int) -> float:
        """0 for a newcomer and for a policy that is weak: only what was done wrong counts against it."""
        if self._reputation.is_banned(account, epoch):
            return BANNED
        evidence = self._reputation.evidence(account, epoch)
        wrong = evidence.bad / (evidence.good + evidence.bad + PRIOR_GOOD + PRIOR_BAD)
        return TRUSTED * evidence.weight + BANNED * wrong
