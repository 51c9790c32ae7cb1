"""A new node key under the same account, on disk, in the signing database and on the chain."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.auditor_harness import WORKERS, World, agree, refuse
from support.ledger import address, keys

from sapo_client import keystore, locks
from sapo_client.account import ledger_commands
from sapo_client.account.rotation import rotate
from sapo_client.config import Config, LedgerConfig
from sapo_client.errors import ExitCode, SapoError
from sapo_client.key_status import require_in_use
from sapo_client.keystore import Identity
from sapo_client.node.runtime.statements import SignedFields
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import DataDir
from sapo_protocol.identifiers import NodeId
from sapo_protocol.manifest_file import manifest_to_json
from sapo_verification.admission.certificates import CertificateStore
from sapo_verification.signing.database import SigningDatabase

ALICE = WORKERS[0]
HERE = address(keys(ALICE.number))


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPO_LOCKS_DIR", str(tmp_path / "locks"))


@pytest.fixture
def old(tmp_path: Path) -> Identity:
    return keystore.create(tmp_path / "old.json", None, node_seed=ALICE.seed, account_key=ALICE.secret)


@pytest.fixture
def data(world: World, tmp_path: Path) -> DataDir:
    """Return the data directory of a node that has signed before."""
    made = DataDir(tmp_path / "data").create()
    made.manifest.write_text(manifest_to_json(world.manifest), encoding="utf-8")
    SigningDatabase(made.database).take_slots(
        world.manifest.swarm_id, HERE, epoch=5, count=4, slots_per_epoch=100
    )
    return made


def config(world: World, data: DataDir, identity: Path | None = None) -> Config:
    ledger = LedgerConfig(rpc_urls=(world.chain.url,))
    return Config(identity=str(identity) if identity else None, data_dir=data.root, ledger=ledger)


def load(path: Path) -> Identity:
    return keystore.load(path, PassphraseSource())


def live(world: World) -> tuple[NodeId, ...]:
    return world.contracts.registry.live_nodes(HERE)


def test_a_rotation_switches_the_key_everywhere(
    world: World, data: DataDir, old: Identity, tmp_path: Path
) -> None:
    shown: list[SignedFields] = []
    path = tmp_path / "new.json"
    facts = rotate(config(world, data), old.path, path, shown.extend)
    new = load(path)
    assert facts == {
        "account": str(HERE),
        "old node id": old.node_id.hex(),
        "new node id": new.node_id.hex(),
        "path": str(path),
        "on the chain": "done",
        "claimed keys": [new.node_id.hex()],
    }
    assert (new.account, live(world)) == (old.account, (new.node_id,))
    binding, registration, revocation = shown
    assert (binding["statement"], binding["node key"]) == ("NodeBinding", "0x" + new.node_id.hex())
    assert (registration["transaction"], registration["node key"]) == (
        "NodeRegistry.register",
        "0x" + new.node_id.hex(),
    )
    assert (revocation["transaction"], revocation["node key"]) == (
        "NodeRegistry.revoke",
        "0x" + old.node_id.hex(),
    )


def test_the_old_key_never_signs_again_and_the_new_one_continues_above_it(
    world: World, data: DataDir, old: Identity, tmp_path: Path
) -> None:
    require_in_use(data, old)
    rotate(config(world, data), old.path, tmp_path / "new.json", agree)
    new = load(tmp_path / "new.json")
    with pytest.raises(SapoError, match="never signs again") as refusal:
        require_in_use(data, old)
    assert refusal.value.exit_code == ExitCode.KEYSTORE
    require_in_use(data, new)
    signing = SigningDatabase(data.database)
    assert signing.take_slots(
        world.manifest.swarm_id, new.account, epoch=5, count=2, slots_per_epoch=100
    ) == range(4, 6)
    certificates = CertificateStore(world.manifest, data.database)
    assert certificates.restore(time.time()) == 1
    assert certificates.accounts_of(new.node_id) == (new.account,)


def test_an_interrupted_rotation_continues(
    world: World, data: DataDir, old: Identity, tmp_path: Path
) -> None:
    path = tmp_path / "new.json"
    with pytest.raises(SapoError, match="nothing was signed"):
        rotate(config(world, data), old.path, path, refuse)
    require_in_use(data, old)  # nothing but the new file has come of it
    assert live(world) == (old.node_id,)
    made = load(path)
    rotate(config(world, data), old.path, path, agree)
    assert live(world) == (made.node_id,)
    facts = rotate(config(world, data), old.path, path, agree)  # once more does no harm
    assert facts["claimed keys"] == [made.node_id.hex()]


def test_an_identity_of_another_account_or_the_same_key_is_refused_as_successor(
    world: World, data: DataDir, old: Identity, tmp_path: Path
) -> None:
    other = keystore.create(tmp_path / "other.json", None)
    for path in (other.path, old.path):
        with pytest.raises(SapoError, match="does not hold a new key of account"):
            rotate(config(world, data), old.path, path, agree)


def test_a_rotation_is_refused_in_a_directory_in_which_no_node_ran(
    world: World, old: Identity, tmp_path: Path
) -> None:
    """Its signing database does not know what the old key has signed."""
    with pytest.raises(SapoError, match="no node ever ran"):
        rotate(config(world, DataDir(tmp_path / "empty").create()), old.path, tmp_path / "new.json", agree)
    assert not (tmp_path / "new.json").exists()


def test_a_rotation_is_refused_while_a_node_runs(
    world: World, data: DataDir, old: Identity, tmp_path: Path
) -> None:
    with (
        locks.lock(data.lock, what="data directory"),
        pytest.raises(SapoError, match="already in use"),
    ):
        rotate(config(world, data), old.path, tmp_path / "new.json", agree)
    assert not (tmp_path / "new.json").exists()


def test_a_key_of_a_lost_machine_is_revoked_and_may_register_again(
    world: World, data: DataDir, old: Identity
) -> None:
    settings = config(world, data, old.path)
    with pytest.raises(SapoError, match="nothing was signed"):
        ledger_commands.revoke(settings, old.node_id, refuse)
    assert live(world) == (old.node_id,)
    for end in (4_000_000_001, 4_000_000_002):
        facts = ledger_commands.revoke(settings, old.node_id, agree)
        assert facts == {"on the chain": "done", "claimed keys": []}
        assert live(world) == ()
        world.contracts.register(keys(ALICE.number), old.node_id, end)
    stranger = replace(ALICE, number=77).node
    with pytest.raises(SapoError, match="does not claim"):
        ledger_commands.revoke(settings, stranger, agree)


def test_the_status_shows_keys_endpoints_and_queued_transactions(
    world: World, data: DataDir, old: Identity
) -> None:
    url, silent = world.chain.url, "http://127.0.0.1:9"
    ledger = LedgerConfig(rpc_urls=(silent, url))
    facts = ledger_commands.status(Config(identity=str(old.path), data_dir=data.root, ledger=ledger))
    no_answer = "no answer (ConnectionError)"
    balance = int(world.chain.request("eth_getBalance", str(HERE), "latest")["result"], 16)
    treasury = world.contracts.token.balance(world.contracts.distributor.address)
    assert facts == {
        "account": str(HERE),
        "chain": world.manifest.chain_id,
        "coins": balance / 10**18,
        "registered": True,
        "claimed keys": old.node_id.hex(),
        "last epoch": None,
        "epoch in its challenge window": None,
        "points granted": 0,
        "points claimed": 0,
        "claimable": 0,
        "claims go to": str(HERE),
        "announced payout address": None,
        "which counts from": None,
        "waits for": None,
        "tokens": 0.0,
        "treasury": treasury / 10**18,
        "granted and not claimed": 0.0,
        "points per epoch": 0.0,
        "treasury pays until": None,
        "treasury pays": "nothing was granted lately",
        "auditor": False,
        "tokens bonded": 0.0,
        "bond needed": None,
        "bond suffices": None,
        "tokens exiting": 0.0,
        "withdrawable from": None,
        "waiting to be sent": 0,
        "stuck": 0,
        "refused": 0,
        "last error": None,
        "last receipt": None,
        "endpoints": [
            {"name": silent, "head": None, "trouble": no_answer, "disagreements": 0, "on_wrong_chain": False},
            {
                "name": url,
                "head": world.chain.engine.head.block_number,
                "trouble": None,
                "disagreements": 0,
                "on_wrong_chain": False,
            },
        ],
    }
