"""The embedded chain as a process: one owner, a clean end, and no loss of data after a kill."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from support.ledger import ALICE, BOB, address

from sapo_client.ledger import transactions as tx
from sapo_client.ledger.chain import ENDPOINT_FILE
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.rpc import Rpc
from sapo_protocol.identifiers import Digest

pytestmark = pytest.mark.e2e

SECONDS = 60
"""Patience for things that take a moment on an idle machine."""


def _start(folder: Path) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "sapo_client.ledger.chain",
        "--data",
        str(folder),
        "--fund",
        ALICE.address,
    ]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def _wait(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _rpc(folder: Path, process: "subprocess.Popen[str]") -> Rpc:
    _wait((folder / ENDPOINT_FILE).exists, process)
    return Rpc([(folder / ENDPOINT_FILE).read_text().strip()])


class _Payer:
    """Sends payments one after the other until the chain is gone; remembers what was acknowledged."""

    def __init__(self, rpc: Rpc) -> None:
        self.acknowledged: list[Digest] = []
        self._rpc = rpc
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        try:
            nonce = tx.next_nonce(self._rpc, address(ALICE))
            for following in range(nonce, nonce + 10_000):
                signed = tx.sign(self._rpc, ALICE, tx.Call(address(BOB), b"", 1), following)
                tx.send(self._rpc, signed)
                self.acknowledged.append(signed.digest)
        except LedgerError:
            return


@pytest.mark.long
def _has_acknowledged(payer: _Payer, enough: int) -> bool:
    return len(payer.acknowledged) >= enough


def test_no_acknowledged_transaction_is_lost_to_a_kill(tmp_path: Path) -> None:
    chance = random.Random(20240601)
    acknowledged: list[Digest] = []
    for _ in range(6):
        process = _start(tmp_path)
        payer = _Payer(_rpc(tmp_path, process))
        enough = chance.randrange(3, 25)
        _wait(partial(_has_acknowledged, payer, enough), process)
        time.sleep(chance.random() * 0.03)  # somewhere inside a block
        process.kill()
        process.communicate()
        payer.join()
        (tmp_path / ENDPOINT_FILE).unlink()  # a stale one must not be mistaken for the next
        acknowledged += payer.acknowledged
    process = _start(tmp_path)
    rpc = _rpc(tmp_path, process)
    receipts = [tx.receipt(rpc, digest) for digest in acknowledged]
    blocks = [receipt.block for receipt in receipts if receipt is not None]
    assert len(blocks) == len(acknowledged) > 18
    assert blocks == sorted(set(blocks))
    # A transaction may be mined though the kill ate its answer, but each exactly once, in a block of its own.
    balance = rpc.ask(lambda web3: web3.eth.get_balance(BOB.address))
    assert len(acknowledged) <= balance == tx.head_block(rpc) == tx.next_nonce(rpc, address(ALICE))
    _end(process)


def test_a_folder_has_one_owner_and_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    first = _start(tmp_path)
    _rpc(tmp_path, first)
    second = _start(tmp_path)
    _, complaint = second.communicate(timeout=SECONDS)
    assert (second.returncode, first.poll()) == (6, None)
    assert "already in use" in complaint
    assert "hint: " in complaint
    _end(first)


def _end(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=SECONDS)
    assert process.returncode == 0
