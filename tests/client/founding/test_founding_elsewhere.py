"""`sapo swarm deploy` on an external chain, killed during the deployment."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from support.anvil import PATIENCE_SECONDS, Anvil, running_anvil

from sapo_client import keystore
from sapo_client.testnet.processes import sapo, spawn, wait_until
from sapo_protocol.manifest_file import manifest_from_json

pytestmark = [pytest.mark.e2e, pytest.mark.long]


@pytest.fixture
def anvil(tmp_path: Path) -> Iterator[Anvil]:
    with running_anvil(tmp_path) as running:
        yield running


def has_sent(anvil: Anvil, account: str, transactions: int) -> bool:
    return anvil.nonce(account) >= transactions


def test_a_killed_deployment_is_finished_and_nothing_is_sent_twice(anvil: Anvil, tmp_path: Path) -> None:
    founder = keystore.create(tmp_path / "founder.json", None)
    account, folder = str(founder.account), tmp_path / "swarm"
    argv = sapo(
        "swarm", "deploy", str(folder), "--rpc", anvil.url, "--key", str(founder.path), "--json", "--yes"
    )
    poor = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (poor.returncode, poor.stdout, anvil.nonce(account)) == (6, "", 0)
    assert "holds 0 coins on chain 31337" in poor.stderr
    assert "hint: send it coins" in poor.stderr
    anvil.give(account, 10**18)
    for mined in (1, 3):
        child = spawn("deploy", argv, folder=tmp_path, log=tmp_path / "deploy.txt")
        assert wait_until(partial(has_sent, anvil, account, mined), PATIENCE_SECONDS)
        os.kill(child.pid, signal.SIGKILL)
        child.process.wait()
        assert not (folder / "manifest.json").exists()
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    again = subprocess.run(argv, capture_output=True, text=True, check=True)
    planned = sum(line.strip().partition(". ")[0].isdigit() for line in done.stderr.splitlines())
    assert anvil.nonce(account) == planned > 3
    assert done.stdout == again.stdout
    manifest = manifest_from_json((folder / "manifest.json").read_text())
    assert json.loads(done.stdout) == {
        "manifest": str(folder / "manifest.json"),
        "swarm": str(manifest.swarm_id),
        "chain": 31337,
        "registry": str(manifest.registry),
        "ledger": str(manifest.ledger),
        "bootstrap": [],
    }


def test_without_consent_nothing_is_signed(anvil: Anvil, tmp_path: Path) -> None:
    founder = keystore.create(tmp_path / "founder.json", None)
    anvil.give(str(founder.account), 10**18)
    argv = sapo("swarm", "deploy", str(tmp_path / "s"), "--rpc", anvil.url, "--key", str(founder.path))
    done = subprocess.run(argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (2, "")
    assert "create EpochLedger" in done.stderr
    assert "it pays at most" in done.stderr
    assert "hint: read it above, then run the command again with --yes" in done.stderr
    assert anvil.nonce(str(founder.account)) == 0
