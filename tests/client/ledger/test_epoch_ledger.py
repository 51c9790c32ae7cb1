"""The rules of ``EpochLedger``, on the embedded chain."""

import coincurve
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ledger import (
    ALICE,
    AUDITORS,
    BUDGET_POINTS,
    EPOCH_SECONDS,
    GENESIS_SECONDS,
    STRANGER,
    Contracts,
    ServedChain,
    address,
    deploy_contracts,
    make_root,
    refused_as,
    sign,
)

from sapo_client.ledger.records import EpochRecord
from sapo_protocol.eip712 import Domain, EpochRoot
from sapo_protocol.identifiers import Account, Digest

ORDER = coincurve.utils.GROUP_ORDER_INT


def test_a_quorum_posts_an_epoch(contracts: Contracts) -> None:
    root = make_root(4, total=BUDGET_POINTS)
    assert contracts.ledger.next_epoch() == 0
    contracts.post(root, sign(root, contracts.domain), signer=ALICE)  # anyone may send it
    posted_at = contracts.chain.engine.head.timestamp
    assert contracts.ledger.record(4) == EpochRecord(root, posted_at)
    assert contracts.ledger.next_epoch() == 5
    assert contracts.ledger.record(3) is None
    assert contracts.ledger.auditors() == (tuple(map(address, AUDITORS)), 3)
    assert contracts.ledger.clock() == (GENESIS_SECONDS, EPOCH_SECONDS)


def test_more_signatures_than_needed_are_welcome(contracts: Contracts) -> None:
    root = make_root(0)
    contracts.post(root, sign(root, contracts.domain, AUDITORS))
    assert contracts.ledger.next_epoch() == 1


def test_epochs_strictly_increase_and_may_be_skipped(contracts: Contracts) -> None:
    for epoch in (2, 5):
        root = make_root(epoch)
        contracts.post(root, sign(root, contracts.domain))
    for epoch in (0, 4, 5):
        root = make_root(epoch)
        assert refused_as(lambda r=root: contracts.post(r, sign(r, contracts.domain))) == "EpochNotIncreasing"


def test_an_epoch_is_posted_only_when_it_is_over(contracts: Contracts) -> None:
    chain = contracts.chain
    epoch = (chain.engine.head.timestamp - GENESIS_SECONDS) // EPOCH_SECONDS
    root = make_root(epoch)
    chain.now_seconds = GENESIS_SECONDS + (epoch + 1) * EPOCH_SECONDS - 0.1
    assert refused_as(lambda: contracts.post(root, sign(root, contracts.domain))) == "EpochNotOver"
    chain.now_seconds += 0.1
    contracts.post(root, sign(root, contracts.domain))


def test_a_total_over_the_budget_is_refused(contracts: Contracts) -> None:
    root = make_root(0, total=BUDGET_POINTS + 1)
    assert refused_as(lambda: contracts.post(root, sign(root, contracts.domain))) == "OverBudget"


def test_too_few_signatures_are_refused(contracts: Contracts) -> None:
    root = make_root(0)
    two = sign(root, contracts.domain, AUDITORS[:2])
    assert refused_as(lambda: contracts.post(root, two)) == "TooFewSignatures"


def test_one_signer_does_not_count_twice(contracts: Contracts) -> None:
    root = make_root(0)
    a, b, _ = sign(root, contracts.domain)
    assert refused_as(lambda: contracts.post(root, [a, b, b])) == "SignerOrder"
    assert refused_as(lambda: contracts.post(root, [b, a, b])) == "SignerOrder"


def test_the_other_encoding_of_a_signature_is_refused(contracts: Contracts) -> None:
    root = make_root(0)
    a, b, c = sign(root, contracts.domain)
    s = int.from_bytes(c[32:64], "big")
    twin = c[:32] + (ORDER - s).to_bytes(32, "big") + bytes([55 - c[64]])
    assert refused_as(lambda: contracts.post(root, [a, b, twin])) == "ECDSAInvalidSignatureS"
    assert refused_as(lambda: contracts.post(root, [a, b, c[:64]])) == "ECDSAInvalidSignatureLength"


def test_a_strangers_signature_is_refused(contracts: Contracts) -> None:
    root = make_root(0)
    signers = sorted((*AUDITORS[:2], STRANGER), key=address)
    assert refused_as(lambda: contracts.post(root, sign(root, contracts.domain, signers))) == "NotAuditor"


def test_signatures_of_another_statement_are_refused(contracts: Contracts) -> None:
    root, other = make_root(0), make_root(0, archive=8)
    assert _is_no_quorum(contracts, root, sign(other, contracts.domain))


def test_a_posting_cannot_be_replayed_on_another_ledger(contracts: Contracts) -> None:
    root = make_root(0)
    signatures = sign(root, contracts.domain)
    twin = deploy_contracts(contracts.chain)
    contracts.post(root, signatures)
    assert _is_no_quorum(twin, root, signatures)


def test_a_posting_cannot_be_replayed_on_another_chain(contracts: Contracts) -> None:
    root = make_root(0)
    elsewhere = Domain(contracts.domain.chain_id + 1, contracts.domain.contract)
    assert _is_no_quorum(contracts, root, sign(root, elsewhere))


def _is_no_quorum(contracts: Contracts, root: EpochRoot, signatures: list[bytes]) -> bool:
    # Signatures over something else recover to accounts that nobody knows, in whatever order.
    refusal = refused_as(lambda: contracts.post(root, signatures))
    return refusal in ("NotAuditor", "SignerOrder") and contracts.ledger.next_epoch() == 0


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"quorum": 0}, "BadQuorum"),
        ({"quorum": 5}, "BadQuorum"),
        ({"auditors": ()}, "BadQuorum"),
        ({"auditors": (address(ALICE), address(ALICE)), "quorum": 1}, "BadAuditors"),
        ({"auditors": (Account(bytes(20)), address(ALICE)), "quorum": 1}, "BadAuditors"),
        ({"epoch_seconds": 0}, "BadClock"),
        ({"epoch_budget_points": 2**64}, "BadBudget"),
    ],
)
def test_a_senseless_plan_is_not_deployed(chain: ServedChain, changes: dict[str, object], error: str) -> None:
    assert refused_as(lambda: deploy_contracts(chain, **changes)) == error


@pytest.fixture(scope="module")
def shared(module_chain: ServedChain) -> Contracts:
    return deploy_contracts(module_chain)


digests = st.binary(min_size=32, max_size=32).map(Digest)
roots = st.builds(EpochRoot, st.integers(0, 2**64 - 1), digests, digests, st.integers(0, 2**256 - 1), digests)


@given(root=roots)
@settings(max_examples=20)
def test_protocol_and_contract_hash_the_same_statement(shared: Contracts, root: EpochRoot) -> None:
    assert shared.ledger.digest(root) == root.digest(shared.domain)
