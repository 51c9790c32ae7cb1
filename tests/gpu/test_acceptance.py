"""The GPU programs, tested on a CPU: their lines, their checks, and one complete run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch
from gpu import acceptance, learner_speed
from safetensors.torch import load_file
from typer.testing import CliRunner

from sapo_client.cli.app import app


def bench(**seconds: float) -> str:
    """Return what a benchmark prints of contestants with these seconds per step, all else equal."""
    rows = [
        {"name": name.replace("_", ", "), "seconds": value, "sampling_seconds": value, "tokens": 100}
        | {"peak_mib": 20 * 1024}
        for name, value in seconds.items()
    ]
    return json.dumps({"contestants": rows})


def test_each_criterion_distinguishes_values_on_both_sides_of_its_limit() -> None:
    """Each on the good and on the bad side of its limit."""
    assert acceptance.sampling_ratio(bench(sapo_vllm=1.0, sapo_generate=6.0)) == (
        "6.0 times, at least 5 wanted",
        True,
    )
    assert not acceptance.sampling_ratio(bench(sapo_vllm=1.0, sapo_generate=4.0))[1]
    assert acceptance.share_of_trl(bench(sapo_vllm=1.0, trl=1.0)) == (
        "1.00 of TRL's step, at most 1.1 wanted",
        True,
    )
    assert not acceptance.share_of_trl(bench(sapo_vllm=1.2, trl=1.0))[1]
    assert acceptance.push_seconds('noise\n{"seconds": 1.5}') == ("1.50 s, at most 2 wanted", True)
    assert not acceptance.push_seconds('{"seconds": 2.5}')[1]
    assert acceptance.ranks_ratio(judged=True)('{"1": 10.0, "2": 18.0}') == (
        "1.80 times, at least 1.7 wanted",
        True,
    )
    assert not acceptance.ranks_ratio(judged=True)('{"1": 10.0, "2": 9.0}')[1]
    assert acceptance.step_figure(24.0)(bench(sapo_vllm=2.0)) == (
        "sapo, vllm: 2.00 s, 50 tokens/s, 20.0 GiB",
        True,
    )
    assert not acceptance.step_figure(16.0)(bench(sapo_vllm=2.0))[1]
    assert acceptance.tests_passed("x\n==== 5 passed, 2 skipped in 3 s ====") == (
        "5 passed, 2 skipped in 3 s",
        True,
    )
    assert not acceptance.tests_passed("= 1 failed, 2 passed in 3 s =")[1]


def test_a_program_that_fails_is_reported_with_its_last_output(tmp_path: Path) -> None:
    program = (sys.executable, "-c", "import sys; sys.exit('no memory')")
    result = acceptance.run(acceptance.Line("a", program, acceptance.push_seconds), tmp_path / "log")
    assert (result.state, result.figure) == ("failed", "exit status 1: no memory")
    missing = acceptance.Line("b", program, acceptance.push_seconds, "no card")
    assert acceptance.run(missing, tmp_path / "log").state == "skipped"


def test_a_command_that_fails_shows_its_error_and_not_the_hint(tmp_path: Path) -> None:
    command = (*acceptance.SAPO, "bench", "train", "--shape", "none", "--peers", "")
    result = acceptance.run(acceptance.Line("a", command, acceptance.share_of_trl), tmp_path / "log")
    assert (result.state, result.figure) == ("failed", "exit status 2: error: there is no shape 'none'")


def test_seven_billion_parameters_are_held_to_the_limit_that_is_judged() -> None:
    [line] = [each for each in acceptance.lines("cuda") if each.name.startswith("7B")]
    assert line.command[line.command.index("--memory-gib") + 1] == "24"
    peaks = [bench(sapo=1.0).replace("20480", str(gib * 1024)) for gib in (24, 25)]
    assert [line.judge(output)[1] for output in peaks] == [True, False]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_line_of_a_benchmark_is_a_command_that_sapo_knows(device: Literal["cpu", "cuda"]) -> None:
    for line in acceptance.lines(device):
        if Path(line.command[0]).name != "sapo":
            continue
        asked = CliRunner().invoke(app, [*line.command[1:], "--help"])
        assert asked.exit_code == 0, asked.output


@pytest.mark.long
def test_the_programs_run_on_a_cpu(tmp_path: Path) -> None:
    """Of the lines, those that need neither vLLM nor a peer; pytest itself is left out."""
    command = [sys.executable, str(Path(acceptance.__file__)), "--out", str(tmp_path), "--device", "cpu"]
    for name in ("full steps", "two ranks"):
        subprocess.run([*command, "--only", name], check=True, capture_output=True)
        results = json.loads((tmp_path / "results.json").read_text())["results"]
        assert {each["state"] for each in results} == {"passed"}, results
    assert "none: the programs were tried on a CPU" in (tmp_path / "results.md").read_text()


@pytest.mark.parametrize(("half", "kind"), [(False, torch.float32), (True, torch.bfloat16)])
def test_a_model_of_a_shape_is_made(tmp_path: Path, half: bool, kind: torch.dtype) -> None:
    """Seven billion in float32 take more memory than a machine with a small card may have."""
    folder = Path(learner_speed.make_model(tmp_path, "bundled", half=half))
    assert {each.dtype for each in load_file(folder / "model.safetensors").values()} == {kind}


def test_the_last_output_is_a_table_that_a_page_can_have(tmp_path: Path) -> None:
    result = acceptance.Result("a", "failed", "two\nlines", "b c")
    page = acceptance.page([result], "cpu")
    assert page.splitlines()[2:] == [
        "| line | state | figure | command |",
        "| --- | --- | --- | --- |",
        "| a | failed | two lines | `b c` |",
    ]
    acceptance.write(tmp_path, [result], "cpu")
    assert (tmp_path / "results.md").read_text().endswith(page)


@pytest.mark.parametrize(("gib", "fits"), [(23.6, False), (79.1, True)])
def test_what_does_not_fit_a_card_is_skipped_with_its_reason(gib: float, fits: bool) -> None:
    why = "two copies of 7B need a card of 40 GiB, this one has 24"
    assert acceptance.too_small(gib) == ("" if fits else why)


def test_a_program_that_does_not_end_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptance, "LIMIT_SECONDS", 0.1)
    program = (sys.executable, "-c", "import signal; signal.pause()")
    result = acceptance.run(acceptance.Line("a", program, acceptance.push_seconds), tmp_path / "log")
    assert (result.state, result.figure) == ("failed", "it did not end within 0 s")
