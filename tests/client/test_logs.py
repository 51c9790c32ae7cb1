"""The log's set-up: writers, files, masked secrets, and clean removal."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.file_limit import largest_file

from sapo_client import logs

NAMES = ("sapo_client.some.module", "sapo_verification.some.module", "libp2p.some.module", "elsewhere")
LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.CRITICAL)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    names = (*logs.OWN_LOGGERS, logs.LIBP2P)
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).handlers[:]) for name in names}
    yield
    for name, (level, handlers) in before.items():
        logger = logging.getLogger(name)
        logger.level, logger.handlers = level, handlers


def test_handlers_of_others_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("libp2p").addHandler(logging.NullHandler())  # its level is that of all records
    logs.configure(0)
    assert logging.getLogger("libp2p").level == logging.CRITICAL
    logs.configure(2)
    logging.getLogger("libp2p").debug("heard")
    assert capsys.readouterr().err.endswith(" DEBUG   libp2p: heard\n")


def write_everything() -> None:
    for name in NAMES:
        for level in LEVELS:
            logging.getLogger(name).log(level, "%s", logging.getLevelName(level))


def written(text: str) -> set[tuple[str, str]]:
    """The first part of the logger's name and the level of each line."""
    fields = [line.split() for line in text.splitlines()]
    assert all(level == message for _, level, _, message in fields)
    return {(name.partition(".")[0], level) for _, level, name, _ in fields}


ALL = {"DEBUG", "INFO", "WARNING", "CRITICAL"}


@pytest.mark.parametrize(
    ("verbosity", "quiet", "own", "libp2p"),
    [
        (0, False, set(), set()),
        (1, False, ALL - {"DEBUG"}, set()),
        (2, False, ALL, ALL),
        (3, False, ALL, ALL),
        (2, True, set(), set()),
    ],
)
def test_standard_error_gets_the_levels_of_the_flags(
    capsys: pytest.CaptureFixture[str], verbosity: int, quiet: bool, own: set[str], libp2p: set[str]
) -> None:
    logs.configure(2)
    logs.configure(verbosity, quiet=quiet)
    write_everything()
    captured = capsys.readouterr()
    assert captured.out == ""
    wanted = {(name, level) for name in logs.OWN_LOGGERS for level in own}
    wanted |= {("libp2p", level) for level in libp2p}
    assert written(captured.err) == wanted


@pytest.mark.parametrize(
    ("level", "own", "libp2p"),
    [("debug", ALL, ALL), ("info", ALL - {"DEBUG"}, set()), ("error", {"CRITICAL"}, set())],
)
def test_the_file_gets_its_own_level_and_only_meanwhile(
    tmp_path: Path, level: str, own: set[str], libp2p: set[str]
) -> None:
    path = tmp_path / "logs" / "sapo.log"
    logs.configure(1, quiet=True)
    with logs.logging_to(path, level=level, max_bytes=100_000, keep=1):
        write_everything()
    write_everything()
    wanted = {(name, one) for name in logs.OWN_LOGGERS for one in own}
    assert written(path.read_text()) == wanted | {("libp2p", one) for one in libp2p}
    assert path.parent.stat().st_mode & 0o077 == 0
    assert logging.getLogger("libp2p").level == logging.CRITICAL


def test_the_file_is_rotated(tmp_path: Path) -> None:
    path = tmp_path / "sapo.log"
    with logs.logging_to(path, level="info", max_bytes=1000, keep=2):
        for number in range(100):
            logging.getLogger("sapo_client").info("line %d", number)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["sapo.log", "sapo.log.1", "sapo.log.2"]
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    assert path.read_text().endswith("line 99\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://name:pass@word@host:80/v3/KEY failed", "http://host:80/... failed"),
        ("('https://rpc.example/v3/KEY?k=1')", "('https://rpc.example/...')"),
        ("wss://name:password@host", "wss://host"),
        ("https://rpc.example?key=1, again", "https://rpc.example/... again"),
        ("Max retries exceeded with url: /v3/KEY (refused)", "Max retries exceeded with url: ... (refused)"),
        ("http://127.0.0.1:8545: block 3", "http://127.0.0.1:8545: block 3"),
        ("/ip4/127.0.0.1/tcp/4001/p2p/12D3", "/ip4/127.0.0.1/tcp/4001/p2p/12D3"),
    ],
)
def test_secrets_in_urls_are_removed(text: str, shown: str) -> None:
    assert logs.without_secrets(text) == shown


def test_stack_traces_lose_secrets_and_messages_control_characters(tmp_path: Path) -> None:
    path = tmp_path / "sapo.log"
    with logs.logging_to(path, level="info", max_bytes=100_000, keep=1):
        try:
            raise OSError("http://name:password@host/KEY")
        except OSError:
            logging.getLogger("sapo_client").exception("a peer said %s", "\x1b[31mred\nINFO forged")
    first, *trace = path.read_text().splitlines()
    assert first.endswith(r"ERROR   sapo_client: a peer said \x1b[31mred\nINFO forged")
    assert trace[-1] == "OSError: http://host/..."


def test_a_full_disk_prints_no_stacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "sapo.log"
    with logs.logging_to(path, level="debug", max_bytes=10_000, keep=1):
        with largest_file(0):
            write_everything()
        logging.getLogger(NAMES[0]).warning("WARNING")
    assert capsys.readouterr().err == ""
    assert ("sapo_client", "WARNING") in written(path.read_text()), "it goes on once there is space"


def test_lines_after_the_file_was_taken_away_are_in_a_new_one(tmp_path: Path) -> None:
    """As by who frees space on a full disk, or by another program that rotates logs."""
    path = tmp_path / "logs" / "sapo.log"
    log = logging.getLogger("sapo_client.some.module")
    with logs.logging_to(path, level="info", max_bytes=200, keep=1):
        log.info("before")
        path.unlink()
        log.info("after")
        first = path.read_text()
        log.info("later, and long enough for a rotation: %s", "x" * 100)
        path.replace(tmp_path / "elsewhere")
        log.info("last")
    assert first.endswith(": after\n")
    assert path.read_text().endswith(": last\n")
    assert path.with_name("sapo.log.1").read_text() == first
