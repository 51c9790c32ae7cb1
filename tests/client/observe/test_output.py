"""A node's output never waits for its reader."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.file_limit import largest_file

from sapo_client.observe.output import OutputThread, unblocked_output

Pipe = tuple[int, int]

LINES = 5_000
LINE = b"x" * 99 + b"\n"
LEFT_OUT = re.compile(rb"\((\d+) lines were left out: this output was not read\)\n")


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Return the descriptors to read and to write; both are closed in the end."""
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:  # the test has closed it
            continue


def read_all(descriptor: int) -> bytes:
    """Return what is written to a pipe until its last writer closes it."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read()


def test_output_never_waits_for_a_reader_and_dropped_lines_are_counted(pipe: Pipe) -> None:
    """They are told in one line or several, by when the thread gets to write."""
    reads, writes = pipe
    thread = OutputThread(writes, max_lines=100)
    for _ in range(LINES):
        thread.give(LINE)  # far more than a pipe and the queue hold
    with ThreadPoolExecutor() as pool:
        shown = pool.submit(read_all, reads)
        while not thread._waiting.empty():  # else the last line might find no room
            os.sched_yield()
        thread.give(b"last\n")
        thread.end(60.0)
        os.close(writes)
        *lines, last = shown.result().splitlines(keepends=True)
    told = [LEFT_OUT.fullmatch(line) for line in lines if line != LINE]
    counts = [int(each[1]) for each in told if each is not None]
    assert len(counts) == len(told) > 0
    assert lines.count(LINE) + sum(counts) == LINES
    assert last == b"last\n"


def test_lines_left_out_at_the_end_are_reported(pipe: Pipe) -> None:
    reads, writes = pipe
    thread = OutputThread(writes, max_lines=100)
    for _ in range(LINES):
        thread.give(LINE)
    with ThreadPoolExecutor() as pool:
        shown = pool.submit(read_all, reads)
        thread.end(60.0)
        os.close(writes)
        lines = shown.result().splitlines(keepends=True)
    told = [LEFT_OUT.fullmatch(line) for line in lines if line != LINE]
    counts = [int(each[1]) for each in told if each is not None]
    assert len(counts) == len(told)
    assert lines.count(LINE) + sum(counts) == LINES


def test_output_to_a_closed_reader_is_skipped() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    thread = OutputThread(writes)
    for _ in range(2):
        thread.give(LINE)
    thread.end(60.0)
    os.close(writes)


def test_unread_rounds_do_not_delay_an_error(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = pipe
    nobody_reads, rounds = os.pipe()
    with os.fdopen(rounds, "w") as out, os.fdopen(writes, "w") as error:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", error)
        with unblocked_output():
            for _ in range(LINES):
                print(LINE.decode(), end="")
            print("the chain is silent", file=sys.stderr)
            assert os.read(reads, 100) == b"the chain is silent\n"
            os.close(nobody_reads)


def test_a_begun_line_is_written_when_it_is_flushed_and_in_the_end(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, writes = pipe
    with os.fdopen(writes, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        with unblocked_output():
            print("a question? ", end="", flush=True)
            assert os.read(reads, 100) == b"a question? "
            print("round", 1)
            print("the end", end="")
    assert read_all(reads) == b"round 1\nthe end"


def test_lines_that_a_full_disk_does_not_take_are_left_out_and_later_ones_are_written(tmp_path: Path) -> None:
    """As of `sapo join 2> FILE`; of a line that was begun the beginning stays."""
    path = tmp_path / "file"
    with path.open("ab", buffering=0) as file:
        thread = OutputThread(file.fileno())
        thread.give(b"before\n")
        while path.read_bytes() != b"before\n":
            os.sched_yield()
        with largest_file(9):
            thread.give(b"one\n")
            thread.give(b"two\n")
            while not thread._waiting.empty() or thread.lost < 2:
                os.sched_yield()
        thread.give(b"after\n")
        thread.end(60.0)
    assert path.read_bytes() == b"before\non\n(2 lines were left out: the disk was full)\nafter\n"
