"""The benchmark of training steps: the own learner is measured; no figure is asserted."""

import json
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from sapo_client.bench.failure import failure_line
from sapo_client.bench.train import Load, own_backends, releases, train_costs
from sapo_client.bench.train_own import memory_beside
from sapo_client.cli.app import app
from sapo_client.errors import SapoError
from sapo_client.learner.policy import BUNDLED, load_policy


def measured(load: Load) -> list[str]:
    """Return the names of our learner's contestants here."""
    return [f"sapo, {backend}" for backend, reason in own_backends(load, releases()).items() if not reason]


@pytest.mark.long
def test_the_own_learner_is_measured_with_every_backend() -> None:
    result = CliRunner().invoke(
        app, ["bench", "train", "--peers", "", "--steps", "2", "--rounds", "1", "--json"]
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["format"] == "sapo/bench/train/1"
    assert [each["name"] for each in document["contestants"]] == measured(Load())
    for each in document["contestants"]:
        assert 0 < each["sampling_seconds"] < each["seconds"]
        assert 64 <= each["tokens"] <= 64 * 64
        assert each["peak_mib"] > 100


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_half_billion_parameters_take_full_steps_on_a_gpu() -> None:
    """Sampling and training with every backend that is installed; vLLM's weights are pushed in between."""
    arguments = ["--device", "cuda", "--shape", "qwen2.5-0.5b", "--steps", "3", "--rounds", "1", "--json"]
    result = CliRunner().invoke(app, ["bench", "train", *arguments])
    assert result.exit_code == 0, result.output
    contestants = json.loads(result.stdout)["contestants"]
    assert [each["name"] for each in contestants] == measured(Load(device="cuda"))
    assert all(0 < each["sampling_seconds"] < each["seconds"] for each in contestants)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_limit_of_memory_holds_on_a_gpu() -> None:
    """Within it a step is trained and its peak stays below; where weights alone exceed it, loading fails."""
    shape = ["bench", "train", "--device", "cuda", "--shape", "qwen2.5-0.5b", "--lora-rank", "8"]
    steps = ["--peers", "", "--steps", "2", "--rounds", "1", "--json"]
    kept = CliRunner().invoke(app, [*shape, *steps, "--memory-gib", "6"])
    assert kept.exit_code == 0, kept.output
    assert all(each["peak_mib"] <= 6 * 1024 for each in json.loads(kept.stdout)["contestants"])
    exceeded = CliRunner().invoke(app, [*shape, *steps, "--memory-gib", "0.5"])
    assert isinstance(exceeded.exception, SapoError)
    assert "OutOfMemoryError: CUDA out of memory" in exceeded.exception.text


@pytest.mark.long
def test_a_limit_of_memory_reaches_the_plan_of_training() -> None:
    """A limit that is too low is reported with the learner's message instead of its last line of output."""
    arguments = ["--peers", "", "--steps", "1", "--rounds", "1", "--memory-gib", "0.01"]
    with pytest.raises(
        SapoError, match=r"train_own own failed: .*SapoError: training takes .* beside"
    ) as told:
        CliRunner().invoke(app, ["bench", "train", *arguments], catch_exceptions=False)
    assert told.value.hint == "`-v` shows its whole output"


def test_a_memory_limit_is_reduced_by_the_size_of_the_model() -> None:
    policy = load_policy(BUNDLED, "cpu")
    weights = sum(each.nbytes for each in [*policy.model.parameters(), *policy.model.buffers()])
    assert memory_beside(policy, 0.125) == 2**27 - weights
    with pytest.raises(SapoError, match=r"the model alone takes 0.00 GiB of 0.001 GiB"):
        memory_beside(policy, 0.001)


@pytest.mark.parametrize(
    ("load", "release", "left_out"),
    [
        (Load(device="cpu"), "0.32.0", {"vllm": "vLLM 0.32.0 is not built for --device cpu"}),
        (Load(device="cpu"), "0.32.0+cu130", {"vllm": "vLLM 0.32.0+cu130 is not built for --device cpu"}),
        (Load(device="cpu"), "0.32.0+cpu", {}),
        (Load(device="cpu"), "0.32.1.dev7+g1a2b3c4.cpu", {}),
        (Load(device="cuda"), "0.32.0", {}),
        (Load(device="cuda"), "0.32.0+cpu", {"vllm": "vLLM 0.32.0+cpu is not built for --device cuda"}),
        (Load(device="cuda", lora_rank=16), "0.32.0", {"own": "the own sampler takes no adapters"}),
        (
            Load(device="cuda", memory_gib=24.0),
            "0.32.0",
            {"vllm": "its engine has a copy of the model of its own, which --memory-gib does not count"},
        ),
    ],
)
def test_a_backend_that_cannot_do_the_work_is_left_out(
    load: Load, release: str, left_out: dict[str, str]
) -> None:
    installed = {"sapo-swarm": "0.2.0", "transformers": "5.23.0", "vllm": release}
    assert own_backends(load, installed) == {"own": "", "generate": "", "vllm": "", **left_out}


def test_backends_that_are_not_installed_are_not_measured() -> None:
    assert own_backends(Load(), {"sapo-swarm": "0.2.0"}) == {"own": ""}


@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        (
            "Traceback (most recent call last):\n"
            '[rank0]:   File "x.py", line 3, in <module>\n'
            "[rank0]: ValueError: Device string must not be empty\n"
            "[rank0]:[W1126 12:00:00.1 ProcessGroupNCCL.cpp:1575] Warning: destroy_process_group() was not"
            " called before program exit\n",
            "ValueError: Device string must not be empty",
        ),
        (
            "ImportError: first\n\nDuring handling of the above exception, another one occurred:\n\n"
            "torch.OutOfMemoryError: CUDA out of memory. Tried 2.00 GiB\nsys:1: UserWarning: bye\n",
            "torch.OutOfMemoryError: CUDA out of memory. Tried 2.00 GiB",
        ),
        (
            "(EngineCore pid=12) RuntimeError: no kernel image\nCUDA kernel errors might be late\n",
            "RuntimeError: no kernel image",
        ),
        ("AssertionError\nx.py:1: FutureWarning: soon: ValueError: no\n", "AssertionError"),
        ("error: no shape 'x'\nhint: shapes are bundled\n", "error: no shape 'x'"),
        ("ERROR: no release of x\n\n[notice] update pip\n", "ERROR: no release of x"),
        ("noise\ngenrl trained 1 of 2 rounds\n", "genrl trained 1 of 2 rounds"),
        ("\n", "it printed nothing"),
    ],
)
def test_the_line_of_a_failure_names_its_cause(stderr: str, line: str) -> None:
    assert failure_line(stderr) == line


def test_work_that_peers_cannot_do_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="genrl does not do this work"):
        train_costs(["genrl"], Load(1, 1, device="cuda"), tmp_path, print)
    with pytest.raises(SapoError, match="trl does not do this work"):
        train_costs(["trl"], Load(1, 1, lora_rank=16), tmp_path, print)
    with pytest.raises(SapoError, match="trl does not do this work"):
        train_costs(["trl"], Load(1, 1, device="cuda", memory_gib=24.0), tmp_path, print)
    with pytest.raises(SapoError, match="no shape 'gpt5'"):
        train_costs([], Load(1, 1, shape="gpt5"), tmp_path, print)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_trl_knows_the_options_of_each_device(device: str, tmp_path: Path) -> None:
    """Those of a GPU are only parsed here: bfloat16 and vLLM need one."""
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from sapo_client.bench.train_trl import vllm_options

    options = vllm_options({"device": device, "bfloat16": False})
    if device == "cuda":
        names = {field.name for field in fields(trl.GRPOConfig)}
        assert options.keys() <= names
        assert (options["vllm_mode"], options["use_vllm"]) == ("colocate", True)
    else:
        assert trl.GRPOConfig(output_dir=str(tmp_path), report_to=[], fp16=False, **options).use_cpu


def test_an_unknown_peer_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="no peer 'verl'"):
        train_costs(["verl"], Load(1, 1), tmp_path, print)


@pytest.mark.long
def test_a_peer_that_does_not_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that is there, but without the peer in it."""
    monkeypatch.delenv("PYTHONPATH")  # which would lend it this environment's packages
    interpreter = tmp_path / "trl" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without anything installed
    interpreter.chmod(0o755)
    (tmp_path / "trl" / "ready").touch()
    with pytest.raises(SapoError, match="ModuleNotFoundError: No module named") as told:
        train_costs(["trl"], Load(1, 1), tmp_path, print)
    assert told.value.hint == "`-v` shows its whole output; `--peers` leaves contestants out"
