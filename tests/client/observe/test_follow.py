"""`sapo logs --follow`: whole lines, across a rotation of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from sapo_client.observe.follow import following, last_lines


class NothingComes(Exception):
    """The follower waits, and nothing is left to happen."""


def acting(*actions: Callable[[], object]) -> Callable[[float], None]:
    """Return a wait in which the next action happens."""
    left: Iterator[Callable[[], object]] = iter(actions)

    def wait(_seconds: float) -> None:
        action = next(left, None)
        if action is None:
            raise NothingComes
        action()

    return wait


def test_the_last_lines_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lines = [f"line {number} " + "x" * 100 for number in range(3000)]
    path.write_text("\n".join(lines) + "\nunfinished")
    found, position = last_lines(path, 5)
    assert (found, position) == (lines[-5:], path.stat().st_size - len("unfinished"))
    assert last_lines(path, 5000)[0] == lines
    assert last_lines(path, 0)[0] == []
    path.write_text("")
    assert last_lines(path, 3) == ([], 0)


def test_lines_are_followed_across_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("old\n")

    def append(text: str) -> Callable[[], object]:
        def act() -> None:
            with path.open("a") as stream:
                stream.write(text)

        return act

    def rotate() -> None:
        append("last of the old\n")()
        path.rename(tmp_path / "log.1")

    seen: list[str] = []
    actions = acting(append("a\nhal"), append("f\n"), rotate, append("new\n"))
    with suppress(NothingComes):
        for line in following(path, 4, actions):
            seen.append(line)  # noqa: PERF402  it never ends by itself
    assert seen == ["a", "half", "last of the old", "new"]
