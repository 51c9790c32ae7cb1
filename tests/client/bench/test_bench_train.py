"""The bench of training steps: the own learner measured for real; no figure itself is asserted."""

import json
import sys
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from sapo_client.bench.train import BACKENDS, Load, train_costs
from sapo_client.cli.app import app
from sapo_client.errors import SapoError


@pytest.mark.long
def test_the_own_learner_is_measured_with_every_backend() -> None:
    result = CliRunner().invoke(
        app, ["bench", "train", "--peers", "", "--steps", "2", "--rounds", "1", "--json"]
    )
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    backends = [name for name, package in BACKENDS.items() if find_spec(package)]
    assert document["format"] == "sapo/bench/train/1"
    assert [each["name"] for each in document["contestants"]] == [f"sapo, {backend}" for backend in backends]
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
    backends = [name for name, package in BACKENDS.items() if find_spec(package)]
    assert [each["name"] for each in contestants] == [f"sapo, {backend}" for backend in backends]
    assert all(0 < each["sampling_seconds"] < each["seconds"] for each in contestants)


def test_what_peers_cannot_do_is_told(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="genrl does not do this work"):
        train_costs(["genrl"], Load(1, 1, device="cuda"), tmp_path, print)
    with pytest.raises(SapoError, match="trl does not do this work"):
        train_costs(["trl"], Load(1, 1, lora_rank=16), tmp_path, print)
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


def test_an_unknown_peer_is_told(tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="no peer 'verl'"):
        train_costs(["verl"], Load(1, 1), tmp_path, print)


@pytest.mark.long
def test_a_peer_that_does_not_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that is there, but without the peer in it."""
    monkeypatch.delenv("PYTHONPATH")  # which would lend it this environment's packages
    interpreter = tmp_path / "trl" / "bin" / "python"
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without anything installed
    interpreter.chmod(0o755)
    (tmp_path / "trl" / "ready").touch()
    with pytest.raises(SapoError, match="No module named"):
        train_costs(["trl"], Load(1, 1), tmp_path, print)
