"""The rules of ``EpochLedger``, on the embedded chain."""

from functools import partial

import coincurve
import pytest
from eth_utils import keccak
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ledger import (
    ALICE,
    AUDITOR_BOND,
    AUDITORS,
    BOB,
    BUDGET_POINTS,
    CHALLENGE_SECONDS,
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
from sapo_protocol import merkle
from sapo_protocol.eip712 import Domain, EpochApproval, EpochRoot
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.terms.auditors import Auditors

ORDER = coincurve.utils.GROUP_ORDER_INT


def test_a_quorum_posts_an_epoch_and_anyone_makes_it_final(contracts: Contracts) -> None:
    root = make_root(4, total=BUDGET_POINTS)
    ledger = contracts.ledger
    assert (ledger.next_epoch(), ledger.live()) == (0, None)
    contracts.post(root, sign(root, contracts.domain), signer=ALICE)  # anyone may send it
    posted = EpochRecord(root, contracts.chain.engine.head.timestamp, 0b111)
    assert (ledger.live(), contracts.history.record(4), ledger.next_epoch()) == (posted, None, 0)
    contracts.finalise(signer=BOB)
    assert (ledger.live(), contracts.history.record(4), ledger.next_epoch()) == (None, posted, 5)
    assert contracts.history.record(3) is None
    assert ledger.auditors() == (Auditors(tuple(map(address, AUDITORS))), 3)
    assert ledger.clock() == (GENESIS_SECONDS, EPOCH_SECONDS)
    assert (ledger.challenge_seconds(), ledger.auditor_bond()) == (CHALLENGE_SECONDS, AUDITOR_BOND)
    assert contracts.distributor.granted_points() == BUDGET_POINTS


def test_more_signatures_than_the_quorum_are_accepted(contracts: Contracts) -> None:
    root = make_root(0)
    contracts.post(root, sign(root, contracts.domain, AUDITORS))
    contracts.finalise()
    assert contracts.ledger.next_epoch() == 1


def test_a_posting_is_final_only_after_its_window(contracts: Contracts) -> None:
    root, chain = make_root(0), contracts.chain
    finalise = contracts.ledger.finalise()
    assert refused_as(lambda: chain.send(BOB, contracts.ledger.address, finalise)) == "NothingLive"
    contracts.post(root, sign(root, contracts.domain))
    chain.now_seconds = chain.engine.head.timestamp + CHALLENGE_SECONDS - 0.1
    assert refused_as(lambda: chain.send(BOB, contracts.ledger.address, finalise)) == "StillChallengeable"
    contracts.finalise()
    assert refused_as(lambda: chain.send(BOB, contracts.ledger.address, finalise)) == "NothingLive"


def test_one_posting_is_live_at_a_time(contracts: Contracts) -> None:
    first = make_root(0)
    second = make_root(1, base_root=first.cumulative_root)
    contracts.post(first, sign(first, contracts.domain))
    for root in (first, second):
        refusal = refused_as(partial(contracts.post, root, sign(root, contracts.domain)))
        assert refusal == "OtherPostingLive"
    contracts.finalise()
    contracts.post(second, sign(second, contracts.domain))
    live = contracts.ledger.live()
    assert live is not None
    assert live.root == second


def test_a_posting_for_an_earlier_epoch_is_refused_and_no_bond_is_lost(contracts: Contracts) -> None:
    """Auditors whose first root nobody has posted yet have signed a second one on the same ground."""
    first, second = make_root(0), make_root(1, archive=8)
    signatures = [sign(root, contracts.domain) for root in (first, second)]
    contracts.post(first, signatures[0])
    contracts.finalise()
    assert refused_as(lambda: contracts.post(second, signatures[1])) == "StaleBase"
    assert contracts.ledger.live() is None
    assert [contracts.vault.bonded(address(auditor)) for auditor in AUDITORS] == [AUDITOR_BOND] * 4


def test_epochs_strictly_increase_and_may_be_skipped(contracts: Contracts) -> None:
    base_root = merkle.EMPTY_ROOT
    for epoch in (2, 5):
        root = make_root(epoch, base_root=base_root)
        base_root = root.cumulative_root
        contracts.post(root, sign(root, contracts.domain))
        contracts.finalise()
    for epoch in (0, 4, 5):
        root = make_root(epoch)
        assert refused_as(partial(contracts.post, root, sign(root, contracts.domain))) == "EpochNotIncreasing"


def test_a_signature_without_a_bond_does_not_count(contracts: Contracts) -> None:
    root, auditor, vault = make_root(0), AUDITORS[0], contracts.vault
    contracts.chain.send(auditor, vault.address, vault.request_exit(1))
    assert refused_as(lambda: contracts.post(root, sign(root, contracts.domain))) == "TooFewSignatures"
    contracts.post(root, sign(root, contracts.domain, AUDITORS))  # nor does it spoil the others


def test_only_the_verifier_rejects(contracts: Contracts) -> None:
    root = make_root(0)
    contracts.post(root, sign(root, contracts.domain))
    strike = keccak(text="strike(address,uint64)")[:4] + bytes(12) + address(AUDITORS[0]) + bytes(32)
    for data in (keccak(text="reject()")[:4], strike):
        refusal = refused_as(partial(contracts.chain.send, AUDITORS[0], contracts.ledger.address, data))
        assert refusal == "OnlyVerifier"


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
    return refusal in ("NotAuditor", "SignerOrder") and contracts.ledger.live() is None


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"quorum": 0}, "BadQuorum"),
        ({"quorum": 5}, "BadQuorum"),
        ({"auditors": ()}, "BadQuorum"),
        ({"auditors": (address(ALICE), address(ALICE)), "quorum": 1}, "BadAuditors"),
        ({"auditors": (Account(bytes(20)), address(ALICE)), "quorum": 1}, "BadAuditors"),
        ({"epoch_seconds": 0}, "BadClock"),
        ({"challenge_seconds": 0}, "BadClock"),
        ({"challenge_seconds": EPOCH_SECONDS}, "BadClock"),
        ({"epoch_budget_points": 2**32}, "BadBudget"),
    ],
)
def test_invalid_parameters_are_not_deployed(
    chain: ServedChain, changes: dict[str, object], error: str
) -> None:
    assert refused_as(lambda: deploy_contracts(chain, **changes)) == error


digests = st.binary(min_size=32, max_size=32).map(Digest)
numbers = st.integers(0, 2**64 - 1), st.integers(0, 2**256 - 1)
roots = st.builds(EpochRoot, numbers[0], digests, digests, digests, numbers[1], digests)


@given(root=roots)
@settings(max_examples=20)
def test_protocol_and_contract_hash_the_same_statement(shared: Contracts, root: EpochRoot) -> None:
    assert shared.ledger.digest(root) == root.digest(shared.domain)
    statement = EpochApproval(2**32 - 1, root)
    assert shared.ledger.approval_digest(statement) == statement.digest(shared.domain)
