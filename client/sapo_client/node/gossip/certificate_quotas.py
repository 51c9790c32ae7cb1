"""Limit of the certificates that are taken from gossip, by account.

An account can certify any number of node keys, each with a valid certificate that every node would store and
forward. Only those that were accepted count, which the account has signed: nobody else can use up its quota.
Certificates that this node requests by the key of their node have no limit.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from sapo_client.swarm.limits import Rate
from sapo_client.swarm.rate_limit import KeyedBuckets
from sapo_protocol.certificate import parse_certificate
from sapo_protocol.envelope import Kind, open_payload, parse_envelope
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, SwarmId
from sapo_verification.admission.certificates import MAX_CERTIFICATES

OF_ACCOUNT: Final = Rate(per_second=1 / 600, burst=8)
"""Four nodes of an account that restart once an hour have a new certificate every quarter of an hour."""


class CertificateQuotas:
    """The certificates that each account may still publish now."""

    def __init__(self, swarm_id: SwarmId) -> None:
        self._swarm_id = swarm_id
        self._left = KeyedBuckets(OF_ACCOUNT, MAX_CERTIFICATES)

    def allows(self, message: bytes, now_seconds: float) -> bool:
        """Whether a certificate may be validated: one more of its account would not be too many."""
        with suppress(RemoteProtocolError):  # for validation to refuse
            envelope = parse_envelope(message, self._swarm_id)
            account = parse_certificate(open_payload(envelope, Kind.CERTIFICATE)).account
            return self._left.available(account.hex(), now_seconds) >= 1
        return True

    def count(self, account: Account, now_seconds: float) -> None:
        """Count a certificate that was accepted."""
        self._left.take(account.hex(), now_seconds)
