"""Matching of attackers' messages with nodes' refusals."""

import json
from pathlib import Path

from sapo_client.observe.plain import JSON
from sapo_client.testnet.attack_results import AttackRow, SentMessage, attack_rows, created_files, read_sent
from sapo_client.testnet.node_record import NodeRecord, read_record


def refused(
    reason: str, *, message: str | None = None, content_id: str | None = None, **more: JSON
) -> dict[str, JSON]:
    return {"event": "refused", "reason": reason, "message": message, "content_id": content_id, **more}


def nodes() -> list[NodeRecord]:
    ada = read_record(
        "ada",
        [
            refused("bad_signature", message="m1"),
            refused("bad_signature", message="m2"),
            refused("bad_signature", message="somebody else's"),
            refused("code_in_answer", content_id="c3"),
            refused("equivocation", message="m5"),
            refused("flood", forwarder="flooder", count=7),
            refused("flood", forwarder="somebody else", count=70),
            {"event": "step", "step": 1, "external": [{"content_id": "c4"}, {"content_id": "c6"}]},
        ],
    )  # fmt: skip
    bo = read_record("bo", [refused("bad_signature", message="m1"), refused("no_signal", content_id="c3")])
    return [ada, bo]


def test_each_kind_of_attack_has_a_row() -> None:
    sent = [
        SentMessage("bad_signature", "m1", "c1", False, "p"),
        SentMessage("bad_signature", "m2", "c2", False, "p"),
        SentMessage("code_in_answer", "m3", "c3", False, "p"),
        SentMessage("equivocation", "m4", "c4", True, "p"),
        SentMessage("equivocation", "m5", "c5", False, "p"),
        SentMessage("flood", "m6", None, False, "flooder"),
        SentMessage("copied_answers", "m7", "c6", False, "p"),
        SentMessage("over_quota", "m8", "c8", False, "p"),
    ]
    assert attack_rows(sent, nodes()) == [
        AttackRow("bad_signature", ("bad_signature",), 2, {"bad_signature": 3}, ("ada", "bo"), ()),
        AttackRow(
            "code_in_answer", ("code_in_answer",), 1, {"code_in_answer": 1, "no_signal": 1}, ("ada",), ()
        ),
        AttackRow("copied_answers", ("no_signal",), 1, {}, (), ("c6",)),
        AttackRow("equivocation", ("equivocation",), 1, {"equivocation": 1}, ("ada",), ()),
        AttackRow("over_quota", ("slot_over_quota",), 1, {}, (), ()),
        AttackRow("flood", ("flood",), 1, {"flood": 7}, ("ada",), ()),
    ]  # fmt: skip


def test_training_on_a_copied_answer_counts_as_harmless_and_on_code_as_harm() -> None:
    assert AttackRow("copied_answers", ("no_signal",), 1, {}, (), ("c",)).harmless
    assert not AttackRow("code_in_answer", ("code_in_answer",), 1, {}, (), ("c",)).harmless


def test_the_attackers_file_is_read_up_to_an_incomplete_line(tmp_path: Path) -> None:
    entry = {
        "time": 7.5, "kind": "flood", "message": "m", "content_id": None,
        "bait": False, "peer_id": "p", "peers": 1,
    }  # fmt: skip
    path = tmp_path / "attacks.jsonl"
    path.write_text(json.dumps(entry) + "\n" + json.dumps(entry)[:20])
    assert read_sent(path) == [SentMessage("flood", "m", None, False, "p", 7.5)]
    assert read_sent(tmp_path / "none.jsonl") == []


def test_created_files_are_found_wherever_they_are(tmp_path: Path) -> None:
    markers = tmp_path / "attackers" / "mallory" / "markers"
    data = tmp_path / "nodes" / "ada"
    markers.mkdir(parents=True)
    data.mkdir(parents=True)
    assert created_files(tmp_path, [markers], "pwn123456") == ()
    (markers / "x").touch()
    (data / "pwn123456").touch()
    (data / "innocent").touch()
    assert created_files(tmp_path, [markers], "pwn123456") == (str(markers / "x"), str(data / "pwn123456"))
