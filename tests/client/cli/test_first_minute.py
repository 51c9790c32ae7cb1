"""The first minute of a newcomer: what the README and the `Then:` hints say, run as printed."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from support.ledger import BOB
from support.nodes import found_now
from support.sapo_process import Run, trained

from sapo_client.founding.invitation import Invitation
from sapo_client.founding.invitation_server import FaucetAccess, InvitationServer
from sapo_client.swarm.peer_id import peer_id_from_key
from sapo_protocol import ed25519
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite

pytestmark = pytest.mark.e2e

README = Path(__file__).parents[3] / "README.md"


def hints(text: str) -> list[str]:
    """Return the commands of the `Then:` hints."""
    return re.findall(r"^Then: (sapo .*)$", text, flags=re.MULTILINE)


def readme_commands() -> list[str]:
    """Return the commands of the README's section on joining a swarm, without comments."""
    section = README.read_text(encoding="utf-8").partition("## Join a swarm\n")[2].partition("\n## ")[0]
    block = section.partition("```sh\n")[2].partition("```")[0]
    return [line.partition("#")[0].strip() for line in block.splitlines()]


def joined(
    command: str, home: dict[str, str], folder: Path, rounds: int
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run a command of `sapo join` as printed, until it has shown so many rounds."""
    words = shlex.split(command)
    assert words[0] == "sapo"
    return trained(words[1:], home, folder, rounds)


def test_the_hint_after_a_new_key_trains_and_a_kill_is_reported(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    made = sapo("keys", "new", "key", "--no-passphrase")
    [hint] = hints(made.stderr)
    assert hint in readme_commands()
    with joined(hint, home, tmp_path, 3) as process:
        healthy = sapo("status", "--healthy")
        assert (healthy.returncode, healthy.stdout, healthy.stderr) == (0, "", "")
        assert "nothing is wrong" in sapo("status").stdout
        process.send_signal(signal.SIGKILL)
        process.wait()
    status = sapo("status")
    assert re.search(r"^state +killed$", status.stdout, flags=re.MULTILINE)
    assert "the last one was killed; its last checkpoint is of step " in status.stderr
    with joined(hint, home, tmp_path, 1) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr is not None
        said = process.stderr.read()
    assert re.search("NodeBinding|listening|peer", said) is None, said
    assert re.search(r"^state +stopped$", sapo("status").stdout, flags=re.MULTILINE)


def test_the_hint_of_init_is_the_same(sapo: Run) -> None:
    made = sapo("init", "--no-passphrase")
    assert hints(made.stderr) == ["sapo join --identity key --alone"]


def test_a_swarm_without_a_chain_is_founded_and_joined_by_its_link(
    sapo: Run, home: dict[str, str], tmp_path: Path
) -> None:
    """The hint of the founding command, as printed, in the home of a newcomer with a key of that name."""
    sapo("keys", "new", "key", "--no-passphrase")
    founded = sapo("swarm", "new", "swarm", "--name", "friends")
    assert founded.returncode == 0, founded.stderr
    [hint] = hints(founded.stderr)
    quick = {"SAPO_SWARM__LISTEN_BEFORE_SIGNING_SECONDS": "0"}
    with joined(hint, home | quick, tmp_path, 1) as process:
        status = sapo("status").stdout
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
        assert process.stderr is not None
        shown = process.stderr.read()
    assert "friends (" in status
    assert re.search(r"^swarm +friends \([0-9a-f]{64}\)$", shown, flags=re.MULTILINE)
    assert re.search(r"^chain +none: nothing is paid$", shown, flags=re.MULTILINE)
    other = sapo("swarm", "new", "other", "--epoch-seconds", "60")
    [hint] = hints(other.stderr)
    refused = sapo(*shlex.split(hint)[1:])
    assert (refused.returncode, "belongs to another swarm" in refused.stderr) == (3, True)
    assert sapo("swarm", "new", "other").returncode == 3


def test_a_link_brings_endpoint_and_faucet_and_the_node_registers(
    sapo: Run, home: dict[str, str], tmp_path: Path, weekdays: Suite, policy: Path
) -> None:
    """A newcomer with an empty account: the node asks the faucet that the link names, and registers."""
    contracts, manifest = found_now(tmp_path, weekdays)
    made = json.loads(sapo("keys", "new", "key", "--no-passphrase", "--json").stdout)
    access = FaucetAccess([contracts.chain.url], BOB, contracts.deployment.faucet)
    server = InvitationServer(("127.0.0.1", 0), Invitation(manifest, (contracts.chain.url,)), faucet=access)
    settings = {
        "SAPO_LEARNER__MODEL": str(policy),
        "SAPO_LEARNER__MAX_NEW_TOKENS": "6",
        "SAPO_SWARM__LISTEN_BEFORE_SIGNING_SECONDS": "0",
    }
    serving = threading.Thread(target=server.serve)
    serving.start()
    with server, joined(f"sapo join '{server.link}'", home | settings, tmp_path, 1) as process:
        told = (sapo("ledger", "status", "--identity", "key", "--json") for _ in range(100))
        registered = next(done for done in told if json.loads(done.stdout)["registered"])
        assert json.loads(registered.stdout)["account"] == made["account"]
        shown = sapo("config", "show", "--origin").stdout
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        text = process.stderr.read()
        server.close()
    serving.join()
    assert f"account {made['account']} holds no coins: asking the faucet {server.url} for some" in text
    assert "the faucet sent coins" in text
    assert re.search(rf"ledger\.rpc_urls +{re.escape(contracts.chain.url)} +an earlier join, in ", shown)
    contracts.chain.close()


def test_the_readmes_join_line_joins(
    sapo: Run, home: dict[str, str], tmp_path: Path, weekdays: Suite, policy: Path
) -> None:
    """As printed, but for the example's endpoint and address, which name the test's chain and a dead node."""
    contracts, manifest = found_now(tmp_path, weekdays)
    (tmp_path / "swarm.json").write_text(manifest_to_json(manifest))
    sapo("keys", "new", "key", "--no-passphrase")
    [line] = [line for line in readme_commands() if "--manifest" in line]
    peer_id = peer_id_from_key(ed25519.public_key(bytes(32)))
    written = line.replace("12D3Koo...", peer_id).replace("/ip4/203.0.113.7/tcp/4001", "/ip4/127.0.0.1/tcp/9")
    command = written.replace("https://rpc.example.org", contracts.chain.url)
    assert (command.count(peer_id), command.count(contracts.chain.url)) == (1, 1)
    settings = {"SAPO_LEARNER__MODEL": str(policy), "SAPO_LEARNER__MAX_NEW_TOKENS": "6"}
    quick = settings | {"SAPO_SWARM__LISTEN_BEFORE_SIGNING_SECONDS": "0"}
    with joined(command, home | quick, tmp_path, 1):
        asked = (sapo("status", "--healthy") for _ in range(100))
        unpaid = next(done for done in asked if done.returncode)
    assert unpaid.returncode == 7
    assert "holds no coins, so this node cannot register" in unpaid.stdout
    contracts.chain.close()
