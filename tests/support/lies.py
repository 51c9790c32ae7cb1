"""Messages of an attacker that no honest node signs, or not at this time, or not in this swarm."""

from collections.abc import Iterator

from support.swarm import Identity, make_chain_manifest

from sapo_protocol.certificate import issue_certificate
from sapo_protocol.eip712 import NodeBinding
from sapo_protocol.envelope import Kind, parse_envelope, seal
from sapo_protocol.epochs import epoch_at
from sapo_protocol.equivocation import prove_equivocation
from sapo_protocol.manifest import Manifest
from sapo_protocol.rollout import parse_rollout
from sapo_protocol.topics import certificates_topic, equivocations_topic, rollouts_topic

STRANGER = Identity(77)
"""An identity whose certificate no node sends."""

Lie = tuple[str, bytes]
"""Topic and message."""


class Liar:
    """An identity's attacks on one victim at one time.

    Args:
        genuine: a message of an honest node, to be modified.
        number: distinguishes this attack from others of the same identity.
    """

    def __init__(
        self,
        manifest: Manifest,
        liar: Identity,
        victim: Identity,
        genuine: bytes,
        now_seconds: float,
        number: int,
    ) -> None:
        self._manifest = manifest
        self._liar = liar
        self._victim = victim
        self._genuine = genuine
        self._now = int(now_seconds)
        self._epoch = epoch_at(manifest, now_seconds)
        self._number = number

    def lies(self) -> Iterator[Lie]:
        """Yield the messages with their topics."""
        swarm_id = self._manifest.swarm_id
        for message in self._rollouts():
            yield rollouts_topic(swarm_id), message
        for message in self._certificates():
            yield certificates_topic(swarm_id), message
        for message in self._proofs():
            yield equivocations_topic(swarm_id), message

    def _rollouts(self) -> Iterator[bytes]:
        manifest, liar, epoch = self._manifest, self._liar, self._epoch
        other_swarm = make_chain_manifest(epoch_seconds=manifest.epoch_seconds + 1)
        yield b"\xff%d" % self._number
        yield self._genuine
        yield self._genuine[:-1] + bytes([self._genuine[-1] ^ 1])
        yield self._forged(b"%d" % self._number)
        yield liar.message(other_swarm, epoch=epoch)
        yield liar.message(manifest, epoch=epoch, slot=manifest.limits.slots_per_epoch)
        yield liar.message(manifest, epoch=epoch + 5)
        yield STRANGER.message(manifest, epoch=epoch)

    def _certificates(self) -> Iterator[bytes]:
        """Yield a certificate for the victim's account, and one that begins in the future."""
        manifest, liar, now = self._manifest, self._liar, self._now
        binding = NodeBinding(liar.node, manifest.swarm_id, now - 60, now + 600)
        own = issue_certificate(liar.seed, liar.secret, binding, manifest.binding_domain).payload
        claim = own.replace(bytes(liar.account), bytes(self._victim.account))
        yield seal(Kind.CERTIFICATE, manifest.swarm_id, claim, liar.seed).to_bytes()
        yield liar.certificate(manifest, now + 3600, now + 7200).to_bytes()

    def _proofs(self) -> Iterator[bytes]:
        """Yield false proofs against the victim: of two contents that it never signed, and of one such."""
        swarm_id = self._manifest.swarm_id
        one, other = (self._forged(b"%d %d" % (self._number, half)) for half in range(2))
        yield prove_equivocation(one, other, swarm_id).to_envelope().to_bytes()
        author = parse_rollout(parse_envelope(self._genuine, swarm_id).payload)
        place = {"node": author.node, "account": author.account, "epoch": author.epoch, "slot": author.slot}
        own = self._liar.seal(self._manifest, self._liar.rollout(**place)).to_bytes()
        yield prove_equivocation(self._genuine, own, swarm_id).to_envelope().to_bytes()

    def _forged(self, text: bytes) -> bytes:
        """Return the victim's rollout under the liar's signature."""
        rollout = self._victim.rollout(epoch=self._epoch, slot=self._number % 4, completions=(text, b"7"))
        return self._liar.seal(self._manifest, rollout).to_bytes()
