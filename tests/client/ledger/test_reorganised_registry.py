"""The registry's claims after reorganisations deeper than the confirmations."""

from collections.abc import Iterator

import pytest
from support.ledger import ALICE, AUDITORS, BOB, NOW_SECONDS, Contracts, address, node_key
from support.lying_endpoint import Liar
from support.rewound import RewoundSite, forking_ledger

from sapo_client.ledger.contract import Registry
from sapo_client.ledger.errors import NotYet
from sapo_client.ledger.scan import RegistryView
from sapo_protocol.identifiers import Account, NodeId

LATER = NOW_SECONDS + 10**9
CAROL = AUDITORS[0]
A, B, C = (address(signer) for signer in (ALICE, BOB, CAROL))


class RegistrySite(RewoundSite[Liar]):
    """A registry on a chain that can be reorganised, and the addresses at which it is read."""

    def view(self, *, confirmations: int = 1, endpoints: int = 1) -> tuple[RegistryView, list[Liar]]:
        rpc, liars = self.rpc(endpoints)
        registry = Registry(rpc, self.contracts.deployment.registry)
        return RegistryView(rpc, registry, confirmations=confirmations), liars

    def fork(self, blocks: int) -> None:
        """Take blocks back; those that follow differ from them."""
        self.engine.rewind(self.block - blocks)
        self.contracts.chain.now_seconds += 5


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Contracts, int]]:
    with forking_ledger(tmp_path_factory.mktemp("registry")) as contracts:
        yield contracts, contracts.chain.engine.head.block_number


@pytest.fixture
def registry_site(registered: tuple[Contracts, int]) -> RegistrySite:
    """The chain as after the deployment."""
    return RegistrySite(*registered, Liar)


def claims(*accounts: Account) -> frozenset[tuple[Account, NodeId]]:
    return frozenset((account, node_key(1)) for account in accounts)


@pytest.mark.parametrize("endpoints", [1, 3])
def test_claims_of_blocks_that_replace_read_ones_are_read(
    registry_site: RegistrySite, endpoints: int
) -> None:
    """A node that had read the replaced block ignored an account's rollouts until it was restarted."""
    contracts, (view, _) = registry_site.contracts, registry_site.view(endpoints=endpoints)
    contracts.register(ALICE, node_key(1), LATER)
    contracts.register(BOB, node_key(1), LATER)
    assert view.live(NOW_SECONDS) == claims(A, B)
    registry_site.fork(1)
    contracts.register(CAROL, node_key(1), LATER)
    assert view.live(NOW_SECONDS) == claims(A, C), "the block is as high as the one that it replaces"
    contracts.register(BOB, node_key(1), LATER)
    assert view.live(NOW_SECONDS) == claims(A, B, C)


def test_a_claim_that_a_longer_branch_lacks_ends(registry_site: RegistrySite) -> None:
    contracts, (view, _) = registry_site.contracts, registry_site.view(confirmations=2)
    contracts.register(ALICE, node_key(1), LATER)
    contracts.register(BOB, node_key(1), LATER)
    registry_site.network.fill(1)
    assert view.live(NOW_SECONDS) == claims(A, B)
    registry_site.fork(2)
    contracts.revoke(ALICE, node_key(1))
    registry_site.network.fill(2)
    assert view.live(NOW_SECONDS) == claims()


def test_while_blocks_are_missing_what_was_read_counts(registry_site: RegistrySite) -> None:
    contracts, (view, _) = registry_site.contracts, registry_site.view()
    contracts.register(ALICE, node_key(1), LATER)
    registry_site.network.fill(3)
    assert view.live(NOW_SECONDS) == claims(A)
    registry_site.fork(4)
    assert view.live(NOW_SECONDS) == claims(A), "the other branch is shorter yet"
    registry_site.network.fill(4)
    assert view.live(NOW_SECONDS) == claims()


def test_a_reorganisation_between_two_parts_of_the_log_is_noticed(registry_site: RegistrySite) -> None:
    contracts, (view, [endpoint]) = registry_site.contracts, registry_site.view()
    contracts.register(ALICE, node_key(1), LATER)
    contracts.register(BOB, node_key(1), LATER)
    first = registry_site.block - 1
    endpoint.tamper = lambda logs: (
        logs if endpoint.sought[-1][1] <= first else [log | {"topics": []} for log in logs]
    )
    with pytest.raises(NotYet):
        view.live(NOW_SECONDS)
    registry_site.fork(2)
    contracts.register(CAROL, node_key(1), LATER)
    registry_site.network.fill(1)
    endpoint.tamper = lambda logs: logs
    assert view.live(NOW_SECONDS) == claims(C)


def test_each_event_is_read_once_without_a_reorganisation(registry_site: RegistrySite) -> None:
    contracts, (view, [endpoint]) = registry_site.contracts, registry_site.view()
    contracts.register(ALICE, node_key(1), LATER)
    assert view.live(NOW_SECONDS) == view.live(NOW_SECONDS) == claims(A)
    read = len(endpoint.sought)
    contracts.register(BOB, node_key(1), LATER)
    assert view.live(NOW_SECONDS) == claims(A, B)
    assert endpoint.sought[read:] == [(registry_site.block, registry_site.block)]
