"""A swarm on a chain whose gate asks for an attestation by the real Ethereum Attestation Service."""

from functools import cached_property

from support.auditor_harness import World
from support.eas import Eas, deploy_eas

from sapo_protocol.manifest import Manifest


class AttestedWorld(World):
    """A world whose manifest has the gate, and in which nobody is attested yet."""

    @cached_property
    def eas(self) -> Eas:
        """The service; the clock then goes on by a second, for the gate counts younger attestations."""
        deployed = deploy_eas(self.chain)
        self.chain.now_seconds += 1
        return deployed

    @cached_property
    def manifest(self) -> Manifest:
        """The swarm's manifest."""
        return self.contracts.manifest(version=2, gate=self.eas.gate())
