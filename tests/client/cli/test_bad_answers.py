"""Every command that queries a chain, with every kind of server in place of the chain."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support import bad_rpc
from support.bad_rpc import Answer, answering
from support.swarm import make_chain_manifest
from typer.testing import CliRunner

from sapo_client import keystore
from sapo_client.cli.app import app
from sapo_client.cli.checks_network import check_chain
from sapo_client.config import Config, LedgerConfig
from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger.outbox import EntryState, Outbox
from sapo_client.ledger.transactions import Call
from sapo_client.paths import DataDir
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest_file import manifest_to_json
from sapo_verification.admission.contribution_store import ContributionStore

MANIFEST = make_chain_manifest(genesis_seconds=1_700_000_000)
FAUCET = Account(bytes(19) + b"\x07")
QUEUED = Call(Account(bytes(19) + b"\x09"), b"a claim that must not be lost")

assert MANIFEST.registry is not None
assert MANIFEST.ledger is not None
CONTRACTS = bad_rpc.codes({MANIFEST.registry: "NodeRegistry", MANIFEST.ledger: "EpochLedger"})
SWAPPED = bad_rpc.codes({MANIFEST.registry: "EpochLedger", MANIFEST.ledger: "Faucet", FAUCET: "SapoToken"})

ANSWERS: Mapping[str, Answer] = {
    "nothing": bad_rpc.body(b""),
    "null": bad_rpc.body(b"null"),
    "text": bad_rpc.body(b"hello"),
    "a page": bad_rpc.body(b"<html><body>502 Bad Gateway</body></html>"),
    "a list": bad_rpc.body(b"[]"),
    "an object": bad_rpc.body(b"{}"),
    "a number": bad_rpc.body(b"5"),
    "digits": bad_rpc.body(b'{"jsonrpc": "2.0", "id": 0, "result": ' + b"9" * 5000 + b"}"),
    "brackets": bad_rpc.body(b"[" * 100_000),
    "binary": bad_rpc.body(bytes(range(256)) * 8),
    "half of it": bad_rpc.body(b'{"jsonrpc": "2.0", "id": 0, "resu'),
    "result null": bad_rpc.result(None),
    "result text": bad_rpc.result("hello"),
    "result empty": bad_rpc.result(""),
    "result 0x": bad_rpc.result("0x"),
    "result number": bad_rpc.result(31337),
    "result true": bad_rpc.result(True),
    "result list": bad_rpc.result([]),
    "result object": bad_rpc.result({}),
    "result negative": bad_rpc.result("-0x1"),
    "result huge": bad_rpc.result("0x" + "f" * 64),
    "result beyond": bad_rpc.result("0x" + "f" * 5000),
    "error": bad_rpc.error({"code": -32000, "message": "no"}),
    "error with data": bad_rpc.error({"code": 3, "message": "execution reverted", "data": "0x08c379a0ff"}),
    "error with odd data": bad_rpc.error({"code": 3, "message": "reverted", "data": [{"a": 1}]}),
    "error text": bad_rpc.error("no"),
    "error list": bad_rpc.error([1]),
    "error without code": bad_rpc.error({"message": "no"}),
    "another chain": bad_rpc.chain(1),
    "another test chain": bad_rpc.chain(11155111),
    "no contract": bad_rpc.chain(31337),
    "other contracts": bad_rpc.chain(31337, SWAPPED),
    "contracts without answers": bad_rpc.chain(31337, CONTRACTS),
    "contracts with zeros": bad_rpc.chain(31337, CONTRACTS, "0x" + "00" * 32),
    "contracts with ones": bad_rpc.chain(31337, CONTRACTS, "0x" + "ff" * 32 * 12),
    "contracts with half words": bad_rpc.chain(31337, CONTRACTS, "0x" + "01" * 33),
}

ACCOUNT = "0x" + "11" * 20
DEPLOY = ("deploy", "{folder}", "--yes", "--level", "nano")
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "swarm deploy": ("swarm", *DEPLOY, "--key", "{key}"),
    "swarm deploy for money": ("swarm", *DEPLOY, "--key", "{key}", "--i-know-this-costs-money"),
    "testnet deploy": ("testnet", *DEPLOY, "--key", "{key}"),
    "swarm faucet": ("swarm", "faucet", "{founded}", ACCOUNT, "--key", "{key}"),
    "testnet faucet": ("testnet", "faucet", "{founded}", ACCOUNT, "--key", "{key}"),
    "swarm serve": ("swarm", "serve", "{founded}", "--key", "{key}"),
    "ledger status": ("ledger", "status"),
    "ledger register": ("ledger", "register", "--yes"),
    "ledger claim": ("ledger", "claim", "--yes"),
    "ledger challenge": ("ledger", "challenge", "3", "--yes"),
    "ledger finalise": ("ledger", "finalise", "--yes"),
    "ledger payout": ("ledger", "payout", ACCOUNT, "--yes"),
    "ledger bond": ("ledger", "bond", "1", "--yes"),
    "ledger exit": ("ledger", "exit", "1", "--yes"),
    "ledger withdraw": ("ledger", "withdraw", "--yes"),
    "ledger explain": ("ledger", "explain", "3"),
    "ledger audit": ("ledger", "audit", "3"),
    "ledger revoke": ("ledger", "revoke", "22" * 32, "--yes"),
}
OWN_OPTIONS = ("swarm", "testnet")


@dataclass(frozen=True)
class Home:
    """A user with an identity, a data directory with a queued claim, and a founded swarm."""

    root: Path

    def arguments(self, command: str, url: str, folder: Path) -> list[str]:
        """Return a command's arguments, with everything that it needs; swarms are founded in the folder."""
        places = {"founded": "founded", "key": "key.json"}
        places = {name: str(self.root / place) for name, place in places.items()} | {"folder": str(folder)}
        words = [word.format_map(places) for word in COMMANDS[command]]
        words += ["--rpc", url, "--data-dir", str(self.root / "data")]
        if words[0] not in OWN_OPTIONS and words[1] != "audit":
            words += ["--identity", places["key"]]
        return words

    def queued(self) -> list[tuple[EntryState, Call]]:
        """Return what waits to be sent."""
        outbox = Outbox(DataDir(self.root / "data").outbox, owner=self.owner)
        try:
            return [(entry.state, entry.call) for entry in outbox.entries()]
        finally:
            outbox.close()

    @property
    def owner(self) -> str:
        """The name under which the outbox is kept."""
        account = Account.from_hex(keystore.read(self.root / "key.json").account)
        return f"{MANIFEST.swarm_id} 0x{account.hex()}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("home"))
    keystore.create(made.root / "key.json", None)
    data = DataDir(made.root / "data").create()
    data.manifest.write_text(manifest_to_json(MANIFEST), encoding="utf-8")
    ContributionStore(data.database, MANIFEST.swarm_id)
    outbox = Outbox(data.outbox, owner=made.owner)
    outbox.add("claim", "1", QUEUED)
    outbox.close()
    founded = made.root / "founded"
    founded.mkdir()
    (founded / "manifest.json").write_text(manifest_to_json(MANIFEST), encoding="utf-8")
    (founded / "deployment.json").write_text(json.dumps({"chain_id": 31337, "faucet": str(FAUCET)}))
    return made


OFTEN = ("null", "binary", "result huge", "error with data", "another chain", "no contract")
"""Tried at every run; the others at long ones."""


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=() if name in OFTEN else pytest.mark.long) for name in ANSWERS],
)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with answering(ANSWERS[request.param]) as served:
        yield served


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bad_answer_is_a_clear_error_and_loses_nothing(
    home: Home, url: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    deployed = tmp_path / "new swarm"
    done = CliRunner().invoke(app, home.arguments(command, url, deployed))
    assert isinstance(done.exception, SapoError), (done.output, done.exception)
    assert done.exception.exit_code == ExitCode.LEDGER
    assert done.exception.text
    assert done.exception.hint
    assert home.queued() == [(EntryState.QUEUED, QUEUED)]
    assert not (deployed / "deployment.json").exists()
    assert not (deployed / "manifest.json").exists()


def test_the_doctor_names_every_bad_answer(
    home: Home, url: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home.root))
    key = str(home.root / "key.json")
    config = Config(data_dir=home.root / "data", identity=key, ledger=LedgerConfig(rpc_urls=(url,)))
    found = {check.name: check for check in check_chain(config, MANIFEST)}
    with_contracts = "contracts with" in request.node.callspec.id
    assert found["ledger"].state == ("ok" if with_contracts else "fail")
    assert with_contracts or found["ledger"].hint
