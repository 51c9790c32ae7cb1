"""`sapo swarm`, and the names that its commands had before."""

import shlex

import pytest
from support.sapo_process import Run

DEPLOY = ("deploy", "folder", "--rpc", "http://127.0.0.1:9", "--key", "none")
FAUCET = ("faucet", "folder", "0x" + "07" * 20, "--rpc", "http://127.0.0.1:9", "--key", "none")


@pytest.mark.parametrize("command", [DEPLOY, FAUCET])
def test_the_deprecated_name_names_the_new_one_and_does_the_same(sapo: Run, command: tuple[str, ...]) -> None:
    new, old = sapo("swarm", *command), sapo("testnet", *command)
    name = command[0]
    warning = f"warning: `sapo testnet {name}` is deprecated: use `sapo swarm {name}`\n"
    assert new.returncode == 4
    assert (old.returncode, old.stdout, old.stderr) == (new.returncode, new.stdout, warning + new.stderr)


def test_the_deprecated_names_are_hidden(sapo: Run) -> None:
    shown = sapo("testnet", "--help").stdout
    assert "up" in shown
    assert "deploy" not in shown
    assert "faucet" not in shown


def test_a_link_without_a_node_says_how_to_add_one(sapo: Run) -> None:
    """As printed, with a folder whose name has a space."""
    node = "/ip4/203.0.113.7/tcp/4001/p2p/12D3KooWAo9bz2dV9N9bwooByNSGfQ2kpEUUVJEghP2ZjzLmxf4z"
    *_, note = sapo("swarm", "new", "two friends", "--level", "nano").stderr.splitlines()
    start, _, rest = note.partition("sapo swarm link ")
    command, _, _ = rest.partition(" (")
    assert "names no node" in start
    words = ["swarm", "link", *shlex.split(command)]
    assert words[2:-1] == ["two friends/manifest.json", "--bootstrap"]
    added = sapo(*words[:-1], node)
    assert (added.returncode, len(added.stderr.splitlines())) == (0, 1)
    assert node in added.stdout
