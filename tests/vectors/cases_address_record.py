"""Address records, requests for them and answers: what is read from them, or that they are dropped."""

from collections.abc import Iterator
from typing import Any

from vectors.raw import Raw, cbor
from vectors.world import ALICE, BOB, CHAINED, GENESIS, MALLORY, PLAIN, YEAR_END

from sapo_protocol import ed25519
from sapo_protocol.manifest import Manifest

MADE = GENESIS + 1000
ADDRESS = "/ip4/192.0.2.1/tcp/4001/p2p/12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"

Row = tuple[str, bool, bytes, int]
"""Name, whether the record counts, its bytes, and the Unix time in seconds."""


def signed(
    payload: bytes, manifest: Manifest = PLAIN, tag: bytes = b"sapo/1/address-record\x00"
) -> list[Any]:
    """Return the parts of Alice's record around any payload."""
    signature = ed25519.sign(ALICE.seed, tag + manifest.swarm_id + payload)
    return [ALICE.certificate(manifest), payload, signature]


def record(made: Any = MADE, addresses: Any = (ADDRESS,)) -> bytes:
    """Return Alice's record of any fields, under genuine signatures."""
    listed = list(addresses) if isinstance(addresses, tuple) else addresses
    return cbor(signed(cbor({0: made, 1: listed})))


def with_fields(more: dict[int, Any]) -> bytes:
    """Return Alice's record with more fields in its payload."""
    return cbor(signed(cbor({0: MADE, 1: [ADDRESS], **more})))


def records() -> Iterator[Row]:
    """Yield every record of this file; they are read in the swarm of the manifest ``plain``."""
    good, parts = record(), signed(cbor({0: MADE, 1: [ADDRESS]}))
    yield "genuine", True, good, MADE
    yield "four addresses", True, record(addresses=(ADDRESS,) * 4), MADE
    yield "an address of 300 characters", True, record(addresses=("a" * 300,)), MADE
    yield "made a minute ahead", True, good, MADE - 60
    yield "made more than a minute ahead", False, good, MADE - 61
    yield "its last second", True, good, MADE + 3599
    yield "an hour old", False, good, MADE + 3600
    yield "made before the certificate counts", False, record(made=GENESIS - 1), GENESIS - 1
    yield "a certificate that ended", False, record(made=YEAR_END), YEAR_END
    yield "no address", False, record(addresses=()), MADE
    yield "five addresses", False, record(addresses=(ADDRESS,) * 5), MADE
    yield "an empty address", False, record(addresses=("",)), MADE
    yield "an address of 301 characters", False, record(addresses=("a" * 301,)), MADE
    yield "a space in an address", False, record(addresses=("a b",)), MADE
    yield "an address beyond ASCII", False, record(addresses=("\u00e9",)), MADE
    yield "bytes for an address", False, record(addresses=(b"a",)), MADE
    yield "text for the addresses", False, record(addresses="a"), MADE
    yield "bytes for the time", False, record(made=b"1"), MADE
    yield "a reserved field", True, with_fields({2: 0}), MADE
    yield "reserved fields of every kind", True, with_fields({2: b"a", 5: "a", 9: [1, [2]], 23: {0: 1}}), MADE
    yield "a field beyond the reserved ones", False, with_fields({24: 0}), MADE
    yield "a reserved field that is no valid CBOR", False, with_fields({2: Raw(b"\xff")}), MADE
    yield "64 values with a reserved field", True, with_fields({2: [0] * 56}), MADE
    yield "65 values with a reserved field", False, with_fields({2: [0] * 57}), MADE
    yield "a field less", False, cbor(signed(cbor({0: MADE}))), MADE
    yield "an array for the payload", False, cbor(signed(cbor([MADE, [ADDRESS]]))), MADE
    yield "a byte behind the payload", False, cbor(signed(cbor({0: MADE, 1: [ADDRESS]}) + b"\x00")), MADE
    yield "noise for the payload", False, cbor(signed(b"\xff")), MADE
    yield "a part more", False, cbor([*parts, b""]), MADE
    yield "a part less", False, cbor(parts[:2]), MADE
    yield "a number for the signature", False, cbor([*parts[:2], 0]), MADE
    yield "a signature of 63 bytes", False, cbor([*parts[:2], parts[2][:-1]]), MADE
    yield "a signature of zeros", False, cbor([*parts[:2], bytes(64)]), MADE
    yield "another node's certificate", False, cbor([BOB.certificate(), *parts[1:]]), MADE
    yield "a rollout for the certificate", False, cbor([ALICE.rollout(), *parts[1:]]), MADE
    stolen = bytearray(ALICE.certificate())
    stolen[-1] ^= 1
    yield "a certificate that its node did not sign", False, cbor([bytes(stolen), *parts[1:]]), MADE
    yield "the tag of a certificate", False, _tagged(b"sapo/1/certificate\x00"), MADE
    yield "another swarm", False, cbor(signed(parts[1], CHAINED)), MADE
    yield "a map for the record", False, cbor({0: parts[0], 1: parts[1], 2: parts[2]}), MADE
    yield "a byte more", False, good + b"\x00", MADE
    yield "nothing", False, b"", MADE
    yield "2,049 bytes", False, cbor([bytes(2049 - 3 - 1 - 66 - 1), b"", bytes(64)]), MADE


def _tagged(tag: bytes) -> bytes:
    return cbor(signed(cbor({0: MADE, 1: [ADDRESS]}), tag=tag))


def requests() -> Iterator[tuple[str, list[int] | None, bytes | None, bytes]]:
    """Yield requests: name, the islands asked for or none if it is dropped, the asker's record, the bytes."""
    own = MALLORY.certificate()
    yield "no island", [], None, cbor([[]])
    yield "two islands", [1, 65_535], None, cbor([[1, 65_535]])
    yield "an island twice", [3], None, cbor([[3, 3]])
    yield "eight islands and a record", list(range(8)), own, cbor([list(range(8)), own])
    yield "nine islands", None, None, cbor([list(range(9))])
    yield "bytes for an island", None, None, cbor([[b"1"]])
    yield "a number for the record", None, None, cbor([[1], 1])
    yield "two records", None, None, cbor([[1], own, own])
    yield "a number for the islands", None, None, cbor([1])
    yield "a map", None, None, cbor({0: [1]})
    yield "nothing", None, None, b""
    yield "no items", None, None, cbor([])


def answers() -> Iterator[tuple[str, int, bytes]]:
    """Yield answers: name, the number of records to look at, the bytes."""
    yield "none", 0, cbor([])
    yield "two", 2, cbor([record(), b""])
    yield "24", 24, cbor([b""] * 24)
    yield "25", 0, cbor([b""] * 25)
    yield "a number among them", 0, cbor([record(), 0])
    yield "text", 0, cbor("")
    yield "noise", 0, cbor([record(), Raw(b"\xff")])
    yield "nothing", 0, b""
