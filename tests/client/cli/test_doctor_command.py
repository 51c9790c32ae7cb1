"""`sapo doctor` on real faults, and its checks of a real chain."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ledger import ServedChain
from support.sapo_process import Run
from support.swarm import make_chain_manifest, make_manifest

from sapo_client.cli.checks import Check
from sapo_client.cli.checks_network import (
    check_bootstrap,
    check_chain,
    check_genesis,
    check_local_network,
    check_peers,
    clock_check,
)
from sapo_client.config import Config, LearnerConfig, SwarmConfig
from sapo_client.config_layers import resolve
from sapo_client.founding.alone import alone_manifest
from sapo_client.node.runtime.manifests import ALONE
from sapo_protocol.manifest_file import manifest_to_json


def states(checks: Iterator[Check]) -> list[tuple[str, str]]:
    return [(check.name, check.state) for check in checks]


def test_without_a_swarm_no_check_fails(sapo: Run) -> None:
    sapo("keys", "new", "key", "--no-passphrase")
    done = sapo("doctor", "--identity", "key", "--json")
    report = json.loads(done.stdout)
    found = {check["name"]: check["state"] for check in report["checks"]}
    assert (done.returncode, report["failed"]) == (0, 0)
    assert {found[name] for name in ("disk", "torch")} == {"ok"}
    assert (found["identity"], found["manifest"]) == ("warn", "warn")  # stored plain, no swarm
    assert [name for name in found if name.startswith("jail: ")]


def test_faults_are_named_with_hints_and_the_exit_code_is_7(sapo: Run, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest_to_json(make_manifest()))  # its sample digest is made up
    sapo("keys", "new", "key", "--no-passphrase")
    (tmp_path / "home/.config/sapo/keys/key.json").chmod(0o666)
    done = sapo("doctor", "--identity", "key", "--manifest", manifest)
    failed = [line.split()[0] for line in done.stdout.splitlines() if "  fail  " in line]
    assert (done.returncode, failed) == (7, ["identity", "suite"])
    assert "chmod 600" in done.stderr
    assert done.stderr.count("suite: ") == 1


def test_one_reachable_bootstrap_node_passes_and_none_fails() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        alive = f"/ip4/127.0.0.1/tcp/{server.getsockname()[1]}/p2p/12D3KooWA"
        assert states(check_bootstrap((alive, "/unix/x"))) == [("bootstrap", "ok"), ("bootstrap", "warn")]
    assert states(check_bootstrap((alive,))) == [("bootstrap", "fail")]
    assert states(check_bootstrap(())) == [("bootstrap", "warn")]


def test_training_alone_needs_no_bootstrap_node() -> None:
    quiet = Config(swarm=SwarmConfig(listen=("/ip4/127.0.0.1/tcp/0",)))
    assert states(check_peers(quiet, alone_manifest(ALONE, LearnerConfig()))) == [("peers", "ok")]
    in_a_swarm = [("bootstrap", "warn"), ("local network", "ok")]
    assert states(check_peers(quiet, make_manifest())) == in_a_swarm


@pytest.mark.parametrize("swarm", [SwarmConfig(mdns=False), SwarmConfig(listen=("/ip4/127.0.0.1/tcp/0",))])
def test_a_node_without_neighbour_discovery_is_reported(swarm: SwarmConfig) -> None:
    found = check_local_network(Config(swarm=swarm), make_manifest())
    text = "none are looked for in the local network (swarm.mdns, swarm.listen)"
    assert found == Check("local network", "ok", text)


def test_the_local_network_check_counts_nodes_or_hints_at_the_mdns_setting() -> None:
    found = check_local_network(Config(), make_manifest(genesis_seconds=time.time_ns() >> 32))
    if found.state == "ok":  # nobody else has this swarm
        assert found.detail == "0 nodes of this swarm in the local network"
    else:
        assert found.detail.startswith("no nodes of this swarm can be looked for: ")
        assert "swarm.mdns" in found.hint


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[ServedChain]:
    served = ServedChain(tmp_path / "chain.sqlite")
    yield served
    served.close()


def config_with(*urls: str) -> Config:
    return resolve({"ledger.rpc_urls": list(urls)}, environment={"SAPO_CONFIG": ""}).config


def test_the_chain_is_asked_for_its_id_and_the_contracts(chain: ServedChain) -> None:
    config = config_with(chain.url)
    other_chain = make_chain_manifest(chain_id=int(chain.request("eth_chainId")["result"], 16) + 1)
    no_contracts = make_chain_manifest(chain_id=other_chain.chain_id - 1)
    [about_id, _] = check_chain(config, other_chain)
    [about_code, _] = check_chain(config, no_contracts)
    assert (about_id.state, "serves chain" in about_id.detail) == ("fail", True)
    assert (about_code.state, "there is no NodeRegistry" in about_code.detail) == ("fail", True)


def test_a_chain_that_does_not_answer_is_a_failure_and_none_is_a_warning() -> None:
    manifest = make_chain_manifest()
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    assert states(check_chain(config_with(f"http://127.0.0.1:{closed}"), manifest)) == [("ledger", "fail")]
    assert states(check_chain(config_with(), manifest)) == [("ledger", "warn")]
    assert states(check_chain(config_with(), make_manifest())) == [("ledger", "ok")]


@pytest.mark.parametrize(("ahead", "state"), [(-3600, "ok"), (4, "ok"), (30, "warn"), (90, "fail")])
def test_a_clock_behind_the_chain_is_noticed(ahead: int, state: str) -> None:
    now = time.time()
    assert clock_check("http://chain", now + ahead, now).state == state


def test_a_genesis_in_the_future_is_a_warning() -> None:
    assert check_genesis(make_manifest(genesis_seconds=int(time.time()) + 600)).state == "warn"
    assert check_genesis(make_manifest(genesis_seconds=1)).state == "ok"
