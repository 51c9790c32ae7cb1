"""Interface of a tree for the tests of findings; one adapter per tree, selected by import.

Tests of findings run on eae0a53 as well as today: they use ``tests/support`` where both trees have the same
names there, and an adapter for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol, cast

from support.ledger import AUDITORS as SIGNERS
from support.ledger import NOW_SECONDS, address
from support.swarm import Identity

from sapo_protocol import merkle
from sapo_protocol.contributions import Tally
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest

Points = Mapping[Account, int]

IS_EARLY: Final = find_spec("sapo_client.node.archive") is not None


COMPLETIONS: Final = 8
SLOTS: Final = 64


class Bonded(Identity):
    """An auditor of ``support.ledger``: its account holds coins and a bond."""

    @cached_property
    def secret(self) -> bytes:
        return self.number.to_bytes(32, "big")


AUDITORS: Final = tuple(sorted((Bonded(number) for number in range(11, 15)), key=lambda one: one.account))
"""Four, ascending by account; the one at place ``(epoch + turn) % 4`` proposes in a turn."""

assert [one.account for one in AUDITORS] == [address(signer) for signer in SIGNERS]


def crowd(count: int) -> list[Account]:
    """Return so many accounts, as far from each other as accounts are, in ascending order."""
    return sorted(Account(sha256(number.to_bytes(4, "big")).digest()[:20]) for number in range(count))


def certificate_of(identity: Identity, manifest: Manifest) -> bytes:
    """Return a certificate for half a year around the tests' time."""
    half_seconds = 90 * 86_400
    return identity.certificate(manifest, NOW_SECONDS - half_seconds, NOW_SECONDS + half_seconds).to_bytes()


def groups(epoch: int, chances: Sequence[float]) -> list[tuple[float, ...]]:
    """Return the rewards of one group per chance of a right answer, the same in every tree."""
    rng = Random(epoch)
    return [tuple(float(rng.random() < chance) for _ in range(COMPLETIONS)) for chance in chances]


class Seat(Protocol):
    """One auditor with its files; messages of others arrive when the test delivers them."""

    identity: Bonded

    def hear(self, messages: Iterable[bytes]) -> None:
        """Admit and store messages; those that are refused are dropped."""

    def said(self) -> tuple[bytes, ...]:
        """Return all messages that it holds, its own included."""

    def look(self, epoch: int) -> None:
        """Do what an auditor does now about an epoch: propose, approve, post."""

    def accuse(self, epoch: int) -> None:
        """Prove to the contract that auditors signed two roots, where its messages tell so."""


class Tree(Protocol):
    """What one tree offers."""

    def seat(self, contracts: Any, identity: Bonded, folder: Path) -> Seat:
        """Return an auditor of a ledger of ``support.ledger.found``."""

    def accuse(self, contracts: Any, before: Points, points: Points, after: Points) -> list[str]:
        """Try every proof against the live posting that its trees allow; return those that convict."""

    def doubt(self, contracts: Any, account: Account) -> None:
        """Take all actions of a node that has a live posting without its leaves, and wait for the effect."""

    def pay(self, chances: Sequence[float]) -> list[int]:
        """Return the points of one account per epoch, which answers tasks right with such chances.

        Args:
            chances: per epoch, of a right answer at the easiest level.
        """

    def vast_tally(self, identity: Bonded, manifest: Manifest, epoch: int) -> bytes:
        """Return a tally of more accounts than a message lists, without what it needs to be read."""

    def unearned_proof(self, contracts: Any, count: int) -> bytes:
        """Return the call that proves, among so many accounts, that one has a point too many."""


def tally(identity: Bonded, manifest: Manifest, epoch: int, points: Points) -> bytes:
    """Return an auditor's tally as a message."""
    message = Tally(
        node=identity.node,
        account=identity.account,
        epoch=epoch,
        points=tuple(sorted(points.items())),
        evidence_root=merkle.EMPTY_ROOT,
    )
    return seal(Kind.TALLY, manifest.swarm_id, message.to_payload(), identity.seed).to_bytes()


TREE: Final = cast(Tree, import_module("findings.early" if IS_EARLY else "findings.today"))
