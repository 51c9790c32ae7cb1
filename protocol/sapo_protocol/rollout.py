"""The rollout: one task's whole group of completions, and nothing that a receiver can derive.

There is no prompt, answer, reward, difficulty, timestamp, scorer or metadata:
what is not sent cannot be forged.
"""

from dataclasses import dataclass

from sapo_protocol.constants import (
    MAX_COMPLETION_BYTES,
    MAX_COMPLETIONS,
    MAX_FAMILIES,
    MAX_GROUP_BYTES,
)
from sapo_protocol.decoding import Bound, Fields, Schema, Value
from sapo_protocol.encoding import encode
from sapo_protocol.errors import LocalProtocolError, RemoteProtocolError
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.rules import Rule

_SCHEMA = Schema(Rule.ROLLOUT_KEYS, Rule.ROLLOUT_TYPES, Rule.ROLLOUT_RESERVED, required=6, optional=1)
_SLOT = Bound(Rule.ROLLOUT_SLOT, maximum=2**32 - 1)
_FAMILY = Bound(Rule.ROLLOUT_FAMILY, maximum=MAX_FAMILIES - 1)
_COMPLETIONS = Bound(Rule.ROLLOUT_COMPLETIONS, minimum=1, maximum=MAX_COMPLETIONS)
_COMPLETION = Bound(Rule.COMPLETION_SIZE, maximum=MAX_COMPLETION_BYTES)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A group of completions for the task of one slot.

    Attributes:
        node: the signer.
        account: the account that the slot belongs to.
        epoch: the epoch that the task was assigned in.
        slot: the number of the task within the account's epoch.
        family: index of the task family in the manifest's suite.
        completions: decoded text of the policy, UTF-8 as sampled, 1 to 16 of them.
        policy_tag: an advisory digest of model and sampling, never trusted.
    """

    node: NodeId
    account: Account
    epoch: int
    slot: int
    family: int
    completions: tuple[bytes, ...]
    policy_tag: Digest | None = None

    def to_payload(self) -> bytes:
        """Return the payload to seal.

        Raises:
            LocalProtocolError: the rollout breaks a bound that receivers enforce.
        """
        fields: dict[int, Value] = {
            0: bytes(self.node),
            1: bytes(self.account),
            2: self.epoch,
            3: self.slot,
            4: self.family,
            5: self.completions,
        }
        if self.policy_tag is not None:
            fields[6] = bytes(self.policy_tag)
        payload = encode(fields)
        try:
            parse_rollout(payload)
        except RemoteProtocolError as error:
            raise LocalProtocolError(f"this rollout must not be sent: {error.detail}") from error
        return payload


def parse_rollout(payload: bytes) -> Rollout:
    """Return the rollout in a payload (stage 1: closed schema and bounds).

    Raises:
        RemoteProtocolError: ``NOT_CANONICAL``, ``SCHEMA`` or ``OUT_OF_BOUNDS``.
    """
    fields = Fields(payload, _SCHEMA)
    rollout = Rollout(
        node=fields.fixed(0, NodeId),
        account=fields.fixed(1, Account),
        epoch=fields.uint(2),
        slot=fields.uint(3, _SLOT),
        family=fields.uint(4, _FAMILY),
        completions=_completions(fields),
        policy_tag=fields.fixed(6, Digest) if fields.has(6) else None,
    )
    fields.require_end()
    return rollout


def _completions(fields: Fields) -> tuple[bytes, ...]:
    completions = fields.strings(5, _COMPLETIONS, _COMPLETION)
    text = b"".join(completions)
    if len(text) > MAX_GROUP_BYTES:
        fields.refuse(Rule.GROUP_SIZE, f"a group of {len(text)} bytes")
    if not text.isascii() and not all(map(_is_utf8, completions)):
        fields.refuse(Rule.COMPLETION_UTF8, "a completion is not UTF-8")
    return completions


def _is_utf8(completion: bytes) -> bool:
    try:
        completion.decode()
    except UnicodeDecodeError:
        return False
    return True
