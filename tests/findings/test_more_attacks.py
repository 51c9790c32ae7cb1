"""Further attacks of the same classes as the findings, run against this tree."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.request import ProxyHandler, Request, build_opener

import pytest
from findings.commands import LEDGER_EXIT, deploy, invoke
from findings.epochs import ALICE, EARNED, EPOCH, count, run_epoch, seated, turns
from findings.test_accounts_commands import join
from findings.test_contracts import CROWD, settle
from findings.tree import AUDITORS, TREE, tally
from support.ledger import (
    DEPLOYER,
    EPOCH_SECONDS,
    GENESIS_SECONDS,
    POINTS_CAP,
    STRANGER,
    TOKENS_PER_POINT,
    Contracts,
    ServedChain,
    Tree,
    address,
    found,
    keys,
    node_key,
)

from sapo_client import keystore
from sapo_client.ledger.transactions import Refused
from sapo_protocol.contributions import Approval
from sapo_protocol.envelope import Kind, seal
from sapo_protocol.epochs import epoch_start_seconds
from sapo_protocol.identifiers import ContentId

FOREVER: Final = 2_000_000_000
MAX_SENT: Final = 2**28
"""Bytes after which even the attacker gives up, so that a tree that falls can be seen to."""


# Liveness by lateness, and equivocation


@pytest.mark.parametrize("late", [False, True])
def test_tallies_that_differ_for_every_auditor_prevent_no_settlement(
    contracts: Contracts, tmp_path: Path, late: bool
) -> None:
    """The auditor signs a different tally for each receiver; some arrive after the proposal."""
    *honest, liar = turns(EPOCH)
    seats = seated(contracts, tmp_path, honest)
    count(contracts, seats, EPOCH, [{ALICE: EARNED}, {ALICE: EARNED - 1}, {ALICE: EARNED + 1}])
    lies = [tally(AUDITORS[liar], contracts.manifest(), EPOCH, {ALICE: lie}) for lie in range(1, 13)]
    for place, seat in enumerate(seats):
        seat.hear(lies[place * 3 : place * 3 + 3])
    assert run_epoch(contracts, seats, EPOCH, late=lies[-1] if late else None) == EPOCH


def test_a_silent_auditor_with_the_first_turn_delays_by_one_turn(
    contracts: Contracts, tmp_path: Path
) -> None:
    """It also leaves the others with a tally of its own that only one of them got in time."""
    liar, *honest = turns(EPOCH)
    seats = seated(contracts, tmp_path, honest)
    count(contracts, seats, EPOCH, [{ALICE: EARNED}, {ALICE: EARNED - 1}, {ALICE: EARNED + 1}])
    late = tally(AUDITORS[liar], contracts.manifest(), EPOCH, {ALICE: 1})
    assert run_epoch(contracts, seats, EPOCH, late=late) == EPOCH


def test_an_epoch_without_any_deliveries_is_settled_before_the_next(
    contracts: Contracts, tmp_path: Path
) -> None:
    """The network is away until two epochs have been counted."""
    seats = seated(contracts, tmp_path, range(3))
    for epoch in (EPOCH, EPOCH + 1):
        count(contracts, seats, epoch, [{ALICE: EARNED}] * 3)
    posted = []
    for _ in range(2):
        posted.append(run_epoch(contracts, seats, EPOCH + 1))
        if posted[-1] is not None:
            contracts.finalise()
    assert posted == [EPOCH, EPOCH + 1]


def test_an_unreadable_tally_prevents_no_settlement(contracts: Contracts, tmp_path: Path) -> None:
    """It refers to pages, which its author sends to no node."""
    *honest, liar = turns(EPOCH)
    seats = seated(contracts, tmp_path, honest)
    count(contracts, seats, EPOCH, [{ALICE: EARNED}, {ALICE: EARNED - 1}, {ALICE: EARNED + 1}])
    vast = TREE.vast_tally(AUDITORS[liar], contracts.manifest(), EPOCH)
    for seat in seats:
        seat.hear([vast])
    assert run_epoch(contracts, seats, EPOCH) == EPOCH


# Stores that grow


def test_one_auditors_tallies_of_one_epoch_are_kept_twice_at_most(
    contracts: Contracts, tmp_path: Path
) -> None:
    """Two are stored, because two prove the equivocation."""
    (seat,) = seated(contracts, tmp_path, [0])
    contracts.chain.now_seconds = epoch_start_seconds(contracts.manifest(), EPOCH + 1)
    seat.hear(tally(AUDITORS[1], contracts.manifest(), EPOCH, {ALICE: points}) for points in range(1, 200))
    assert 0 < len(seat.said()) <= 2


def test_one_auditors_approvals_of_anything_are_kept_a_few_at_most(
    contracts: Contracts, tmp_path: Path
) -> None:
    """A thousand approvals of proposals that nobody made."""
    manifest, liar = contracts.manifest(), AUDITORS[1]
    (seat,) = seated(contracts, tmp_path, [0])
    contracts.chain.now_seconds = epoch_start_seconds(manifest, EPOCH + 1)

    def approval(number: int) -> bytes:
        message = Approval(
            node=liar.node,
            account=liar.account,
            epoch=EPOCH,
            proposal=ContentId(number.to_bytes(32, "big")),
            signature=bytes(64) + b"\x1b",
        )
        return seal(Kind.APPROVAL, manifest.swarm_id, message.to_payload(), liar.seed).to_bytes()

    seat.hear(map(approval, range(1000)))
    assert len(seat.said()) <= 2


# Hidden leaves


def test_accounts_registered_for_a_theft_take_one_epochs_cap_at_most(contracts: Contracts) -> None:
    """Ten epochs are unclaimed; then the quorum registers accounts, and divides everything among them."""
    epochs = 10
    for epoch in range(epochs):
        settle(contracts, epoch, POINTS_CAP * len(CROWD), dict.fromkeys(CROWD, POINTS_CAP * (epoch + 1)))
    everything = POINTS_CAP * len(CROWD) * epochs
    thieves = [address(keys(number)) for number in (4, 5)]
    for number in (4, 5):
        contracts.register(keys(number), node_key(number), FOREVER)
    for stolen in (everything // 2, POINTS_CAP * epochs):
        tree = Tree({thieves[0]: stolen, thieves[1]: everything - stolen})
        settle(contracts, contracts.ledger.next_epoch(), 0, tree.points)
        for thief in thieves:
            with suppress(Refused):
                contracts.claim(thief, tree.points[thief], tree.proof(thief))
    balances = [contracts.token.balance(thief) // TOKENS_PER_POINT for thief in thieves]
    assert max(balances) <= 2 * POINTS_CAP


# Terms that differ


@pytest.mark.parametrize(
    "change",
    [
        {"genesis_seconds": GENESIS_SECONDS + EPOCH_SECONDS},
        {"epoch_seconds": 2 * EPOCH_SECONDS},
        {"chain_id": 31_338},
        {"registry": address(STRANGER)},
        {"ledger": address(STRANGER)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_term_that_differs_between_manifest_and_contracts_is_reported(
    contracts: Contracts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    _, options = join(contracts, tmp_path, contracts.manifest(**change))
    code, said = invoke("ledger", "register", "--yes", *options)
    assert (code, "about to sign" in said) == (LEDGER_EXIT, False), said


@pytest.mark.parametrize(("quorum", "told"), [(1, "not 3: 1 can change it"), (4, "not 3: 1 can stop it")])
def test_a_joining_node_is_warned_of_a_quorum_that_one_auditor_controls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quorum: int, told: str
) -> None:
    """One of four may be dishonest or absent if three must agree. Only the contract has the quorum."""
    monkeypatch.setenv("HOME", str(tmp_path))
    contracts = found(tmp_path / "chain.sqlite", quorum=quorum)
    _, options = join(contracts, tmp_path)
    _, said = invoke("doctor", *options)
    contracts.chain.close()
    assert f"{quorum} of 4 auditors agree on what is paid, {told}" in " ".join(said.split()), said


# Messages that say something wrong


@contextmanager
def served(answer: Callable[[BaseHTTPRequestHandler, bytes], None]) -> Iterator[str]:
    """Serve responses to POST requests; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with suppress(ConnectionError):
                answer(self, asked)

        def log_message(self, format: str, *args: object) -> None:
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_an_endpoint_writes_nothing_to_the_terminal_but_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It passes on to a chain what it is asked; transactions it refuses, in words that clear the screen."""
    monkeypatch.setenv("HOME", str(tmp_path))
    keystore.create(tmp_path / "key.json", None, account_key=bytes(DEPLOYER.key))
    chain = ServedChain(tmp_path / "chain.sqlite")
    words = "\x1b[2J\x1b]0;title\x07\rmanifest  swarm/manifest.json\nledger  0x00\x9b31m" + 10_000 * "9"
    refusal = {"jsonrpc": "2.0", "id": 0, "error": {"code": -32000, "message": words}}

    def answer(request: BaseHTTPRequestHandler, asked: bytes) -> None:
        body = json.dumps(refusal).encode()
        if b"eth_sendRawTransaction" not in asked:
            passed = Request(chain.url, asked, {"Content-Type": "application/json"})
            with build_opener(ProxyHandler({})).open(passed) as response:
                body = response.read()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    with served(answer) as url:
        code, said = deploy(tmp_path / "swarm", url, tmp_path / "key.json")
    chain.close()
    assert (code, "title" in said) == (LEDGER_EXIT, True), said
    assert [character for character in said if not character.isprintable() and character != "\n"] == []
    assert not any(line.startswith(("manifest", "ledger")) for line in said.splitlines())
    assert len(said) < 10_000


@pytest.mark.parametrize("name", ["\x1b[2J\x1b]0;title\x07", "testnet\nledger  ok", "testnet\x9b31m"])
def test_a_manifests_name_writes_nothing_to_the_terminal_but_text(
    contracts: Contracts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """No digest covers the name: anyone who passes a manifest on can change it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    _, options = join(contracts, tmp_path, contracts.manifest(name=name))
    _, said = invoke("doctor", *options)
    assert [character for character in said if not character.isprintable() and character != "\n"] == []
    assert not any(line.startswith("ledger  ok") for line in said.splitlines())


@pytest.mark.long
def test_an_endless_response_is_cut(
    contracts: Contracts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An endpoint that never stops sending neither fills the memory nor holds the command."""
    monkeypatch.setenv("HOME", str(tmp_path))
    sent = 0

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> None:
        nonlocal sent
        request.send_response(200)
        request.end_headers()
        while sent < MAX_SENT:
            request.wfile.write(b" " * 2**16)
            sent += 2**16

    with served(answer) as url:
        _, options = join(contracts, tmp_path)
        options[options.index("--rpc") + 1] = url
        code, said = invoke("ledger", "status", *options)
    assert code == LEDGER_EXIT, said
    assert sent < MAX_SENT
