"""The manifest as a JSON file that people exchange; strict, since a typo would define another swarm."""

import json
import re
from dataclasses import asdict
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from sapo_protocol.errors import LaterReleaseError, LocalProtocolError
from sapo_protocol.identifiers import Account, Digest, FixedBytes, SwarmId
from sapo_protocol.json_text import require_shallow
from sapo_protocol.manifest import Limits, Manifest
from sapo_protocol.suite import Family, Suite, canonical_json
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.terms.difficulty import Difficulty
from sapo_protocol.terms.gate import BondGate, EasGate, Gate, OpenGate
from sapo_protocol.terms.islands import IslandTerms
from sapo_protocol.terms.successor import SUCCESSOR_VERSION, Successor

_MAX_DIGITS: Final = 4300
"""Of an integer: what Python reads unless its environment says otherwise, which must change no swarm id."""


def _hexadecimal(type_: type[FixedBytes]) -> tuple[BeforeValidator, PlainSerializer]:
    def parse(value: object) -> object:
        try:
            return type_.from_hex(value) if isinstance(value, str) else value
        except LocalProtocolError as error:
            raise ValueError(str(error)) from error

    return BeforeValidator(parse), PlainSerializer(str)


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, arbitrary_types_allowed=True)


class _FamilyFile(_Strict):
    name: str
    level: str
    config: dict[str, Any]
    scorer: str
    prompt: str
    answer: str
    max_completion_bytes: int


class _SuiteFile(_Strict):
    reasoning_gym: str
    families: list[_FamilyFile]
    sample_digest: Annotated[Digest, *_hexadecimal(Digest)]


class _LimitsFile(_Strict):
    slots_per_epoch: int
    max_completions: int
    points_per_epoch: int


class _OpenGateFile(_Strict):
    kind: Literal["open"]


class _BondGateFile(_Strict):
    kind: Literal["bond"]
    contract: Annotated[Account, *_hexadecimal(Account)]
    unit: str
    exit_seconds: int


class _EasGateFile(_Strict):
    kind: Literal["eas"]
    contract: Annotated[Account, *_hexadecimal(Account)]
    schema_: Annotated[Digest, *_hexadecimal(Digest)] = Field(alias="schema")
    attesters: list[Annotated[Account, *_hexadecimal(Account)]]
    after_block: int


_GateFile = Annotated[_OpenGateFile | _BondGateFile | _EasGateFile, Field(discriminator="kind")]


class _DifficultyFile(_Strict):
    ladders: list[list[int]]
    step: int
    floor: int
    groups: int
    completions: int


class _IslandsFile(_Strict):
    most_accounts: int
    least_accounts: int
    period_epochs: int
    most_islands: int
    count: int | None = None


class _AuditsFile(_Strict):
    samples: int
    one_in: int


class _ManifestFile(_Strict):
    version: int = 1
    name: str
    bootstrap: list[str] = []
    chain_id: int = 0
    registry: Annotated[Account | None, *_hexadecimal(Account)] = None
    ledger: Annotated[Account | None, *_hexadecimal(Account)] = None
    finality_seconds: int = 0
    genesis_seconds: int
    epoch_seconds: int
    suite: _SuiteFile
    limits: _LimitsFile
    gate: _GateFile | None = None
    difficulty: _DifficultyFile | None = None
    islands: _IslandsFile | None = None
    audits: _AuditsFile | None = None


def _require_integer(value: object) -> object:
    if type(value) is not int:  # a Literal takes true and 1.0 for 1
        raise ValueError("an integer is written without a point")
    return value


class _SuccessorFile(_Strict):
    successor: Annotated[Literal[1], BeforeValidator(_require_integer)]
    lineage: Annotated[SwarmId, *_hexadecimal(SwarmId)]
    suite: _SuiteFile
    slots_per_epoch: int
    max_completions: int
    retired: list[int] = []


def manifest_from_json(text: str) -> Manifest:
    """Return the manifest that a JSON file holds.

    Raises:
        LocalProtocolError: the file is not a valid manifest; the message names the field.
    """
    try:
        parsed = _ManifestFile.model_validate(_load(text))
    except ValidationError as error:
        raise _refused("manifest", error) from error
    manifest = _assemble(parsed)
    manifest.to_bytes()  # refuses what has no encoding: a negative time, a lone surrogate
    return manifest


def _load(text: str) -> object:
    """Return the JSON document if every reader of JSON reads the same in it."""
    try:
        document = json.loads(
            require_shallow(text),
            object_pairs_hook=_distinct,
            parse_constant=_refuse_constant,
            parse_int=_integer,
        )
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(
            "the manifest holds half of a character, an escape of a surrogate"
        ) from error
    except ValueError as error:
        raise LocalProtocolError(f"the manifest is not JSON: {error}") from error
    return document


def _integer(digits: str) -> int:
    if len(digits.removeprefix("-")) > _MAX_DIGITS:
        raise LocalProtocolError(f"the manifest holds an integer of more than {_MAX_DIGITS} digits")
    return int(digits)


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len(fields := dict(pairs)) < len(pairs):
        raise LocalProtocolError("the manifest names a field twice")
    return fields


def _refuse_constant(name: str) -> None:
    raise LocalProtocolError(f"the manifest holds {name}, which is not a JSON number")


def _assemble(parsed: _ManifestFile) -> Manifest:
    fields = dict(parsed)
    fields["suite"] = _suite(parsed.suite)
    fields["limits"] = Limits(**dict(parsed.limits))
    fields["bootstrap"] = tuple(parsed.bootstrap)
    fields["gate"] = _gate(parsed.gate)
    fields["difficulty"] = parsed.difficulty and _difficulty(parsed.difficulty)
    fields["islands"] = parsed.islands and IslandTerms(**dict(parsed.islands))
    fields["audits"] = parsed.audits and AuditTerms(**dict(parsed.audits))
    return Manifest(**fields)


def _suite(parsed: _SuiteFile) -> Suite:
    families = tuple(
        Family(**{**dict(family), "config": canonical_json(family.config)}) for family in parsed.families
    )
    return Suite(parsed.reasoning_gym, families, parsed.sample_digest)


def _difficulty(parsed: _DifficultyFile) -> Difficulty:
    return Difficulty(**{**dict(parsed), "ladders": tuple(map(tuple, parsed.ladders))})


def _gate(parsed: _OpenGateFile | _BondGateFile | _EasGateFile | None) -> Gate | None:
    if parsed is None:
        return None
    if isinstance(parsed, _OpenGateFile):
        return OpenGate()
    if isinstance(parsed, _EasGateFile):
        return EasGate(parsed.contract, parsed.schema_, tuple(parsed.attesters), parsed.after_block)
    if not re.fullmatch("[1-9][0-9]{0,28}", parsed.unit):
        raise LocalProtocolError(f"a bond's unit is a decimal number in text, not {parsed.unit[:40]!r}")
    return BondGate(parsed.contract, int(parsed.unit), parsed.exit_seconds)


def manifest_to_json(manifest: Manifest) -> str:
    """Return the JSON text of a manifest; of a swarm with successors the first one."""
    manifest = manifest.first or manifest
    suite = manifest.suite
    document: dict[str, Any] = {
        **({"version": manifest.version} if manifest.version > 1 else {}),
        "name": manifest.name,
        "bootstrap": list(manifest.bootstrap),
        "chain_id": manifest.chain_id,
        "registry": manifest.registry and str(manifest.registry),
        "ledger": manifest.ledger and str(manifest.ledger),
        "finality_seconds": manifest.finality_seconds,
        "genesis_seconds": manifest.genesis_seconds,
        "epoch_seconds": manifest.epoch_seconds,
        "suite": _suite_document(suite),
        "limits": {
            "slots_per_epoch": manifest.limits.slots_per_epoch,
            "max_completions": manifest.limits.max_completions,
            "points_per_epoch": manifest.limits.points_per_epoch,
        },
    }
    if manifest.gate is not None:
        document["gate"] = _gate_document(manifest.gate)
    if manifest.difficulty is not None:
        document["difficulty"] = asdict(manifest.difficulty)
    if manifest.islands is not None:
        document["islands"] = {
            name: value for name, value in asdict(manifest.islands).items() if value is not None
        }
    if manifest.audits is not None:
        document["audits"] = asdict(manifest.audits)
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def successor_from_json(document: bytes) -> Successor:
    """Return the successor in a JSON document; ``Manifest.succeeded_by`` checks whether it fits its swarm.

    Raises:
        LocalProtocolError: it is not a successor, or one of a later version; the message names the field.
    """
    try:
        parsed = _SuccessorFile.model_validate(_load(document.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise LocalProtocolError(f"the successor is not UTF-8: {error}") from error
    except ValidationError as error:
        raise _refused("successor", error) from error
    return Successor(
        lineage=parsed.lineage,
        suite=_suite(parsed.suite),
        slots_per_epoch=parsed.slots_per_epoch,
        max_completions=parsed.max_completions,
        retired=tuple(parsed.retired),
    )


def successor_to_json(successor: Successor) -> bytes:
    """Return the JSON document of a successor, in UTF-8; the successor's digest is taken of these bytes."""
    document = {
        "successor": SUCCESSOR_VERSION,
        "lineage": str(successor.lineage),
        "suite": _suite_document(successor.suite),
        "slots_per_epoch": successor.slots_per_epoch,
        "max_completions": successor.max_completions,
        "retired": list(successor.retired),
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _refused(what: str, error: ValidationError) -> LocalProtocolError:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        return LaterReleaseError(
            f"the {what}'s {place}: this release of sapo does not know that field;"
            " it is misspelt, or needs a later release"
        )
    if first["type"] == "union_tag_invalid":
        return LaterReleaseError(
            f"the {what}'s {place}: this release of sapo does not know the kind {first['ctx']['tag']!r};"
            " it is misspelt, or needs a later release"
        )
    return LocalProtocolError(f"the {what}'s {place or 'content'}: {first['msg']}")


def _suite_document(suite: Suite) -> dict[str, Any]:
    return {
        "reasoning_gym": suite.reasoning_gym,
        "sample_digest": str(suite.sample_digest),
        "families": [_family_document(family) for family in suite.families],
    }


def _family_document(family: Family) -> dict[str, Any]:
    return {
        "name": family.name,
        "level": family.level,
        "config": json.loads(family.config),
        "scorer": family.scorer,
        "prompt": family.prompt,
        "answer": family.answer,
        "max_completion_bytes": family.max_completion_bytes,
    }


def _gate_document(gate: Gate) -> dict[str, Any]:
    match gate:
        case OpenGate():
            return {"kind": "open"}
        case BondGate(contract, unit, exit_seconds):
            return {
                "kind": "bond",
                "contract": str(contract),
                "unit": str(unit),
                "exit_seconds": exit_seconds,
            }
        case EasGate(contract, schema, attesters, after_block):
            return {
                "kind": "eas",
                "contract": str(contract),
                "schema": str(schema),
                "attesters": [str(attester) for attester in attesters],
                "after_block": after_block,
            }
