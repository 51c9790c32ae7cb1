"""The vectors: equal bytes at every generation, and consistent with the pipeline and the functions."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reference.vectors import VECTORS, admission_files, load, unpack
from vectors.pipeline import Pipeline
from vectors.world import Announced

from sapo_protocol import ed25519, merkle
from sapo_protocol.errors import Reason, RemoteProtocolError
from sapo_protocol.identifiers import Account, Digest, NodeId
from sapo_protocol.manifest_file import manifest_from_json
from sapo_protocol.requests import parse_response, to_response
from sapo_protocol.terms.auditors import Replacement

MANIFESTS = {name: manifest_from_json(json.dumps(file)) for name, file in load("manifests").items()}
DERIVED = load("derivations")


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_generating_the_vectors_gives_the_same_bytes(hash_seed: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, str(VECTORS / "generate.py"), str(tmp_path)]
    subprocess.run(command, env=environment, check=True)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_bytes() for path in VECTORS.glob("*.json")}


def test_there_are_at_least_three_hundred_cases() -> None:
    cases = [case for name in admission_files() for case in load(name)["cases"]]
    assert len(cases) >= 300
    assert f"{len(cases):,} cases" in (VECTORS / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", admission_files())
def test_verdicts_of_the_pipeline_equal_the_vectors(name: str) -> None:
    document = load(name)
    for case in document["cases"]:
        node = _prepared(case, document["certificates"][case["manifest"]])
        for message in case["messages"]:
            now_ms = case["now_ms"] + message["offset_ms"]
            outcome = node.validate(message["topic"], unpack(message["bytes"]), now_ms)
            assert outcome == (message["verdict"], message["reason"], message["rule"]), case["name"]


def _prepared(case: dict[str, Any], certificates: dict[str, str]) -> Pipeline:
    state, now_ms = case["state"], case["now_ms"]
    terms = state.get("terms")
    documents = [(epoch, text.encode()) for epoch, text in terms["announced"]] if terms else []
    node = Pipeline(
        MANIFESTS[case["manifest"]],
        map(Account.from_hex, state["auditors"]),
        replacements=tuple(
            Replacement(epoch, Account.from_hex(leaving), Account.from_hex(entering))
            for epoch, leaving, entering in state.get("replacements", ())
        ),
        announced=Announced(tuple(documents), terms["known_until"]) if terms else None,
    )
    for name in state["certificates"]:
        node.validate("certificates", bytes.fromhex(certificates[name]), now_ms)
    for epoch, bonded in state.get("bonds", ()):
        node.learn_bonds(epoch, {Account.from_hex(who): int(amount) for who, amount in bonded.items()})
    for epoch, paid in state.get("paid", ()):
        node.learn_paid(epoch, paid)
    for message in state["seen"]:
        node.validate("rollouts", unpack(message), now_ms)
    return node


@pytest.mark.parametrize("vector", load("ed25519")["signatures"], ids=lambda vector: vector["name"])
def test_signatures_have_the_verdict_of_their_vector(vector: dict[str, Any]) -> None:
    key, message, signature = (bytes.fromhex(vector[name]) for name in ("public_key", "message", "signature"))
    assert ed25519.verify(NodeId(key), message, signature) is vector["valid"]


@pytest.mark.parametrize("vector", load("responses")["responses"], ids=lambda vector: vector["name"])
def test_responses_are_parsed_as_their_vector_states(vector: dict[str, Any]) -> None:
    response = unpack(vector["bytes"])
    found: tuple[int | None, Reason | None, str | None] = (None, None, None)
    try:
        messages = parse_response(response)
        assert to_response(messages) == response
        found = len(messages), None, None
    except RemoteProtocolError as error:
        found = None, error.reason, error.rule.number
    assert found == (vector["messages"], vector["reason"], vector["rule"])


@pytest.mark.parametrize("tree", DERIVED["merkle"], ids=lambda tree: len(tree["entries"]))
def test_proofs_are_valid_only_for_their_root(tree: dict[str, Any]) -> None:
    root, leaves = Digest.from_hex(tree["root"]), [Digest.from_hex(leaf) for leaf in tree["leaves"]]
    for index, (entry, written) in enumerate(zip(tree["entries"], tree["proofs"], strict=True)):
        proof = [Digest.from_hex(step) for step in written]
        assert merkle.leaf(Account.from_hex(entry[0]), int(entry[1])) == leaves[index]
        for place, leaf in enumerate(leaves):
            assert merkle.verify(root, leaf, proof) is (place == index)
