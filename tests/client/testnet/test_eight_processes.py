"""Eight nodes, one of four auditors lies: its root never becomes final, and a worker takes its bond."""

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from support.eight import AUDITORS, LIAR, WHOLE_EPOCH, WORKERS, Eight, eight, root_of
from support.lying_auditor import FALSE_ROOT, TWO_ROOTS

from sapo_client.account.epoch_audit import EXPLAINED
from sapo_client.ledger.records import Stake
from sapo_client.testnet.processes import sapo
from sapo_protocol.identifiers import Account

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1500)]

COIN = 10**18
DRIP = 100 * COIN
BOND = 100 * COIN
HONEST = tuple(name for name in AUDITORS if name != LIAR)


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPO_LOCKS_DIR", str(tmp_path / "locks"))


def test_two_signed_roots_are_slashed_while_an_auditor_is_offline(tmp_path: Path) -> None:
    """With the default quorum of three of four: the ledger waits for the auditor that is away."""
    with eight(tmp_path / "net", quorum=None, lie=TWO_ROOTS) as net:
        assert net.ledger.auditors()[1] == 3
        net.start(*HONEST, *WORKERS)
        net.wait("cleo takes part", lambda: net.events("cleo", "admitted"))
        net.kill("cleo")
        net.start(LIAR)
        _check_slashed(net, "proveEquivocation")
        net.start("cleo")
        net.fund(*HONEST)
        _check_ledger(net, tmp_path)


def test_a_false_root_is_rejected_and_its_signer_slashed(tmp_path: Path) -> None:
    """With a quorum of one, which the dishonest auditor reaches alone."""
    with eight(tmp_path / "net", quorum=1, lie=FALSE_ROOT) as net:
        net.fund(LIAR)
        net.start(*AUDITORS, *WORKERS)
        _check_slashed(net, "proveOverCap")
        net.fund(*HONEST)
        _check_ledger(net, tmp_path)


def _check_slashed(net: Eight, proof: str) -> None:
    """Assert that only the dishonest auditor lost its bond, and that the worker who proved it got half."""
    net.wait("the liar is slashed", lambda: net.vault.bonded(net.account(LIAR)) == 0)
    assert net.stakes() == {**dict.fromkeys(HONEST, Stake(BOND, 0, 0)), LIAR: Stake(0, 0, 0)}
    assert net.final_roots() == []
    tokens = net.tokens()
    assert sorted(tokens.values()) == [DRIP, DRIP, DRIP, DRIP + BOND // 2]
    prover = max(tokens, key=tokens.__getitem__)
    [told] = net.events(prover, "challenge")
    assert (told["proof"], {told["epoch"]}) == (proof, {lie["epoch"] for lie in net.events(LIAR, "lie")})


def _check_ledger(net: Eight, folder: Path) -> None:
    """Assert that each final epoch pays what the workers earned, and that an audit confirms it."""
    net.wait("a whole epoch is final", lambda: WHOLE_EPOCH in [root.total for root in net.final_roots()])
    roots = net.final_roots()
    cumulative: Counter[Account] = Counter()
    for root in roots:
        paid, worth = net.paid(root.epoch), net.worth(root.epoch)
        cumulative.update(paid)
        assert set(worth) == {net.account(name) for name in WORKERS}
        assert paid == worth if root.total == WHOLE_EPOCH else paid <= worth  # auditors had to start, too
        known = (sum(paid.values()), root_of(paid), root_of(cumulative))
        assert (root.total, root.contribution_root, root.cumulative_root) == known
    lies = net.events(LIAR, "lie")
    assert not {lie["contribution_root"] for lie in lies} & {root.contribution_root.hex() for root in roots}
    everybody = (*AUDITORS, *WORKERS)
    challenged = {event["epoch"] for name in everybody for event in net.events(name, "challenge")}
    assert challenged == {lie["epoch"] for lie in lies}
    assert [event for name in everybody for event in net.events(name, "service_failed")] == []
    _check_dossier(net, roots[-1].epoch, folder / "epoch.json")


def _check_dossier(net: Eight, epoch: int, file: Path) -> None:
    """Assert that an exported file and the chain are enough to recompute the same root."""
    config = ("--config", str(net.member(WORKERS[0]).home.config), "--json")
    subprocess.run(sapo("ledger", "export", str(epoch), str(file), *config), check=True, capture_output=True)
    done = subprocess.run(sapo("ledger", "verify", str(file), *config), check=True, capture_output=True)
    assert json.loads(done.stdout)["verdict"] == EXPLAINED
