"""The vectors: the same bytes at every generation, and true of the pipeline and of the functions."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reference.vectors import VECTORS, admission_files, load, unpack

from sapo_protocol import ed25519, merkle
from sapo_protocol.contributions import parse_approval, parse_proposal, parse_tally
from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.manifest_file import manifest_from_json
from sapo_verification.admission import Admission
from sapo_verification.certificates import CertificateBook
from sapo_verification.penalties import RULES, verdict

MANIFESTS = {name: manifest_from_json(json.dumps(file)) for name, file in load("manifests").items()}
DERIVED = load("derivations")


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_every_generation_has_the_same_bytes(hash_seed: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, str(VECTORS / "generate.py"), str(tmp_path)]
    subprocess.run(command, env=environment, check=True)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in VECTORS.glob("*.json")}


def test_there_are_at_least_three_hundred_cases_and_every_reason_before_forwarding() -> None:
    cases = [case for name in admission_files() for case in load(name)["cases"]]
    assert len(cases) >= 300
    reached = {message["reason"] for case in cases for message in case["messages"]}
    transports, auditors = {"flood"}, {"not_an_auditor"}
    expected = {str(reason) for reason, rule in RULES.items() if rule.stage <= 7} - transports - auditors
    assert expected - reached <= _of_other_topics()
    assert None in reached


def _of_other_topics() -> set[str]:
    """Reasons of kinds that came after these vectors; none today."""
    return set()


@pytest.mark.parametrize("name", admission_files())
def test_the_pipeline_agrees(name: str) -> None:
    document = load(name)
    for case in document["cases"]:
        judges = _prepared(case, document["certificates"][case["manifest"]])
        for message in case["messages"]:
            now_ms = case["now_ms"] + message["offset_ms"]
            outcome = _outcome(judges[message["topic"]], unpack(message["bytes"]), now_ms / 1000)
            assert outcome == (message["verdict"], message["reason"]), case["name"]


def _prepared(case: dict[str, Any], certificates: dict[str, str]) -> dict[str, Any]:
    manifest, now = MANIFESTS[case["manifest"]], case["now_ms"] / 1000
    book = CertificateBook(manifest)
    for name in case["state"]["certificates"]:
        book.judge(bytes.fromhex(certificates[name]), now)
    gate = Admission(manifest, book)
    for message in case["state"]["seen"]:
        gate.judge(unpack(message), now)
    return {"rollouts": gate.judge, "certificates": book.judge}


def _outcome(judge: Any, *arguments: object) -> tuple[str, str | None]:
    try:
        judge(*arguments)
    except RemoteProtocolError as error:
        return str(verdict(error.reason)), str(error.reason)
    return "accept", None


@pytest.mark.parametrize("vector", load("ed25519")["signatures"], ids=lambda vector: vector["name"])
def test_signatures(vector: dict[str, Any]) -> None:
    key, message, signature = (bytes.fromhex(vector[name]) for name in ("public_key", "message", "signature"))
    assert ed25519.verify(NodeId(key), message, signature) is vector["valid"]


@pytest.mark.parametrize(
    "vector", load("objects")["objects"], ids=lambda vector: f"{vector['kind']}: {vector['name']}"
)
def test_objects(vector: dict[str, Any]) -> None:
    parse = {"tally": parse_tally, "proposal": parse_proposal, "approval": parse_approval}[vector["kind"]]
    payload, reason = bytes.fromhex(vector["payload"]), None
    try:
        assert parse(payload).to_payload() == payload
    except RemoteProtocolError as error:
        reason = error.reason
    assert reason == (vector["reason"] and Reason(vector["reason"]))


@pytest.mark.parametrize("tree", DERIVED["merkle"], ids=lambda tree: len(tree["entries"]))
def test_proofs_lead_to_their_root_alone(tree: dict[str, Any]) -> None:
    root, leaves = Digest.from_hex(tree["root"]), [Digest.from_hex(leaf) for leaf in tree["leaves"]]
    for index, (entry, written) in enumerate(zip(tree["entries"], tree["proofs"], strict=True)):
        proof = [Digest.from_hex(step) for step in written]
        assert merkle.leaf(Account.from_hex(entry[0]), int(entry[1])) == leaves[index]
        for place, leaf in enumerate(leaves):
            assert merkle.verify(root, leaf, proof) is (place == index)
