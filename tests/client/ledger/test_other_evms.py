"""The contracts' life on two machines that are not ours: the same gas, events, addresses and state."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.contract_life import play
from support.other_evms import Recorded, read, run_in_anvil, run_in_ethereumjs

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    path = tmp_path_factory.mktemp("life") / "chain.sqlite"
    play(path)
    return read(path)


def test_the_life_has_refused_calls_and_every_contract(recorded: Recorded) -> None:
    """What the two others are compared with, so that neither test compares nothing."""
    assert sum(not ran.succeeded for ran in recorded.ran) == 21
    assert len({address for ran in recorded.ran for address, _, _ in ran.logs}) == 8


def test_ethereumjs_comes_to_the_same_state_after_each_block(recorded: Recorded) -> None:
    assert run_in_ethereumjs(recorded) == (recorded.ran, recorded.roots)


def test_revm_comes_to_the_same_state(recorded: Recorded, tmp_path: Path) -> None:
    assert run_in_anvil(recorded, tmp_path) == (recorded.ran, recorded.accounts, recorded.slots)


def test_another_beginning_is_another_state(recorded: Recorded) -> None:
    """A wei more in one account changes all roots and nothing else: the roots cover what nobody touched."""
    short = replace(recorded, blocks=recorded.blocks[:1])
    richer = {where: str(int(wei) + (where == min(short.genesis))) for where, wei in short.genesis.items()}
    (ran, roots), (same, others) = run_in_ethereumjs(short), run_in_ethereumjs(replace(short, genesis=richer))
    assert (ran, roots) == (same, recorded.roots[:2])
    assert [one == other for one, other in zip(roots, others, strict=True)] == [False, False]
