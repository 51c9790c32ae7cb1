"""`sapo swarm`, and the names that its commands had before."""

import shlex
import subprocess
from pathlib import Path

import pytest
from support.sapo_process import SAPO, Run, home_in

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


ONE = ("manifest.json", "--rpc", "http://127.0.0.1:9")
WEB_HINT = "hint: give the whole address, such as https://example.org\n"
NODE_HINT = "hint: `sapo status` of that node shows it: /ip4/203.0.113.7/tcp/4001/p2p/12D3Koo...\n"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("new", "friends", "--bootstrap", "/ip4/1.2.3.4"), "--bootstrap /ip4/1.2.3.4"),
        (("new", "friends", "--at", "example.org/swarm.json"), "--at example.org/swarm.json"),
        (("link", *ONE, "--bootstrap", "/ip4/1.2.3.4"), "--bootstrap /ip4/1.2.3.4"),
        (("link", *ONE, "--rpc", "localhost:8545"), "--rpc localhost:8545"),
        (("link", *ONE, "--faucet", "faucet"), "--faucet faucet"),
        (("serve", ".", "--public", "example.org"), "--public example.org"),
        (("serve", ".", "--rpc", "localhost:8545"), "--rpc localhost:8545"),
        (("serve", ".", "--bootstrap", "/ip4/1.2.3.4"), "--bootstrap /ip4/1.2.3.4"),
    ],
)
def test_no_link_is_printed_that_a_client_would_refuse(
    sapo: Run, command: tuple[str, ...], told: str
) -> None:
    """And nothing is founded, so that the corrected command does it."""
    refused = sapo("swarm", *command)
    is_node = told.startswith("--bootstrap")
    text = f"error: {told} is not {'the address of a node' if is_node else 'an http(s) address'}\n"
    expected = (3, "", text + (NODE_HINT if is_node else WEB_HINT))
    assert (refused.returncode, refused.stdout, refused.stderr) == expected
    assert sapo("swarm", "new", "friends", "--level", "nano").returncode == 0


def test_a_folder_in_the_place_of_a_manifest_names_the_file_in_it(sapo: Run) -> None:
    sapo("swarm", "new", "friends", "--level", "nano")
    sapo("keys", "new", "key", "--no-passphrase")
    refused = sapo("join", "--identity", "key", "--manifest", "friends")
    assert (refused.returncode, refused.stderr) == (
        3,
        "error: cannot read the manifest friends: Is a directory\n"
        "hint: name the file in it: friends/manifest.json\n",
    )


def test_a_manifest_that_could_not_be_written_leaves_none_behind(sapo: Run, tmp_path: Path) -> None:
    """A shell's limit on the size of files stands for a full disk."""
    command = f"ulimit -f 0; exec {shlex.quote(SAPO)} swarm new friends --level nano"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=tmp_path,
        env=home_in(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    told = "error: cannot write friends/manifest.json: File too large\nhint: name another folder\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", told)
    assert sapo("swarm", "new", "friends", "--level", "nano").returncode == 0
