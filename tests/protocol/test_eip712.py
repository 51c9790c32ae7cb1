"""Typed data: the digests that eth_account computes from the same JSON."""

from eth_account.messages import _hash_eip191_message, encode_typed_data
from hypothesis import given
from hypothesis import strategies as st
from support.strategies import fixed, uint64

from sapo_protocol.eip712 import Domain, EpochRoot, NodeBinding, readable
from sapo_protocol.identifiers import Account, Digest, NodeId, SwarmId

DOMAIN_FIELDS = [
    {"name": "name", "type": "string"},
    {"name": "version", "type": "string"},
    {"name": "chainId", "type": "uint256"},
    {"name": "verifyingContract", "type": "address"},
]
domains = st.builds(Domain, st.integers(0, 2**64), fixed(Account))
bindings = st.builds(NodeBinding, fixed(NodeId), fixed(SwarmId), uint64, uint64)
roots = [fixed(Digest)] * 3
epoch_roots = st.builds(EpochRoot, uint64, *roots, st.integers(0, 2**74), fixed(Digest))


@given(domains, bindings)
def test_node_binding(domain: Domain, binding: NodeBinding) -> None:
    fields = {
        "nodeKey": ("bytes32", bytes(binding.node_key)),
        "swarmId": ("bytes32", bytes(binding.swarm_id)),
        "notBefore": ("uint64", binding.not_before),
        "notAfter": ("uint64", binding.not_after),
    }
    assert binding.digest(domain) == _reference(domain, "NodeBinding", fields)


@given(domains, epoch_roots)
def test_epoch_root(domain: Domain, root: EpochRoot) -> None:
    fields = {
        "epoch": ("uint64", root.epoch),
        "baseRoot": ("bytes32", bytes(root.base_root)),
        "contributionRoot": ("bytes32", bytes(root.contribution_root)),
        "cumulativeRoot": ("bytes32", bytes(root.cumulative_root)),
        "total": ("uint256", root.total),
        "archiveDigest": ("bytes32", bytes(root.archive_digest)),
    }
    assert root.digest(domain) == _reference(domain, "EpochRoot", fields)


@given(domains, domains, bindings)
def test_a_statement_counts_in_one_domain(a: Domain, b: Domain, binding: NodeBinding) -> None:
    assert (binding.digest(a) == binding.digest(b)) == (a == b)


def test_every_field_of_a_statement_is_shown() -> None:
    domain = Domain(5, Account(b"\x05" * 20))
    binding = NodeBinding(NodeId(b"\x01" * 32), SwarmId(b"\x02" * 32), 10, 20)
    assert readable(binding, domain) == {
        "chain id": 5,
        "contract": "0x" + "05" * 20,
        "node_key": "0x" + "01" * 32,
        "swarm_id": "0x" + "02" * 32,
        "not_before": 10,
        "not_after": 20,
    }


def _reference(domain: Domain, name: str, fields: dict[str, tuple[str, object]]) -> bytes:
    document = {
        "types": {
            "EIP712Domain": DOMAIN_FIELDS,
            name: [{"name": field, "type": type_} for field, (type_, _) in fields.items()],
        },
        "primaryType": name,
        "domain": {
            "name": "sapo",
            "version": "1",
            "chainId": domain.chain_id,
            "verifyingContract": "0x" + domain.contract.hex(),
        },
        "message": {field: value for field, (_, value) in fields.items()},
    }
    return bytes(_hash_eip191_message(encode_typed_data(full_message=document)))
