"""Assembly of the gossip part of a node."""

from __future__ import annotations

from sapo_client.node.gossip.handlers import GossipHandlers
from sapo_client.node.gossip.own_certificate import OwnCertificate
from sapo_client.node.runtime.beacons import Beacons
from sapo_client.node.runtime.context import NodeContext
from sapo_client.node.runtime.paid_accounts import FinalRootsBefore
from sapo_client.node.runtime.statements import describe_statement, show_signed
from sapo_protocol.eip712 import NodeBinding
from sapo_verification.engine import Engine


def open_gossip(
    context: NodeContext, engine: Engine, beacons: Beacons, final_roots_before: FinalRootsBefore
) -> GossipHandlers:
    """Return the handlers of a node's topics and protocols, not running yet."""
    identity, manifest = context.identity, context.manifest

    def show(binding: NodeBinding) -> None:
        show_signed(describe_statement(binding, manifest.binding_domain))

    certificate = OwnCertificate(
        node_seed=identity.node_seed,
        account_key=identity.account_key,
        manifest=manifest,
        clock=context.clock,
        show=_show_nothing if context.config.swarm.alone else show,
    )
    return GossipHandlers(
        engine=engine,
        transport=context.transport,
        own_certificate=certificate,
        telemetry=context.telemetry,
        clock=context.clock,
        beacons=beacons,
        final_roots_before=final_roots_before,
        records_file=context.data.address_records,
    )


def _show_nothing(_: NodeBinding) -> None:
    """Do nothing: a node that trains alone sends its certificate to no other node."""
