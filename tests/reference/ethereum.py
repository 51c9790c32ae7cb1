"""Section 8: EIP-712 digests and the account behind a signature, secp256k1 in plain arithmetic."""

from functools import lru_cache
from typing import Any

from Crypto.Hash import keccak as _keccak

P = 2**256 - 2**32 - 977
N = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
G = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)

_EPOCH_ROOT = (
    b"EpochRoot(uint64 epoch,bytes32 baseRoot,bytes32 contributionRoot,bytes32 cumulativeRoot,"
    b"uint256 total,bytes32 archiveDigest)"
)

Point = tuple[int, int] | None


def keccak(data: bytes) -> bytes:
    """Return Ethereum's Keccak-256."""
    return _keccak.new(digest_bits=256, data=data).digest()


def domain(chain_id: int, contract: bytes) -> bytes:
    """Return the separator of the domain ``sapo``, version ``1``."""
    kind = keccak(b"EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)")
    return keccak(kind + keccak(b"sapo") + keccak(b"1") + word(chain_id) + contract.rjust(32, b"\0"))


def node_binding(separator: bytes, node: bytes, swarm: bytes, not_before: int, not_after: int) -> bytes:
    """Return the digest that an account signs for a node key."""
    kind = b"NodeBinding(bytes32 nodeKey,bytes32 swarmId,uint64 notBefore,uint64 notAfter)"
    struct = keccak(keccak(kind) + node + swarm + word(not_before) + word(not_after))
    return keccak(b"\x19\x01" + separator + struct)


def epoch_root(
    separator: bytes,
    epoch: int,
    base: bytes,
    contribution: bytes,
    cumulative: bytes,
    total: int,
    archive: bytes,
) -> bytes:
    """Return the digest that names an epoch's root."""
    struct = _root_struct(epoch, base, contribution, cumulative, total, archive)
    return keccak(b"\x19\x01" + separator + struct)


def epoch_approval(separator: bytes, turn: int, *root: Any) -> bytes:
    """Return the digest that an auditor signs: a turn, and the root with its fields in their order."""
    kind = b"EpochApproval(uint32 turn,EpochRoot root)" + _EPOCH_ROOT
    struct = keccak(keccak(kind) + word(turn) + _root_struct(*root))
    return keccak(b"\x19\x01" + separator + struct)


def succession(
    separator: bytes, number: int, epoch: int, successor: bytes, leaving: bytes, entering: bytes
) -> bytes:
    """Return the digest that an auditor signs for a change."""
    fields = b"uint64 number,uint64 activationEpoch,bytes32 successor,address leaving,address entering"
    words = word(number) + word(epoch) + successor + leaving.rjust(32, b"\0") + entering.rjust(32, b"\0")
    return keccak(b"\x19\x01" + separator + keccak(keccak(b"Succession(" + fields + b")") + words))


def withdrawal(separator: bytes, number: int) -> bytes:
    """Return the digest that an auditor signs to take an announcement back."""
    return keccak(b"\x19\x01" + separator + keccak(keccak(b"Withdrawal(uint64 number)") + word(number)))


def _root_struct(
    epoch: int, base: bytes, contribution: bytes, cumulative: bytes, total: int, archive: bytes
) -> bytes:
    words = word(epoch) + base + contribution + cumulative + word(total) + archive
    return keccak(keccak(_EPOCH_ROOT) + words)


@lru_cache(maxsize=4096)
def signer(digest: bytes, signature: bytes) -> bytes | None:
    """Return the account behind a signature with low s, or none."""
    if len(signature) != 65 or signature[64] not in (27, 28):
        return None
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:64], "big")
    if not (0 < r < N and 0 < s <= N // 2):
        return None
    square = (r**3 + 7) % P
    y = pow(square, (P + 1) // 4, P)
    if y * y % P != square:
        return None
    y = y if y % 2 == signature[64] - 27 else P - y
    inverse = pow(r, -1, N)
    z = int.from_bytes(digest, "big")
    key = _add(_times(s * inverse % N, (r, y)), _times(-z * inverse % N, G))
    return None if key is None else keccak(word(key[0]) + word(key[1]))[12:]


def word(value: int) -> bytes:
    """Return a number as 32 bytes."""
    return value.to_bytes(32, "big")


def _add(p: Point, q: Point) -> Point:
    if p is None or q is None:
        return q if p is None else p
    if p[0] == q[0] and (p[1] + q[1]) % P == 0:
        return None
    rise, run = (3 * p[0] * p[0], 2 * p[1]) if p == q else (q[1] - p[1], q[0] - p[0])
    slope = rise * pow(run, -1, P)
    x = (slope * slope - p[0] - q[0]) % P
    return x, (slope * (p[0] - x) - p[1]) % P


def _times(factor: int, p: Point) -> Point:
    total: Point = None
    while factor:
        if factor & 1:
            total = _add(total, p)
        p, factor = _add(p, p), factor >> 1
    return total
