"""A learner of several processes on the CPU: steps, checkpoints, crashes."""

import os
import shutil
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import trio
from safetensors.torch import load_file
from support.learner_child import DrivenLearner, LearnerHere, learner_child, other_ranks
from support.policies import make_policy_folder
from support.trainers import demonstration

from sapo_client.errors import SapoError
from sapo_client.learner.process import Learner
from sapo_client.learner.ranks.launch import RankEnd, cause, number_of_ranks
from sapo_client.learner.settings import LearnerSettings

pytestmark = pytest.mark.e2e

PROMPTS = ["12 + 7 =\n", "6/8\n", "Monday +3\n"]

AVERAGING = """
from torch.distributed.fsdp import FSDPModule
FSDPModule.set_force_sum_reduction_for_comms = lambda self, enable: None
FSDPModule.set_gradient_divide_factor = lambda self, factor: None
"""
"""Leaves FSDP2 its default, the average; imported by the interpreter of every rank before anything else."""

ONE_SMALL_RANK = """
import os, torch
if os.environ.get("RANK") == "1":
    from sapo_client.learner import logprobs
    from sapo_client.learner.losses import accumulate
    whole = accumulate.completion_logprobs
    def limited(model, rows, *arguments, **named):
        if torch.is_grad_enabled() and sum(len(p) + len(c) for p, c in rows) > 48:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(model, rows, *arguments, **named)
    accumulate.completion_logprobs = limited
"""
"""Rank 1 has memory for 48 tokens of a micro-batch."""


FAILING_RANK = """
import os, torch
if os.environ.get("RANK") == "1":
    from sapo_client.learner.losses import accumulate
    whole = accumulate.completion_logprobs
    def failing(*arguments, **named):
        raise ValueError("the card fell off the bus")
    accumulate.completion_logprobs = failing
"""
"""Rank 1 fails in its first forward pass."""


LATE_GROUP = """
from sapo_client.learner.service import Service
opened = Service._open
def open_with_group(self, *arguments):
    import torch.distributed as dist
    opened(self, *arguments)
    dist.new_group()
Service._open = open_with_group
"""
"""Each rank makes another group after all have met, as vLLM's engines do, and NCCL at its first message."""


ONE_CARD = """
from sapo_client.learner.ranks import launch, opening
launch.backend_names = lambda *, on_gpu: "cpu:gloo,cuda:gloo"
opening.number_of_ranks = lambda settings: settings.ranks
chosen = launch.torch.cuda.set_device
launch.torch.cuda.set_device = lambda device: chosen(0)
"""
"""Both ranks have the same card and gloo, because NCCL takes one rank per card."""


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    folder = make_policy_folder(tmp_path / "model")
    return LearnerSettings(
        model=str(folder),
        directory=tmp_path / "start",
        device="cpu",
        max_new_tokens=8,
        temperature=0.25,  # so that own samples are likelier than other text
        learning_rate=1e-3,
        demonstration_rate=1e-3,
        checkpoint_share=0.0,
    )


def group(number: int, *, external: bool) -> dict[str, Any]:
    """Return a group of four completions, of which one to three are right."""
    rewards = [float(index <= number % 3) for index in range(4)]
    texts = [b"%d" % (number * 37**index) for index in range(4)]
    return {
        "prompt": f"{number} + 7 =\n",
        "completions": texts,
        "rewards": rewards,
        "external": external,
        "handle": None,
        "family": 0,
    }


def started(settings: LearnerSettings) -> LearnerSettings:
    """Let one process sample three rounds, so that it weighs other nodes' text; keep its checkpoint."""
    alone = LearnerHere(settings)
    for number in range(3):
        handles = [10 * number + index for index in range(len(PROMPTS))]
        sampled = alone.call("generate", prompts=PROMPTS, completions_per_prompt=8, handles=handles)
        groups = [
            {**group(0, external=False), "prompt": prompt, "completions": texts, "handle": handle}
            | {"rewards": [0.0] * len(texts), "family": 1}
            for prompt, texts, handle in zip(PROMPTS, sampled["completions"], handles, strict=True)
        ]
        alone.call("train", groups=groups)
    alone.call("checkpoint")
    return settings


def copied(settings: LearnerSettings, name: str, **changes: Any) -> LearnerSettings:
    """Return settings of another learner that begins at the same checkpoint."""
    directory = settings.directory.with_name(name)
    shutil.copytree(settings.directory, directory)
    return replace(settings, directory=directory, **changes)


def steps(child: DrivenLearner, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Train steps whose batches depend on their numbers alone; return the reports without the wall time."""
    reports = []
    for number in numbers:
        groups = [group(5 * number + index, external=index % 2 == 1) for index in range(5)]
        shown = [demonstration(4 * number + index, family=1) for index in range(4)]
        report = child.call("train", groups=groups, demonstrations=shown)
        assert report["ranks"] == child.about["ranks"]
        reports.append({name: report[name] for name in report.keys() - {"seconds", "ranks"}})
    return reports


def curve(settings: LearnerSettings, numbers: Sequence[int], **environment: str) -> list[dict[str, Any]]:
    """Start a learner of several ranks, train steps, and write a checkpoint."""
    with learner_child(settings, environment) as child:
        return _trained(child, settings, numbers)


def curve_of_one(settings: LearnerSettings, numbers: Sequence[int]) -> list[dict[str, Any]]:
    """Train the steps by one rank, and write a checkpoint."""
    return _trained(LearnerHere(settings), settings, numbers)


def _trained(
    learner: DrivenLearner, settings: LearnerSettings, numbers: Sequence[int]
) -> list[dict[str, Any]]:
    assert learner.about["ranks"] == settings.ranks
    reports = steps(learner, numbers)
    learner.call("checkpoint")
    return reports


def patched(folder: Path, code: str) -> str:
    """Return a PYTHONPATH with code that every interpreter runs at its start."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(code)
    return os.pathsep.join([str(folder), *(path for path in os.sys.path if path)])  # type: ignore[attr-defined]


def weights(settings: LearnerSettings) -> dict[str, torch.Tensor]:
    """Return the tensors of the newest checkpoint."""
    newest = max((settings.directory / "checkpoints").glob("step-*"))
    return load_file(newest / "state.safetensors")


def close(report: dict[str, Any], tolerance: float = 1e-5) -> dict[str, Any]:
    """Return a report that equals another one within a tolerance, relative or absolute."""
    return {
        name: value
        if isinstance(value, dict) or (isinstance(value, list) and None in value)
        else pytest.approx(value, rel=tolerance, abs=tolerance)
        for name, value in report.items()
    }


def test_two_ranks_train_as_one_process_and_either_resumes_the_checkpoint(settings: LearnerSettings) -> None:
    """A checkpoint of two ranks is trained on by one process, and that one's by two ranks."""
    started(settings)
    one, two = copied(settings, "one"), copied(settings, "two", ranks=2, micro_batch_tokens=64)
    expected = curve_of_one(one, range(3))
    assert [report["demonstrations"] > 0 for report in expected] == [True] * 3
    assert 0.0 < expected[0]["external_weight"] < 1.0
    with learner_child(two) as child:
        found = _trained(child, two, [0])
        moving = copied(two, "moving", ranks=1, micro_batch_tokens=None)
        found += _trained(child, two, [1, 2])
    assert found == [close(report) for report in expected]
    theirs = weights(two)
    for name, tensor in weights(one).items():
        assert torch.allclose(tensor.double(), theirs[name].double(), atol=1e-4), name

    expected = [close(report, 1e-4) for report in expected]
    assert curve_of_one(moving, [1]) == expected[1:2]
    assert curve(replace(moving, ranks=2), [2]) == expected[2:]


@pytest.mark.long
def test_ranks_whose_gradients_are_averaged_have_half_the_gradient_norm(
    settings: LearnerSettings, tmp_path: Path
) -> None:
    started(settings)
    one, averaging = copied(settings, "one"), copied(settings, "averaging", ranks=2)
    expected = curve_of_one(one, range(1))
    halves = curve(averaging, range(1), PYTHONPATH=patched(tmp_path / "average", AVERAGING))
    assert halves[0]["gradient_norm"] == pytest.approx(expected[0]["gradient_norm"] / 2, rel=1e-5)
    assert halves != [close(expected[0])]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_two_ranks_of_one_card_step_as_one_process_does(settings: LearnerSettings, tmp_path: Path) -> None:
    """Steps alone: a checkpoint and samples need whole tensors, which gloo cannot gather on a card."""
    on_card = replace(settings, device="cuda", bfloat16=False)
    started(on_card)
    one, two = copied(on_card, "one"), copied(on_card, "two", ranks=2, micro_batch_tokens=64)
    path = patched(tmp_path / "card", ONE_CARD)
    with learner_child(one) as child:
        expected = steps(child, range(3))
    with learner_child(two, {"PYTHONPATH": path}) as child:
        found = steps(child, range(3))
    norms = [[report["gradient_norm"] for report in each] for each in (expected, found)]
    print("gradient norms of one process and of two ranks:", *norms)  # shown with -s, for the results page
    assert found == [close(report) for report in expected]


@pytest.mark.long
def test_two_ranks_train_the_same_text_of_others_as_one_process(settings: LearnerSettings) -> None:
    agreeing = replace(settings, agreement=True)
    started(agreeing)
    expected = curve_of_one(copied(agreeing, "one"), range(3))
    (plain,) = curve_of_one(copied(agreeing, "plain", agreement=False), range(1))
    assert 0.0 < expected[0]["external_weight"] < plain["external_weight"], "some text agrees, some does not"
    two = copied(agreeing, "two", ranks=2, micro_batch_tokens=64)
    assert curve(two, range(3)) == [close(report) for report in expected]


@pytest.mark.long
def test_two_ranks_hold_a_candidate_and_promote_it_as_one_process_does(settings: LearnerSettings) -> None:
    """One process promotes what two ranks have written into their checkpoint."""
    beside = {"held_back": True, "demonstration_steps": 3, "demonstration_averaging": 0.5}
    settings = replace(settings, demonstration_rate=0.03)
    started(settings)
    one, two = copied(settings, "one", **beside), copied(settings, "two", ranks=2, **beside)
    alone = LearnerHere(one)
    expected = steps(alone, range(2))
    assert [report["has_candidate"] for report in expected] == [False, True]
    alone.call("promote")
    alone.call("checkpoint")
    with learner_child(two) as child:
        assert steps(child, range(2)) == [close(report) for report in expected]
        answers = child.call("compare", prompts=PROMPTS, seed=5)
        assert answers["policy"] != answers["candidate"]
        assert child.call("evaluate", prompts=PROMPTS, temperature=0.25, seed=5) == {
            "completions": answers["policy"]
        }
        child.call("checkpoint")
        resumed = copied(two, "resumed", ranks=1)
        child.call("promote")
        assert child.call("evaluate", prompts=PROMPTS, temperature=0.25, seed=5) == {
            "completions": answers["candidate"]
        }
    alone = LearnerHere(resumed)
    alone.call("promote")
    alone.call("checkpoint")
    theirs = weights(resumed)
    for name, tensor in weights(one).items():
        assert torch.allclose(tensor.double(), theirs[name].double(), atol=1e-4), name


@pytest.mark.long
def test_mini_batches_and_a_reference_are_sharded_as_well(settings: LearnerSettings) -> None:
    started(settings)
    one = copied(settings, "one", passes=2, mini_batches=2, kl_weight=0.1)
    two = replace(copied(settings, "two"), passes=2, mini_batches=2, kl_weight=0.1, ranks=2)
    assert curve(two, range(2)) == [close(report) for report in curve_of_one(one, range(2))]


@pytest.mark.long
def test_adapters_are_trained_by_two_ranks(settings: LearnerSettings) -> None:
    one, two = replace(settings, lora_rank=2), replace(settings, lora_rank=2, ranks=2)
    expected = curve_of_one(one, range(2))
    shutil.rmtree(settings.directory)
    assert curve(two, range(2)) == [close(report) for report in expected]


def test_each_rank_samples_a_part_and_all_refuse_an_invalid_call(
    settings: LearnerSettings, tmp_path: Path
) -> None:
    arguments = {"prompts": PROMPTS, "completions_per_prompt": 2, "handles": [1, 2, 3]}
    late = patched(tmp_path / "late", LATE_GROUP)
    with learner_child(replace(settings, ranks=2), {"PYTHONPATH": late}) as two:
        sampled = two.call("generate", **arguments)
        assert [len(texts) for texts in sampled["completions"]] == [2, 2, 2]
        answers = two.call("evaluate", prompts=PROMPTS)
        in_the_way = settings.directory / "checkpoints" / ".writing-step-0000000000"
        in_the_way.parent.mkdir()
        in_the_way.write_bytes(b"")  # where the leader alone, which writes, makes a folder
        with pytest.raises(AssertionError, match="could not be written: "):
            two.call("checkpoint")
        two.call("export", folder=str(settings.directory / "exported"))
        groups = [
            {**group(0, external=False), "prompt": prompt, "completions": texts, "handle": handle}
            | {"rewards": [0.0, 1.0]}
            for prompt, texts, handle in zip(PROMPTS, sampled["completions"], [1, 2, 3], strict=True)
        ]
        report = two.call("train", groups=groups)
        assert (report["reencoded_groups"], report["entropy"] > 0) == (0, True)
    one = replace(settings, model=str(settings.directory / "exported"), directory=settings.directory / "one")
    assert LearnerHere(one).call("evaluate", prompts=PROMPTS) == answers


async def test_a_killed_rank_ends_all_and_the_learner_resumes(
    settings: LearnerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in os.sys.path if path))  # type: ignore[attr-defined]
    learner = Learner(replace(settings, ranks=2))
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        answers = await learner.evaluate(PROMPTS)
        for restarts in (1, 2):
            assert learner.pid is not None
            (other,) = other_ranks(learner.pid)
            victim, witness = (other, learner.pid) if restarts == 1 else (learner.pid, other)
            os.kill(victim, signal.SIGKILL)
            with trio.fail_after(300):
                while learner.restarts < restarts or Path(f"/proc/{witness}").exists():
                    await trio.sleep(0.05)
                assert await learner.evaluate(PROMPTS) == answers
            assert learner.about.ranks == 2
        nursery.cancel_scope.cancel()
    assert learner.last_death == "SIGKILL ended rank 0, as when memory runs out"
    assert "rank 1 was ended by SIGKILL; all ranks are restarted" in learner_log(settings)


def test_the_final_error_names_the_failed_rank_and_the_cause(
    settings: LearnerSettings, tmp_path: Path
) -> None:
    """The third rank's messages fail as well, because the second one is gone; that is not the reason."""
    path = patched(tmp_path / "failing", FAILING_RANK)
    with pytest.raises(EOFError), learner_child(replace(settings, ranks=3), {"PYTHONPATH": path}) as child:
        steps(child, [0])
    assert learner_log(settings).strip().splitlines()[-1] == (
        "rank 1 ended: ValueError: the card fell off the bus; all ranks are restarted"
    )


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ([RankEnd(1, 1, ""), RankEnd(2, -9, "")], "rank 2 was ended by SIGKILL; all ranks are restarted"),
        ([RankEnd(1, 1, ""), RankEnd(2, 1, "why")], "rank 2 ended: why; all ranks are restarted"),
        ([RankEnd(1, 1, "x"), RankEnd(2, 75, "memory")], "rank 2 ended: memory; all ranks are restarted"),
        ([RankEnd(1, 3, "")], "rank 1 exited with status 3; all ranks are restarted"),
    ],
)
def test_of_several_exits_the_cause_is_reported(ends: list[RankEnd], words: str) -> None:
    assert cause(ends).in_words() == words


@pytest.mark.long
def test_memory_that_runs_out_on_one_rank_halves_its_micro_batches(
    settings: LearnerSettings, tmp_path: Path
) -> None:
    two = replace(settings, ranks=2, micro_batch_tokens=128)
    path = patched(tmp_path / "small", ONE_SMALL_RANK)
    sizes = []
    for _ in range(20):
        try:
            reports = curve(two, [0], PYTHONPATH=path)
            break
        except EOFError:
            sizes.append(int((settings.directory / "micro-batch-tokens-1-of-2").read_text()))
    assert sizes == [64], "half is enough"
    assert not (settings.directory / "micro-batch-tokens-0-of-2").exists()
    alone = replace(settings, directory=tmp_path / "alone")
    assert reports == [close(report) for report in curve_of_one(alone, [0])]
    assert "rank 1: memory ran out; restarting with micro-batches of at most" in learner_log(settings)


def test_more_ranks_than_gpus_are_refused(settings: LearnerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    on_gpu = replace(settings, device="auto")
    assert number_of_ranks(replace(on_gpu, ranks=None)) == 2
    assert number_of_ranks(replace(settings, ranks=None)) == 1
    with pytest.raises(SapoError, match=r"learner\.ranks = 3, and this machine has 2 GPUs"):
        number_of_ranks(replace(on_gpu, ranks=3))
    with pytest.raises(SapoError, match="quantised weights and moments cannot be sharded"):
        number_of_ranks(replace(on_gpu, ranks=None, optimizer="adamw8bit"))


def learner_log(settings: LearnerSettings) -> str:
    """Return what the learner's processes have printed."""
    return (settings.directory / "learner.log").read_text(encoding="utf-8", errors="replace")
