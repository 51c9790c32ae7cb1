"""What a new user types in the first hour: hints and defaults that hold for this data directory and key."""

from __future__ import annotations

import json
import re
import shlex
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from support.nodes import manifest_of
from support.sapo_process import Run, trained

from sapo_client.cli.swarm import listen_option
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_protocol.suite import Suite

ALONE = {"SAPO_SWARM__LISTEN_BEFORE_SIGNING_SECONDS": "0"}
ADDRESS = "/ip4/0.0.0.0/tcp/4001/p2p/12D3KooWQ3Y1bTjNDuTtuJ7UKeBz8gAgKHVKsBHe8r2ADKuwEuYM"


def node_ids(sapo: Run, *names: str) -> list[str]:
    """Make identities of these names; return their node ids."""
    for name in names:
        sapo("keys", "new", name, "--no-passphrase")
    shown = [json.loads(sapo("keys", "show", name, "--json").stdout) for name in names]
    return [each["node_id"] for each in shown]


def stop_hint(text: str) -> list[str]:
    """Return the words of the command in an error's hint that stops a node."""
    found = re.search(r"^hint: stop that process first \(`(sapo stop[^`]*)`\)", text, flags=re.MULTILINE)
    assert found is not None, text
    return shlex.split(found[1])


def test_a_node_elsewhere_is_stopped_as_the_hint_says_and_keeps_its_identity(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    """The data directory is not the default one, and the identity not that of the name `key`."""
    _, second = node_ids(sapo, "key", "second")
    first = ["join", "--alone", "--data-dir", "my node", "--identity", "second"]
    with trained(first, home, tmp_path, 1) as process:
        again = sapo("join", "--alone", "--data-dir", "my node", "--identity", "key")
        elsewhere = sapo("join", "--alone", "--data-dir", "other", "--identity", "second")
        assert (again.returncode, elsewhere.returncode) == (8, 4)
        command = ["sapo", "stop", "--data-dir", str(tmp_path / "my node")]
        assert stop_hint(again.stderr) == [*command[:3], "my node"]
        assert stop_hint(elsewhere.stderr) == command
        assert sapo(*command[1:]).returncode == 0
        assert process.wait() == 0
    shown = json.loads(sapo("id", "--data-dir", "my node", "--json").stdout)
    assert shown["node_id"] == second
    with trained(["join", "--alone", "--data-dir", "my node"], home, tmp_path, 1) as process:
        status = json.loads(sapo("status", "--data-dir", "my node", "--json").stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert status["node_id"] == second
    shown = sapo("config", "show", "--origin", "--data-dir", "my node").stdout
    assert re.search(r"^identity +second +an earlier join, in ", shown, flags=re.MULTILINE)


@pytest.mark.parametrize(
    "command",
    [
        ("swarm", "new", "friends", "--bootstrap", ADDRESS),
        ("swarm", "deploy", "swarm", "--rpc", "http://127.0.0.1:1", "--key", "key", "--address", ADDRESS),
    ],
)
def test_an_address_that_nobody_can_dial_is_refused(sapo: Run, command: tuple[str, ...]) -> None:
    node_ids(sapo, "key")
    done = sapo(*command)
    option = command[-2]
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"error: {option} {ADDRESS} cannot be dialled: 0.0.0.0 stands for every interface\n"
        "hint: put that machine's IP address in its place; `sapo status` of its node shows it\n"
    )


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("health", "Did you mean `sapo status --healthy`?"),
        ("run", "Did you mean `sapo join`?"),
        ("version", "Did you mean `sapo --version`?"),
        ("sttaus", "Did you mean `sapo status`?"),
        ("claim", "Did you mean `sapo ledger claim`?"),
        ("swarm join", "Did you mean `sapo join`?"),
        ("ledger stauts", "Did you mean `sapo ledger status`?"),
        ("qqqq", "`sapo --help` lists all."),
    ],
)
def test_an_unknown_command_names_the_one_that_was_meant(sapo: Run, typed: str, meant: str) -> None:
    done = sapo(*typed.split())
    name = typed.split()[-1]
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"Error: No such command '{name}'. {meant}")


@pytest.mark.parametrize(
    ("address", "option"),
    [
        ("/ip4/203.0.113.7/tcp/4001", " --listen /ip4/0.0.0.0/tcp/4001"),
        ("/dns/node.example.org/tcp/4001", " --listen /ip4/0.0.0.0/tcp/4001"),
        ("/ip6/2001:db8::7/tcp/4001", " --listen /ip6/::/tcp/4001"),
        ("/ip4/127.0.0.1/tcp/4001", " --listen /ip4/127.0.0.1/tcp/4001"),
    ],
)
def test_the_founder_is_told_to_listen_where_the_manifest_says(
    weekdays: Suite, address: str, option: str
) -> None:
    """Without it the node takes any port, and the manifest's address leads nowhere."""
    founder, other = bytes([1]) * 32, bytes([2]) * 32
    addresses = tuple(f"{address}/p2p/{peer_id_from_key(key)}" for key in (other, founder))
    founded = replace(manifest_of(weekdays), bootstrap=addresses)
    assert listen_option(founded, founder) == option
    assert listen_option(manifest_of(weekdays), founder) == ""
