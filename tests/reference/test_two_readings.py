"""The reference implementation and the pipeline agree: two implementations of one specification."""

import ast
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from fuzz.session import pipeline, reference_node
from hypothesis import given
from hypothesis import strategies as st
from reference import (
    address_records,
    audits,
    catch_up,
    cbor,
    derive,
    edwards,
    ethereum,
    ladders,
    names,
    objects,
)
from reference.node import ReferenceNode
from reference.refusal import OUTCOMES, Refused
from reference.vectors import admission_files, load, prepare, unpack
from support.strategies import damaged, rollouts, values
from vectors.cases_contribution import sealed
from vectors.cases_equivocation import proof
from vectors.pipeline import Pipeline
from vectors.world import ALICE, BOB, NOW_MS, PLAIN

from sapo_protocol.decoding import decode
from sapo_protocol.encoding import encode
from sapo_protocol.envelope import Kind
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.rules import Rule
from sapo_protocol.terms.difficulty import GroupOutcome, middle_outcomes
from sapo_verification.reputation.penalties import verdict

HERE = Path(__file__).parent
MANIFESTS = load("manifests")
DERIVED = load("derivations")


def test_the_reference_shares_no_code_with_the_packages() -> None:
    for path in HERE.glob("*.py"):
        if path.name.startswith("test_"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.startswith(("sapo_", "support", "vectors"))], path.name


def test_rules_and_verdicts_equal_those_of_the_pipeline() -> None:
    before = [rule for rule in Rule if rule.stage <= 7]
    assert {rule.number: (str(verdict(rule.reason)), str(rule.reason)) for rule in before} == OUTCOMES


@pytest.mark.parametrize("name", admission_files())
def test_admission_vectors(name: str) -> None:
    document = load(name)
    for case in document["cases"]:
        node = ReferenceNode(MANIFESTS[case["manifest"]], map(bytes.fromhex, case["state"]["auditors"]))
        node.learn_changes(case["state"].get("terms"), case["state"].get("replacements", []))
        prepare(case, document["certificates"], node)
        for message in case["messages"]:
            now_ms = case["now_ms"] + message["offset_ms"]
            outcome = node.validate(message["topic"], unpack(message["bytes"]), now_ms)
            assert outcome == (message["verdict"], message["reason"], message["rule"]), case["name"]


def test_signature_vectors() -> None:
    for vector in load("ed25519")["signatures"]:
        parts = (bytes.fromhex(vector[name]) for name in ("public_key", "message", "signature"))
        assert edwards.verify(*parts) is vector["valid"], vector["name"]


def test_response_vectors() -> None:
    for vector in load("responses")["responses"]:
        outcome = _reference(objects.response, unpack(vector["bytes"]))
        expected = vector["messages"] if vector["rule"] is None else vector["rule"]
        assert (outcome if isinstance(outcome, str) else len(outcome)) == expected, vector["name"]


def test_address_record_vectors() -> None:
    vectors, manifest = load("address_records"), MANIFESTS["plain"]
    swarm = derive.swarm_id(manifest)
    for vector in vectors["records"]:
        says = address_records.record(unpack(vector["bytes"]), manifest, swarm, vector["unix_seconds"])
        assert says == vector["says"], vector["name"]
    for vector in vectors["requests"]:
        own = None if vector["record"] is None else bytes.fromhex(vector["record"])
        assert address_records.request(unpack(vector["bytes"])) == (vector["islands"], own), vector["name"]
    for vector in vectors["answers"]:
        assert len(address_records.answer(unpack(vector["bytes"]))) == vector["records"], vector["name"]


def test_catch_up_vectors() -> None:
    vectors = load("catch_up")
    for vector in vectors["id_requests"]:
        assert catch_up.id_request(unpack(vector["bytes"])) == vector["says"], vector["name"]
    for vector in vectors["id_responses"]:
        says = catch_up.id_response(unpack(vector["bytes"]), bytes.fromhex(vector["after"]))
        assert says == vector["says"], vector["name"]
    for vector in vectors["fetch_requests"]:
        assert catch_up.fetch_request(unpack(vector["bytes"])) == vector["ids"], vector["name"]
    for vector in vectors["fetch_responses"]:
        says = catch_up.fetch_response(unpack(vector["bytes"]), vector["asked"])
        assert says == vector["says"], vector["name"]


def test_swarm_and_content_vectors() -> None:
    for vector in DERIVED["swarms"]:
        manifest = MANIFESTS[vector["manifest"]]
        assert derive.manifest_bytes(manifest).hex() == vector["cbor"]
        assert derive.swarm_id(manifest).hex() == vector["swarm_id"]
    for vector in DERIVED["contents"]:
        swarm = derive.swarm_id(MANIFESTS["chained" if "chain" in vector["name"] else "plain"])
        read = objects.envelope(bytes.fromhex(vector["envelope"]), swarm)
        assert read["content_id"].hex() == vector["content_id"]


def test_caps_of_bonded_accounts() -> None:
    for vector in DERIVED["caps"]:
        asked = [int(vector[name]) for name in ("points_per_epoch", "unit", "bonded")]
        assert str(derive.points_cap(*asked)) == vector["cap"]


def test_attestations_that_count() -> None:
    gate = MANIFESTS["eas gate"]["gate"]
    for vector in DERIVED["attestations"]:
        assert derive.counts_attestation(gate, vector) == vector["counts"]


def test_epoch_beacon_and_seed_vectors() -> None:
    for vector in DERIVED["epochs"]:
        manifest = MANIFESTS[vector["manifest"]]
        assert derive.epoch_of(manifest, 1000 * vector["unix_seconds"]) == vector["epoch"]
        assert derive.start(manifest, vector["epoch"]) == 1000 * vector["start_seconds"]
    for vector in DERIVED["beacons"]:
        swarm = derive.swarm_id(MANIFESTS[vector["manifest"]])
        beacon = derive.beacon(swarm, vector["epoch"], bytes.fromhex(vector["block_hash"]))
        assert beacon.hex() == vector["beacon"]
        for place in vector["seeds"]:
            account = bytes.fromhex(place["account"])
            assert derive.seed(swarm, beacon, account, place["family"], place["slot"]) == place["seed"]


def test_island_vectors() -> None:
    for vector in DERIVED["islands"]:
        manifest = MANIFESTS[vector["manifest"]]
        swarm, period = derive.swarm_id(manifest), manifest["islands"]["period_epochs"]
        account, node = bytes.fromhex(vector["account"]), bytes.fromhex(vector["node"])
        drawn = [derive.drawn(swarm, who, vector["epoch"], period) for who in (account, node)]
        assert drawn == [vector["home_drawn"], vector["visit_drawn"]]
        count = derive.island_count(manifest["islands"], [])
        beacons = [derive.beacon(swarm, epoch, b"") for epoch in drawn]
        home = derive.home(swarm, beacons[0], account, count)
        visit = derive.visit(swarm, beacons[1], node, home_=home, count=count)
        assert (home, visit) == (vector["home"], vector["visit"])
    for vector in DERIVED["island_counts"]:
        assert derive.island_count(vector["islands"], vector["paid"], vector["one_in"]) == vector["count"]
    for vector in DERIVED["paid_accounts"]:
        assert derive.paid_before(vector["epoch"], vector["final"]) == vector["paid"]


def test_merkle_vectors() -> None:
    for tree in DERIVED["merkle"]:
        leaves = [derive.leaf(bytes.fromhex(account), int(value)) for account, value in tree["entries"]]
        assert [leaf.hex() for leaf in leaves] == tree["leaves"]
        assert derive.root(leaves).hex() == tree["root"]
        for leaf, steps in zip(leaves, tree["proofs"], strict=True):
            assert derive.climb(leaf, [bytes.fromhex(step) for step in steps]).hex() == tree["root"]


def test_typed_data_vectors() -> None:
    for vector in DERIVED["typed_data"]:
        separator = ethereum.domain(vector["chain_id"], bytes.fromhex(vector["contract"]))
        assert separator.hex() == vector["separator"]
        assert _digest(vector["type"], separator, vector["message"]).hex() == vector["digest"]
        signature, signer = bytes.fromhex(vector["signature"]), bytes.fromhex(vector["signer"])
        assert ethereum.signer(bytes.fromhex(vector["digest"]), signature) == signer


def _digest(kind: str, separator: bytes, message: dict[str, Any]) -> bytes:
    if kind == "NodeBinding":
        keys = (bytes.fromhex(message["node_key"]), bytes.fromhex(message["swarm_id"]))
        times = (int(message["not_before"]), int(message["not_after"]))
        return ethereum.node_binding(separator, *keys, *times)
    if kind == "EpochApproval":
        return ethereum.epoch_approval(separator, int(message["turn"]), *_root_fields(message["root"]))
    if kind == "SuccessionNotice":
        parts = (bytes.fromhex(message[name]) for name in ("successor", "leaving", "entering"))
        numbers = int(message["number"]), int(message["activation_epoch"])
        return ethereum.succession(separator, *numbers, *parts)
    if kind == "SuccessionWithdrawal":
        return ethereum.withdrawal(separator, int(message["number"]))
    return ethereum.epoch_root(separator, *_root_fields(message))


def _root_fields(root: Any) -> tuple[int, bytes, bytes, bytes, int, bytes]:
    base, contributions, cumulative, archive = (
        bytes.fromhex(root[name])
        for name in ("base_root", "contribution_root", "cumulative_root", "archive_digest")
    )
    return int(root["epoch"]), base, contributions, cumulative, int(root["total"]), archive


def test_name_and_message_id_vectors() -> None:
    for vector in DERIVED["names"]:
        swarm = derive.swarm_id(MANIFESTS[vector["manifest"]])
        assert names.topics(swarm, vector["island"]) == vector["topics"]
        assert names.protocols(swarm) == vector["protocols"]
    for vector in DERIVED["message_ids"]:
        assert names.message_id(vector["topic"], bytes.fromhex(vector["data"])).hex() == vector["id"]


def test_successor_vectors() -> None:
    for vector in DERIVED["successors"]:
        manifest = MANIFESTS[vector["manifest"]]
        announced = [(each["epoch"], each["document"]) for each in vector["announced"]]
        digests = [derive.successor_digest(text.encode()).hex() for _, text in announced]
        assert digests == [each["digest"] for each in vector["announced"]]
        counted = derive.successors(manifest, announced)
        assert [epoch for epoch, _ in counted] == [e["epoch"] for e in vector["announced"] if e["counts"]]
        for row in vector["epochs"]:
            slots, completions, families = derive.terms_at(manifest, counted, row["epoch"])
            found = {"slots_per_epoch": slots, "max_completions": completions, "families": families}
            assert {"epoch": row["epoch"], **found} == row, vector["name"]


def test_auditor_vectors() -> None:
    for vector in DERIVED["auditors"]:
        for epoch, accounts in vector["epochs"]:
            assert derive.auditors(vector["founders"], vector["replacements"], epoch) == accounts


def test_turn_vectors() -> None:
    for vector in DERIVED["turns"]:
        manifest = {"epoch_seconds": vector["epoch_seconds"]}
        assert derive.turns(manifest) == vector["turns"]
        assert [[age, derive.turn_at(manifest, Fraction(age))] for age, _ in vector["ages"]] == vector["ages"]


def test_vectors_of_audits_by_sample() -> None:
    vectors = load("audits")
    for tree in vectors["trees"]:
        contents = [bytes.fromhex(content) for content in tree["contents"]]
        assert audits.root(contents).hex() == tree["root"]
        paths = [[word.hex() for word in audits.path(contents, place)] for place in range(len(contents))]
        assert paths == tree["paths"]
    for vector in vectors["draws"]:
        manifest = MANIFESTS[vector["manifest"]]
        assert audits.draw_ms(manifest, vector["epoch"]) == vector["block_from_ms"]
        drawn = audits.draw(derive.swarm_id(manifest), vector["epoch"], bytes.fromhex(vector["block_hash"]))
        assert drawn.hex() == vector["draw"]
        for one in vector["accounts"]:
            account, slots = bytes.fromhex(one["account"]), one["slots"]
            assert audits.is_drawn(drawn, account, vector["one_in"]) == one["is_drawn"]
            assert audits.slots_of(bytes.fromhex(one["bits"])) == slots
            assert audits.drawn_slots(drawn, account, slots, vector["samples"]) == one["drawn"]
    assert [audits.points(vector) for vector in vectors["points"]] == [v["points"] for v in vectors["points"]]
    for vector in vectors["turns"]:
        manifest = MANIFESTS[vector["manifest"]]
        assert derive.turns(manifest) == vector["turns"]
        assert [[age, derive.turn_at(manifest, Fraction(age))] for age, _ in vector["ages"]] == vector["ages"]


def test_trees_of_points() -> None:
    for tree in DERIVED["trees_of_points"]:
        entries = [(bytes.fromhex(account), int(value)) for account, value in tree["entries"]]
        assert derive.word(entries).hex() == tree["root"]
        for place in tree["places"]:
            account, holder = bytes.fromhex(place["account"]), bytes.fromhex(place["holder"])
            beside = [bytes.fromhex(step) for step in place["proof"]]
            assert derive.reached(account, holder, int(place["value"]), beside) == derive.word(entries)
            shown = int(place["value"]) if holder == account else 0
            assert shown == dict(entries).get(account, 0)


def test_page_vectors() -> None:
    for vector in DERIVED["pages"]:
        pages = [bytes.fromhex(page) for page in vector["pages"]]
        assert [derive.tagged("page", page).hex() for page in pages] == vector["digests"]
        rows = [row for page in pages for row in objects.page(page, vector["numbers"]) or []]
        account, *values = rows[-1]
        assert (len(rows), [account.hex(), *values]) == (vector["rows"], vector["last"])


def test_settlement_vectors() -> None:
    separator = ethereum.domain(31337, derive.unhex(MANIFESTS["chained"]["ledger"]))
    for vector in DERIVED["settlements"]:
        tallies = [{account: int(count) for account, count in tally.items()} for tally in vector["tallies"]]
        previous = {account: int(count) for account, count in vector["previous"].items()}
        shares = derive.settle(
            tallies, previous, int(vector["points_per_epoch"]), int(vector["epoch_budget"])
        )
        assert [[name, str(points), str(total)] for name, points, total in shares] == vector["shares"]
        root = _epoch_root(3, shares, vector["proposal_id"])
        assert root == vector["epoch_root"], vector["name"]
        assert _digest("EpochRoot", separator, root).hex() == vector["digest"]


def _epoch_root(epoch: int, shares: list[list[Any]], proposal_id: str) -> dict[str, str]:
    named = [(bytes.fromhex(name), points, total) for name, points, total in shares]
    return {
        "epoch": str(epoch),
        "base_root": derive.word([(n, total - points) for n, points, total in named if total > points]).hex(),
        "contribution_root": derive.word([(n, points) for n, points, _ in named if points]).hex(),
        "cumulative_root": derive.word([(n, total) for n, _, total in named if total]).hex(),
        "total": str(sum(points for _, points, _ in shares)),
        "archive_digest": proposal_id,
    }


def test_proposal_root_vectors() -> None:
    for vector in DERIVED["proposal_roots"]:
        swarm = derive.swarm_id(MANIFESTS[vector["manifest"]])
        envelope = objects.envelope(bytes.fromhex(vector["envelope"]), swarm)
        read = objects.proposal(envelope["payload"])
        shares = [[account.hex(), points, total] for account, points, total in read["shares"]]
        root = _epoch_root(read["epoch"], shares, envelope["content_id"].hex())
        assert root == vector["epoch_root"]
        separator = ethereum.domain(31337, derive.unhex(MANIFESTS["chained"]["ledger"]))
        signed = {"turn": read["turn"], "root": root}
        assert _digest("EpochApproval", separator, signed).hex() == vector["approval_digest"]


def test_record_vectors() -> None:
    for vector in load("difficulty")["records"]:
        terms, record = vector["difficulty"], _numbers(vector["start"])
        assert ladders.first_record(terms["ladders"], vector["families"]) == record
        for epoch in vector["epochs"]:
            tallies = [_numbers(tally) for tally in epoch["tallies"]]
            record = ladders.next_record(terms, record, ladders.medians(tallies))
            assert record == _numbers(epoch["record"])
            assert ladders.adds_up(terms["ladders"], record)
            assert ladders.mix(terms, record) == epoch["mix"]
            allowed = [[lot, ladders.allowed(terms, record, lot)] for lot, _ in epoch["allowed"]]
            assert allowed == epoch["allowed"]
            assert [[groups, ladders.points(record, groups)] for groups, _ in epoch["points"]] == epoch[
                "points"
            ]


def test_middle_outcome_vectors() -> None:
    for vector in load("difficulty")["middles"]:
        accounts = [
            (account, ["rmw".index(group) for group in groups]) for account, groups in vector["accounts"]
        ]
        assert ladders.middle(accounts) == vector["outcomes"], vector["name"]


groups_of_accounts = st.dictionaries(
    st.binary(min_size=1, max_size=2), st.lists(st.integers(0, 2), min_size=1, max_size=40), max_size=12
)


@given(groups_of_accounts)
def test_both_implementations_count_the_same_middle_outcomes(groups: dict[bytes, list[int]]) -> None:
    ours = middle_outcomes({account: list(map(GroupOutcome, found)) for account, found in groups.items()})
    assert ladders.middle([(account.hex(), found) for account, found in groups.items()]) == list(ours)


def _numbers(rows: list[list[str]]) -> list[list[int]]:
    return [[int(number) for number in row] for row in rows]


def test_lot_vectors() -> None:
    for vector in load("difficulty")["lots"]:
        swarm = derive.swarm_id(MANIFESTS[vector["manifest"]])
        beacon, account = bytes.fromhex(vector["beacon"]), bytes.fromhex(vector["account"])
        assert ladders.lot(swarm, beacon, account, vector["slot"]) == vector["lot"]


def _reference(call: Any, *arguments: object) -> Any:
    try:
        return call(*arguments)
    except Refused as refused:
        return refused.rule


def _production(call: Any, *arguments: object) -> Any:
    try:
        return call(*arguments)
    except RemoteProtocolError as error:
        return error.rule.number


@given(st.binary(max_size=200) | values().map(encode) | values().map(encode).flatmap(damaged))
def test_both_implementations_decode_any_bytes_alike(data: bytes) -> None:
    assert _tuples(_reference(cbor.read, data)) == _production(decode, data)


def _tuples(value: object) -> object:
    if isinstance(value, list | tuple):
        return tuple(map(_tuples, value))
    return {key: _tuples(item) for key, item in value.items()} if isinstance(value, dict) else value


MESSAGES = [ALICE.rollout(), ALICE.rollout(f6=bytes(32)), BOB.rollout(f5=["é".encode(), b"a" * 300])]


@given(
    st.sampled_from(MESSAGES).flatmap(damaged) | st.sampled_from(MESSAGES).flatmap(damaged).flatmap(damaged)
)
def test_both_implementations_give_damaged_rollouts_the_same_verdict(data: bytes) -> None:
    assert reference_node().validate("rollouts", data, NOW_MS) == pipeline().validate(
        "rollouts", data, NOW_MS
    )


@given(rollouts, st.integers(-200_000, 200_000))
def test_both_implementations_give_any_signed_rollout_the_same_verdict(rollout: Any, offset_ms: int) -> None:
    author = ALICE.fields(
        f2=min(rollout.epoch, 5), f3=rollout.slot, f4=rollout.family, f5=rollout.completions
    )
    data, now_ms = ALICE.signed(encode(author)), NOW_MS + offset_ms
    assert reference_node().validate("rollouts", data, now_ms) == pipeline().validate(
        "rollouts", data, now_ms
    )


@given(st.sampled_from([ALICE.certificate(), BOB.certificate()]).flatmap(damaged))
def test_both_implementations_give_damaged_certificates_the_same_verdict(data: bytes) -> None:
    node = ReferenceNode(json.loads(manifest_to_json(PLAIN)))
    assert node.validate("certificates", data, NOW_MS) == Pipeline(PLAIN).validate(
        "certificates", data, NOW_MS
    )


@given(values(depth=2))
def test_both_implementations_give_any_signed_payload_the_same_verdict(value: Any) -> None:
    data = ALICE.signed(encode(value), PLAIN, Kind.ROLLOUT)
    assert reference_node().validate("rollouts", data, NOW_MS) == pipeline().validate(
        "rollouts", data, NOW_MS
    )


OTHERS = [("contributions", sealed(kind)) for kind in (Kind.TALLY, Kind.PROPOSAL, Kind.APPROVAL)]
OTHERS += [("equivocations", proof()), ("equivocations", proof(BOB))]


@given(st.sampled_from(OTHERS), st.data())
def test_both_implementations_give_other_damaged_messages_the_same_verdict(
    other: tuple[str, bytes], data: st.DataObject
) -> None:
    """Contributions and proofs."""
    topic, message = other[0], data.draw(damaged(other[1]))
    assert reference_node().validate(topic, message, NOW_MS) == pipeline().validate(topic, message, NOW_MS)


@given(st.sampled_from([Kind.TALLY, Kind.PROPOSAL, Kind.APPROVAL]), values(depth=2))
def test_both_implementations_give_any_signed_contribution_the_same_verdict(kind: Kind, value: Any) -> None:
    data = ALICE.signed(encode(value), PLAIN, kind)
    outcome = pipeline().validate("contributions", data, NOW_MS)
    assert reference_node().validate("contributions", data, NOW_MS) == outcome
