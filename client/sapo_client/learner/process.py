"""The node's side of the learner: a child process that may end at any time and is restarted at its step."""

from __future__ import annotations

import errno
import logging
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import trio

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.backend import Generation, LearnerCrashed
from sapo_client.learner.calls import CallTimes, RunningCall
from sapo_client.learner.report import StepReport
from sapo_client.learner.settings import DAMAGED, OUT_OF_MEMORY, LearnerSettings
from sapo_client.learner.wire import (
    HAPPENED,
    Message,
    Refusal,
    RefusalReason,
    pack,
    take_frames,
    train_arguments,
)
from sapo_client.release import require_unreplaced
from sapo_client.running_time import RunningTime
from sapo_protocol.identifiers import Account, ContentId
from sapo_verification.types import SampledBatch

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_LOG = logging.getLogger(__name__)

MAX_DEATHS: Final = 3
"""Consecutive crashes without a step between them, after which the learner is not restarted."""

LOG_BYTES: Final = 4 * 2**20
"""A larger log is emptied when the process starts."""

FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 60.0
"""Pause before a restart while the server does not answer; each is twice as long as the one before."""

_LOOK_SECONDS: Final = 1.0
"""Interval of checking the deadline of the running call."""

EXIT_SECONDS: Final = 5
"""A child ends when its input is closed; it is killed if that takes longer."""


@dataclass(frozen=True, slots=True)
class About:
    """Step of a started learner, its model's size and class, device, processes, and notices for the
    operator."""

    step: int
    parameters: int
    architecture: str
    device: str
    ranks: int = 1
    notice: str = ""


@dataclass(slots=True)
class _Call:
    """Call that waits for its reply; ``reply`` stays None if the child dies first."""

    name: str
    started: float
    done: trio.Event
    reply: Message | None = None


class Learner:
    """Policy that samples, trains and writes checkpoints in its own process.

    Args:
        settings: sent to the process at every start.

    Attributes:
        restarts: number of restarts after the process ended unexpectedly.
        last_death: reason of the last unexpected end; empty before the first.
        set_aside: names of the damaged checkpoints that the last start skipped.
    """

    def __init__(self, settings: LearnerSettings) -> None:
        self._settings = settings
        self._numbers = count(1)
        self._handles = count(1)
        self._turn = trio.Lock()
        self._ready = trio.Event()
        self._process: trio.Process | None = None
        self._call: tuple[int, _Call] | None = None
        self._deaths = 0
        self._about: About | None = None
        self._times = CallTimes()
        self._time = RunningTime()
        self._overdue: str | None = None
        self._killed_by: str | None = None
        self._has_planned_its_end = False
        self.restarts = 0
        self.last_death = ""
        self.set_aside: tuple[str, ...] = ()
        self._happened: list[tuple[str, Message]] = []

    @property
    def step(self) -> int:
        """The policy's step; at the start, that of the checkpoint."""
        return self.about.step

    @property
    def about(self) -> About:
        """The learner as last reported by the process.

        Raises:
            SapoError: it has not started.
        """
        if self._about is None:
            raise SapoError("the learner has not started", hint="start Learner.run first")
        return self._about

    @property
    def pid(self) -> int | None:
        """Process id of the child, or None while there is none."""
        return None if self._process is None else self._process.pid

    @property
    def call(self) -> RunningCall | None:
        """The call that waits for its reply, if there is one."""
        if self._call is None:
            return None
        call = self._call[1]
        return self._times.running(call.name, self._time.seconds() - call.started)

    def take_happened(self) -> list[tuple[str, Message]]:
        """Return name and fields of the events that calls led to since this was last asked."""
        happened, self._happened = self._happened, []
        return happened

    async def run(self, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the child and restart it when it dies or a call passes its deadline, until cancelled.

        After the first start it waits for what a restart needs, such as a server.

        Raises:
            SapoError: it cannot start, or dies ``MAX_DEATHS`` times without a step.
        """
        settings, pause_seconds = self._settings, FIRST_PAUSE_SECONDS
        while True:
            try:
                with _told_of_limit():
                    await self._run_once(settings, task_status)
            except SapoError as error:
                if not error.transient or task_status is not trio.TASK_STATUS_IGNORED:
                    raise
                self._happened.append(("learner_waits", {"why": error.text, "finding": error.finding}))
                await trio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, MAX_PAUSE_SECONDS)
                continue
            pause_seconds = FIRST_PAUSE_SECONDS
            task_status = trio.TASK_STATUS_IGNORED
            settings = replace(settings, fresh=False)  # a restart must resume the checkpoints
            self.restarts += 1
            self._deaths += not self._has_planned_its_end
            self.last_death = self._last_output()
            _LOG.warning("the learner died, %d times without a step: %s", self._deaths, self.last_death)
            if self._deaths >= MAX_DEATHS:
                raise SapoError(
                    f"the learner died {MAX_DEATHS} times without a step: {self.last_death}",
                    hint=f"its log is {self._log_path}; if memory ran out, use a smaller model",
                    exit_code=ExitCode.BUG,
                )

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        """Return a sampled group for every prompt.

        Raises:
            LearnerCrashed: the child died during the call.
        """
        arguments = self._generate_arguments(prompts, completions_per_prompt)
        return _generations(arguments, await self._ask("generate", arguments))

    async def train(self, batch: SampledBatch, handles: Mapping[ContentId, int]) -> StepReport:
        """Train one step; groups with a handle train the sampled tokens, the others their tokenized text.

        Raises:
            LearnerCrashed: the child died during the call.
        """
        return self._stepped(await self._ask("train", train_arguments(batch, handles)))

    async def train_ahead(
        self,
        batch: SampledBatch,
        handles: Mapping[ContentId, int],
        prompts: Sequence[str],
        *,
        completions_per_prompt: int,
    ) -> tuple[StepReport, tuple[Generation, ...]]:
        """Train one step, and sample groups with the weights before it at the same time.

        Raises:
            LearnerCrashed: the child died during the call.
        """
        ahead = self._generate_arguments(prompts, completions_per_prompt)
        reply = await self._ask("train", {**train_arguments(batch, handles), "ahead": ahead})
        generated = reply.pop("generated")
        return self._stepped(reply), _generations(ahead, generated)

    def _generate_arguments(self, prompts: Sequence[str], completions_per_prompt: int) -> Message:
        handles = [next(self._handles) for _ in prompts]
        return {
            "prompts": list(prompts),
            "completions_per_prompt": completions_per_prompt,
            "handles": handles,
        }

    def _stepped(self, reply: Message) -> StepReport:
        """Return the report in a reply to ``train``, and note its step."""
        report = StepReport(**{**reply, "external_weights": tuple(reply["external_weights"])})
        self._about = replace(self.about, step=report.step)
        return report

    async def evaluate(
        self, prompts: Sequence[str], *, temperature: float = 0.0, seed: int = 0
    ) -> tuple[bytes, ...]:
        """Return one completion per prompt, greedy at temperature 0.

        Raises:
            LearnerCrashed: the child died during the call.
        """
        arguments = {"prompts": list(prompts), "temperature": temperature, "seed": seed}
        return tuple((await self._ask("evaluate", arguments))["completions"])

    async def compare(
        self, prompts: Sequence[str], *, seed: int
    ) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Return one completion per prompt of the policy, and one of its candidate."""
        reply = await self._ask("compare", {"prompts": list(prompts), "seed": seed})
        return tuple(reply["policy"]), tuple(reply["candidate"])

    async def promote(self) -> None:
        """Make the candidate the policy."""
        await self._ask("promote", {})

    async def checkpoint(self) -> int:
        """Write a checkpoint now; return its step."""
        return int((await self._ask("checkpoint", {}))["step"])

    async def keep_good(self) -> None:
        """Keep the present policy, to which ``roll_back`` returns."""
        await self._ask("keep_good", {})

    async def roll_back(self, planters: Collection[Account] = ()) -> None:
        """Return to the policy that was last kept as good; the step count goes on."""
        await self._ask("roll_back", {"planters": [bytes(account) for account in planters]})

    async def shadow(self, prompts: Sequence[str]) -> tuple[bytes, ...]:
        """Train the good policy on the own groups since then, keep it instead, and return its answers."""
        return tuple((await self._ask("shadow", {"prompts": list(prompts)}))["completions"])

    async def export(self, folder: Path) -> int:
        """Write model and tokenizer so that transformers loads them; return the step."""
        return int((await self._ask("export", {"folder": str(folder.resolve())}))["step"])

    async def _run_once(self, settings: LearnerSettings, task_status: TaskStatus[None]) -> None:
        """Run one child from start to death."""
        refused: SapoError | None = None
        ended = trio.Event()
        damaged, self._overdue, self._killed_by = self._damaged(), None, None
        async with self._child() as process:
            self._process = process
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_replies, process, ended)
                nursery.start_soon(self._time.run)
                nursery.start_soon(self._kill_when_overdue, process)
                try:
                    before, started = self._about, await self._exchange("start", settings.to_message())
                    self._about = About(**started)
                except SapoError as error:
                    refused = error  # raised below, because a nursery would wrap it in an exception group
                    nursery.cancel_scope.cancel()
                except LearnerCrashed:
                    pass  # the reader sets `ended` at the end of the pipe
                else:
                    _LOG.info("the learner is ready: %s", self._about)
                    if self._about.notice:
                        _LOG.warning("%s", self._about.notice)
                    self.set_aside = tuple(sorted(name for name, _ in self._damaged() - damaged))
                    if before is not None and before.device != self._about.device:
                        moved = {"before": before.device, "device": self._about.device}
                        self._happened.append(("learner_moved", moved))
                    self._ready.set()
                    task_status.started()
                await ended.wait()
                nursery.cancel_scope.cancel()
        if refused is not None:
            raise refused

    @asynccontextmanager
    async def _child(self) -> AsyncIterator[trio.Process]:
        """Start a child; closing its input at the end of the context ends it.

        Raises:
            SapoError: another release was installed in place of the one that runs.
        """
        require_unreplaced("the learner")
        self._settings.directory.mkdir(parents=True, exist_ok=True)
        fresh_log = self._log_path.exists() and self._log_path.stat().st_size > LOG_BYTES
        with self._log_path.open("wb" if fresh_log else "ab") as log:
            process = await start_child(log)
        _LOG.info("the learner runs as process %d and logs to %s", process.pid, self._log_path)
        try:
            yield process
        finally:
            self._process = None
            with trio.CancelScope(shield=True):
                await _end(process)

    async def _read_replies(self, process: trio.Process, ended: trio.Event) -> None:
        """Deliver replies to waiting calls; at the end of the pipe, wake the waiting call without a reply."""
        buffer = bytearray()
        async for chunk in _output(process):
            buffer += chunk
            for message in take_frames(buffer):
                self._deliver(message)
        with trio.move_on_after(EXIT_SECONDS):
            await process.wait()
        self._killed_by = _signal_of(process.returncode)
        self._has_planned_its_end = process.returncode == OUT_OF_MEMORY
        if self._ready.is_set():
            self._ready = trio.Event()
        if self._call is not None:
            self._call[1].done.set()
        ended.set()

    async def _kill_when_overdue(self, process: trio.Process) -> None:
        """Kill the child when a call passes its deadline; the call then raises ``LearnerCrashed``."""
        while (call := self.call) is None or not call.is_overdue:
            await trio.sleep(_LOOK_SECONDS)
        self._overdue = f"it was killed after {call.seconds:.0f} s in which it did not answer {call.name}"
        process.kill()

    def _deliver(self, message: Message) -> None:
        """Give a reply to its call, unless the call was cancelled."""
        if self._call is not None and self._call[0] == message["id"]:
            self._call[1].reply = message
            self._call[1].done.set()

    async def _ask(self, name: str, arguments: Message) -> Message:
        """Make one call once the child is ready; calls are made one after another."""
        async with self._turn:
            await self._ready.wait()
            result = await self._exchange(name, arguments)
            if name == "train":  # only a step is progress: sampling may succeed each time
                self._deaths = 0
            return result

    async def _exchange(self, name: str, arguments: Message) -> Message:
        """Send one request and wait for its reply.

        Raises:
            LearnerCrashed: the child died before it replied.
            SapoError: the child refused the request.
        """
        process = self._process
        if process is None or process.stdin is None:
            raise LearnerCrashed(f"the learner died before {name}")
        number = next(self._numbers)
        call = _Call(name, self._time.seconds(), trio.Event())
        self._call = (number, call)
        try:
            # shielded, because half a frame would corrupt the stream; the child always reads, so this ends
            with trio.CancelScope(shield=True):
                await process.stdin.send_all(pack({"id": number, "call": name, "arguments": arguments}))
            await call.done.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LearnerCrashed(f"the learner died before {name}: {self._last_output()}") from error
        finally:
            self._call = None
        if call.reply is None:
            raise LearnerCrashed(f"the learner died during {name}: {self._last_output()}")
        if "error" in call.reply:
            raise SapoError(**call.reply["error"])
        self._times.add(name, self._time.seconds() - call.started)
        result: Message = call.reply["result"]
        self._happened += [(name, fields) for name, fields in result.pop(HAPPENED, ())]
        return result

    @property
    def _log_path(self) -> Path:
        return self._settings.directory / "learner.log"

    def _damaged(self) -> set[tuple[str, int]]:
        """Return names and inodes of the damaged checkpoints; one name may be damaged again."""
        return {
            (folder.name.removeprefix(DAMAGED), folder.stat().st_ino)
            for folder in self._checkpoints.glob(f"{DAMAGED}*")
        }

    @property
    def _checkpoints(self) -> Path:
        return self._settings.directory / "checkpoints"

    def _last_output(self) -> str:
        """Return the reason for the child's end, as far as it is known."""
        if self._overdue is not None:
            return self._overdue
        if self._killed_by is not None:
            which = "it" if self._about is None or self._about.ranks == 1 else "rank 0"
            return f"{self._killed_by} ended {which}, as when memory runs out"
        return self._last_log_line()

    def _last_log_line(self) -> str:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"


@contextmanager
def _told_of_limit() -> Iterator[None]:
    """Replace the error of a start for which the system has no room by the ``SapoError`` for the user.

    Raises:
        SapoError: a limit of open files, processes or memory is reached.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM):
            raise
        raise SapoError(
            f"the learner cannot be started: {error.strerror}",
            hint="raise the limit of open files (ulimit -n), of processes or of memory",
            exit_code=ExitCode.DATA,
            transient=True,
            finding="limit_reached",
        ) from error


async def start_child(log: IO[bytes]) -> trio.Process:
    """Start a learner's process, with pipes for requests and replies, that writes its errors to a log."""
    return await trio.lowlevel.open_process(
        [sys.executable, "-m", "sapo_client.learner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,  # so that the terminal's Ctrl-C reaches the node only
    )


def _generations(arguments: Message, result: Message) -> tuple[Generation, ...]:
    """Return the sampled groups in the result of ``generate``."""
    refusals = {
        place: Refusal(RefusalReason(reason), detail)
        for place, (reason, detail) in result["refusals"].items()
    }
    pairs = zip(arguments["handles"], result["completions"], strict=True)
    return tuple(
        Generation(handle, tuple(group), refusals.get(place)) for place, (handle, group) in enumerate(pairs)
    )


def _signal_of(code: int | None) -> str | None:
    """Return the name of the signal that ended a process; None if none did."""
    return None if code is None or code >= 0 else signal.Signals(-code).name


def _output(process: trio.Process) -> trio.abc.ReceiveStream:
    """Return the child's standard output."""
    if process.stdout is None:
        raise RuntimeError("the child is always started with a pipe")
    return process.stdout


async def _end(process: trio.Process) -> None:
    """End a child by closing its input; kill it after ``EXIT_SECONDS``."""
    if process.stdin is not None:
        await process.stdin.aclose()
    with trio.move_on_after(EXIT_SECONDS):
        await process.wait()
    if process.poll() is None:
        process.kill()
        await process.wait()
    if process.stdout is not None:
        await process.stdout.aclose()
