"""The rules of ``NodeRegistry``, on the embedded chain."""

from support.ledger import ALICE, BOB, NOW_SECONDS, Contracts, address, node_key, refused_as

from sapo_client.ledger.records import RegistryEvent

LATER = NOW_SECONDS + 10**9
"""Beyond every time that a test sets."""


def test_a_claim_is_live_until_its_end(contracts: Contracts) -> None:
    end = contracts.chain.engine.head.timestamp + 100
    receipt = contracts.register(ALICE, node_key(1), end)
    account = address(ALICE)
    assert contracts.registry.live_nodes(account) == (node_key(1),)
    assert contracts.registry.events(receipt.block, receipt.block) == [
        RegistryEvent(account, node_key(1), end)
    ]
    contracts.chain.now_seconds = end
    contracts.register(BOB, node_key(2), LATER)  # a block at the end's second
    assert contracts.registry.live_nodes(account) == ()


def test_several_accounts_may_claim_one_key(contracts: Contracts) -> None:
    contracts.register(ALICE, node_key(1), LATER)
    contracts.register(BOB, node_key(1), LATER)
    assert contracts.registry.live_nodes(address(ALICE)) == (node_key(1),)
    assert contracts.registry.live_nodes(address(BOB)) == (node_key(1),)


def test_an_account_has_at_most_four_live_nodes(contracts: Contracts) -> None:
    end = contracts.chain.engine.head.timestamp + 100
    contracts.register(ALICE, node_key(1), end)
    for number in (2, 3, 4):
        contracts.register(ALICE, node_key(number), LATER)
    assert refused_as(lambda: contracts.register(ALICE, node_key(5), LATER)) == "TooManyNodes"
    contracts.chain.now_seconds = end  # the first claim ends and makes room
    contracts.register(BOB, node_key(9), LATER)
    contracts.register(ALICE, node_key(5), LATER)
    assert set(contracts.registry.live_nodes(address(ALICE))) == set(map(node_key, (2, 3, 4, 5)))


def test_a_renewed_claim_keeps_its_place(contracts: Contracts) -> None:
    for number in (1, 2, 3, 4):
        contracts.register(ALICE, node_key(number), LATER)
    contracts.register(ALICE, node_key(2), LATER + 1)
    assert contracts.registry.live_nodes(address(ALICE)) == tuple(map(node_key, (1, 2, 3, 4)))


def test_a_renewed_expired_claim_takes_one_place_only(contracts: Contracts) -> None:
    end = contracts.chain.engine.head.timestamp + 100
    contracts.register(ALICE, node_key(1), end)
    contracts.register(ALICE, node_key(2), end)
    contracts.chain.now_seconds = end
    contracts.register(BOB, node_key(9), LATER)
    contracts.register(ALICE, node_key(2), LATER)
    assert contracts.registry.live_nodes(address(ALICE)) == (node_key(2),)


def test_a_claim_can_be_revoked_by_its_account_alone(contracts: Contracts) -> None:
    contracts.register(ALICE, node_key(1), LATER)
    assert refused_as(lambda: contracts.revoke(BOB, node_key(1))) == "NotRegistered"
    receipt = contracts.revoke(ALICE, node_key(1))
    assert contracts.registry.live_nodes(address(ALICE)) == ()
    assert contracts.registry.events(receipt.block, receipt.block) == [
        RegistryEvent(address(ALICE), node_key(1), 0)
    ]
    assert refused_as(lambda: contracts.revoke(ALICE, node_key(1))) == "NotRegistered"


def test_invalid_claims_are_refused(contracts: Contracts) -> None:
    now = contracts.chain.engine.head.timestamp
    assert refused_as(lambda: contracts.register(ALICE, node_key(0), LATER)) == "EmptyNodeKey"
    assert refused_as(lambda: contracts.register(ALICE, node_key(1), now)) == "AlreadyExpired"
