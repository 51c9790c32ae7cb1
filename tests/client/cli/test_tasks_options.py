"""The options that name the tasks of a new swarm."""

import pytest
from support.sapo_process import Run


@pytest.mark.parametrize(
    "command",
    [
        ("testnet", "up", "--families", "gdc", "--level", "easy"),
        ("swarm", "deploy", "folder", "--rpc", "http://127.0.0.1:9", "--key", "none", "--families", "gdc"),
    ],
)
def test_a_founding_command_refuses_a_family_before_it_does_anything(
    sapo: Run, command: tuple[str, ...]
) -> None:
    ended = sapo(*command)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "no task family 'gdc'" in ended.stderr
    assert "did you mean gcd?" in ended.stderr
