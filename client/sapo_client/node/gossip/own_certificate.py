"""This node's own certificate: the binding of its key and its account, signed in both directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sapo_client.node.runtime.clock import Clock
from sapo_protocol import ed25519
from sapo_protocol.certificate import issue_certificate
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.identifiers import NodeId
from sapo_protocol.islands.address_record import issue_record
from sapo_protocol.manifest import Manifest

CERTIFICATE_SECONDS: Final = 30 * 24 * 3600
"""Validity of a certificate, which limits the use of a stolen key to a month."""

_BACKDATED_SECONDS: Final = 60
"""The validity begins so long before now, since peers' clocks may be behind."""


class OwnCertificate:
    """The signed certificate of this node, renewed after half of its validity or if it is not valid now.

    Args:
        show: called with each binding that the account signs, to show it to the owner.
    """

    def __init__(
        self,
        *,
        node_seed: bytes,
        account_key: bytes,
        manifest: Manifest,
        clock: Clock,
        show: Callable[[NodeBinding], None] = lambda _: None,
    ) -> None:
        self._node_seed = node_seed
        self._account_key = account_key
        self._manifest = manifest
        self._clock = clock
        self._show = show
        self._message = b""
        self._not_before_seconds = 0
        self._renew_at_seconds = 0

    @property
    def is_due(self) -> bool:
        """Whether the certificate is not valid now, or half of its validity has passed."""
        return not self._not_before_seconds <= int(self._clock()) < self._renew_at_seconds

    def message(self) -> bytes:
        """Return the certificate that is valid now, as a message."""
        if self.is_due:
            self._renew(int(self._clock()))
        return self._message

    def record(self, addresses: Sequence[str]) -> bytes:
        """Return an address record of this node, made now.

        Args:
            addresses: one to four full multiaddrs.
        """
        made_seconds = int(self._clock())
        return issue_record(self._node_seed, self.message(), self._manifest.swarm_id, made_seconds, addresses)

    def seal(self, kind: Kind, payload: bytes) -> bytes:
        """Return a message of this node with a payload, signed with the node's key."""
        return seal(kind, self._manifest.swarm_id, payload, self._node_seed).to_bytes()

    def _renew(self, now_seconds: int) -> None:
        binding = own_binding(ed25519.public_key(self._node_seed), self._manifest, now_seconds)
        self._show(binding)
        envelope = issue_certificate(
            self._node_seed, self._account_key, binding, self._manifest.binding_domain
        )
        self._message = envelope.to_bytes()
        self._not_before_seconds = binding.not_before
        self._renew_at_seconds = now_seconds + CERTIFICATE_SECONDS // 2


def own_binding(node: NodeId, manifest: Manifest, now_seconds: float) -> NodeBinding:
    """Return the binding by which the account authorises this node's key from now on."""
    not_before = max(0, int(now_seconds) - _BACKDATED_SECONDS)
    return NodeBinding(
        node_key=node,
        swarm_id=manifest.swarm_id,
        not_before=not_before,
        not_after=not_before + CERTIFICATE_SECONDS,
    )
