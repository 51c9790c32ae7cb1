"""Writes the vectors anew: ``python tests/vectors/generate.py [FOLDER]``.

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

from vectors import cases_certificate, cases_ed25519, cases_encoding, cases_rollout, derivations  # noqa: E402
from vectors.world import MANIFESTS, Case, Introductions, Message  # noqa: E402

from sapo_protocol.errors import RemoteProtocolError  # noqa: E402
from sapo_protocol.manifest_file import manifest_to_json  # noqa: E402
from sapo_verification.admission import Admission  # noqa: E402
from sapo_verification.certificates import CertificateBook  # noqa: E402
from sapo_verification.penalties import verdict  # noqa: E402

FILES = {
    "encoding": cases_encoding.cases,
    "rollout": cases_rollout.cases,
    "certificate": cases_certificate.cases,
    "ed25519": cases_ed25519.cases,
}
LONGEST_RUN = 64  # bytes of one value in a row; longer runs are written as [byte, times]


class Wrong(SystemExit):
    """A case whose expectation the pipeline does not share."""


def main(folder: Path) -> None:
    """Writes every file."""
    for name, text in files():
        (folder / name).write_text(text, encoding="utf-8")


def files() -> Iterator[tuple[str, str]]:
    """Names and contents of the files."""
    yield "manifests.json", _dump({name: json.loads(manifest_to_json(m)) for name, m in MANIFESTS.items()})
    for name, cases in FILES.items():
        yield f"admission_{name}.json", _dump(_document(list(cases())))
    yield (
        "ed25519.json",
        _dump({"format": "sapo/vectors/ed25519/1", "signatures": cases_ed25519.signatures()}),
    )
    objects = {"format": "sapo/vectors/objects/1", "objects": derivations.objects()}
    yield "objects.json", _dump(objects)
    yield "derivations.json", _dump({"format": "sapo/vectors/derivations/1", **derivations.everything()})


def _document(cases: list[Case]) -> dict[str, Any]:
    introductions = Introductions()
    names = sorted({case.manifest for case in cases})
    certificates = {name: dict(introductions.of(name)) for name in names}
    for case in cases:
        _compare(case, certificates[case.manifest])
    _require_distinct(cases)
    return {
        "format": "sapo/vectors/admission/1",
        "certificates": {
            name: {who: data.hex() for who, data in known.items()} for name, known in certificates.items()
        },
        "cases": [_case(case) for case in cases],
    }


def _compare(case: Case, certificates: dict[str, bytes]) -> None:
    """Nothing, if the pipeline shares the expectations of a case."""
    manifest = MANIFESTS[case.manifest]
    book = CertificateBook(manifest)
    start = max(case.now_ms / 1000, manifest.genesis_seconds)
    for name in case.certificates:
        book.judge(certificates[name], start)
    gate = Admission(manifest, book)
    before = (Message(None, data) for data in case.seen)
    for message in (*before, *case.messages):
        judge = {"rollouts": gate.judge, "certificates": book.judge}[message.topic]
        reason = None
        try:
            judge(message.data, (case.now_ms + message.offset_ms) / 1000)
        except RemoteProtocolError as error:
            reason = str(error.reason)
        if reason != message.reason:
            raise Wrong(f"{case.name}: expected {message.reason}, the pipeline says {reason}")


def _require_distinct(cases: list[Case]) -> None:
    names = [case.name for case in cases]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise Wrong(f"cases of one name: {sorted(doubled)}")


def _case(case: Case) -> dict[str, Any]:
    seen = [_bytes(data) for data in case.seen]
    return {
        "name": case.name,
        "manifest": case.manifest,
        "state": {"certificates": list(case.certificates), "seen": seen},
        "now_ms": case.now_ms,
        "messages": [_message(message) for message in case.messages],
    }


def _message(message: Message) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "offset_ms": message.offset_ms,
        "bytes": _bytes(message.data),
        "verdict": "accept" if message.reason is None else _verdict(message.reason),
        "reason": message.reason,
    }


def _verdict(reason: str) -> str:
    from sapo_protocol.errors import Reason

    return str(verdict(Reason(reason)))


def _bytes(data: bytes) -> str | list[Any]:
    """Hexadecimal; with long runs of one byte, a list of hexadecimal strings and [byte, times] pairs."""
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
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
