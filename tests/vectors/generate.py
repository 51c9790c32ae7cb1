"""Generate the vectors: ``python tests/vectors/generate.py [FOLDER]``; with ``--check`` only compares.

Every expectation is written by hand in the ``cases_*`` files; this program asks the pipeline for its
verdict all the same and writes nothing if the two differ. No randomness, no clock: the files are the same
bytes at every run. Needs ``pynacl``, ``coincurve``, ``eth-hash`` and ``pydantic`` alone.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parent), *(str(HERE.parents[1] / name) for name in ("protocol", "verification"))]

from vectors import (  # noqa: E402
    cases_address_record,
    cases_catch_up,
    cases_certificate,
    cases_commitment,
    cases_contribution,
    cases_difficulty,
    cases_ed25519,
    cases_encoding,
    cases_equivocation,
    cases_gate,
    cases_islands,
    cases_reserved,
    cases_response,
    cases_rollout,
    cases_successor,
    cases_version,
    derivations,
    derivations_audits,
    derivations_difficulty,
)
from vectors.pipeline import Outcome, Pipeline  # noqa: E402
from vectors.world import MANIFESTS, Case, Introductions, Message  # noqa: E402

from sapo_protocol.errors import RemoteProtocolError  # noqa: E402
from sapo_protocol.identifiers import Account, ContentId  # noqa: E402
from sapo_protocol.islands.address_record import (  # noqa: E402
    open_record,
    parse_record,
    parse_record_request,
    parse_records,
)
from sapo_protocol.islands.catch_up import (  # noqa: E402
    parse_fetch_request,
    parse_fetched,
    parse_id_page,
    parse_id_request,
)
from sapo_protocol.manifest_file import manifest_to_json  # noqa: E402
from sapo_protocol.requests import parse_response  # noqa: E402
from sapo_protocol.rules import Rule  # noqa: E402
from sapo_verification.reputation.penalties import verdict  # noqa: E402

FILES = {
    "encoding": cases_encoding.cases,
    "rollout": cases_rollout.cases,
    "certificate": cases_certificate.cases,
    "ed25519": cases_ed25519.cases,
    "contribution": cases_contribution.cases,
    "equivocation": cases_equivocation.cases,
    "islands": cases_islands.cases,
    "version": cases_version.cases,
    "difficulty": cases_difficulty.cases,
    "gate": cases_gate.cases,
    "reserved": cases_reserved.cases,
    "successor": cases_successor.cases,
    "commitment": cases_commitment.cases,
}
LONGEST_RUN = 64  # bytes of one value in a row; longer runs are written as [byte, times]


class Wrong(SystemExit):
    """A case whose expectation the pipeline does not share."""


def main(folder: Path) -> None:
    """Write every file."""
    for name, text in files():
        (folder / name).write_text(text, encoding="utf-8")


def check(folder: Path) -> None:
    """Raise unless a folder holds the very bytes that would be written, and no other file of vectors."""
    written = {name: text.encode() for name, text in files()}
    found = {path.name: path.read_bytes() for path in folder.glob("*.json")}
    if wrong := {name for name in written.keys() | found.keys() if written.get(name) != found.get(name)}:
        raise SystemExit(f"not what is generated: {', '.join(sorted(wrong))}")


def files() -> Iterator[tuple[str, str]]:
    """Yield names and contents of the files."""
    yield "manifests.json", _dump({name: json.loads(manifest_to_json(m)) for name, m in MANIFESTS.items()})
    for name, cases in FILES.items():
        yield f"admission_{name}.json", _dump(_document(list(cases())))
    yield (
        "ed25519.json",
        _dump({"format": "sapo/vectors/ed25519/1", "signatures": cases_ed25519.signatures()}),
    )
    responses = [_response(*case) for case in cases_response.cases()]
    yield "responses.json", _dump({"format": "sapo/vectors/responses/1", "responses": responses})
    yield "address_records.json", _dump({"format": "sapo/vectors/address-records/1", **_records()})
    yield "catch_up.json", _dump({"format": "sapo/vectors/catch-up/1", **_catch_up()})
    yield (
        "difficulty.json",
        _dump({"format": "sapo/vectors/difficulty/1", **derivations_difficulty.everything()}),
    )
    yield "audits.json", _dump({"format": "sapo/vectors/audits/1", **derivations_audits.everything()})
    yield "derivations.json", _dump({"format": "sapo/vectors/derivations/1", **derivations.everything()})


def _document(cases: list[Case]) -> dict[str, Any]:
    introductions = Introductions()
    names = sorted({case.manifest for case in cases})
    certificates = {name: dict(introductions.of(name)) for name in names}
    for case in cases:
        _compare(case, certificates[case.manifest])
    _require_distinct(cases)
    return {
        "format": "sapo/vectors/admission/2",
        "certificates": {
            name: {who: data.hex() for who, data in known.items()} for name, known in certificates.items()
        },
        "cases": [_case(case) for case in cases],
    }


def _compare(case: Case, certificates: dict[str, bytes]) -> None:
    """Raise unless the pipeline shares the expectations of a case."""
    auditors = map(Account.from_hex, case.auditors)
    swarm = MANIFESTS[case.manifest]
    node = Pipeline(swarm, auditors, replacements=case.replacements, announced=case.terms)
    known = [Message(None, certificates[name], "certificates") for name in case.certificates]
    before = [Message(None, data) for data in case.seen]
    for message in known:
        _require(case, node, message)
    for epoch, bonded in case.bonds:
        node.learn_bonds(epoch, bonded)
    for epoch, paid in case.paid:
        node.learn_paid(epoch, paid)
    for message in (*before, *case.messages):
        _require(case, node, message)


def _require(case: Case, node: Pipeline, message: Message) -> None:
    outcome = node.validate(message.topic, message.data, case.now_ms + message.offset_ms)
    if outcome != expected(message.rule):
        raise Wrong(f"{case.name}: expected {expected(message.rule)}, the pipeline says {outcome}")


def expected(number: str | None) -> Outcome:
    """Return the outcome of a message that breaks a rule, or none."""
    if number is None:
        return "accept", None, None
    [reason] = [rule.reason for rule in Rule if rule.number == number]
    return str(verdict(reason)), str(reason), number


def _require_distinct(cases: list[Case]) -> None:
    names = [case.name for case in cases]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise Wrong(f"cases of one name: {sorted(doubled)}")


def _bonds(case: Case) -> list[list[Any]]:
    return [
        [epoch, {account.hex(): str(amount) for account, amount in bonded.items()}]
        for epoch, bonded in case.bonds
    ]


def _changes(case: Case) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if case.replacements:
        found["replacements"] = [
            [each.epoch, each.leaving.hex(), each.entering.hex()] for each in case.replacements
        ]
    if case.terms is not None:
        documents = [[epoch, document.decode()] for epoch, document in case.terms.documents]
        found["terms"] = {"announced": documents, "known_until": case.terms.known_until}
    return found


def _case(case: Case) -> dict[str, Any]:
    seen = [_bytes(data) for data in case.seen]
    return {
        "name": case.name,
        "manifest": case.manifest,
        "state": {
            "certificates": list(case.certificates),
            "seen": seen,
            "auditors": list(case.auditors),
            **({"bonds": _bonds(case)} if case.bonds else {}),
            **({"paid": [[epoch, list(paid)] for epoch, paid in case.paid]} if case.paid else {}),
            **_changes(case),
        },
        "now_ms": case.now_ms,
        "messages": [_message(message) for message in case.messages],
    }


def _message(message: Message) -> dict[str, Any]:
    outcome, reason, rule = expected(message.rule)
    return {
        "topic": message.topic,
        "offset_ms": message.offset_ms,
        "bytes": _bytes(message.data),
        "verdict": outcome,
        "reason": reason,
        "rule": rule,
    }


def _response(name: str, rule: str | None, response: bytes) -> dict[str, Any]:
    _, reason, _ = expected(rule)
    try:
        messages, found = len(parse_response(response)), None
    except RemoteProtocolError as error:
        messages, found = None, error.rule.number
    if found != rule:
        raise Wrong(f"response {name}: expected {rule}, the pipeline says {found}")
    return {"name": name, "bytes": _bytes(response), "messages": messages, "reason": reason, "rule": rule}


def _records() -> dict[str, Any]:
    """Return the records, requests and answers; raise where the functions see anything else in them."""
    records = [_record(*row) for row in cases_address_record.records()]
    requests = []
    for name, islands, own, data in cases_address_record.requests():
        found = parse_record_request(data)
        if (found and (sorted(found.islands), found.own)) != (None if islands is None else (islands, own)):
            raise Wrong(f"request {name}: {found}")
        record = None if own is None else own.hex()
        requests.append({"name": name, "bytes": _bytes(data), "islands": islands, "record": record})
    answers = []
    for name, count, data in cases_address_record.answers():
        if len(parse_records(data)) != count:
            raise Wrong(f"answer {name}: {len(parse_records(data))}, expected {count}")
        answers.append({"name": name, "bytes": _bytes(data), "records": count})
    return {"records": records, "requests": requests, "answers": answers}


def _record(name: str, counts: bool, data: bytes, now_seconds: int) -> dict[str, Any]:
    manifest = MANIFESTS["plain"]
    unchecked = parse_record(data, manifest.swarm_id)
    opened = open_record(unchecked, manifest.swarm_id, manifest.binding_domain) if unchecked else None
    says: dict[str, Any] | None = None
    if opened is not None and opened.counts_at(now_seconds):
        says = {
            "node": bytes(opened.certificate.node).hex(),
            "account": bytes(opened.certificate.account).hex(),
            "made": opened.made_seconds,
            "addresses": list(opened.addresses),
        }
    if (says is not None) != counts:
        raise Wrong(f"record {name}: {says}")
    return {"name": name, "unix_seconds": now_seconds, "bytes": _bytes(data), "says": says}


def _catch_up() -> dict[str, Any]:
    """Return the requests and responses of catch-up; raise where the functions see anything else in them."""
    id_requests, id_responses, fetch_requests, fetch_responses = [], [], [], []
    for name, says, data in cases_catch_up.id_requests():
        asked = parse_id_request(data)
        found: Any = asked and {
            "epoch": asked.epoch,
            "islands": sorted(asked.islands),
            "after": bytes(asked.after or b"").hex(),
        }
        _require_same(f"request for ids, {name}", says, found)
        id_requests.append({"name": name, "bytes": _bytes(data), "says": says})
    for name, after, says, data in cases_catch_up.id_responses():
        page = parse_id_page(data, ContentId(after) if after else None)
        found = page and {
            "status": page.status,
            "ids": [each.hex() for each in page.ids],
            "next": bytes(page.next or b"").hex(),
        }
        _require_same(f"response with ids, {name}", says, found)
        id_responses.append({"name": name, "after": after.hex(), "bytes": _bytes(data), "says": says})
    for name, ids, data in cases_catch_up.fetch_requests():
        named = parse_fetch_request(data)
        _require_same(f"request for rollouts, {name}", ids, named and [each.hex() for each in named])
        fetch_requests.append({"name": name, "bytes": _bytes(data), "ids": ids})
    for name, count, says, data in cases_catch_up.fetch_responses():
        fetched = parse_fetched(data, count)
        found = fetched and {
            "status": fetched.status,
            "messages": [(message or b"").hex() for message in fetched.messages],
        }
        _require_same(f"response with rollouts, {name}", says, found)
        fetch_responses.append({"name": name, "asked": count, "bytes": _bytes(data), "says": says})
    return {
        "id_requests": id_requests,
        "id_responses": id_responses,
        "fetch_requests": fetch_requests,
        "fetch_responses": fetch_responses,
    }


def _require_same(name: str, expected: Any, found: Any) -> None:
    if found != expected:
        raise Wrong(f"{name}: {found}, expected {expected}")


def _bytes(data: bytes) -> str | list[Any]:
    """Return hexadecimal, or with long runs of one byte a list of hexadecimal and [byte, times] pairs."""
    runs = [(value, sum(1 for _ in run)) for value, run in groupby(data)]
    if all(times <= LONGEST_RUN for _, times in runs):
        return data.hex()
    return list(_pieces(runs))


def _pieces(runs: Iterable[tuple[int, int]]) -> Iterator[Any]:
    pending = b""
    for value, times in runs:
        if times <= LONGEST_RUN:
            pending += bytes((value,)) * times
            continue
        if pending:
            yield pending.hex()
        pending = b""
        yield [f"{value:02x}", times]
    if pending:
        yield pending.hex()


def _dump(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        check(HERE)
    else:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
