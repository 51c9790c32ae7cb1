"""Nobody shows leaves that were asked for: one node pays for the rejection or the recall, not all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from support.auditor_harness import CROWD, FOUR_AUDITORS, Funded
from support.ledger import AUDITORS, DEPLOYER, found, make_root, sign
from support.pooled_chain import PooledChain, paid_since
from support.witness import Witness

from sapo_protocol.identifiers import Account

EPOCH = 99
WINDOW_SECONDS = 40
TURN_SECONDS = 1
"""Four auditors and sixteen groups of other nodes share half of the window."""
Paid = Mapping[Account, Sequence[tuple[bool, int]]]
"""Success and gas of each node's transactions."""

ASKED = tuple(sorted(identity.account for identity in CROWD))[:3]


class DenyingSwarm:
    """Watchtowers of all auditors and some other nodes, none of which holds the leaves.

    Blocks take a second, so that all nodes that send in one second see the same state before it.
    """

    def __init__(self, folder: Path) -> None:
        self.contracts = found(folder / "chain.sqlite", kind=PooledChain, challenge_seconds=WINDOW_SECONDS)
        engine = self.contracts.chain.engine
        assert isinstance(engine, PooledChain)
        self.engine = engine
        self.nodes: dict[Account, Witness] = {}
        for number, node in enumerate((*FOUR_AUDITORS, *CROWD)):
            (own := folder / str(number)).mkdir()
            self.nodes[node.account] = Witness(own, contracts=self.contracts, node=node)

    def close(self) -> None:
        for witness in self.nodes.values():
            witness.close()
        self.contracts.chain.close()

    def hide(self, epoch: int) -> None:
        """Post a root whose leaves nobody knows."""
        root = make_root(epoch, base_root=self.contracts.base_root, total=0)
        self.contracts.post(root, sign(root, self.contracts.domain, AUDITORS))

    def ask(self, epochs_back: int = 0) -> int:
        """Ask for the leaves of three accounts; return the last deadline.

        Args:
            epochs_back: 0 for the live posting, otherwise the number of a final epoch, newest 1.
        """
        contracts, chain = self.contracts, self.contracts.chain
        token, verifier = contracts.token, contracts.verifier
        bonds = len(ASKED) * verifier.question_bond()
        chain.send(DEPLOYER, token.address, token.approve(verifier.address, bonds))
        chain.now_seconds = chain.engine.head.timestamp + 1
        newest = contracts.history.newest(epochs_back)
        for account in ASKED:
            data = verifier.ask_final(newest, account) if epochs_back else verifier.ask(account)
            chain.send(DEPLOYER, verifier.address, data)
        return chain.engine.head.timestamp + WINDOW_SECONDS

    async def live_through(self, seconds: range, *, down: Sequence[Account] = ()) -> Paid:
        """Look and send in each second; return success and gas of each node's transactions.

        Args:
            down: accounts of nodes that do nothing.
        """
        chain, since = self.contracts.chain, self.engine.head.block_number
        acting = [node for account, node in self.nodes.items() if account not in down]
        self.engine.holds = True
        for second in seconds:
            chain.now_seconds = second
            for node in acting:
                await node.tower.look()
            for node in acting:
                node.ledger._sender.step()
            self.engine.mine()
        self.engine.holds = False
        return paid_since(self.contracts, since)


@pytest.fixture
def net(tmp_path: Path) -> Iterator[DenyingSwarm]:
    opened = DenyingSwarm(tmp_path)
    yield opened
    opened.close()


def in_turn(epoch: int) -> list[Funded]:
    """Return the auditors in the order of their turns for an epoch."""
    start = epoch % len(FOUR_AUDITORS)
    return [*FOUR_AUDITORS[start:], *FOUR_AUDITORS[:start]]


def succeeded(paid: Paid) -> dict[Account, list[bool]]:
    """Return whether each of the nodes' transactions succeeded."""
    return {account: [each for each, _ in mined] for account, mined in paid.items()}


@pytest.mark.parametrize("down", [0, 2])
async def test_one_node_pays_for_a_rejection(net: DenyingSwarm, down: int) -> None:
    """If auditors are down in their turns, the next one pays."""
    net.hide(EPOCH)
    deadline, order = net.ask(), [node.account for node in in_turn(EPOCH)]
    seconds = range(deadline - 1, deadline + (down + 2) * TURN_SECONDS)
    assert succeeded(await net.live_through(seconds, down=order[:down])) == {order[down]: [True]}
    assert net.contracts.ledger.live() is None


async def test_another_node_rejects_where_all_auditors_are_down(net: DenyingSwarm) -> None:
    """The last group's turn comes when half of the window is over."""
    net.hide(EPOCH)
    deadline, auditors = net.ask(), [node.account for node in FOUR_AUDITORS]
    paid = await net.live_through(range(deadline, deadline + WINDOW_SECONDS // 2), down=auditors)
    assert list(succeeded(paid).values()) == [[True]]
    assert net.contracts.ledger.live() is None


@pytest.mark.parametrize("down", [0, 2])
@pytest.mark.parametrize("asked_epochs", [1, 2])
async def test_one_node_pays_for_a_recall(net: DenyingSwarm, asked_epochs: int, down: int) -> None:
    """Also if leaves of both epochs were asked for: the recall of the older one recalls the newer."""
    for epoch in (EPOCH - 1, EPOCH):
        net.hide(epoch)
        net.contracts.chain.now_seconds += WINDOW_SECONDS
        net.contracts.finalise()
    deadline = max(net.ask(back) for back in range(asked_epochs, 0, -1))
    order = [node.account for node in in_turn(EPOCH + 1 - asked_epochs)]
    seconds = range(deadline - 1, deadline + (down + 2) * TURN_SECONDS)
    assert succeeded(await net.live_through(seconds, down=order[:down])) == {order[down]: [True]}
    last = net.contracts.history.last()
    assert (last.root.epoch if last else None) == (None if asked_epochs == 2 else EPOCH - 1)


@pytest.mark.parametrize("is_final", [False, True])
async def test_one_node_pays_for_each_answer(net: DenyingSwarm, is_final: bool) -> None:
    """Where all nodes hold the leaves; the first two auditors in turn are down."""
    first, *others = net.nodes.values()
    first.post_truth(EPOCH, {})
    for other in others:
        other.hold_truth(EPOCH, {})
    if is_final:
        net.contracts.chain.now_seconds += WINDOW_SECONDS
        net.contracts.finalise()
    asked = net.ask(int(is_final)) - WINDOW_SECONDS
    down = [node.account for node in in_turn(EPOCH)][:2]
    paid = await net.live_through(range(asked, asked + 5 * TURN_SECONDS), down=down)
    assert [each for mined in succeeded(paid).values() for each in mined] == [True] * len(ASKED)
