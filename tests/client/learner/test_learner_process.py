"""The learner's process with real pipes, signals and crashes."""

import os
import resource
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import trio
from support.policies import make_policy_folder
from support.swarm import Identity, make_manifest
from trio.testing import wait_all_tasks_blocked

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.backend import LearnerCrashed
from sapo_client.learner.process import Learner
from sapo_client.learner.report import StepReport
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import pack, read_frame
from sapo_protocol.tasks import Task
from sapo_verification.types import (
    AdmittedRollout,
    Demonstration,
    SampledBatch,
    SampledGroup,
    VerifiedRollout,
)

PROMPT = "12 + 7 =\n"
LEARNER_PATH = os.pathsep.join(path for path in sys.path if path)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LearnerSettings:
    monkeypatch.setenv("PYTHONPATH", LEARNER_PATH)
    folder = make_policy_folder(tmp_path / "model")
    return LearnerSettings(model=str(folder), directory=tmp_path / "run", max_new_tokens=8)


def verified(completions: tuple[bytes, ...], number: int) -> VerifiedRollout:
    """Return a valid rollout in which every other completion is right."""
    manifest, identity = make_manifest(), Identity(number)
    rollout = identity.rollout(completions=completions)
    envelope = identity.seal(manifest, rollout)
    admitted = AdmittedRollout(envelope.content_id, rollout)
    rewards = tuple(float(index % 2) for index in range(len(completions)))
    return VerifiedRollout(admitted, Task(0, 1), PROMPT, rewards)


def pid_of(learner: Learner) -> int:
    """Return the number of the child process, which must be running."""
    assert learner.pid is not None
    return learner.pid


async def one_step(learner: Learner) -> StepReport:
    """Run a round as the node does: own group, external group, step."""
    (generation,) = await learner.generate([PROMPT], completions_per_prompt=4)
    own, foreign = verified(generation.completions, 1), verified((b"18", b"19"), 2)
    batch = SampledBatch((SampledGroup(own, external=False), SampledGroup(foreign, external=True)))
    return await learner.train(batch, {own.content_id: generation.handle})


async def test_a_full_disk_is_reported_and_waited_for(settings: LearnerSettings) -> None:
    """The limit on the size of files is the child's own, so that its checkpoints fail and nothing else."""
    learner = Learner(settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        _, most = resource.prlimit(pid_of(learner), resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        report = await one_step(learner)
        [(event, fields)] = learner.take_happened()
        with pytest.raises(SapoError, match=r"could not be written: .*File too large") as caught:
            await learner.checkpoint()
        resource.prlimit(pid_of(learner), resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        assert await learner.checkpoint() == report.step == 1
        nursery.cancel_scope.cancel()
    assert (event, fields) == ("checkpoint_failed", {"why": caught.value.text})
    assert (caught.value.transient, caught.value.finding) == (True, "checkpoint_failed")
    assert (learner.restarts, learner.take_happened()) == (0, [])


async def test_a_learner_trains_dies_and_resumes(settings: LearnerSettings) -> None:
    learner = Learner(settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        assert (learner.step, learner.about.architecture) == (0, "Qwen2ForCausalLM")
        report = await one_step(learner)
        assert (report.step, report.local_groups, report.external_groups) == (1, 1, 1)
        assert (report.reencoded_groups, report.external_reward, learner.step) == (0, 0.5, 1)
        assert await learner.checkpoint() == 1
        answers = await learner.evaluate([PROMPT, PROMPT])

        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid_of(learner), number)
        assert await learner.evaluate([PROMPT, PROMPT]) == answers

        os.kill(
            pid_of(learner), signal.SIGSTOP
        )  # it will not answer: the call is in flight when the child dies
        nursery.start_soon(_kill_when_all_wait, learner)
        with pytest.raises(LearnerCrashed):
            await learner.generate([PROMPT], completions_per_prompt=4)

        assert await learner.evaluate([PROMPT, PROMPT]) == answers  # waits for the new child
        assert (learner.step, learner.restarts) == (1, 1)
        assert (await one_step(learner)).step == 2
        nursery.cancel_scope.cancel()
    assert learner.pid is None


async def test_a_restart_on_another_device_is_an_event(settings: LearnerSettings) -> None:
    """As after a GPU has vanished, where the device is chosen automatically."""
    learner = Learner(settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        assert learner.about.device == "cpu"
        learner._about = replace(learner.about, device="cuda")
        os.kill(pid_of(learner), signal.SIGSTOP)
        nursery.start_soon(_kill_when_all_wait, learner)
        with pytest.raises(LearnerCrashed):
            await learner.generate([PROMPT], completions_per_prompt=4)
        await learner.evaluate([PROMPT])
        assert learner.take_happened() == [("learner_moved", {"before": "cuda", "device": "cpu"})]
        nursery.cancel_scope.cancel()


async def _kill_when_all_wait(learner: Learner) -> None:
    await wait_all_tasks_blocked(0.01)
    os.kill(pid_of(learner), signal.SIGKILL)


async def test_a_restart_waits_for_a_free_file_descriptor(settings: LearnerSettings) -> None:
    """After a crash of the learner in a process that has reached its limit of open files."""
    learner = Learner(settings)
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # what is open stays open
        try:
            os.kill(pid_of(learner), signal.SIGKILL)
            while not (happened := learner.take_happened()):
                await trio.lowlevel.checkpoint()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        why = "the learner cannot be started: Too many open files"
        assert happened == [("learner_waits", {"why": why, "finding": "limit_reached"})]
        assert (await one_step(learner)).step == 1
        nursery.cancel_scope.cancel()


async def test_a_candidate_answers_beside_the_policy_until_it_is_the_policy(
    settings: LearnerSettings,
) -> None:
    beside = replace(settings, held_back=True, demonstration_averaging=0.5, demonstration_rate=0.03)
    learner = Learner(replace(beside, demonstration_steps=3, demonstrations_per_step=2))
    prompts = [PROMPT, "6/8\n"]
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        report = None
        while report is None or not report.has_candidate:
            (generation,) = await learner.generate([PROMPT], completions_per_prompt=8)
            own = replace(verified(generation.completions, 1), rewards=(0.0,) * 8)
            shown = [
                Demonstration(Task(0, number), f"{number} + 7 =\n", b"%d" % (number + 7), None)
                for number in range(8)
            ]
            batch = SampledBatch((SampledGroup(own, external=False),), demonstrations=tuple(shown))
            report = await learner.train(batch, {own.content_id: generation.handle})
        of_policy, of_candidate = await learner.compare(prompts, seed=5)
        assert of_policy == await learner.evaluate(prompts, temperature=1.0, seed=5)
        assert of_policy != of_candidate
        await learner.promote()
        assert await learner.evaluate(prompts, temperature=1.0, seed=5) == of_candidate
        nursery.cancel_scope.cancel()


async def test_an_error_at_the_start_reaches_the_caller(settings: LearnerSettings, tmp_path: Path) -> None:
    with pytest.raises(SapoError, match="cannot read the configuration of the model") as caught:
        await Learner(replace(settings, model=str(tmp_path / "nowhere"))).run()
    assert caught.value.exit_code == ExitCode.CONFIG
    assert caught.value.hint.startswith("give a folder with")


async def test_a_learner_that_fails_repeatedly_is_not_restarted(
    settings: LearnerSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The child's interpreter finds a broken package of the learner's name, as after a failed upgrade."""
    package = tmp_path / "broken" / "sapo_client"
    (package / "learner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "learner" / "__init__.py").write_text("")
    (package / "learner" / "__main__.py").write_text("raise MemoryError('no room')")
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.chdir(package.parent)
    with pytest.raises(SapoError, match="no room"):
        await Learner(settings).run()


def test_output_of_libraries_does_not_reach_the_pipe(tmp_path: Path) -> None:
    script = """
        import os
        from sapo_client.learner.__main__ import _own_pipes
        from sapo_client.learner.ranks.serving import _write
        requests, replies = _own_pipes()
        print("noise of a library", flush=True)
        os.system("echo noise of a child")
        assert os.read(0, 1) == b""
        _write(replies, {"received": requests.read(3)})
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        input=b"abc",
        capture_output=True,
        env={**os.environ, "PYTHONPATH": LEARNER_PATH},
        check=True,
    )
    assert done.stdout == pack({"received": b"abc"})
    assert b"noise of a library" in done.stderr
    assert b"noise of a child" in done.stderr


async def test_the_child_dies_with_a_killed_node(settings: LearnerSettings) -> None:
    script = """
        import sys, trio
        from pathlib import Path
        from sapo_client.learner.process import Learner
        from sapo_client.learner.settings import LearnerSettings

        async def main():
            settings = LearnerSettings(model=sys.argv[1], directory=Path(sys.argv[2]))
            learner = Learner(settings)
            async with trio.open_nursery() as nursery:
                await nursery.start(learner.run)
                print(learner.pid, flush=True)
                await trio.sleep_forever()

        trio.run(main)
    """
    node = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), settings.model, str(settings.directory)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert node.stdout is not None
    child = os.pidfd_open(int(await trio.to_thread.run_sync(node.stdout.readline)))
    try:
        node.kill()
        with trio.fail_after(60):
            await trio.lowlevel.wait_readable(child)  # a process's descriptor is readable once it has ended
    finally:
        os.close(child)
        node.wait()
        node.stdout.close()


def test_the_nodes_side_imports_no_model_library() -> None:
    script = (
        "import sys, sapo_client.learner.process; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": LEARNER_PATH}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, env=environment, check=True)
    assert done.stdout == b"[]\n"


def test_frames_are_read_and_malformed_frames_refused() -> None:
    messages = [{"id": 1, "call": "train", "arguments": {"rewards": [0.5, 1.0]}}, {"id": 2, "bytes": b"\xff"}]
    stream = BytesIO(b"".join(pack(message) for message in messages) + b"\x00\x00\x00\x09half")
    assert [read_frame(stream) for _ in range(3)] == [*messages, None]


def test_settings_pass_through_messages() -> None:
    settings = LearnerSettings(model="bundled", directory=Path("somewhere"), seed=3, fresh=True)
    assert LearnerSettings.from_message(settings.to_message()) == settings
