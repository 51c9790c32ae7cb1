"""Preparation of a testnet before its nodes start: names, folders, settings, contracts on a real chain."""

import time
from pathlib import Path

import pytest

from sapo_client.config_layers import resolve
from sapo_client.errors import SapoError
from sapo_client.founding.swarm import faucet_of
from sapo_client.ledger.contract import EpochLedgerContract, Token
from sapo_client.ledger.rpc import Rpc
from sapo_client.testnet import bringup, plan
from sapo_client.testnet.attacks import ATTACKS
from sapo_client.testnet.plan import Layout, Settings
from sapo_client.testnet.processes import stop
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest_file import manifest_from_json
from sapo_protocol.suite import Suite
from sapo_protocol.terms.auditors import Auditors
from sapo_verification.suites import catalogue


def settings(tmp_path: Path) -> Settings:
    net, report = tmp_path / "net", tmp_path / "report"
    return Settings(
        nodes=5,
        attackers=1,
        epochs=2,
        epoch_seconds=30,
        seed=7,
        directory=net,
        report=report,
        auditors=4,
        models=("some/model", "other/model"),
    )


def small_suite() -> Suite:
    return Suite(catalogue.REASONING_GYM, (catalogue.family("basic_arithmetic", "nano"),), Digest(bytes(32)))


def test_names_are_stable_and_never_run_out() -> None:
    assert plan.names(plan.NODE_NAMES, 3) == ("ada", "bo", "cleo")
    many = plan.names(plan.NODE_NAMES, 45)
    assert (len(set(many)), many[20], many[44]) == (45, "ada-2", "eli-3")


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    with pytest.raises(SapoError, match="is not empty"):
        bringup.fresh_directory(tmp_path)


def test_a_swarm_is_founded_on_a_real_chain(tmp_path: Path) -> None:
    wanted = settings(tmp_path)
    layout = bringup.fresh_directory(tmp_path / "net")
    chain, url, deployer = bringup.start_chain(layout, tied=True)
    try:
        members = bringup.create_members(layout, wanted.nodes, wanted.auditors)
        setup = bringup.found(wanted, layout, small_suite(), url, deployer, members)
        bringup.fund(setup, deployer, [members[4].identity])
        bringup.write_settings(wanted, layout, setup)
        _check_ledger(setup)
        assert faucet_of(layout.root).contract == setup.deployment.faucet
    finally:
        stop([chain], 30.0)
    assert manifest_from_json(layout.manifest.read_text()) == setup.manifest
    assert setup.manifest.bootstrap == (members[0].address,)
    assert setup.manifest.genesis_seconds > time.time() - 60
    _check_settings(layout, setup)


def _check_ledger(setup: bringup.SwarmSetup) -> None:
    rpc = Rpc([setup.rpc_url])
    ledger = EpochLedgerContract(rpc, setup.deployment.ledger)
    auditors = sorted(member.identity.account for member in setup.members[:4])
    assert ledger.auditors() == (Auditors(tuple(auditors)), 3)
    assert ledger.clock() == (setup.manifest.genesis_seconds, 30)
    token = Token(rpc, setup.deployment.token)
    assert [token.balance(member.identity.account) // 10**18 for member in setup.members] == [
        0,
        0,
        0,
        0,
        100,
    ]


def _check_settings(layout: Layout, setup: bringup.SwarmSetup) -> None:
    for index, member in enumerate(setup.members):
        config = resolve(file=member.home.config, environment={}).config
        assert (
            config.identity,
            config.data_dir,
            config.swarm.manifest,
            config.swarm.listen,
            config.learner.seed,
            config.learner.model,
            config.learner.local_groups,
            config.sampler.demonstrations,
            config.ledger.rpc_urls,
            config.ledger.audit,
        ) == (
            str(member.home.identity),
            member.home.data.root,
            layout.manifest,
            (member.listen,),
            7 + index,
            ("some/model", "other/model")[index % 2],
            28,
            256,
            (setup.rpc_url,),
            index < 4,
        )


def test_the_attackers_own_an_identity_per_kind(tmp_path: Path) -> None:
    created = bringup.create_attackers(Layout(tmp_path), 2)
    assert sorted(created) == ["eve", "mallory"]
    accounts = {identity.account for identities in created.values() for identity in identities}
    assert len(accounts) == 2 * (len(ATTACKS) + 1)
