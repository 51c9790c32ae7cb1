"""The node's end of the learner: a child process that may die at any moment and comes back at its step."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.backend import Generation, LearnerCrashed
from sapo_client.learner.report import StepReport
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import HEADER, Message, pack, unpack
from sapo_protocol.identifiers import ContentId
from sapo_verification.types import SampledBatch, SampledGroup

if TYPE_CHECKING:
    from trio_typing import TaskStatus

_LOG = logging.getLogger(__name__)

MAX_DEATHS: Final = 3
"""Deaths in a row without a step between them: then it is not an accident."""

LOG_BYTES: Final = 4 * 2**20
"""A log beyond this starts anew with the process."""

EXIT_SECONDS: Final = 5
"""A child whose input has ended leaves at once; a hung one is killed after this."""


@dataclass(frozen=True, slots=True)
class About:
    """A started learner: its step, its model's size and class, where it runs."""

    step: int
    parameters: int
    architecture: str
    device: str


@dataclass(slots=True)
class _Call:
    """A call that waits for its reply; ``reply`` stays None if the child dies first."""

    done: trio.Event
    reply: Message | None = None


class Learner:
    """A policy that samples, trains and checkpoints in its own process."""

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
        self.restarts = 0

    @property
    def step(self) -> int:
        """The policy's step: the resumed one at the start."""
        return self.about.step

    @property
    def about(self) -> About:
        """The learner as last heard of."""
        if self._about is None:
            raise SapoError("the learner has not started", hint="start Learner.run first")
        return self._about

    @property
    def pid(self) -> int | None:
        """The child's process id while there is one."""
        return None if self._process is None else self._process.pid

    async def run(self, task_status: TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keeps the child alive until cancelled.

        Raises:
            SapoError: it cannot start, or dies again and again.
        """
        settings = self._settings
        while True:
            await self._run_once(settings, task_status)
            task_status = trio.TASK_STATUS_IGNORED
            settings = replace(settings, fresh=False)  # a restart must not throw the work away
            self.restarts += 1
            self._deaths += 1
            _LOG.warning("the learner died, %d times without a step: %s", self._deaths, self._last_log_line())
            if self._deaths >= MAX_DEATHS:
                raise SapoError(
                    f"the learner died {MAX_DEATHS} times without a step: {self._last_log_line()}",
                    hint=f"its log is {self._log_path}; if memory ran out, use a smaller model",
                    exit_code=ExitCode.BUG,
                )

    async def generate(
        self, prompts: Sequence[str], *, completions_per_prompt: int
    ) -> tuple[Generation, ...]:
        """A sampled group for every prompt.

        Raises:
            LearnerCrashed: the child died meanwhile.
        """
        handles = [next(self._handles) for _ in prompts]
        arguments = {
            "prompts": list(prompts),
            "completions_per_prompt": completions_per_prompt,
            "handles": handles,
        }
        result = await self._ask("generate", arguments)
        pairs = zip(handles, result["completions"], strict=True)
        return tuple(Generation(handle, tuple(group)) for handle, group in pairs)

    async def train(self, batch: SampledBatch, handles: Mapping[ContentId, int]) -> StepReport:
        """One step on a batch; groups with a handle train the sampled tokens, the others their text.

        Raises:
            LearnerCrashed: the child died meanwhile.
        """
        groups = [group_message(group, handles.get(group.rollout.content_id)) for group in batch.groups]
        reply = await self._ask("train", {"groups": groups})
        report = StepReport(**{**reply, "external_weights": tuple(reply["external_weights"])})
        self._about = replace(self.about, step=report.step)
        return report

    async def evaluate(
        self, prompts: Sequence[str], *, temperature: float = 0.0, seed: int = 0
    ) -> tuple[bytes, ...]:
        """One completion of every prompt, the likeliest at temperature 0.

        Raises:
            LearnerCrashed: the child died meanwhile.
        """
        arguments = {"prompts": list(prompts), "temperature": temperature, "seed": seed}
        return tuple((await self._ask("evaluate", arguments))["completions"])

    async def checkpoint(self) -> int:
        """Writes a checkpoint now; returns its step."""
        return int((await self._ask("checkpoint", {}))["step"])

    async def keep_good(self) -> None:
        """Keeps the policy as it is now, to go back to."""
        await self._ask("keep_good", {})

    async def roll_back(self) -> None:
        """Puts back the policy that was last kept as good; the count of steps goes on."""
        await self._ask("roll_back", {})

    async def export(self, folder: Path) -> int:
        """Writes the model and its tokenizer as transformers load them; returns the step."""
        return int((await self._ask("export", {"folder": str(folder.resolve())}))["step"])

    async def _run_once(self, settings: LearnerSettings, task_status: TaskStatus[None]) -> None:
        """One child, from start to death."""
        refused: SapoError | None = None
        ended = trio.Event()
        async with self._child() as process:
            self._process = process
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read_replies, process, ended)
                try:
                    self._about = About(**await self._exchange("start", settings.to_message()))
                except SapoError as error:
                    refused = error  # raised outside, for a nursery would wrap it in a group
                    nursery.cancel_scope.cancel()
                except LearnerCrashed:
                    pass  # the reader has seen the end of the pipe
                else:
                    _LOG.info("the learner is ready: %s", self._about)
                    self._ready.set()
                    task_status.started()
                await ended.wait()
        if refused is not None:
            raise refused

    @asynccontextmanager
    async def _child(self) -> AsyncIterator[trio.Process]:
        """A started child; leaving ends its input, which ends it."""
        self._settings.directory.mkdir(parents=True, exist_ok=True)
        fresh_log = self._log_path.exists() and self._log_path.stat().st_size > LOG_BYTES
        with self._log_path.open("wb" if fresh_log else "ab") as log:
            process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "sapo_client.learner"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is the node's
            )
        _LOG.info("the learner runs as process %d and logs to %s", process.pid, self._log_path)
        try:
            yield process
        finally:
            self._process = None
            with trio.CancelScope(shield=True):
                await _end(process)

    async def _read_replies(self, process: trio.Process, ended: trio.Event) -> None:
        """Gives replies to the calls that wait for them; at the pipe's end no call will be answered."""
        buffer = bytearray()
        async for chunk in _output(process):
            buffer += chunk
            for message in _frames(buffer):
                self._deliver(message)
        if self._ready.is_set():
            self._ready = trio.Event()
        if self._call is not None:
            self._call[1].done.set()
        ended.set()

    def _deliver(self, message: Message) -> None:
        if self._call is not None and self._call[0] == message["id"]:
            self._call[1].reply = message
            self._call[1].done.set()

    async def _ask(self, name: str, arguments: Message) -> Message:
        """One call, once the child is ready; calls take turns."""
        async with self._turn:
            await self._ready.wait()
            result = await self._exchange(name, arguments)
            if name == "train":  # sampling again and again before the same fatal step is no progress
                self._deaths = 0
            return result

    async def _exchange(self, name: str, arguments: Message) -> Message:
        process = self._process
        if process is None or process.stdin is None:
            raise LearnerCrashed(f"the learner died before {name}")
        number = next(self._numbers)
        call = _Call(trio.Event())
        self._call = (number, call)
        try:
            # shielded: half a frame would garble the pipe, and the child always reads
            with trio.CancelScope(shield=True):
                await process.stdin.send_all(pack({"id": number, "call": name, "arguments": arguments}))
            await call.done.wait()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise LearnerCrashed(f"the learner died before {name}") from error
        finally:
            self._call = None
        if call.reply is None:
            raise LearnerCrashed(f"the learner died during {name}: {self._last_log_line()}")
        if "error" in call.reply:
            raise SapoError(**call.reply["error"])
        result: Message = call.reply["result"]
        return result

    @property
    def _log_path(self) -> Path:
        return self._settings.directory / "learner.log"

    def _last_log_line(self) -> str:
        lines = self._log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "its log is empty"


def group_message(group: SampledGroup, handle: int | None) -> Message:
    """A batch's group in plain values, without what the learner need not know."""
    rollout = group.rollout
    return {
        "prompt": rollout.prompt,
        "completions": list(rollout.completions),
        "rewards": list(rollout.rewards),
        "external": group.external,
        "family": rollout.task.family,
        "handle": handle,
    }


def _output(process: trio.Process) -> trio.abc.ReceiveStream:
    """The child's standard output."""
    if process.stdout is None:
        raise RuntimeError("the child is always started with a pipe")
    return process.stdout


def _frames(buffer: bytearray) -> list[Message]:
    """Takes the whole frames off the front of a buffer."""
    messages: list[Message] = []
    while len(buffer) >= HEADER.size:
        (length,) = HEADER.unpack_from(buffer)
        stop = HEADER.size + length
        if len(buffer) < stop:
            break
        messages.append(unpack(bytes(buffer[HEADER.size : stop])))
        del buffer[:stop]
    return messages


async def _end(process: trio.Process) -> None:
    """Ends a child by ending its input, or by force."""
    if process.stdin is not None:
        await process.stdin.aclose()
    with trio.move_on_after(EXIT_SECONDS):
        await process.wait()
    if process.poll() is None:
        process.kill()
        await process.wait()
    if process.stdout is not None:
        await process.stdout.aclose()
