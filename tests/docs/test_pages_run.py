"""The commands of the documentation, run in order as a reader types them, on an external chain.

docs/testnet.md comes first: it founds a swarm, and its nodes earn and claim. The other pages are read with
what it left, each in a shell of its own. ``Swarm.reading`` says what this machine has in place of a page's
names and addresses; ``docs_reader.NOT_RUN`` are the lines that are not run here, with what runs them.
"""

import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.anvil import Anvil, running_anvil
from support.docs_reader import PATIENCE_SECONDS, TESTNET, Reader, page_lines, run_lines
from support.policies import make_policy_folder

from sapo_client.errors import ExitCode
from sapo_client.testnet.processes import free_ports, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Swarm:
    """What docs/testnet.md leaves: a swarm of two nodes, whose newcomer was paid."""

    anvil: Anvil
    reader: Reader
    epoch: int
    operator_address: str
    policy: Path

    def reading(self, name: str, **environment: str) -> Reader:
        """Return a reader in a folder of its own, for whom the pages' names mean this swarm."""
        folder = self.reader.folder / name
        folder.mkdir()
        shutil.copy(self.reader.folder / "swarm" / "manifest.json", folder / "swarm.json")
        link = f"sapo swarm link swarm.json --rpc {self.anvil.url} --bootstrap {self.operator_address} --json"
        reader = Reader(folder, {}, **environment)
        reader.here = {
            "'sapo://...'": f"'{json.loads(reader.run(link))['link']}'",
            "https://rpc.example.org": self.anvil.url,
            "/ip4/203.0.113.7/tcp/4001/p2p/12D3Koo...": self.operator_address,
            "Qwen/Qwen2.5-0.5B-Instruct": str(self.policy),
            "sapo keys new key": "sapo keys new key --no-passphrase",  # there is no terminal to type one
            "explain 3": f"explain {self.epoch}",
            "challenge 3": f"challenge {self.epoch}",
        }
        return reader

    def wait_for_next_epoch(self) -> None:
        """Return in a later epoch than that of the call: a node without history of its key can sign then."""
        manifest = json.loads((self.reader.folder / "swarm" / "manifest.json").read_text(encoding="utf-8"))
        genesis, seconds = manifest["genesis_seconds"], manifest["epoch_seconds"]
        end = genesis + ((time.time() - genesis) // seconds + 1) * seconds
        assert wait_until(lambda: time.time() >= end, 2 * seconds)

    def lend(self, identity: str, reader: Reader, name: str) -> None:
        """Give an identity of docs/testnet.md to another reader, under another name."""
        keys = Path(".config") / "sapo" / "keys"
        (reader.folder / keys).mkdir(parents=True)
        for file in (self.reader.folder / keys).glob(f"{identity}*"):
            shutil.copy(file, reader.folder / keys / file.name.replace(identity, name))


@pytest.fixture(scope="module")
def swarm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swarm]:
    """Follow docs/testnet.md to a claimed reward; the nodes go on."""
    folder = tmp_path_factory.mktemp("pages")
    with running_anvil(folder) as anvil:
        [port] = free_ports(1)
        here = {
            "http://127.0.0.1:8545": anvil.url,
            "/tcp/4001": f"/tcp/{port}",
            "--epoch-seconds 60": "--epoch-seconds 30",
        }
        reader = Reader(folder, here)
        with reader.at_work():
            for line in page_lines(TESTNET):
                if line == "export EPOCH=1":
                    reader.type(f"export EPOCH={_status(reader)['last epoch']}")
                elif line.startswith("sapo ledger status "):
                    asked = reader.meant(line)
                    assert wait_until(
                        lambda asked=asked: int(reader.json(asked).get("claimable") or 0) > 0,  # type: ignore[misc]
                        PATIENCE_SECONDS,
                    ), reader.log_tail()
                else:
                    reader.type(line)
                if line.startswith("sapo keys new operator"):
                    anvil.give(reader.json("sapo keys show operator")["account"], 10**17)
            peer = reader.json("sapo keys show operator")["peer_id"]
            yield Swarm(
                anvil,
                reader,
                int(reader.environment["EPOCH"]),
                f"/ip4/127.0.0.1/tcp/{port}/p2p/{peer}",
                make_policy_folder(folder / "policy", chat=True),
            )


def _status(reader: Reader) -> dict[str, int]:
    return reader.json("sapo ledger status --identity newcomer --rpc $RPC --data-dir newcomer-node")


def test_a_newcomer_follows_the_page_on_test_networks_to_a_claimed_reward(swarm: Swarm) -> None:
    status = _status(swarm.reader)
    assert status["points claimed"] > 0
    assert status["tokens"] > 100  # the faucet gave a hundred


def test_the_readme(swarm: Swarm) -> None:
    """Up to its table of commands on rollouts and points, which the newcomer of the page above types."""
    lines = run_lines("README.md")
    first_export = lines.index("sapo export rollouts received/")
    with swarm.reading("readme").at_work() as reader:
        for line in lines[:first_export]:
            if "--model" in line:
                reader.environment |= {  # a policy of another shape needs a data directory of its own
                    "SAPO_DATA_DIR": "another",
                    "SAPO_SWARM__MANIFEST": "swarm.json",
                    "SAPO_LEDGER__RPC_URLS": swarm.anvil.url,
                }
                swarm.wait_for_next_epoch()  # the same key has signed elsewhere in this one
            reader.type(line)
            if line.startswith("sapo join"):
                reader.wait_for_rounds()
                reader.stop_node()
    readers = {}
    for name in ("newcomer", "operator"):
        own = {"SAPO_DATA_DIR": f"../{name}-node", "SAPO_LEDGER__RPC_URLS": swarm.anvil.url}
        readers[name] = swarm.reading(f"readme-{name}", **own)
        swarm.lend(name, readers[name], name)  # under which the data directory remembers it
    for line in lines[first_export:]:
        is_auditors = line.startswith(("sapo ledger bond", "sapo ledger challenge"))
        _account_line(readers["operator" if is_auditors else "newcomer"], line)


def test_the_page_of_a_newcomer(swarm: Swarm) -> None:
    with swarm.reading("newcomer").at_work() as reader:
        for line in run_lines("docs/roles/newcomer.md"):
            if line.startswith("sapo join") and reader.nodes:
                reader.stop_node()
            reader.type(line)
            if line.startswith("sapo join"):
                reader.wait_for_rounds()


def test_the_page_on_operating_a_node(swarm: Swarm) -> None:
    with swarm.reading("operating").at_work() as reader:
        for line in run_lines("docs/operator.md"):
            if line == "sapo logs --follow":
                line = f"timeout 3 {line} || [ $? = 124 ]"  # Ctrl-C
            reader.type(line)
            if line.startswith("sapo join"):
                reader.wait_for_rounds()
        assert {path.name for path in (reader.folder / "report").iterdir()} >= {"report.md", "report.html"}


def test_the_page_of_an_auditor(swarm: Swarm) -> None:
    """The swarm's auditor itself, so its node of the first page ends before."""
    [operator] = [node for node in swarm.reader.nodes if " operator " in node.name]
    swarm.reader.nodes.remove(operator)
    swarm.reader.nodes.append(operator)
    swarm.reader.stop_node()
    with swarm.reading("auditor").at_work() as reader:
        swarm.lend("operator", reader, "auditor")
        shutil.copytree(
            swarm.reader.folder / "operator-node", reader.folder / ".local" / "share" / "sapo" / "node"
        )
        for line in run_lines("docs/roles/auditor.md"):
            _account_line(reader, line)
            if line.startswith("sapo join"):
                reader.wait_for_rounds()


def _account_line(reader: Reader, line: str) -> None:
    if "CONTENT_ID" in line:
        reader.run("sapo export rollouts received/")
        name = sorted((reader.folder / "received").iterdir())[0].name
        line = line.replace("CONTENT_ID.envelope", name)
    if "0x..." in line:
        reader.run("sapo keys new other --no-passphrase")
        line = line.replace("0x...", reader.json("sapo keys show other")["account"]) + " --yes"
    if re.match("sapo ledger (claim|bond|challenge)", line):
        line += " --yes"  # there is no terminal to be asked at
    if line.startswith("sapo ledger challenge"):  # nobody lied
        assert "no message in" in reader.run(reader.meant(line), exit_code=int(ExitCode.LEDGER))
        return
    reader.type(line)
