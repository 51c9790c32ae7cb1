"""A bond takes two transactions, sent once and in order, wherever the process is killed."""

from dataclasses import dataclass
from itertools import count
from pathlib import Path

from support.faulty import FaultyOutbox, Killed
from support.ledger import ALICE, DEPLOYER, Contracts, address

from sapo_client.ledger.outbox import EntryState, Outbox
from sapo_client.ledger.sender import Sender
from sapo_client.ledger.transactions import Call

A = address(ALICE)
AMOUNT = 40
MOMENTS = 400
"""More than one life of the outbox has."""

STRIDE = 4
"""Three moments belong to each of its transactions: begun, written, over."""


@dataclass
class Fate:
    """Ends the process at the last of so many moments."""

    moments: int

    def maybe_kill(self, where: str) -> None:
        self.moments -= 1
        if self.moments == 0:
            raise Killed(where)


def bond(contracts: Contracts, outbox: Outbox) -> None:
    """What the command does, begun or begun again, until nothing is left to do."""
    clock = count(0.0, 2.0)
    sender = Sender(contracts.chain.rpc, ALICE, outbox, confirmations=1, clock=lambda: next(clock))
    token, vault = contracts.token, contracts.vault
    if not vault.bonded(A):
        approve = Call(token.address, token.approve(vault.address, AMOUNT))
        outbox.add_series("bond", [approve, Call(vault.address, vault.deposit(A, AMOUNT))])
    while sender.step():
        pass


def test_a_bond_is_made_once_after_a_crash_at_any_write(contracts: Contracts, tmp_path: Path) -> None:
    token, vault = contracts.token, contracts.vault
    ended = []
    for moment in range(1, MOMENTS, STRIDE):
        contracts.chain.send(DEPLOYER, token.address, token.transfer(A, AMOUNT))
        path = tmp_path / f"{moment}.sqlite"
        life = FaultyOutbox(path, owner="test")
        life.faults = Fate(moment)
        try:
            bond(contracts, life)
            ended.append(False)
        except Killed:
            ended.append(True)
        life.close()
        second = Outbox(path, owner="test")
        bond(contracts, second)
        assert second.counts() == {**dict.fromkeys(EntryState, 0), EntryState.CONFIRMED: 2}
        assert (vault.stake(A).bonded, token.balance(A)) == (AMOUNT, 0)
        second.close()
        contracts.chain.send(ALICE, vault.address, vault.request_exit(AMOUNT))
        if not ended[-1]:
            break
    assert ended == [True] * (len(ended) - 1) + [False]
    assert len(ended) > 3
