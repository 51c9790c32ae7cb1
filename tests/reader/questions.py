"""Single questions to the readers about bytes: encodings, signatures, requests, responses and texts.

Each has the name and fields under which the JavaScript reader is asked, what the package answers, and what
the Python reference answers, where it has a part for it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from reader.hazards import BROKEN_UTF8, INTEGERS, RAW_VALUES, TEXTS, value_of
from reader.mutated_cases import IDENTITIES, ORDER, _as_bytes, _edited, _other_signature
from reference import address_records, catch_up, derive, edwards, ethereum
from reference import cbor as reference_cbor
from reference import objects as reference_objects
from reference.refusal import Refused
from reference.vectors import load, unpack
from support.verdicts import ruling_of
from vectors.cases_address_record import MADE
from vectors.raw import cbor
from vectors.world import ALICE, FAMILIES, PLAIN

from sapo_protocol import ed25519, secp256k1
from sapo_protocol.decoding import decode
from sapo_protocol.encoding import encode
from sapo_protocol.identifiers import ContentId, Digest, NodeId
from sapo_protocol.islands.address_record import (
    open_record,
    parse_record,
    parse_record_request,
    parse_records,
)
from sapo_protocol.islands.catch_up import parse_fetch_request, parse_fetched, parse_id_page, parse_id_request
from sapo_protocol.requests import parse_response
from sapo_protocol.rules import Rule
from sapo_verification.tasks.text_policy import HIDDEN, fault_of

NOT_ASKED = object()
"""The answer of a reader that has no part for a question."""


@dataclass(frozen=True)
class Question:
    """A question, and what two readers answer; of the third one's answer the fields in ``compared`` count."""

    ask: str
    fields: dict[str, Any]
    package: Any
    reference: Any = field(default_factory=lambda: NOT_ASKED)

    def answers_differ(self, javascript: Any) -> bool:
        """Whether the readers do not answer the same."""
        return not (self.package == javascript and self.reference in (NOT_ASKED, javascript))


def _rule_of(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what the reference returns, or the number of the rule by which it refuses."""
    try:
        return call(*arguments)
    except Refused as refused:
        return refused.rule


def encodings(rng: random.Random) -> Question:
    """Return any bytes at all, read as a value."""
    match rng.randrange(3):
        case 0:
            data = cbor(value_of(rng, 4))
        case 1:
            data = b"".join(rng.choice(RAW_VALUES).data for _ in range(rng.randrange(1, 4)))
        case _:
            data = cbor(value_of(rng, 3))
            data = _as_bytes(rng, data, PLAIN)
    most = rng.choice((3, 64, 8192))
    read, known = ruling_of(decode, data, most), _rule_of(reference_cbor.read, data, most)
    return Question(
        "decode",
        {"bytes": data.hex(), "most": most},
        read.number if isinstance(read, Rule) else encode(read).hex(),
        known if isinstance(known, str) and known.startswith("R") else data.hex(),
    )


@cache
def _signatures() -> tuple[tuple[bytes, bytes, bytes], ...]:
    names = ("public_key", "message", "signature")
    vectors = load("ed25519")["signatures"]
    return tuple(
        (bytes.fromhex(one[names[0]]), bytes.fromhex(one[names[1]]), bytes.fromhex(one[names[2]]))
        for one in vectors
    )


def signatures(rng: random.Random) -> Question:
    """Return a signature of a node key, mostly an edge case."""
    if rng.random() < 0.5:
        key, message, signature = rng.choice(_signatures())
        other = rng.choice(_signatures())
        key = rng.choice((key, key, other[0]))
        signature = rng.choice((signature, other[2][:32] + signature[32:], signature[:32] + other[2][32:]))
    else:
        identity = rng.choice(IDENTITIES)
        key, message = bytes(identity.node), rng.randbytes(8)
        signature = ed25519.sign(identity.seed, message)
    if rng.random() < 0.6:
        signature = _other_signature(rng, signature)
    if rng.random() < 0.2:
        key = key[:31] + bytes((key[31] ^ 0x80,))
    return Question(
        "verify",
        {"key": key.hex(), "message": message.hex(), "signature": signature.hex()},
        ed25519.verify(NodeId(key), message, signature),
        edwards.verify(key, message, signature),
    )


def signers(rng: random.Random) -> Question:
    """Return a signature of an account, mostly an edge case."""
    digest = rng.choice((rng.randbytes(32), bytes(32), b"\xff" * 32, ORDER.to_bytes(32, "big")))
    signature = secp256k1.sign(rng.choice(IDENTITIES).secret, Digest(digest))
    if rng.random() < 0.6:
        signature = _other_signature(rng, signature)
    if rng.random() < 0.3:
        small = rng.choice((1, 2, 3, 4, 5, 6, 7, ORDER - 1, ORDER, 2**256 - 1, rng.randrange(2**130)))
        signature = small.to_bytes(32, "big") + signature[32:]
    if rng.random() < 0.2:
        half = rng.choice((0, 1, ORDER // 2, ORDER // 2 + 1, ORDER - 1, ORDER, 2**256 - 1))
        signature = signature[:32] + half.to_bytes(32, "big") + signature[64:]
    found, known = secp256k1.recover(Digest(digest), signature), ethereum.signer(digest, signature)
    return Question(
        "signer",
        {"digest": digest.hex(), "signature": signature.hex()},
        found and found.hex(),
        known and known.hex(),
    )


def _changed(rng: random.Random, data: bytes) -> bytes:
    """Return bytes with something in their value replaced, or as bytes."""
    try:
        value = reference_cbor.read(data)
    except Refused:
        return _as_bytes(rng, data, PLAIN)
    if rng.random() < 0.25:
        return _as_bytes(rng, data, PLAIN)
    return cbor(_edited(rng, value, PLAIN))


def responses(rng: random.Random) -> Question:
    """Return a response to a request, read as messages."""
    data = _changed(rng, unpack(rng.choice(load_responses())["bytes"]))
    read, known = ruling_of(parse_response, data), _rule_of(reference_objects.response, data)
    says: list[dict[str, Any]] = []
    for found in (read.number if isinstance(read, Rule) else read, known):
        rule = found if isinstance(found, str) else None
        reason = None if rule is None else str(next(one for one in Rule if one.number == rule).reason)
        says.append({"messages": None if rule else len(found), "rule": rule, "reason": reason})
    fields = {"file": "responses", "list": "responses", "vector": {"bytes": data.hex()}}
    return Question("check", fields, *says)


@cache
def load_responses() -> list[dict[str, Any]]:
    """Return the vectors of responses that are short."""
    return [one for one in load("responses")["responses"] if len(unpack(one["bytes"])) < 1000]


@cache
def _catch_up() -> dict[str, list[dict[str, Any]]]:
    return {name: rows for name, rows in load("catch_up").items() if name != "format"}


def catch_up_messages(rng: random.Random) -> Question:
    """Return a request or response of catch-up."""
    name = rng.choice(list(_catch_up()))
    vector = rng.choice(_catch_up()[name])
    data = _changed(rng, unpack(vector["bytes"]))
    after = bytes.fromhex(vector.get("after", ""))
    if name == "id_responses" and rng.random() < 0.4:
        ids = sorted(rng.randbytes(32) for _ in range(rng.randrange(4)))
        if rng.random() < 0.3:
            rng.shuffle(ids)
        after, following = (rng.choice((b"", rng.randbytes(32), *ids)) for _ in range(2))
        data = cbor([rng.choice((0, 0, 0, 1, 2, 3)), b"".join(ids), following])
    asked = rng.randrange(1, 5)
    says: Any
    match name:
        case "id_requests":
            request = parse_id_request(data)
            says = {
                "says": request
                and {
                    "epoch": request.epoch,
                    "islands": sorted(request.islands),
                    "after": bytes(request.after or b"").hex(),
                }
            }
            known: Any = {"says": catch_up.id_request(data)}
        case "id_responses":
            page = parse_id_page(data, ContentId(after) if after else None)
            says = {
                "says": page
                and {
                    "status": int(page.status),
                    "ids": [one.hex() for one in page.ids],
                    "next": bytes(page.next or b"").hex(),
                }
            }
            known = {"says": catch_up.id_response(data, after)}
        case "fetch_requests":
            named = parse_fetch_request(data)
            says, known = (
                {"ids": named and [one.hex() for one in named]},
                {"ids": catch_up.fetch_request(data)},
            )
        case _:
            fetched = parse_fetched(data, asked)
            says = {
                "says": fetched
                and {
                    "status": int(fetched.status),
                    "messages": [(message or b"").hex() for message in fetched.messages],
                }
            }
            known = {"says": catch_up.fetch_response(data, asked)}
    vector = {"bytes": data.hex(), "after": after.hex(), "asked": asked}
    return Question("check", {"file": "catch_up", "list": name, "vector": vector}, says, known)


@cache
def _record_parts() -> list[Any]:
    genuine = next(one for one in load("address_records")["records"] if one["says"] is not None)
    parts: list[Any] = reference_cbor.read(unpack(genuine["bytes"]))
    return parts


def _record(rng: random.Random) -> bytes:
    """Return an address record, its payload mostly changed and signed again."""
    certificate, payload, signature = _record_parts()
    if rng.random() < 0.7:
        fields = reference_cbor.read(payload)
        address = rng.choice((*TEXTS, "/ip4/192.0.2.1/tcp/1", "a" * 300, "a" * 301, "~", "!", " "))
        fields = rng.choice((fields, {0: MADE, 1: [address]}, {0: rng.choice(INTEGERS), 1: ["a"]}))
        payload = cbor(_edited(rng, fields, PLAIN))
        tag = b"sapo/1/address-record\x00"
        signature = ed25519.sign(ALICE.seed, tag + PLAIN.swarm_id + payload)
    if rng.random() < 0.1:
        signature = _other_signature(rng, signature)
    if rng.random() < 0.1:
        certificate = _changed(rng, certificate)
    data = cbor([certificate, payload, signature])
    return _changed(rng, data) if rng.random() < 0.2 else data


def records(rng: random.Random) -> Question:
    """Return an address record, a request for some, or an answer."""
    name = rng.choice(("records", "requests", "answers"))
    if name == "records":
        data, seconds = _record(rng), MADE + rng.choice((-61, -60, 0, 3599, 3600))
        unchecked = parse_record(data, PLAIN.swarm_id)
        opened = open_record(unchecked, PLAIN.swarm_id, PLAIN.binding_domain) if unchecked else None
        says: Any = None
        if opened is not None and opened.counts_at(seconds):
            says = {
                "node": opened.certificate.node.hex(),
                "account": opened.certificate.account.hex(),
                "made": opened.made_seconds,
                "addresses": list(opened.addresses),
            }
        manifest = load("manifests")["plain"]
        known = {"says": address_records.record(data, manifest, derive.swarm_id(manifest), seconds)}
        vector = {"bytes": data.hex(), "unix_seconds": seconds}
        return Question(
            "check", {"file": "address_records", "list": name, "vector": vector}, {"says": says}, known
        )
    vectors = load("address_records")[name]
    data = _changed(rng, unpack(rng.choice(vectors)["bytes"]))
    vector = {"file": "address_records", "list": name, "vector": {"bytes": data.hex()}}
    if name == "answers":
        found = {"records": len(parse_records(data))}
        return Question("check", vector, found, {"records": len(address_records.answer(data))})
    request = parse_record_request(data)
    islands, own = address_records.request(data)
    return Question(
        "check",
        vector,
        {
            "islands": request and sorted(request.islands),
            "record": request.own.hex() if request and request.own else None,
        },
        {"islands": islands, "record": own.hex() if own else None},
    )


WORDS = (
    "a", "A", "b", "seven", "7", "42", "İ", "ı", "ß", "K", "É", "é", "e\u0301", "中", "🐸", "\u0661",
    "１", "x1", "-", "\u00a0",
)  # fmt: skip


def texts(rng: random.Random) -> Question:
    """Return a completion: whether it may earn anything."""
    pieces = rng.choices((*TEXTS, *WORDS), k=rng.randrange(6))
    if rng.random() < 0.6:
        run = " ".join(rng.choices(WORDS, k=rng.choice((3, 8, 9, 12))))
        pieces += [run] * rng.choice((1, 3, 5, 6, 7)) + rng.choices(WORDS, k=rng.randrange(40))
    answers = rng.choice(
        (["<answer>7</answer>"], ["<answer>", "</answer>"], ["</answer><answer>"], [], ["<Answer>7</answer>"])
    )
    for one in answers:
        pieces.insert(rng.randrange(len(pieces) + 1), one)
    data = rng.choice((" ", " ", "", "\n")).join(pieces).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.choice(BROKEN_UTF8) + data[at:]
    family = rng.choice(FAMILIES)
    fields = {"bytes": data.hex(), "rule": family.answer, "most": family.max_completion_bytes}
    return Question("text", fields, fault_of(family, data) is None)


def characters(rng: random.Random) -> Question:
    """Return a character between two others: whether one of them counts as one that cannot be seen."""
    near = rng.choice(
        (0x00, 0x7F, 0xAD, 0x34F, 0x61C, 0x115F, 0x17B4, 0x180B, 0x200B, 0x2028, 0x2060, 0x3164)
    )
    code = rng.choice((rng.randrange(0x110000), near + rng.randrange(-20, 40), 0xFE00 + rng.randrange(0x210)))
    code = rng.choice((code, 0xE0000 + rng.randrange(-5, 0x1010), 0x1D170 + rng.randrange(16), 0x10FFFF))
    code = max(0, code)
    if 0xD800 <= code < 0xE000:
        code = 0xFFFE
    text = rng.choice("a1#*\xa9\u203b\u203c\u2bff\u2c00\u3030\U0001efff\U0001f000\U0001faff\U0001fb00")
    text += rng.choice((chr(code), "\ufe0f")) + rng.choice(("", "\u20e3", "b", "\ufe0f"))
    return Question("unseen", {"text": text}, HIDDEN.search(text) is not None)


QUESTIONS: dict[str, Callable[[random.Random], Question]] = {
    "encodings": encodings,
    "signatures": signatures,
    "signers": signers,
    "responses": responses,
    "catch-up": catch_up_messages,
    "address records": records,
    "texts": texts,
    "characters": characters,
}
"""By name, all kinds of questions of this file."""
