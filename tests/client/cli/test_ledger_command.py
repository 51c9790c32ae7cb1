"""`sapo ledger`: a command shows what it signs, and signs only with consent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.auditor_harness import Funded, World
from support.sapo_process import Run

from sapo_client import keystore
from sapo_protocol.manifest_file import manifest_to_json

NEWCOMER = Funded(14)


@pytest.fixture
def account(world: World, tmp_path: Path) -> list[object]:
    """Return the options that name a newcomer and its swarm."""
    key, manifest = tmp_path / "key.json", tmp_path / "manifest.json"
    keystore.create(key, None, node_seed=NEWCOMER.seed, account_key=NEWCOMER.secret)
    manifest.write_text(manifest_to_json(world.manifest), encoding="utf-8")
    return [
        *("--identity", key, "--manifest", manifest),
        *("--rpc", world.chain.url, "--data-dir", tmp_path / "data"),
    ]


def test_without_a_terminal_nothing_is_signed_except_with_yes(
    sapo: Run, world: World, account: list[object]
) -> None:
    registry = world.contracts.registry
    asked = sapo("ledger", "register", *account)
    assert asked.returncode == 2
    for text in ("NodeRegistry.register", str(registry.address), "consent cannot be asked for", "--yes"):
        assert text in asked.stderr
    assert registry.live_nodes(NEWCOMER.account) == ()

    agreed = sapo("ledger", "register", *account, "--yes", "--json")
    assert agreed.returncode == 0, agreed.stderr
    assert json.loads(agreed.stdout)["registered"] is True
    assert "NodeRegistry.register" in agreed.stderr
    assert registry.live_nodes(NEWCOMER.account) == (NEWCOMER.node,)


def test_a_bond_needs_a_valid_amount_and_an_auditor(sapo: Run, account: list[object]) -> None:
    wrong = sapo("ledger", "bond", "lots", *account)
    assert (wrong.returncode, "is not an amount of tokens" in wrong.stderr) == (2, True)
    stranger = sapo("ledger", "bond", "2.5", *account, "--yes")
    assert (stranger.returncode, "is not an auditor of this swarm" in stranger.stderr) == (6, True)
    assert "hint:" in stranger.stderr


def test_a_swarm_without_a_chain_is_named_as_the_reason(sapo: Run, tmp_path: Path) -> None:
    """No identity and no endpoint would help there, so none is asked for."""
    folder = tmp_path / "chainless"
    assert sapo("swarm", "new", folder).returncode == 0
    names = ("--manifest", folder / "manifest.json", "--data-dir", tmp_path / "other")
    done = sapo("ledger", "register", *names)
    assert (done.returncode, "has no chain, so nothing is counted or paid" in done.stderr) == (3, True)


def test_a_missing_key_or_endpoint_is_named_in_a_hint(sapo: Run, account: list[object]) -> None:
    words = [str(word) for word in account]
    without_key = sapo("ledger", "register", *words[2:])
    without_endpoint = sapo("ledger", "register", *words[:4], *words[6:])
    assert (without_key.returncode, "make one: sapo keys new key\n" in without_key.stderr) == (4, True)
    assert (without_endpoint.returncode, "--rpc URL" in without_endpoint.stderr) == (3, True)
