"""Answers typed by a person at the terminal."""

from __future__ import annotations

import sys

import trio

from sapo_client.errors import ExitCode, SapoError


class Human:
    """Person at the terminal as an answerer; prompts go to standard error: standard output is the node's."""

    async def answer(self, prompt: str, count: int) -> tuple[bytes, ...]:
        """Read one answer per line; an empty line ends the group after the first answer.

        Raises:
            SapoError: the input has ended.
        """
        self._print(f"\n{prompt.rstrip()}\n(up to {count} answers, one per line; an empty line ends them)")
        answers: list[bytes] = []
        while len(answers) < count:
            self._print(f"answer {len(answers) + 1}: ", end="")
            text = await self._line()
            if text:
                answers.append(text.encode("utf-8", errors="replace"))
            elif answers:
                break
        return tuple(answers)

    async def _line(self) -> str:
        """Read a line without its line end; the waiting thread is abandoned when the node stops."""
        line: str = await trio.to_thread.run_sync(
            sys.stdin.readline,
            abandon_on_cancel=True,  # type: ignore[call-arg]  # the stubs know its old name
        )
        if not line:
            raise SapoError(
                "the input has ended, so there are no more answers",
                hint="run the node in a terminal, or set learner.backend = transformers",
                exit_code=ExitCode.USAGE,
            )
        return line.strip()

    def _print(self, text: str, end: str = "\n") -> None:
        print(text, end=end, file=sys.stderr, flush=True)
