"""Auditors in a run's report: the liar is named, regardless of a single node's claims."""

from sapo_client.observe.events import Event
from sapo_client.testnet.auditors import AuditorRow, auditor_rows
from sapo_client.testnet.node_record import NodeRecord, read_record
from sapo_client.testnet.tables import auditor_table

ADA, BO, CLEO, DOV = ("0x" + digit * 40 for digit in "abcd")
NAMES = {"ada": ADA, "bo": BO, "cleo": CLEO, "dov": DOV}


def seen_by(name: str, *epochs: int) -> NodeRecord:
    """Return the record of a node that saw dov lie late in some epochs."""
    started: Event = {"event": "node_started", "account": NAMES[name], "peer_id": "12D3"}
    judged: list[Event] = [
        {"event": "tallies", "epoch": e, "counted": [ADA, BO, CLEO], "late": [DOV], "apart": {DOV: 512}}
        for e in epochs
    ]
    return read_record(name, [started, *judged])


def test_the_auditor_with_false_tallies_is_named() -> None:
    slander: Event = {
        "event": "tallies",
        "epoch": 1,
        "counted": [BO, DOV],
        "late": [ADA],
        "apart": {ADA: 900},
    }
    dov = seen_by("dov")
    dov.add(slander)
    rows = auditor_rows([seen_by("ada", 0, 1), seen_by("bo", 0, 1), seen_by("cleo", 1), dov])
    assert rows == [
        AuditorRow("ada", counted=(0, 1), late=(), apart=0),
        AuditorRow("bo", counted=(0, 1), late=(), apart=0),
        AuditorRow("cleo", counted=(0, 1), late=(), apart=0),
        AuditorRow("dov", counted=(), late=(0, 1), apart=1024),
    ]
    assert [row.name for row in rows if row.lied] == ["dov"]
    assert auditor_table(rows).rows[-1] == ("dov", "0", "2", "1024", "lied")


def test_a_run_without_final_epochs_has_no_auditor_rows() -> None:
    assert auditor_rows([NodeRecord("ada", account=ADA)]) == []
