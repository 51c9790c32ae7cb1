"""Reads of the contracts while one of several endpoints lies."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.ledger import (
    ALICE,
    AUDITORS,
    NOW_SECONDS,
    Contracts,
    address,
    found,
    node_key,
)

from sapo_client.ledger.contract import Distributor, FraudVerifierContract, Token, Vault
from sapo_client.ledger.contract import EpochLedgerContract as EpochLedger
from sapo_client.ledger.errors import Disagreement
from sapo_client.ledger.history import History
from sapo_client.ledger.rpc import Rpc
from sapo_client.ledger.service import LedgerClient

A = address(ALICE)


@dataclass
class Stage:
    """A chain, and another one on which the same addresses say something else."""

    honest: Contracts
    lying: Contracts

    def urls(self, *who: Contracts) -> list[str]:
        return [contracts.chain.url for contracts in who]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("chains")
    honest = found(folder / "honest.sqlite")
    lying = found(
        folder / "lying.sqlite", quorum=1, auditors=(A,), epoch_budget_points=7, points_cap=99, auditor_bond=5
    )
    assert honest.deployment == lying.deployment
    tree = honest.settle(0, {A: 7})
    honest.claim(A, 7, tree.proof(A))
    while lying.chain.engine.head.block_number < honest.chain.engine.head.block_number:
        lying.register(ALICE, node_key(1), NOW_SECONDS + 1_000)
    yield Stage(honest, lying)
    for contracts in (honest, lying):
        contracts.chain.close()


READS: dict[str, Callable[[Rpc, Contracts], object]] = {
    "auditors": lambda rpc, at: EpochLedger(rpc, at.ledger.address).auditors(),
    "next epoch": lambda rpc, at: EpochLedger(rpc, at.ledger.address).next_epoch(),
    "record": lambda rpc, at: History(EpochLedger(rpc, at.ledger.address)).record(0),
    "budget": lambda rpc, at: EpochLedger(rpc, at.ledger.address).epoch_budget(),
    "bond needed": lambda rpc, at: EpochLedger(rpc, at.ledger.address).auditor_bond(),
    "points cap": lambda rpc, at: FraudVerifierContract(rpc, at.verifier.address).points_cap(),
    "bonded": lambda rpc, at: Vault(rpc, at.vault.address).bonded(address(AUDITORS[0])),
    "stake": lambda rpc, at: Vault(rpc, at.vault.address).stake(address(AUDITORS[0])),
    "claimed": lambda rpc, at: Distributor(rpc, at.distributor.address).claimed(A),
    "granted": lambda rpc, at: Distributor(rpc, at.distributor.address).granted_points(),
    "balance": lambda rpc, at: Token(rpc, at.token.address).balance(A),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_false_answer_is_outvoted_by_two_endpoints_and_refused_with_one(
    stage: Stage, read: Callable[[Rpc, Contracts], object]
) -> None:
    honest, lying = stage.honest, stage.lying
    truth, lie = (read(Rpc(stage.urls(one)), honest) for one in (honest, lying))
    assert truth != lie
    outvoted = Rpc(stage.urls(lying, honest, honest))
    assert read(outvoted, honest) == truth
    assert [endpoint.disagreements > 0 for endpoint in outvoted.endpoints] == [True, False, False]
    for pair in ((lying, honest), (honest, lying)):
        with pytest.raises(Disagreement):
            read(Rpc(stage.urls(*pair)), honest)


async def test_disagreements_are_counted(stage: Stage, tmp_path: Path) -> None:
    ledger = LedgerClient(
        manifest=stage.honest.manifest(),
        account=ALICE,
        rpc_urls=stage.urls(stage.honest, stage.lying),
        outbox_path=tmp_path / "outbox.sqlite",
    )
    for _ in range(2):
        with pytest.raises(Disagreement):
            await ledger.epoch_budget()
    assert ledger.take_errors() == {"disagreement": 2}
    assert ledger.take_errors() == {}
    ledger.close()
