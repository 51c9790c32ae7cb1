"""Auditors that sign two roots in a turn while a proof costs them nothing, and the nodes that prove it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.auditor_harness import CROWD, FOUR_AUDITORS, Funded
from support.ledger import AUDITOR_BOND, CHALLENGE_SECONDS, EPOCH_SECONDS, Contracts, address, found, keys
from support.witness import AUTHOR, Witness

EPOCH = 101
TURNS = range(2)
LOOKS = 6
"""An eighth of a window apart: all nodes have had their turn by then."""
NODES: Sequence[Funded] = (CROWD[0], *FOUR_AUDITORS[1:3])


class ProvingNodes:
    """Watchtowers of several accounts over one chain, all of which hold the same messages."""

    def __init__(self, folder: Path) -> None:
        self.contracts: Contracts = found(folder / "chain.sqlite")
        self.witnesses = [self._open(folder, number, node) for number, node in enumerate(NODES)]

    def _open(self, folder: Path, number: int, node: Funded) -> Witness:
        own = folder / str(number)
        own.mkdir()
        return Witness(own, contracts=self.contracts, node=node)

    def close(self) -> None:
        for witness in self.witnesses:
            witness.close()
        self.contracts.chain.close()

    async def look(self) -> None:
        """Let every node look once, then send what it queued, in the same second."""
        for witness in self.witnesses:
            await witness.tower.look()
        for witness in self.witnesses:
            witness.ledger._sender.step()

    def sent(self) -> int:
        """Return how many transactions the nodes have sent and paid."""
        return sum(_nonce(self.contracts, node) for node in NODES)


def _nonce(contracts: Contracts, node: Funded) -> int:
    address_ = "0x" + node.account.hex()
    return int(contracts.chain.request("eth_getTransactionCount", address_, "latest")["result"], 16)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[ProvingNodes]:
    opened = ProvingNodes(tmp_path)
    yield opened
    opened.close()


def take_bond_out(contracts: Contracts) -> None:
    """Let the first auditor leave with its whole bond."""
    chain, vault, signer = contracts.chain, contracts.vault, keys(AUTHOR.number)
    chain.send(signer, vault.address, vault.request_exit(AUDITOR_BOND))
    chain.now_seconds = chain.engine.head.timestamp + vault.exit_seconds()
    chain.send(signer, vault.address, vault.withdraw())
    assert not vault.stake(address(signer)).exiting


async def test_an_auditor_without_a_bond_makes_no_node_pay(nodes: ProvingNodes) -> None:
    """Its signatures count for nothing, and a proof against it is neither rewarded nor remembered."""
    take_bond_out(nodes.contracts)
    before = nodes.sent()
    for witness in nodes.witnesses:
        witness.sign_twice(EPOCH, TURNS)
    for _ in range(LOOKS):
        nodes.contracts.chain.now_seconds += CHALLENGE_SECONDS / 8
        await nodes.look()
    assert nodes.sent() == before


async def test_an_auditor_that_bonds_after_it_signed_twice_loses_the_bond(nodes: ProvingNodes) -> None:
    take_bond_out(nodes.contracts)
    for witness in nodes.witnesses:
        witness.sign_twice(EPOCH)
    await nodes.look()
    nodes.contracts.bond(keys(AUTHOR.number))
    for _ in range(LOOKS):
        nodes.contracts.chain.now_seconds += CHALLENGE_SECONDS / 8
        await nodes.look()
    assert nodes.contracts.vault.bonded(AUTHOR.account) == 0


async def test_one_node_pays_for_a_proof_of_two_signatures(nodes: ProvingNodes) -> None:
    nodes.contracts.chain.now_seconds += 2 * EPOCH_SECONDS
    before = nodes.sent()
    for witness in nodes.witnesses:
        witness.sign_twice(EPOCH)
    for _ in range(LOOKS):
        nodes.contracts.chain.now_seconds += CHALLENGE_SECONDS / 8
        for witness in nodes.witnesses:
            await witness.tower.look()
        queued = [await witness.ledger.pending("challenge") for witness in nodes.witnesses]
        assert sum(queued) <= 1, "nobody else sends in the same block"
        for witness in nodes.witnesses:
            witness.ledger._sender.step()
    assert nodes.sent() - before == 1
    assert nodes.contracts.vault.bonded(AUTHOR.account) == 0
