"""`sapo swarm`, and the names that its commands had before."""

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
