"""Ratings of peers from a node's own audits: the application-specific part of their gossip score.

The transport sets the bounds and the effects of a score (`swarm/limits.py`): a rating alone disconnects no
peer, so that a node whose checks are broken stays in the swarm.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import trio

from sapo_client.swarm.peer_id import key_from_peer_id, peer_id_from_key
from sapo_protocol.identifiers import Account, NodeId
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.engine import Engine
from sapo_verification.reputation.evidence import PRIOR_BAD, PRIOR_GOOD, Reputation

BANNED: Final = -15.0
"""Rating of a peer with a banned account; with one rejected message in addition it is disconnected."""

_DRAW_EPOCHS: Final = 4
"""Epochs for which a random draw of vouched accounts is valid, so that connections last for several
epochs."""

ACCOUNTS_AT_ONCE: Final = 64
"""Accounts of a pass over all of them that are read before other tasks run: two milliseconds, thirty after a
start."""

TRUSTED: Final = 5.0
"""Largest rating: it keeps a peer in the mesh, but does not offset a fault."""


@dataclass(frozen=True, slots=True)
class Vouched:
    """Peers that are vouched for: by the reputation of their accounts here, or only by their bonds."""

    earned: frozenset[str]
    bonded: frozenset[str]


def auditor_of(engine: Engine, peer_id: str) -> Account | None:
    """Return the account of an auditor at work that a peer's node belongs to; None if it is no auditor's."""
    key = key_from_peer_id(peer_id)
    accounts = engine.certificates.accounts_of(NodeId(key)) if key is not None else ()
    return next((account for account in accounts if account in engine.islands.everywhere), None)


class Ratings:
    """Ratings of peers by the accounts that their certificates name."""

    def __init__(self, certificates: CertificateStore, reputation: Reputation) -> None:
        self._certificates = certificates
        self._reputation = reputation
        self._key = secrets.token_bytes(32)

    def of(self, peer_ids: Iterable[str], epoch: int) -> Mapping[str, float]:
        """Return the rating of every peer with a known account; with several accounts, the lowest."""
        rated: dict[str, float] = {}
        for peer_id in peer_ids:
            if accounts := self._accounts(peer_id):
                rated[peer_id] = min(self._rating(account, epoch) for account in accounts)
        return rated

    async def vouched(self, epoch: int, others: Iterable[tuple[NodeId, Account]] = ()) -> Vouched:
        """Return the peers, connected or not, of which an account is vouched for and none is banned.

        Under a bond gate an account with a part of a whole bond is drawn with that probability, so that
        accounts which share a bond have the places of one account. Accounts may be thousands, so other tasks
        run in between.

        Args:
            others: further nodes with their accounts, whose certificates are not stored.
        """
        refused: set[NodeId] = set()
        earned: dict[NodeId, str] = {}
        bonded: dict[NodeId, str] = {}
        for place, (node, account) in enumerate({*self._certificates.pairs(), *others}):
            if place % ACCOUNTS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if self._reputation.is_banned(account, epoch):
                refused.add(node)
            elif self._has_earned(account, epoch):
                if self._is_drawn(account, epoch):
                    earned[node] = peer_id_from_key(node)
            elif self._certificates.standing.is_bonded(account, epoch) and self._is_drawn(account, epoch):
                bonded[node] = peer_id_from_key(node)
        trusted = frozenset(peer_id for node, peer_id in earned.items() if node not in refused)
        paid = frozenset(peer_id for node, peer_id in bonded.items() if node not in refused)
        return Vouched(trusted, paid - trusted)

    def vouches_for(self, account: Account, epoch: int) -> bool:
        """Whether an account is vouched for: it has a bond, or has earned a weight here, both of which have a
        cost.

        A weight above 0 takes twenty groups that passed. An account with a part of a bond is drawn with that
        probability, and a banned one is not vouched for.
        """
        if self._reputation.is_banned(account, epoch) or not self._is_drawn(account, epoch):
            return False
        return self._certificates.standing.is_bonded(account, epoch) or self._has_earned(account, epoch)

    def vouches_for_peer(self, peer_id: str, epoch: int) -> bool:
        """Whether a peer has accounts, and each of them is vouched for."""
        accounts = self._accounts(peer_id)
        return bool(accounts) and all(self.vouches_for(account, epoch) for account in accounts)

    def _has_earned(self, account: Account, epoch: int) -> bool:
        """Whether an account has a weight; newcomers, who are most of them, need no query."""
        reputation = self._reputation
        return not reputation.is_newcomer(account) and reputation.evidence(account, epoch).weight > 0.0

    def _is_drawn(self, account: Account, epoch: int) -> bool:
        units = self._certificates.standing.units_of(account, epoch)
        message = (epoch // _DRAW_EPOCHS).to_bytes(8, "big") + account
        drawn = int.from_bytes(blake2b(message, key=self._key, digest_size=7).digest(), "big")
        return drawn < units * 256**7

    def _accounts(self, peer_id: str) -> tuple[Account, ...]:
        key = key_from_peer_id(peer_id)
        return self._certificates.accounts_of(NodeId(key)) if key else ()

    def _rating(self, account: Account, epoch: int) -> float:
        """Return an account's rating: 0 for a newcomer or a weak policy, negative only after faults."""
        if self._reputation.is_banned(account, epoch):
            return BANNED
        evidence = self._reputation.evidence(account, epoch)
        wrong = evidence.bad / (evidence.good + evidence.bad + PRIOR_GOOD + PRIOR_BAD)
        return TRUSTED * evidence.weight + BANNED * wrong
