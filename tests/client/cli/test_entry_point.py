"""The command line as a whole: start-up budget, help, usage errors, exit codes, plain output."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from support.sapo_process import Run
from typer.models import ParameterInfo

from sapo_client.cli.app import app

HEAVY = (
    "torch", "vllm", "transformers", "tokenizers", "peft", "web3", "eth", "eth_account", "libp2p",
    "reasoning_gym", "trio", "matplotlib", "numpy", "pyarrow", "prometheus_client", "nacl", "coincurve",
    "sqlite3", "asyncio", "Crypto", "eth_hash",
)  # fmt: skip
PROBE = """
import sys
before = set(sys.modules)  # what measures the coverage may be there already
from sapo_client.cli.app import main
sys.argv = ["sapo", *sys.argv[1:]]
try:
    main()
finally:
    sys.stderr.write(" ".join(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["join", "--help"], ["keys", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=True
    )
    assert probe.stdout
    assert set(probe.stderr.split()) & set(HEAVY) == set()


def test_a_node_loads_the_libraries_of_a_chain_when_its_swarm_has_one() -> None:
    probe = "import json, sys; from sapo_client.node import bootstrap; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "sapo_client.node.app" in loaded
    assert loaded & {"web3", "eth_account", "requests", "aiohttp", "torch"} == set()


@pytest.mark.parametrize("command", ["run", "attack"])
def test_an_unknown_preset_is_refused_before_pytorch_is_loaded(command: str, tmp_path: Path) -> None:
    arguments = ["lab", command, "--preset", "quik", "--out", str(tmp_path)]
    probe = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=False
    )
    assert probe.returncode == 2
    assert "there is no preset 'quik'" in probe.stderr
    assert set(probe.stderr.split()) & {"torch", "transformers", "libp2p"} == set()


def test_the_parser_checks_no_file_permissions() -> None:
    """A command reports them with a hint and its own exit code; root, as in containers, has them all."""

    def settings(of: typer.Typer) -> Iterator[ParameterInfo]:
        for command in of.registered_commands:
            assert command.callback is not None
            for parameter in inspect.signature(command.callback).parameters.values():
                yield from getattr(parameter.annotation, "__metadata__", ())
        for group in of.registered_groups:
            assert group.typer_instance is not None
            yield from settings(group.typer_instance)

    found = list(settings(app))
    assert len(found) > 100
    assert [each for each in found if each.readable] == []


def test_help_names_every_command(sapo: Run) -> None:
    done = sapo("--help")
    assert (done.returncode, done.stderr) == (0, "")
    listed = {
        line.split()[0]
        for line in done.stdout.partition("Commands:")[2].splitlines()
        if line.startswith("  ")
    }
    assert {"init", "join", "status", "peers", "rollouts", "stop", "id", "verify", "doctor", "env"} <= listed
    assert {"keys", "config", "ledger", "export", "swarm", "testnet", "lab", "bench"} <= listed


def test_version(sapo: Run) -> None:
    assert sapo("--version").stdout.startswith("sapo 0.")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["join", "--nonsense"],
        ["keys", "new"],
        ["keys", "new", "a", "--kdf", "weak"],
        ["join", "--steps", "0"],
        ["rollouts", "-n", "x"],
        ["verify"],
    ],
)
def test_wrong_usage_is_exit_code_2_with_a_message_on_standard_error(sapo: Run, arguments: list[str]) -> None:
    done = sapo(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Error:" in done.stderr
    assert "--help" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["join"], 4),
        (["join", "--identity", "nobody"], 4),
        (["join", "--identity", "a", "--config", "missing.toml"], 3),
        (["id"], 4),
        (["status"], 5),
        (["peers"], 5),
        (["rollouts"], 5),
        (["stop"], 5),
        (["verify", "missing.bin"], 2),
        (["config", "show", "--config", "missing.toml"], 3),
        (["ledger", "audit", "0"], 8),
        (["ledger", "export", "0", "epoch.json"], 8),
        (["ledger", "verify", "missing.json"], 3),
        (["ledger", "register"], 3),
        (["testnet", "up", "--nodes", "2", "--auditors", "3"], 2),
        (["testnet", "up", "--auditors", "3", "--quorum", "4"], 2),
        (["swarm", "deploy", "swarm", "--rpc", "http://127.0.0.1:1", "--key", "nobody"], 4),
        (["swarm", "faucet", "swarm", "0x1", "--rpc", "http://127.0.0.1:1", "--key", "nobody"], 4),
        (["keys", "show", "nobody"], 4),
        (["keys", "backup", "nobody", "b.json"], 4),
        (["keys", "restore", "missing.json", "a"], 4),
    ],
)
def test_every_error_is_on_standard_error_with_a_hint_and_its_code(
    sapo: Run, arguments: list[str], code: int
) -> None:
    done = sapo(*arguments)
    assert (done.returncode, done.stdout) == (code, "")
    first, second = done.stderr.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("hint: ")


@pytest.mark.parametrize(
    ("text", "suggestion"),
    [
        ("[learner]\ncompletons = 4\n", "learner.completions"),
        ("[ledger]\nrpc_url = ['http://x']\n", "ledger.rpc_urls"),
    ],
)
def test_a_typo_in_a_section_is_exit_code_3_with_the_right_name(
    sapo: Run, tmp_path: Path, text: str, suggestion: str
) -> None:
    (tmp_path / "sapo.toml").write_text(text)
    for how in ({"SAPO_CONFIG": "sapo.toml"}, {}):
        done = sapo("config", "show", *([] if how else ["--config", "sapo.toml"]), **how)
        assert done.returncode == 3
        assert f"hint: did you mean {suggestion}?" in done.stderr


def test_config_show_prints_origins(sapo: Run) -> None:
    made = sapo("config", "init")
    assert made.returncode == 0
    assert Path(made.stdout.strip()).is_file()
    shown = sapo("config", "show", "--origin", "--json", "--data-dir", "/d", SAPO_LEARNER__SEED="5")
    settings = json.loads(shown.stdout)
    assert settings["data_dir"] == {"value": "/d", "origin": "flag"}
    assert settings["learner.seed"] == {"value": 5, "origin": "environment SAPO_LEARNER__SEED"}
    assert settings["learner.completions"] == {"value": 8, "origin": "default"}
    assert sapo("config", "init").returncode == 3
    assert json.loads(sapo("config", "schema").stdout)["additionalProperties"] is False


def test_a_misspelt_variable_is_reported_in_one_line(sapo: Run) -> None:
    done = sapo("config", "show", SAPO_LEARNER_TEMPERATURE="0.5", SAPO_LEARNER__SEED="5", SAPO_HOME="/x")
    said = "SAPO_LEARNER_TEMPERATURE is ignored, did you mean SAPO_LEARNER__TEMPERATURE?"
    assert (done.returncode, done.stderr) == (0, f"warning: {said}\n")


def test_a_pipe_gets_aligned_text_without_escapes(sapo: Run) -> None:
    done = sapo("config", "show", FORCE_COLOR="1")
    assert "\x1b" not in done.stdout + done.stderr
    assert "│" not in done.stdout
    starts = {len(line) - len(line.split(maxsplit=1)[1]) for line in done.stdout.splitlines()}
    assert len(starts) == 1


def test_env_holds_versions_and_no_values_of_variables(sapo: Run) -> None:
    done = sapo("env", "--json", SAPO_PASSPHRASE_FILE="/secret/place")
    document = json.loads(done.stdout)
    assert document["packages"]["reasoning-gym"]
    assert document["variables"] == ["SAPO_PASSPHRASE_FILE"]
    assert "/secret/place" not in done.stdout
