"""User mistakes and damaged files: one error line and one hint, never a traceback."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.nodes import manifest_of
from support.sapo_process import Run, home_in, runner

from sapo_client.config import Config, SwarmConfig
from sapo_client.errors import NEWER_DATABASE_HINT, SapoError
from sapo_client.node.runtime.host import require_addresses
from sapo_client.paths import DataDir
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite
from sapo_verification.signing.database import Mark, SigningDatabase

Join = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return DataDir(tmp_path / "node")


def joiner(sapo: Run, folder: Path, policy: Path) -> Join:
    """Return a function that joins the folder's swarm for one step."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        fixed = ("--identity", "key", "--manifest", "swarm.json", "--model", str(policy), "--steps", "1")
        settings = {"SAPO_SWARM__LISTEN_BEFORE_SIGNING_SECONDS": "0", "SAPO_LEARNER__MAX_NEW_TOKENS": "6"}
        return sapo("join", *fixed, "--data-dir", str(folder / "node"), *arguments, **settings)

    return run


@pytest.fixture
def join(sapo: Run, weekdays: Suite, policy: Path, tmp_path: Path) -> Join:
    """Return a function that joins a swarm without a chain for one step."""
    (tmp_path / "swarm.json").write_text(manifest_to_json(manifest_of(weekdays)))
    sapo("keys", "new", "key", "--no-passphrase")
    return joiner(sapo, tmp_path, policy)


@pytest.fixture(scope="module")
def trained_once(weekdays: Suite, policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a swarm, a key and the data directory of a node that made one step."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "swarm.json").write_text(manifest_to_json(manifest_of(weekdays)))
    sapo = runner(home_in(folder), folder)
    sapo("keys", "new", "key", "--no-passphrase")
    done = joiner(sapo, folder, policy)()
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def join_again(trained_once: Path, sapo: Run, policy: Path, tmp_path: Path) -> Join:
    """Return a function that joins once more, with a copy of the files of a node that made one step."""
    shutil.copytree(trained_once, tmp_path, dirs_exist_ok=True)
    return joiner(sapo, tmp_path, policy)


def assert_told(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Assert an exit code and a message of exactly one error line and one hint."""
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert hint.startswith("hint: ")
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1:4001",
        "/ip4/127.0.0.1",
        "/ip4/127.0.0.1/tcp/99999",
        "/ip4/::1/tcp/4001",
        "/ip6/127.0.0.1/tcp/4001",
        "/ip4/999.0.0.1/tcp/4001",
        "/dns4/example.org/tcp/4001",
        "/ip4/127.0.0.1/udp/4001",
        "",
    ],
)
def test_a_malformed_listen_address(address: str) -> None:
    with pytest.raises(SapoError, match=re.escape(f"swarm.listen: '{address}' is not")) as caught:
        require_addresses(Config(swarm=SwarmConfig(listen=(address,))))
    assert (caught.value.exit_code, "/ip4/0.0.0.0/tcp/4001" in caught.value.hint) == (3, True)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:4001", "/ip4/127.0.0.1/tcp/4001", "/ip4/127.0.0.1/tcp/4001/p2p/nobody", ""]
)
def test_a_malformed_bootstrap_address(address: str) -> None:
    with pytest.raises(SapoError, match=re.escape(f"swarm.bootstrap: '{address}' is not")) as caught:
        require_addresses(Config(swarm=SwarmConfig(bootstrap=(address,))))
    assert (caught.value.exit_code, "/p2p/" in caught.value.hint) == (3, True)


def test_a_directory_that_trained_alone_joins_no_swarm_without_an_option(sapo: Run, policy: Path) -> None:
    """Without its flag it would listen, and look for other nodes of a swarm that nobody else can know."""
    sapo("keys", "new", "key", "--no-passphrase")
    quick = ("--identity", "key", "--model", str(policy), "--steps", "1")
    assert sapo("join", *quick, "--alone", SAPO_LEARNER__MAX_NEW_TOKENS="6").returncode == 0
    told = (3, "trains alone, and no swarm is named", "--alone", "swarm.alone = true", "sapo://")
    assert_told(sapo("join", *quick), *told)
    assert_told(sapo("service", "install", "--identity", "key", "--no-start"), *told)


@pytest.mark.long
def test_a_model_that_cannot_be_downloaded_is_reported_once(sapo: Run) -> None:
    """The library tries six times, and would print each of them."""
    done = sapo("doctor", "--json", "--model", "nobody/nothing", HF_ENDPOINT="http://127.0.0.1:9")
    checks = {check["name"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    asked = "model: asking http://127.0.0.1:9 for the small files of nobody/nothing\n"
    assert (done.returncode, checks["model"], done.stderr) == (7, "fail", asked)


def test_the_error_that_ended_a_node_is_told_afterwards(
    join_again: Join, sapo: Run, policy: Path, tmp_path: Path
) -> None:
    """Under a service manager nobody has seen the terminal."""
    model = shutil.move(shutil.copytree(policy, tmp_path / "model"), tmp_path / "moved")
    ended = join_again("--model", str(tmp_path / "model"))
    assert ended.returncode == 3, ended.stderr
    [error] = re.findall(r"^error: (.*)$", ended.stderr, flags=re.MULTILINE)
    place = ("--data-dir", "node")
    status = sapo("status", *place)
    assert re.search(r"^state +failed$", status.stdout, flags=re.MULTILINE)
    [hint] = re.findall(r"^hint: (.*)$", ended.stderr, flags=re.MULTILINE)
    assert f"the last one ended with an error: {error}; its last checkpoint is of step 1;" in status.stderr
    assert status.stderr.endswith(f"\nhint: {hint}\n")
    healthy = sapo("status", "--healthy", *place)
    assert healthy.returncode == 5
    assert healthy.stderr.endswith(f"the last one ended with an error: {error}\nhint: {hint}\n")
    assert f"the node ended: {error}; " in sapo("logs", *place).stdout
    assert join_again("--model", str(model), "--fresh").returncode == 0
    assert re.search(r"^state +stopped$", sapo("status", *place).stdout, flags=re.MULTILINE)


def test_a_bug_or_a_newer_database_that_ended_a_node_is_told_afterwards(
    join_again: Join, sapo: Run, data: DataDir
) -> None:
    """`sapo status` says what ended the node, not that somebody killed it."""
    place = ("--data-dir", "node")
    assert join_again().returncode == 0
    data.events.rename(data.root / "kept")
    data.events.mkdir()  # no node expects a folder there
    assert join_again().returncode == 1
    told = "the last one ended with an error: this is a bug in sapo: IsADirectoryError: "
    assert told in sapo("status", *place).stderr
    assert "IsADirectoryError" in sapo("logs", *place).stdout
    data.events.rmdir()
    with sqlite3.connect(data.history) as database:
        database.execute("UPDATE schema_version SET version = 99")
    assert join_again().returncode == 8
    status = sapo("status", *place)
    told = f"the last one ended with an error: {data.history} was written by a newer version of sapo: "
    assert told in status.stderr
    assert status.stderr.endswith(f"\nhint: {NEWER_DATABASE_HINT}\n")


def test_malformed_addresses_through_the_entry_point(join: Join) -> None:
    assert_told(join("--listen", "127.0.0.1:4001"), 3, "swarm.listen: '127.0.0.1:4001' is not")
    assert_told(
        join("--bootstrap", "/ip4/127.0.0.1/tcp/4001"), 3, "swarm.bootstrap: '/ip4/127.0.0.1/tcp/4001' is not"
    )


def test_a_port_that_another_node_holds(join: Join) -> None:
    """The other socket shares its port, as py-libp2p's do."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"/ip4/127.0.0.1/tcp/{other.getsockname()[1]}"
        assert_told(join("--listen", address), 5, f"cannot listen on {address}", "--listen")


def test_an_address_of_another_machine(join: Join) -> None:
    told = "cannot listen on /ip4/203.0.113.7"
    assert_told(join("--listen", "/ip4/203.0.113.7/tcp/4001"), 5, told, "--listen /ip4/0.0.0.0/tcp/0")


def test_a_data_directory_whose_name_is_too_long(join: Join) -> None:
    assert_told(join("--data-dir", "z" * 300), 8, "File name too long", "--data-dir")


@pytest.mark.parametrize("name", ["node.sqlite", "outbox.sqlite"])
def test_a_file_that_is_no_database_is_repaired(
    join_again: Join, sapo: Run, data: DataDir, name: str
) -> None:
    path = data.root / name
    if name == "node.sqlite":
        path.write_bytes(b"not a database" * 1000)
        assert_told(join_again(), 8, f"{path} is damaged", "sapo repair")
    else:
        path.write_bytes(b"not a database" * 1000)
    repaired = json.loads(sapo("repair", "--json", "--data-dir", str(data.root)).stdout)
    [file] = [file for file in repaired["files"] if file["file"] == name]
    assert (file["state"], file["kept"], file["complete"]) == ("replaced", {}, False)
    assert Path(file["aside"]).read_bytes() == b"not a database" * 1000
    again = json.loads(sapo("repair", "--json", "--data-dir", str(data.root)).stdout)
    assert {file["state"] for file in again["files"]} == {"in order"}
    if name == "node.sqlite":
        [mark] = SigningDatabase(path).marks()
        assert (mark.epoch, mark.next_slot) == (0, 100_000)  # it signs nothing more in this epoch
        assert file["signs_from_epoch"] == 1


def test_a_damaged_page_costs_only_its_rows(sapo: Run, data: DataDir, weekdays: Suite) -> None:
    data.create()
    manifest = manifest_of(weekdays)
    data.manifest.write_text(manifest_to_json(manifest))
    connection = sqlite3.connect(data.database)
    connection.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, text TEXT)")
    rows = [(number, f"{number}" * 100) for number in range(1000)]
    connection.executemany("INSERT INTO entry VALUES (?, ?)", rows)
    connection.commit()
    [(size,)] = connection.execute("PRAGMA page_size").fetchall()
    connection.close()
    content = bytearray(data.database.read_bytes())
    middle = len(content) // size // 2 * size
    content[middle : middle + size] = b"\xff" * size
    data.database.write_bytes(bytes(content))

    [file] = json.loads(sapo("repair", "--json", "--data-dir", str(data.root)).stdout)["files"]
    assert (file["state"], file["complete"]) == ("replaced", False)
    kept = sqlite3.connect(data.database).execute("SELECT id, text FROM entry").fetchall()
    assert set(kept) <= set(rows)
    assert {kept[0], kept[-1]} == {rows[0], rows[-1]}
    assert len(kept) == file["kept"]["entry"] > 900


@pytest.mark.usefixtures("join_again")
def test_a_repair_raises_a_readable_mark_to_the_end_of_its_epoch(sapo: Run, data: DataDir) -> None:
    [before] = SigningDatabase(data.database).marks()
    connection = sqlite3.connect(data.database)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    [(size,)] = connection.execute("PRAGMA page_size").fetchall()
    query = "SELECT rootpage FROM sqlite_master WHERE name = 'retired_node'"
    [(page,)] = connection.execute(query).fetchall()
    connection.close()
    content = bytearray(data.database.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    data.database.write_bytes(bytes(content))
    sapo("repair", "--data-dir", str(data.root))
    [after] = SigningDatabase(data.database).marks()
    assert after == Mark(before.swarm_id, before.account, epoch=0, next_slot=100_000)


def test_the_manifest_is_looked_for_before_the_passphrase(sapo: Run, data: DataDir, tmp_path: Path) -> None:
    (tmp_path / "word").write_text("a long passphrase")
    sapo("keys", "new", "locked", "--kdf", "interactive", "--passphrase-file", "word")
    done = sapo("join", "--identity", "locked", "--data-dir", str(data.root))
    assert_told(done, 3, "no swarm to join", "--alone")


@pytest.mark.parametrize(
    "option",
    [
        ("--listen", "127.0.0.1:4001"),
        ("--bootstrap", "/ip4/127.0.0.1/tcp/4001"),
        ("--manifest", "swarm.json"),
        ("--rpc", "http://127.0.0.1:9"),
        ("--audit",),
    ],
    ids=lambda option: option[0],
)
def test_an_option_of_a_swarm_is_refused_when_training_alone(
    sapo: Run, data: DataDir, option: tuple[str, ...]
) -> None:
    """Without the refusal the node would train, and its operator would take it for a node of the swarm."""
    sapo("keys", "new", "key", "--no-passphrase")
    done = sapo("join", "--identity", "key", "--alone", *option, "--data-dir", str(data.root), "--steps", "1")
    assert_told(done, 2, f"{option[0]} and --alone are given", "leave out")


def test_nothing_to_repair_is_an_error(sapo: Run, tmp_path: Path) -> None:
    assert_told(sapo("repair", "--data-dir", str(tmp_path / "nowhere")), 8, "there is no data directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_an_inaccessible_data_directory_is_reported(join: Join, data: DataDir) -> None:
    data.create().root.chmod(0)
    assert_told(join(), 8, str(data.root))


def test_a_file_in_place_of_the_data_directory(join: Join, data: DataDir) -> None:
    data.root.write_text("")
    assert_told(join(), 8, f"cannot use the data directory {data.root}", "--data-dir")


BUG = """
import sys
from sapo_client.cli.app import app, main

@app.command("crash")
def crash(url: str) -> None:
    raise ZeroDivisionError(f"division of {url} by zero")

sys.argv = ["sapo", "crash", "https://user:secret@rpc.example/key"]
main()
"""


def test_a_bug_names_its_report(home: dict[str, str]) -> None:
    """Through the entry point and the real application, which has a hook for exceptions of its own."""
    done = subprocess.run([sys.executable, "-c", BUG], capture_output=True, text=True, check=False, env=home)
    assert_told(done, 1, "this is a bug in sapo: ZeroDivisionError", "https://rpc.example")
    [report] = (Path(home["HOME"]) / ".local/state/sapo/reports").glob("bug-*.txt")
    assert str(report) in done.stderr
    text = report.read_text()
    assert "ZeroDivisionError" in text
    assert "sapo crash" in text
    assert '"python"' in text
    assert "user:secret" not in text + done.stderr


def test_a_bug_whose_report_cannot_be_written_shows_its_stack(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    environment = home | {"SAPO_REPORTS_DIR": str(tmp_path / "taken")}
    done = subprocess.run(
        [sys.executable, "-c", BUG], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "error: this is a bug in sapo" in done.stderr
