"""`sapo ledger` while the chain has a final epoch whose settlement this node has not received yet."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from support.auditor_harness import AUDITORS, WORKERS, World, refuse
from support.epoch_harness import EPOCH, EpochHarness

from sapo_client import keystore
from sapo_client.account import ledger_commands
from sapo_client.account.ledger_session import open_session
from sapo_client.config import Config
from sapo_client.errors import SapoError
from sapo_protocol.contributions import Proposal, Share
from sapo_protocol.identifiers import ContentId

ALICE, BOB = WORKERS
PROPOSAL = Proposal(
    node=AUDITORS[0].node,
    account=AUDITORS[0].account,
    epoch=EPOCH,
    tallies=(ContentId(bytes(32)),),
    shares=(Share(ALICE.account, 5, 5), Share(BOB.account, 3, 3)),
)


@pytest.fixture
def node(tmp_path: Path, world: World) -> EpochHarness:
    """Return a node that has not received the settlement of the last final epoch."""
    harness = EpochHarness(tmp_path, world)
    harness.post_unheard(PROPOSAL)
    world.contracts.finalise()
    return harness


@pytest.fixture
def alice(node: EpochHarness, tmp_path: Path) -> Config:
    key = tmp_path / "alice.json"
    keystore.create(key, None, node_seed=ALICE.seed, account_key=ALICE.secret)
    return node.config.model_copy(update={"identity": str(key)})


def test_the_status_shows_known_and_awaited_terms(node: EpochHarness, alice: Config) -> None:
    waiting = ledger_commands.status(alice)
    node.hear(AUDITORS[0], PROPOSAL)
    settled = ledger_commands.status(alice)
    names = ("last epoch", "points granted", "points claimed", "claimable")
    assert [waiting[name] for name in names] == [EPOCH, None, 0, None]
    assert [settled[name] for name in (*names, "waits for")] == [EPOCH, 5, 0, 5, None]
    assert waiting["waits for"] == (
        f"the settlement of epoch {EPOCH}, which says who has which points, is on the chain and not yet in"
        f" {node.data.root}; start this node (sapo join) and let it run for a minute: its peers send it"
    )


def test_without_a_running_node_a_claim_names_the_command_that_starts_one(alice: Config) -> None:
    with pytest.raises(SapoError, match="and not yet in") as caught:
        ledger_commands.claim(alice, refuse)
    assert (caught.value.exit_code, "start this node (sapo join)" in caught.value.hint) == (6, True)


async def test_with_a_running_node_a_claim_waits_for_the_settlement(
    node: EpochHarness, alice: Config
) -> None:
    found: list[Proposal | None] = []
    with open_session(alice, sends=False) as session:

        async def wait() -> None:
            found.append(await session.settled())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            node.hear(AUDITORS[0], PROPOSAL)
    assert found == [PROPOSAL]
