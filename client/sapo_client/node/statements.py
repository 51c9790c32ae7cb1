"""What an account is about to sign, in words for the person who owns it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from sapo_protocol.eip712 import Domain, EpochRoot, NodeBinding, readable
from sapo_protocol.identifiers import Account, NodeId
from sapo_protocol.manifest import Manifest

_MOMENTS: Final = frozenset({"not_before", "not_after"})

Words = Mapping[str, Any]
"""Names and values, in the order in which they are signed."""


def statement_words(statement: NodeBinding | EpochRoot, domain: Domain) -> Words:
    """A statement of EIP-712 with all that is signed of it, and its digest for comparison with a wallet."""
    fields = readable(statement, domain)
    moments = {name: _moment(value) for name, value in fields.items() if name in _MOMENTS}
    digest = "0x" + statement.digest(domain).hex()
    words = {**fields, **moments}
    named = {name.replace("_", " "): value for name, value in words.items()}
    return {"statement": type(statement).__name__, **named, "digest": digest}


def revocation_words(manifest: Manifest, account: Account, node: NodeId) -> Words:
    """The transaction that ends an account's claim on a node key."""
    return {
        "transaction": "NodeRegistry.revoke",
        "chain id": manifest.chain_id,
        "contract": str(manifest.registry),
        "account": str(account),
        "node key": "0x" + node.hex(),
        "what follows": "the account claims this key no more; its certificate counts until it ends",
    }


def _moment(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()} ({seconds})"
