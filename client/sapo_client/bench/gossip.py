"""Gossip between processes over TCP on this machine, compared with unchanged py-libp2p in the same run."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Final

from sapo_client.bench.gossip_peer import KINDS
from sapo_client.errors import ExitCode, SapoError
from sapo_client.testnet.processes import python

SETTLE_SECONDS: Final = 3.0
"""Time before the first message, in which the meshes form, and after the last one, in which it arrives."""


@dataclass(frozen=True, slots=True)
class GossipTerms:
    """Settings of a run.

    Attributes:
        peers: number of processes; each is connected to all others.
        messages: number of messages that each process publishes.
        pause_seconds: time between two messages of one process.
        message_bytes: size of a message; 4 KiB is a group of eight short completions.
        rounds: number of rounds of each kind, in turn.
    """

    peers: int = 8
    messages: int = 40
    pause_seconds: float = 0.5
    message_bytes: int = 4096
    rounds: int = 2

    @property
    def due(self) -> int:
        """Expected number of deliveries of a round: each message once to each other process."""
        return self.peers * (self.peers - 1) * self.messages


@dataclass(frozen=True, slots=True)
class GossipRate:
    """Results of one kind of peers in one round.

    Attributes:
        delivery: share of the expected deliveries.
        p50_seconds: median time from publishing to delivery.
        p99_seconds: 99th percentile of this time.
        cpu_seconds: processor time of all processes per delivery, including forwarding and maintenance.
    """

    kind: str
    delivery: float
    p50_seconds: float
    p99_seconds: float
    cpu_seconds: float


def gossip_rates(terms: GossipTerms) -> list[GossipRate]:
    """Return the results of each kind and round, in the order of measurement."""
    return [gossip_rate(kind, terms) for _ in range(terms.rounds) for kind in KINDS]


def gossip_rate(kind: str, terms: GossipTerms) -> GossipRate:
    """Let processes of one kind gossip for one round; return the results.

    Raises:
        SapoError: a process ended.
    """
    with ExitStack() as stack:
        peers = [stack.enter_context(_peer(kind, number)) for number in range(terms.peers)]
        addresses = [peer.answer()["address"] for peer in peers]
        for number, peer in enumerate(peers):
            peer.order("dial", addresses=addresses[:number], peers=number)
            peer.answer()
        time.sleep(SETTLE_SECONDS)
        for peer in peers:
            peer.order(
                "publish",
                messages=terms.messages,
                bytes=terms.message_bytes,
                pause_seconds=terms.pause_seconds,
            )
        for peer in peers:
            peer.answer()
        _wait_for_last(peers, terms.due)
        for peer in peers:
            peer.order("report")
        return _rate(kind, terms, [peer.answer() for peer in peers])


def _wait_for_last(peers: Sequence[_Process], due: int) -> None:
    """Wait until all expected deliveries have arrived, or no more arrive."""
    before, now = -1, 0
    while before < now < due:
        time.sleep(SETTLE_SECONDS)
        for peer in peers:
            peer.order("count")
        before, now = now, sum(peer.answer()["delivered"] for peer in peers)


def _rate(kind: str, terms: GossipTerms, reports: Sequence[dict[str, Any]]) -> GossipRate:
    delays = [delay for report in reports for delay in report["delays"]]
    return GossipRate(
        kind=kind,
        delivery=len(delays) / terms.due,
        p50_seconds=median(delays),
        p99_seconds=quantiles(delays, n=100)[-1],
        cpu_seconds=sum(report["cpu_seconds"] for report in reports) / len(delays),
    )


@dataclass(frozen=True, slots=True)
class _Process:
    process: subprocess.Popen[str]

    def order(self, order: str, **fields: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"order": order, **fields}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SapoError(
                f"a process of the benchmark ended with exit code {self.process.wait()}",
                hint="its message is above; this may be a bug of sapo or of py-libp2p",
                exit_code=ExitCode.NETWORK,
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def _peer(kind: str, number: int) -> Iterator[_Process]:
    argv = python("sapo_client.bench.gossip_peer", kind, f"{number + 1:064x}")
    with subprocess.Popen(  # noqa: S603  our own module
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _Process(process)
        finally:
            process.kill()
