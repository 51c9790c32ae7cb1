"""`sapo ledger finalise`: any account makes an epoch final once its window is over, and not before."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.ledger import (
    BOB,
    CHALLENGE_SECONDS,
    DEPLOYER,
    STRANGER,
    Contracts,
    address,
    found,
    make_root,
    sign,
)
from support.swarm import make_suite

from sapo_client import keystore
from sapo_client.account import ledger_commands
from sapo_client.config import Config, LedgerConfig
from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger import transactions as tx
from sapo_client.paths import DataDir
from sapo_protocol.manifest_file import manifest_to_json
from sapo_verification.admission.contribution_store import ContributionStore


@pytest.fixture
def contracts(tmp_path: Path) -> Iterator[Contracts]:
    made = found(tmp_path / "chain.sqlite")
    yield made
    made.chain.close()


@pytest.fixture
def config(contracts: Contracts, tmp_path: Path) -> Config:
    """Return the settings of an account that is no auditor, and that once ran a node."""
    manifest = contracts.manifest(suite=make_suite())
    data = DataDir(tmp_path / "data").create()
    data.manifest.write_text(manifest_to_json(manifest), encoding="utf-8")
    ContributionStore(data.database, manifest.swarm_id)
    key = tmp_path / "key.json"
    keystore.create(key, None, account_key=bytes(BOB.key))
    return Config(data_dir=data.root, identity=str(key), ledger=LedgerConfig(rpc_urls=(contracts.chain.url,)))


def test_any_account_makes_an_epoch_final_after_its_window(contracts: Contracts, config: Config) -> None:
    shown: list[Mapping[str, Any]] = []

    def consent(statements: Sequence[Mapping[str, Any]]) -> None:
        shown.extend(statements)

    with pytest.raises(SapoError, match="no epoch waits to become final"):
        ledger_commands.finalise(config, consent)
    contracts.chain.now_seconds = time.time() + 1000.0  # the window is over neither here nor there
    root = make_root(2)
    contracts.post(root, sign(root, contracts.domain), signer=DEPLOYER)
    with pytest.raises(SapoError, match="epoch 2 can be challenged until") as early:
        ledger_commands.finalise(config, consent)
    assert early.value.exit_code == ExitCode.LEDGER
    assert shown == []

    contracts.chain.now_seconds = contracts.chain.engine.head.timestamp + CHALLENGE_SECONDS + 1
    _mine(contracts)
    assert ledger_commands.finalise(config, consent) == {"epoch": 2, "points": root.total, "final": True}
    assert len(shown) == 1
    assert contracts.ledger.live() is None
    assert contracts.ledger.next_epoch() == 3


def _mine(contracts: Contracts) -> None:
    """Have a block made, for the chain's time is that of its last block."""
    nonce = tx.next_nonce(contracts.chain.rpc, address(DEPLOYER))
    signed = tx.sign(contracts.chain.rpc, DEPLOYER, tx.Call(address(STRANGER), b"", 1), nonce)
    tx.send(contracts.chain.rpc, signed)
