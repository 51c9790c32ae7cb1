"""Eight nodes, four auditors, one lying: its root never becomes final, and a plain node takes its bond."""

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


def test_two_signed_roots_while_an_auditor_is_away(tmp_path: Path) -> None:
    """By the quorum that a testnet of four auditors has, three: the ledger waits for the one that is away."""
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


def test_a_false_root_on_the_chain(tmp_path: Path) -> None:
    """By a quorum of one, for which the liar needs nobody."""
    with eight(tmp_path / "net", quorum=1, lie=FALSE_ROOT) as net:
        net.fund(LIAR)
        net.start(*AUDITORS, *WORKERS)
        _check_slashed(net, "proveOverCap")
        net.fund(*HONEST)
        _check_ledger(net, tmp_path)


def _check_slashed(net: Eight, proof: str) -> None:
    """The liar has lost all of its bond, the others nothing, and half of it is a worker's who proved it."""
    net.wait("the liar is slashed", lambda: net.vault.bonded(net.account(LIAR)) == 0)
    assert net.stakes() == {**dict.fromkeys(HONEST, Stake(BOND, 0, 0)), LIAR: Stake(0, 0, 0)}
    assert net.final_roots() == []
    tokens = net.tokens()
    assert sorted(tokens.values()) == [DRIP, DRIP, DRIP, DRIP + BOND // 2]
    prover = max(tokens, key=tokens.__getitem__)
    [told] = net.events(prover, "challenge")
    [lie] = net.events(LIAR, "lie")
    assert (told["proof"], told["epoch"]) == (proof, lie["epoch"])


def _check_ledger(net: Eight, folder: Path) -> None:
    """What is final is what the workers earned, epoch by epoch, and anybody can see that it is."""
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
    [lie] = net.events(LIAR, "lie")
    assert lie["contribution_root"] not in {root.contribution_root.hex() for root in roots}
    everybody = (*AUDITORS, *WORKERS)
    challenged = {event["epoch"] for name in everybody for event in net.events(name, "challenge")}
    assert challenged == {lie["epoch"]}
    assert [event for name in everybody for event in net.events(name, "service_failed")] == []
    _check_dossier(net, roots[-1].epoch, folder / "epoch.json")


def _check_dossier(net: Eight, epoch: int, file: Path) -> None:
    """A stranger with a worker's file and the chain comes to the same root."""
    config = ("--config", str(net.member(WORKERS[0]).home.config), "--json")
    subprocess.run(sapo("ledger", "export", str(epoch), str(file), *config), check=True, capture_output=True)
    done = subprocess.run(sapo("ledger", "verify", str(file), *config), check=True, capture_output=True)
    assert json.loads(done.stdout)["verdict"] == EXPLAINED
