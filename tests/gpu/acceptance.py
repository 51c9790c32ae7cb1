"""All required GPU figures of the learner in one command, with a page of results.

    python tests/gpu/acceptance.py --out gpu-results            # on a card
    python tests/gpu/acceptance.py --out try --device cpu       # the same programs at the bundled shape

Each line runs a program of its own, so that one failure costs one line. ``results.md`` and ``results.json``
say the card, the versions, each command, its figure and its limit; the programs' output is beside them. What
cannot be measured here, for want of vLLM or of a second card, is skipped and says why.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Literal

import torch

from sapo_client import extras
from sapo_client.bench.failure import failure_line
from sapo_client.bench.train import Load, own_backends, releases

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("sapo-swarm", "torch", "transformers", "peft", "vllm", "bitsandbytes")
SAPO: Final = (str(Path(sys.executable).with_name("sapo")),)
LARGE_GIB: Final = 24.0
FASTER_SAMPLING: Final = 5.0
PUSH_SECONDS: Final = 2.0
SHARE_OF_TRL: Final = 1.1
FASTER_RANKS: Final = 1.7
PUSH_GIB: Final = 40.0
"""Of a card: 7B in 16 bits take 15 GiB, twice, and the engine's are in its share of 0.4."""

LIMIT_SECONDS: Final = 3600.0
"""Of a program, which may download an environment first."""

Judge = Callable[[str], tuple[str, bool]]
"""Takes a program's standard output; returns its figure in words, and whether the limit is kept."""


@dataclass(frozen=True, slots=True)
class Line:
    """One figure.

    Attributes:
        name: what is measured.
        command: the program.
        judge: reads its output.
        missing: why it cannot be measured here; empty if it can.
    """

    name: str
    command: Sequence[str]
    judge: Judge
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a line; ``state`` is passed, failed or skipped."""

    name: str
    state: str
    figure: str
    command: str


def main() -> None:
    """Run every line and write the results; exit 1 if a line failed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("gpu-results"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--only", default="", help="run the lines whose name contains this")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("error: PyTorch sees no CUDA device here\nhint: --device cpu tries the programs without one")
    options.out.mkdir(parents=True, exist_ok=True)
    results = []
    for number, line in enumerate(lines(options.device)):
        if options.only not in line.name:
            continue
        print(f"{line.name} ...", file=sys.stderr, flush=True)
        results.append(run(line, options.out / f"{number}.log"))
        print(f"{results[-1].state}: {line.name}: {results[-1].figure}", file=sys.stderr, flush=True)
        write(options.out, results, options.device)
    print(page(results, options.device))
    print(f"also in {options.out / 'results.md'}; the programs' output is beside it", file=sys.stderr)
    sys.exit(any(each.state == "failed" for each in results))


def lines(device: Literal["cpu", "cuda"]) -> Iterator[Line]:
    """Yield the lines; on a CPU at the bundled shape, where no limit is judged."""
    half, large = ("qwen2.5-0.5b", "qwen2.5-7b") if device == "cuda" else ("bundled", "bundled")
    on_gpu = device == "cuda"
    shape = "" if on_gpu else " (tried with the bundled shape)"
    size = ("--device", device, "--steps", "3" if on_gpu else "2")
    bench = (*size, "--rounds", "1", "--json")
    no_vllm = own_backends(Load(device=device), releases()).get(
        "vllm", f"vLLM is not installed: {extras.VLLM.command}"
    )
    limited = ("--lora-rank", "16", "--memory-gib", f"{LARGE_GIB:.0f}")
    speed = (sys.executable, "tests/gpu/learner_speed.py")
    yield Line("tests marked gpu", (sys.executable, "-m", "pytest", "-m", "gpu", "-q", "tests"), tests_passed)
    yield Line(
        f"0.5B, all parameters, full steps{shape}",
        (*SAPO, "bench", "train", "--shape", half, "--peers", "", *bench),
        step_figure(0.0),
    )
    yield Line(
        f"7B, adapters of rank 16, full steps{shape}",
        (*SAPO, "bench", "train", "--shape", large, *limited, "--peers", "", *bench),
        step_figure(LARGE_GIB),
    )
    yield Line(
        "tokens per second, vLLM against transformers",
        (*SAPO, "bench", "sample", "--shape", half, *size, "--json"),
        sampling_ratio,
        no_vllm,
    )
    yield Line(
        "adapter push of 7B",
        (*speed, "push", "--shape", large, "--device", device),
        push_seconds,
        no_vllm or (too_small(card_gib()) if on_gpu else ""),
    )
    yield Line(
        "step against TRL, vLLM colocated" if on_gpu else "step against TRL",
        (*SAPO, "bench", "train", "--shape", half, "--peers", "trl", *bench),
        share_of_trl,
        no_vllm if on_gpu else "`sapo bench train` measures it on a CPU",
    )
    cards = torch.cuda.device_count() if on_gpu else 2
    yield Line(
        f"two ranks against one{shape}",
        (*speed, "ranks", "--shape", half, "--device", device),
        ranks_ratio(judged=on_gpu),
        "" if cards > 1 else "NCCL takes one rank per card, and there is one card",
    )


def run(line: Line, log: Path) -> Result:
    """Run a line's program, keep its output, and judge it."""
    command = " ".join([Path(line.command[0]).name, *line.command[1:]])
    if line.missing:
        return Result(line.name, "skipped", line.missing, command)
    paths = os.pathsep.join(path for path in sys.path if path)
    try:
        done = subprocess.run(
            line.command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Result(line.name, "failed", f"it did not end within {LIMIT_SECONDS:.0f} s", command)
    log.write_text(f"{done.stdout}\n{done.stderr}", encoding="utf-8")
    try:
        figure, is_kept = line.judge(done.stdout)
    except (ValueError, LookupError):
        cause = failure_line(done.stderr)
        return Result(line.name, "failed", f"exit status {done.returncode}: {cause}", command)
    return Result(line.name, "passed" if is_kept and not done.returncode else "failed", figure, command)


def write(out: Path, results: Sequence[Result], device: str) -> None:
    """Write the results so far, as JSON and as a page."""
    document = {"format": "sapo/gpu/1", "about": about(device), "results": [asdict(each) for each in results]}
    (out / "results.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (out / "results.md").write_text(f"# The learner on a GPU\n\n{page(results, device)}", encoding="utf-8")


def page(results: Sequence[Result], device: str) -> str:
    """Return the results as a paragraph and a table, which can be pasted into docs/results.md."""
    facts = "; ".join(f"{name} {value}" for name, value in about(device).items())
    rows = [f"| {each.name} | {each.state} | {each.figure} | `{each.command}` |" for each in results]
    head = ["| line | state | figure | command |", "| --- | --- | --- | --- |"]
    return "\n".join([f"{facts}.", "", *head, *(row.replace("\n", " ") for row in rows), ""])


def about(device: str) -> dict[str, str]:
    """Return what the figures depend on: cards, processor and releases."""
    processor = platform.processor() or platform.machine()
    return {"device": card(device), "processor": processor, "cores": str(os.cpu_count()), **versions()}


def card_gib() -> float:
    """Return the memory of the first card; 0 without one."""
    return torch.cuda.get_device_properties(0).total_memory / 2**30 if torch.cuda.device_count() else 0.0


def too_small(gib: float) -> str:
    """Return why vLLM and a policy of seven billion do not fit a card; empty if they do."""
    return (
        ""
        if gib >= PUSH_GIB
        else f"two copies of 7B need a card of {PUSH_GIB:.0f} GiB, this one has {gib:.0f}"
    )


def card(device: str) -> str:
    """Return the cards with their memory."""
    if device == "cpu":
        return "none: the programs were tried on a CPU"
    found = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return ", ".join(f"{each.name}, {each.total_memory / 2**30:.0f} GiB" for each in found)


def versions() -> dict[str, str]:
    """Return the releases of the libraries that the figures depend on."""
    found = {"python": platform.python_version(), "cuda": str(torch.version.cuda)}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def tests_passed(output: str) -> tuple[str, bool]:
    """Judge pytest's last line."""
    last = output.strip().splitlines()[-1]
    return last.strip("= "), re.search(r"\b(failed|errors?)\b", last) is None


def contestants(output: str) -> dict[str, dict[str, Any]]:
    """Return the contestants of a benchmark by name."""
    return {each["name"]: each for each in json.loads(output)["contestants"]}


def step_figure(max_gib: float) -> Judge:
    """Return the judge of full steps: every backend's seconds and peak, at most so many GiB; 0: no limit."""

    def judge(output: str) -> tuple[str, bool]:
        found = contestants(output)
        words = [
            f"{name}: {each['seconds']:.2f} s, {each['tokens'] / each['seconds']:.0f} tokens/s,"
            f" {each['peak_mib'] / 1024:.1f} GiB"
            for name, each in found.items()
        ]
        is_kept = not max_gib or all(each["peak_mib"] / 1024 <= max_gib for each in found.values())
        return "; ".join(words), is_kept

    return judge


def sampling_ratio(output: str) -> tuple[str, bool]:
    """Judge vLLM's tokens per second against those of transformers' generate."""
    speed = {name: each["tokens"] / each["sampling_seconds"] for name, each in contestants(output).items()}
    ratio = speed["sapo, vllm"] / speed["sapo, generate"]
    return f"{ratio:.1f} times, at least {FASTER_SAMPLING:.0f} wanted", ratio >= FASTER_SAMPLING


def push_seconds(output: str) -> tuple[str, bool]:
    """Judge the seconds of a push."""
    seconds = float(json.loads(output.strip().splitlines()[-1])["seconds"])
    return f"{seconds:.2f} s, at most {PUSH_SECONDS:.0f} wanted", seconds <= PUSH_SECONDS


def share_of_trl(output: str) -> tuple[str, bool]:
    """Judge a step with vLLM against TRL's."""
    found = contestants(output)
    share = found["sapo, vllm"]["seconds"] / found["trl"]["seconds"]
    return f"{share:.2f} of TRL's step, at most {SHARE_OF_TRL} wanted", share <= SHARE_OF_TRL


def ranks_ratio(*, judged: bool) -> Judge:
    """Return the judge of two ranks' tokens per second against one's."""

    def judge(output: str) -> tuple[str, bool]:
        found = json.loads(output.strip().splitlines()[-1])
        ratio = found["2"] / found["1"]
        return f"{ratio:.2f} times, at least {FASTER_RANKS} wanted", ratio >= FASTER_RANKS or not judged

    return judge


if __name__ == "__main__":
    main()
