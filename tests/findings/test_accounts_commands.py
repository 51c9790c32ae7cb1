"""Findings about the commands of the ledger: different terms, and an empty treasury."""

from __future__ import annotations

from pathlib import Path

import pytest
from findings.commands import LEDGER_EXIT, invoke
from findings.epochs import EPOCH, count, run_epoch, seated
from findings.tree import TREE, Bonded, Seat
from support.ledger import POINTS_CAP, TOKENS_PER_POINT, Contracts, found

from sapo_client import keystore
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_to_json

ALICE = Bonded(2)
EARNED = 5


def join(contracts: Contracts, root: Path, manifest: Manifest | None = None) -> tuple[Seat, list[str]]:
    """Create Alice's node with its files; return it and the options of her commands."""
    seat, key = TREE.seat(contracts, ALICE, root / "alice"), root / "key.json"
    keystore.create(key, None, node_seed=ALICE.seed, account_key=ALICE.secret)
    file = root / "swarm.json"
    file.write_text(manifest_to_json(manifest or contracts.manifest()), encoding="utf-8")
    options = {
        "--identity": key,
        "--data-dir": root / "alice",
        "--manifest": file,
        "--rpc": contracts.chain.url,
    }
    return seat, [str(word) for option in options.items() for word in option]


def test_a_cap_below_the_manifests_is_reported_before_signing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under such a cap the contract convicts auditors that count as their manifest says."""
    monkeypatch.setenv("HOME", str(tmp_path))
    contracts = found(tmp_path / "chain.sqlite", points_cap=POINTS_CAP // 2)
    _, options = join(contracts, tmp_path)
    code, said = invoke("ledger", "register", "--yes", *options)
    registered = ALICE.node in contracts.registry.live_nodes(ALICE.account)
    contracts.chain.close()
    assert (code, registered, f"{POINTS_CAP // 2} points" in said) == (LEDGER_EXIT, False, True), said


def test_a_claim_reports_an_empty_treasury(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    contracts = found(tmp_path / "chain.sqlite", reward_tokens=TOKENS_PER_POINT)
    auditors = seated(contracts, tmp_path, range(3))
    count(contracts, auditors, EPOCH, [{ALICE.account: EARNED}] * 3)
    assert run_epoch(contracts, auditors, EPOCH) == EPOCH
    contracts.finalise()
    alice, options = join(contracts, tmp_path)
    for auditor in auditors:
        alice.hear(auditor.said())
    code, said = invoke("ledger", "claim", "--yes", *options)
    contracts.chain.close()
    assert (code, "when the chain answers" in said, "treasury" in said) == (LEDGER_EXIT, False, True), said
