"""One case, three readers: the package, the Python reference, and the reader in JavaScript."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from reader.asking import Reader
from reference.node import ReferenceNode
from reference.refusal import ACCEPTED
from reference.vectors import load
from vectors.pipeline import Outcome, Pipeline
from vectors.world import Announced

from sapo_protocol import ed25519
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_from_json
from sapo_protocol.terms.auditors import Replacement


@cache
def _manifest_files() -> dict[str, Any]:
    return load("manifests")


@cache
def _manifest(name: str) -> Manifest:
    return manifest_from_json(json.dumps(_manifest_files()[name]))


@dataclass(frozen=True)
class Difference:
    """A message about which the readers differ, with everything that is needed to see it again."""

    message: int
    package: Outcome
    reference: Outcome
    javascript: Outcome


def _by_package(case: dict[str, Any]) -> Callable[[str, bytes, int], Outcome]:
    state, terms = case["state"], case["state"].get("terms")
    documents = tuple((epoch, text.encode()) for epoch, text in terms["announced"]) if terms else ()
    node = Pipeline(
        _manifest(case["manifest"]),
        map(Account.from_hex, state["auditors"]),
        replacements=tuple(
            Replacement(epoch, Account.from_hex(leaving), Account.from_hex(entering))
            for epoch, leaving, entering in state.get("replacements", ())
        ),
        announced=Announced(documents, terms["known_until"]) if terms else None,
    )
    for certificate in case["certificates"]:
        assert node.validate("certificates", bytes.fromhex(certificate), case["now_ms"]) == ACCEPTED
    for epoch, bonded in state.get("bonds", ()):
        node.learn_bonds(epoch, {Account.from_hex(who): int(amount) for who, amount in bonded.items()})
    for epoch, paid in state.get("paid", ()):
        node.learn_paid(epoch, paid)
    return node.validate


@cache
def _fast_verify(key: bytes, signed: bytes, signature: bytes) -> bool:
    """The package's Ed25519, which other tests compare with the reference's: that one takes milliseconds."""
    return ed25519.verify(NodeId(key), signed, signature)


def _by_reference(case: dict[str, Any]) -> Callable[[str, bytes, int], Outcome]:
    state = case["state"]
    auditors = map(bytes.fromhex, state["auditors"])
    node = ReferenceNode(_manifest_files()[case["manifest"]], auditors, _fast_verify)
    node.learn_changes(state.get("terms"), state.get("replacements", []))
    for certificate in case["certificates"]:
        assert node.validate("certificates", bytes.fromhex(certificate), case["now_ms"]) == ACCEPTED
    for epoch, bonded in state.get("bonds", ()):
        node.learn_bonds(epoch, {bytes.fromhex(who): int(amount) for who, amount in bonded.items()})
    for epoch, paid in state.get("paid", ()):
        node.learn_paid(epoch, paid)
    return node.validate


def differences(case: dict[str, Any], reader: Reader) -> tuple[list[Outcome], list[Difference]]:
    """Return what the package says to each message of a case, and where another reader differs."""
    said: list[list[Outcome]] = []
    state = case["state"]
    for node in (_by_package(case), _by_reference(case)):
        for seen in state["seen"]:
            node("rollouts", bytes.fromhex(seen), case["now_ms"])
        said.append(
            [
                node(one["topic"], bytes.fromhex(one["bytes"]), case["now_ms"] + one["offset_ms"])
                for one in case["messages"]
            ]
        )
    answered = reader.ask("admission", **case)
    said.append([(verdict, reason, rule) for verdict, reason, rule in answered])
    rows = list(zip(*said, strict=True))
    return said[0], [Difference(at, *row) for at, row in enumerate(rows) if len(set(row)) > 1]
