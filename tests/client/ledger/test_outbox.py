"""The outbox file: one entry per request, under all faults."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.fees import Fees
from sapo_client.ledger.outbox import EntryState, Outbox, OutboxEntry
from sapo_client.ledger.transactions import Call, Signed
from sapo_protocol.identifiers import Account, Digest

CALL = Call(Account(b"\x01" * 20), b"data", 5)
SIGNED = Signed(7, Digest(b"\x02" * 32), b"raw", 21_000, Fees(1, 10), 3)
BETTER = replace(SIGNED, digest=Digest(b"\x03" * 32), raw=b"better", fees=Fees(2, 20))
IDLE = {EntryState.QUEUED: 0, EntryState.SIGNED: 0, EntryState.CONFIRMED: 0, EntryState.REFUSED: 0}


def _open(folder: Path, owner: str = "swarm account") -> Outbox:
    return Outbox(folder / "outbox.sqlite", owner=owner)


def test_missing_folders_are_created(tmp_path: Path) -> None:
    assert _open(tmp_path / "data" / "node").entries() == []


def test_equal_requests_are_queued_once(tmp_path: Path) -> None:
    outbox = _open(tmp_path)
    assert outbox.add("claim", "1", CALL)
    assert not outbox.add("claim", "1", Call(None, b"other"))
    assert outbox.add("post", "1", CALL)
    first, second = outbox.entries()
    assert (first.kind, first.key, first.call, first.state) == ("claim", "1", CALL, EntryState.QUEUED)
    assert second.kind == "post"


def test_a_series_is_queued_atomically_in_order_and_only_once(tmp_path: Path) -> None:
    outbox = _open(tmp_path)
    calls = [Call(None, data) for data in (b"approve", b"deposit")]
    for number in (0, 2):
        assert outbox.add_series("bond", calls)
        assert not outbox.add_series("bond", calls)
        assert outbox.add("claim", str(number), CALL)
        entries = [entry for entry in outbox.entries(EntryState.QUEUED) if entry.kind == "bond"]
        assert [(entry.key, entry.call) for entry in entries] == [
            (str(number), calls[0]),
            (str(number + 1), calls[1]),
        ]
        outbox.confirm(entries[0])
        assert not outbox.add_series("bond", calls)
        outbox.refuse(entries[1], "why")
    outbox.close()


def test_states_of_entries_persist_across_a_restart(tmp_path: Path) -> None:
    outbox = _open(tmp_path)
    for key in "abcd":
        outbox.add("claim", key, CALL)
    a, b, c, _ = outbox.entries()
    outbox.sign(a, SIGNED)
    outbox.confirm(b, "needless")
    outbox.refuse(c, "hopeless")
    outbox.close()
    outbox = _open(tmp_path)
    states = [(entry.key, entry.state, entry.signed, entry.note) for entry in outbox.entries()]
    assert states == [
        ("a", EntryState.SIGNED, SIGNED, None),
        ("b", EntryState.CONFIRMED, None, "needless"),
        ("c", EntryState.REFUSED, None, "hopeless"),
        ("d", EntryState.QUEUED, None, None),
    ]
    assert outbox.counts() == dict.fromkeys(EntryState, 1)
    assert [entry.key for entry in outbox.entries(EntryState.QUEUED, EntryState.SIGNED)] == ["a", "d"]


def test_a_refused_request_is_queued_again_as_it_is_now(tmp_path: Path) -> None:
    """A deployment whose founder corrects what a contract refused sends the corrected coins with it."""
    outbox = _open(tmp_path)
    outbox.add("deploy", "7", CALL)
    [refused] = outbox.entries()
    outbox.refuse(refused, "why")
    now = Call(Account(b"\x02" * 20), b"corrected", 6)
    assert outbox.add("deploy", "7", now)
    assert outbox.entries() == [replace(refused, call=now)]


def test_a_requeued_entry_has_no_transaction(tmp_path: Path) -> None:
    outbox = _open(tmp_path)
    outbox.add("claim", "1", CALL)
    outbox.sign(outbox.entries()[0], SIGNED)
    outbox.requeue(outbox.entries()[0], "reverted")
    (entry,) = outbox.entries()
    assert (entry.state, entry.transactions, entry.note) == (EntryState.QUEUED, (), "reverted")


def test_nonces_continue_after_pending_transactions(tmp_path: Path) -> None:
    outbox = _open(tmp_path)
    assert outbox.next_nonce(3) == 3
    outbox.add("claim", "1", CALL)
    outbox.sign(outbox.entries()[0], SIGNED)
    assert outbox.next_nonce(7) == 8
    assert outbox.next_nonce(9) == 9  # a wallet has sent something meanwhile
    outbox.confirm(outbox.entries()[0])
    assert outbox.next_nonce(8) == 8


def test_a_replacement_joins_the_transaction_that_it_replaces(tmp_path: Path) -> None:
    outbox = _open(tmp_path)
    outbox.add("claim", "1", CALL)
    outbox.sign(outbox.entries()[0], SIGNED)
    outbox.sign(outbox.entries()[0], BETTER)
    (entry,) = outbox.entries()
    assert (entry.transactions, entry.signed) == ((SIGNED, BETTER), BETTER)


@pytest.mark.parametrize("ended", [Outbox.confirm, lambda box, entry: box.requeue(entry, "reverted")])
def test_a_nonce_is_never_assigned_to_two_requests(
    tmp_path: Path, ended: Callable[[Outbox, OutboxEntry], None]
) -> None:
    outbox = _open(tmp_path)
    for key in "ab":
        outbox.add("claim", key, CALL)
    first, second = outbox.entries()
    outbox.sign(first, SIGNED)
    ended(outbox, first)
    with pytest.raises(LedgerError, match="nonce 7 was used before"):
        outbox.sign(second, BETTER)
    assert outbox.entries()[1] == second


def test_a_confirmed_transaction_lost_by_a_reorganisation_is_reopened(tmp_path: Path) -> None:
    outbox = _open(tmp_path)
    outbox.add("claim", "1", CALL)
    outbox.sign(outbox.entries()[0], SIGNED)
    outbox.confirm(outbox.entries()[0], at_seconds=5)
    assert outbox.last_settled_seconds() == 5
    assert outbox.reopen(8) == 0
    assert outbox.reopen(7) == 1
    (entry,) = outbox.entries()
    assert (entry.state, entry.transactions) == (EntryState.SIGNED, (SIGNED,))


def test_an_outbox_of_another_swarm_or_account_is_not_touched(tmp_path: Path) -> None:
    _open(tmp_path).close()
    with pytest.raises(LedgerError, match="another swarm or account"):
        _open(tmp_path, owner="swarm other")
    assert _open(tmp_path).counts() == IDLE
