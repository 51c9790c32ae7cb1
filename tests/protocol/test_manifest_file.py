"""The manifest as JSON: round trip, and no change of the swarm by a typing error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import fixed
from support.swarm import make_chain_manifest, make_manifest

from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.manifest_file import manifest_from_json, manifest_to_json
from sapo_protocol.suite import Family, Suite, canonical_json
from sapo_protocol.terms.gate import BondGate, EasGate, Gate, OpenGate
from sapo_protocol.terms.islands import IslandTerms

configs = st.dictionaries(
    st.text(max_size=8),
    st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8) | st.booleans(),
    max_size=4,
)
families = st.builds(
    Family,
    name=st.text(max_size=12),
    level=st.sampled_from(["nano", "full"]),
    config=configs.map(canonical_json),
    scorer=st.text(max_size=12),
    prompt=st.text(max_size=20).map(lambda text: text + "{question}"),
    answer=st.sampled_from(["plain", "tag"]),
    max_completion_bytes=st.integers(1, 8192),
)
suites = st.builds(
    Suite, st.text(max_size=8), st.lists(families, min_size=1, max_size=4).map(tuple), fixed(Digest)
)
limits = st.builds(Limits, st.integers(1, 2**32), st.integers(1, 16), st.integers(0, 2**32))


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    chain_id = draw(st.just(0) | st.integers(1, 2**63))
    contract = fixed(Account) if chain_id else st.none()
    version = draw(st.sampled_from([1, 2]))
    return Manifest(
        name=draw(st.text(max_size=12)),
        bootstrap=tuple(draw(st.lists(st.text(max_size=12), max_size=3))),
        chain_id=chain_id,
        registry=draw(contract),
        ledger=draw(contract),
        finality_seconds=draw(st.integers(0, 1000)),
        genesis_seconds=draw(st.integers(0, 2**40)),
        epoch_seconds=draw(st.integers(1, 2**32)),
        suite=draw(suites),
        limits=draw(limits),
        version=version,
        gate=draw(gates(has_chain=chain_id > 0)) if version > 1 else None,
        islands=draw(st.none() | islands(has_chain=chain_id > 0)) if version > 1 else None,
    )


def gates(*, has_chain: bool) -> st.SearchStrategy[Gate | None]:
    open_ = st.none() | st.just(OpenGate())
    bonds = st.builds(BondGate, fixed(Account), st.integers(1, 2**96 - 1), st.integers(2**37, 2**64 - 1))
    attesters = st.lists(fixed(Account), min_size=1, max_size=16, unique=True).map(sorted).map(tuple)
    attested = st.builds(EasGate, fixed(Account), fixed(Digest), attesters, st.integers(0, 2**64 - 1))
    return open_ | bonds | attested if has_chain else open_


@st.composite
def islands(draw: st.DrawFn, *, has_chain: bool) -> IslandTerms:
    most = draw(st.integers(2, 2**32 - 1))
    most_islands = 2 ** draw(st.integers(0, 16))
    count = draw((st.none() if has_chain else st.nothing()) | st.sampled_from([1, most_islands]))
    return IslandTerms(
        most, draw(st.integers(1, most // 2)), draw(st.integers(1, 2**16)), most_islands, count=count
    )


@given(manifests())
def test_a_manifest_is_parsed_with_its_swarm_id(manifest: Manifest) -> None:
    back = manifest_from_json(manifest_to_json(manifest))
    assert back == manifest
    assert back.swarm_id == manifest.swarm_id


def test_spelling_of_the_file_does_not_matter() -> None:
    text = manifest_to_json(make_chain_manifest())
    assert manifest_from_json(json.dumps(json.loads(text), sort_keys=True)) == make_chain_manifest()


def test_optional_fields_may_be_left_out() -> None:
    document = json.loads(manifest_to_json(make_manifest()))
    for field in ("bootstrap", "chain_id", "registry", "ledger", "finality_seconds"):
        del document[field]
    assert manifest_from_json(json.dumps(document)) == make_manifest()


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(manifest_to_json(make_chain_manifest()))
    return document


@pytest.mark.parametrize("place", [(), ("suite",), ("suite", "families", 0), ("limits",)], ids=str)
def test_unknown_fields_are_refused_everywhere(place: tuple[Any, ...]) -> None:
    document = _document()
    at = document
    for step in place:
        at = at[step]
    at["epoch_second"] = 5
    with pytest.raises(LocalProtocolError, match=r"epoch_second: .* misspelt, or needs a later release"):
        manifest_from_json(json.dumps(document))


def test_a_gate_of_a_later_version_is_refused_with_a_sentence() -> None:
    document = {**_document(), "version": 2, "gate": {"kind": "stake", "months": 3}}
    with pytest.raises(LocalProtocolError, match=r"gate: .* does not know the kind 'stake'"):
        manifest_from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epoch_seconds", "60"),
        ("epoch_seconds", 60.0),
        ("epoch_seconds", True),
        ("epoch_seconds", 0),
        ("epoch_seconds", 2**64),
        ("genesis_seconds", -1),
        ("genesis_seconds", None),
        ("chain_id", -1),
        ("chain_id", 0),
        ("registry", "0x00"),
        ("registry", 5),
        ("registry", None),
        ("name", 5),
        ("name", None),
        ("bootstrap", "/ip4/127.0.0.1"),
        ("suite", None),
        ("limits", []),
        ("limits", {"slots_per_epoch": 1, "max_completions": 1, "points_per_epoch": -1}),
    ],
)
def test_wrong_values_are_refused(field: str, value: object) -> None:
    with pytest.raises(LocalProtocolError):
        manifest_from_json(json.dumps({**_document(), field: value}))


BOND = {"kind": "bond", "contract": "0x" + "04" * 20, "unit": "100000000000000000000", "exit_seconds": 9999}


def test_a_gate_is_read_as_it_is_written() -> None:
    gate = BondGate(Account(b"\x04" * 20), unit=10**20, exit_seconds=9999)
    manifest = manifest_from_json(json.dumps({**_document(), "version": 2, "gate": BOND}))
    assert manifest == make_chain_manifest(version=2, gate=gate)
    assert json.loads(manifest_to_json(manifest)) == {**_document(), "version": 2, "gate": BOND}


EAS_ATTESTERS = "0x" + "07" * 20, "0x" + "08" * 20
EAS = {
    "kind": "eas",
    "contract": "0x" + "05" * 20,
    "schema": "06" * 32,
    "attesters": list(EAS_ATTESTERS),
    "after_block": 1_000_000,
}


def test_a_gate_of_attestations_is_read_as_it_is_written() -> None:
    attesters = Account(b"\x07" * 20), Account(b"\x08" * 20)
    gate = EasGate(Account(b"\x05" * 20), Digest(b"\x06" * 32), attesters, after_block=1_000_000)
    manifest = manifest_from_json(json.dumps({**_document(), "version": 2, "gate": EAS}))
    assert manifest == make_chain_manifest(version=2, gate=gate)
    assert json.loads(manifest_to_json(manifest)) == {**_document(), "version": 2, "gate": EAS}


def test_version_1_is_not_written() -> None:
    assert "version" not in _document()
    assert manifest_from_json(json.dumps({**_document(), "version": 1})) == make_chain_manifest()


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0},
        {"version": 3},
        {"version": "2"},
        {"version": None},
        {"version": True},
        {"version": 1, "gate": {"kind": "open"}},
        {"gate": BOND},
        *(
            {"version": 2, "gate": gate}
            for gate in (
                "open",
                [],
                {},
                {"kind": "closed"},
                {"kind": 0},
                {"kind": "open", "unit": "1"},
                {**BOND, "kind": "open"},
                {**BOND, "more": 1},
                *({key: value for key, value in BOND.items() if key != left_out} for left_out in BOND),
                *(
                    {**BOND, "unit": unit}
                    for unit in ("0", "01", "-1", "1e3", "0x1", "1.0", " 1", "", "١", 1)
                ),
                *({**BOND, "unit": unit} for unit in (str(2**96), "9" * 29, "9" * 5000, None)),
                *({**BOND, "contract": contract} for contract in ("0x00", "", None, 5)),
                *({**BOND, "exit_seconds": seconds} for seconds in (0, -1, 1.0, "9999", 2**64, None)),
                {**EAS, "kind": "bond"},
                {**BOND, "kind": "eas"},
                {**EAS, "unit": "1"},
                {**EAS, "schema_": EAS["schema"]},
                *({key: value for key, value in EAS.items() if key != left_out} for left_out in EAS),
                *({**EAS, "schema": schema} for schema in ("0x00", "", None, 5, "0x" + "06" * 20)),
                *({**EAS, "attesters": [*attesters]} for attesters in ((), (1,), EAS_ATTESTERS[::-1])),
                *({**EAS, "attesters": attesters} for attesters in (None, EAS_ATTESTERS[0])),
                {**EAS, "attesters": [EAS_ATTESTERS[0]] * 2},
                {**EAS, "attesters": [f"0x{number:040x}" for number in range(17)]},
                *({**EAS, "after_block": block} for block in (-1, 1.0, "1", 2**64, None)),
            )
        ),
        *({"version": 2, later: {}} for later in ("difficulty", "islands")),
    ],
    ids=str,
)
def test_a_version_or_gate_that_is_none_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        manifest_from_json(json.dumps({**_document(), **changes}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"name": "test swarm"', '"name": "a", "name": "b"'),
        ('"size": 1', '"size": 1, "size": 2'),
        ('"size": 1', '"size": NaN'),
        ('"size": 1', '"size": Infinity'),
        ('"size": 1', '"size": 1e400'),
        ('"size": 1', '"size": ' + "1" * 4301),
        ('"scorer": "exact/1"', '"scorer": "\\ud800"'),
        ('"name": "test swarm"', '"name": "\\udc38\\ud83d"'),
        ('"bootstrap": []', '"bootstrap": ["\\ud83d"]'),
        ('"size": 1', '"size": "\\ud83d"'),
        ('"size": 1', '"size": 1, "\\udc38": 2'),
        ('"sample_digest": "', '"sample_digest": " '),
        ('"sample_digest": "24', '"sample_digest": "24 '),
        ('"sample_digest": "24', '"sample_digest": "24\\n'),
        ('"sample_digest": "', '"sample_digest": "0x '),
        ("{question}", "{Question}"),
    ],
    ids=lambda text: text[:24],
)
def test_files_that_two_readers_could_read_differently_are_refused(old: str, new: str) -> None:
    text = manifest_to_json(make_chain_manifest())
    assert old in text
    with pytest.raises(LocalProtocolError):
        manifest_from_json(text.replace(old, new, 1))


def test_an_integer_of_4300_digits_is_read() -> None:
    text = manifest_to_json(make_chain_manifest()).replace('"size": 1', '"size": -' + "1" * 4300, 1)
    assert f'"size":-{"1" * 4300}' in manifest_from_json(text).suite.families[0].config


@given(st.text(max_size=60) | st.sampled_from(["null", "[]", "{}", "5", '""']))
def test_any_text_is_a_manifest_or_an_error(text: str) -> None:
    with pytest.raises(LocalProtocolError):
        manifest_from_json(text)
