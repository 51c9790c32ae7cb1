"""Founding a swarm on a chain: its quote, its refusals, and its continuation after an interruption."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.eas import ATTESTERS, deploy_eas, schema_with
from support.ledger import AUDITORS, DEPLOYER, STRANGER, ServedChain, address

from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding.chains import TEST_NETWORKS
from sapo_client.founding.contracts import fund
from sapo_client.founding.defaults import LIMITS
from sapo_client.founding.gates import EasTerms, eas_terms
from sapo_client.founding.quote import Quote, QuotedTransaction, coins, require_coins
from sapo_client.founding.swarm import Founding, SwarmTerms, faucet_of
from sapo_client.founding.tasks import default_families
from sapo_client.ledger import transactions as tx
from sapo_client.ledger.contract import EpochLedgerContract, Token
from sapo_client.ledger.errors import LedgerError, LedgerUnavailable
from sapo_client.ledger.outbox import Outbox, OutboxEntry
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.manifest_file import manifest_from_json
from sapo_protocol.suite import Suite
from sapo_protocol.terms.auditors import Auditors
from sapo_protocol.terms.gate import EasGate
from sapo_verification.suites import catalogue

NEWCOMER = Account(bytes(19) + b"\x07")
SUITE = Suite(catalogue.REASONING_GYM, (catalogue.family("basic_arithmetic", "nano"),), Digest(bytes(32)))
"""One family without samples: deriving a whole suite's takes longer than everything else here."""

TERMS = SwarmTerms(
    name="here",
    auditors=tuple(map(address, AUDITORS)),
    quorum=3,
    epoch_seconds=60,
    bootstrap=("/ip4/127.0.0.1/tcp/4001",),
    finality_seconds=0,
    faucet_coins=2.0,
    coins_per_drip=0.5,
)


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[ServedChain]:
    served = ServedChain(tmp_path / "chain.sqlite")
    yield served
    served.close()


def begin(chain: ServedChain, folder: Path, terms: SwarmTerms = TERMS) -> Founding:
    return Founding(folder, [chain.url], DEPLOYER, terms)


def test_the_quote_matches_the_sent_transactions(chain: ServedChain, tmp_path: Path) -> None:
    begun = begin(chain, tmp_path / "swarm")
    quoted = begun.quote()
    assert (quoted.chain_id, quoted.unsent) == (begun.chain_id, len(quoted.steps))
    assert [step.value_wei for step in quoted.steps if step.value_wei] == [2 * 10**18]
    before = balance(chain, DEPLOYER.address)
    manifest = begun.carry_out(SUITE)
    assert tx.next_nonce(chain.rpc, address(DEPLOYER)) == len(quoted.steps)
    assert before - balance(chain, DEPLOYER.address) <= quoted.max_wei
    assert begun.quote().max_wei == 0
    assert {step.does for step in quoted.steps} >= {"create EpochLedger", "call SapoToken.transfer"}
    assert manifest_from_json((tmp_path / "swarm" / "manifest.json").read_text()) == manifest


def test_the_manifest_names_the_deployed_contracts(chain: ServedChain, tmp_path: Path) -> None:
    manifest = begin(chain, tmp_path / "swarm").carry_out(SUITE)
    assert manifest.ledger is not None
    ledger = EpochLedgerContract(chain.rpc, manifest.ledger)
    assert ledger.clock() == (manifest.genesis_seconds, manifest.epoch_seconds)
    assert ledger.auditors() == (Auditors(TERMS.auditors), TERMS.quorum)
    assert (manifest.name, manifest.bootstrap, manifest.limits) == (
        "here",
        TERMS.bootstrap,
        LIMITS,
    )


def test_a_swarm_with_an_attestation_gate_is_founded_with_a_registered_schema_only(
    chain: ServedChain, tmp_path: Path
) -> None:
    eas = deploy_eas(chain)
    attesters = tuple(map(address, ATTESTERS))
    unknown = EasTerms(eas.address, Digest(bytes(32)), attesters)
    begun = begin(chain, tmp_path / "wrong", replace(TERMS, eas=unknown))
    for step in (begun.quote, lambda: begun.carry_out(SUITE)):
        with pytest.raises(LedgerError, match="knows no schema"):
            step()
    lasting = EasTerms(eas.address, schema_with(eas, None, revocable=False), attesters)
    assert begin(chain, tmp_path / "lasting", replace(TERMS, eas=lasting)).concerns() == (
        "attestations of the schema cannot be revoked: an account counts until they expire",
    )
    before = chain.engine.head.block_number
    terms = replace(TERMS, eas=EasTerms(eas.address, eas.schema, attesters))
    manifest = begin(chain, tmp_path / "swarm", terms).carry_out(SUITE)
    gate = EasGate(eas.address, eas.schema, attesters, chain.engine.head.block_number)
    assert (manifest.version, manifest.gate) == (2, gate)
    assert gate.after_block > before
    assert begin(chain, tmp_path / "swarm", terms).finished() == manifest
    with pytest.raises(SapoError, match="another eas"):
        begin(chain, tmp_path / "swarm").finished()


SCHEMA = "0x" + "06" * 32


@pytest.mark.parametrize(
    ("contract", "schema", "attesters"),
    [
        (None, SCHEMA, [NEWCOMER]),
        (NEWCOMER, None, [NEWCOMER]),
        (NEWCOMER, SCHEMA, []),
        (NEWCOMER, SCHEMA[:-2], [NEWCOMER]),
        (NEWCOMER, SCHEMA, [Account(bytes(19) + bytes([number])) for number in range(17)]),
    ],
    ids=["no contract", "no schema", "no attester", "a short schema", "too many attesters"],
)
def test_incomplete_attestation_options_are_refused(
    contract: Account | None, schema: str | None, attesters: list[Account]
) -> None:
    with pytest.raises(SapoError, match=r"come together|attesters|hexadecimal|bytes") as told:
        eas_terms(contract, schema, attesters)
    assert told.value.exit_code == ExitCode.USAGE


def test_attesters_are_sorted_and_named_once() -> None:
    one, other = (Account(bytes(19) + bytes([number])) for number in (1, 2))
    assert eas_terms(None, None, []) is None
    assert eas_terms(NEWCOMER, SCHEMA, [other, one, other]) == EasTerms(
        NEWCOMER, Digest(b"\x06" * 32), (one, other)
    )


def test_the_faucet_serves_a_newcomer_once_a_day(chain: ServedChain, tmp_path: Path) -> None:
    manifest = begin(chain, tmp_path / "swarm").carry_out(SUITE)
    place = faucet_of(tmp_path / "swarm")
    assert place.chain_id == manifest.chain_id
    faucet = place.contract
    fund(chain.rpc, DEPLOYER, faucet, NEWCOMER)
    assert manifest.ledger is not None
    token: Token = EpochLedgerContract(chain.rpc, manifest.ledger).distributor().token()
    assert token.balance(NEWCOMER) == 100 * 10**18
    assert balance(chain, "0x" + NEWCOMER.hex()) == 10**18 // 2
    with pytest.raises(LedgerError, match="within the last day"):
        fund(chain.rpc, DEPLOYER, faucet, NEWCOMER)
    with pytest.raises(LedgerError, match="there is no faucet at"):
        fund(chain.rpc, DEPLOYER, NEWCOMER, NEWCOMER)
    with pytest.raises(SapoError, match="no swarm was founded"):
        faucet_of(tmp_path)


def balance(chain: ServedChain, holder: str) -> int:
    return int(chain.request("eth_getBalance", holder, "latest")["result"], 16)


@pytest.mark.parametrize("sent", [0, pytest.param(2, marks=pytest.mark.long), 5])
def test_an_interrupted_founding_continues_after_its_sent_transactions(
    chain: ServedChain, tmp_path: Path, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interruption comes when the chain has a transaction that the outbox does not know yet."""
    begun = begin(chain, tmp_path / "swarm")
    planned = len(begun.quote().steps)
    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "confirm", _end_at(sent))
        with pytest.raises(KeyboardInterrupt):
            begun.carry_out(SUITE)
    manifest = begin(chain, tmp_path / "swarm").carry_out(SUITE)
    assert tx.next_nonce(chain.rpc, address(DEPLOYER)) == planned
    assert begin(chain, tmp_path / "swarm").finished() == manifest == begun.carry_out(SUITE)
    assert tx.next_nonce(chain.rpc, address(DEPLOYER)) == planned


def _end_at(number: int) -> Callable[..., None]:
    confirm, left = Outbox.confirm, [number]

    def ending(
        outbox: Outbox, entry: OutboxEntry, note: str | None = None, *, at_seconds: int | None = None
    ) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        confirm(outbox, entry, note, at_seconds=at_seconds)

    return ending


def test_other_settings_are_another_swarm(chain: ServedChain, tmp_path: Path) -> None:
    begin(chain, tmp_path / "swarm").quote()
    for terms, told in (
        (replace(TERMS, epoch_seconds=61), "another epoch seconds: 60, not 61"),
        (replace(TERMS, quorum=2), "another quorum: 3, not 2"),
    ):
        with pytest.raises(SapoError, match=told):
            begin(chain, tmp_path / "swarm", terms).quote()
    with pytest.raises(SapoError, match="another founder"):
        Founding(tmp_path / "swarm", [chain.url], STRANGER, TERMS).carry_out(SUITE)


@pytest.mark.parametrize(
    ("added", "told"),
    [
        ({"bond": 5.0}, r"without bond, and cannot continue with 5\.0"),
        ({"eas": EasTerms(NEWCOMER, Digest(bytes(32)), (NEWCOMER,))}, "without eas, and cannot continue"),
        ({"difficulty": "follow"}, "without difficulty, and cannot continue with follow"),
        ({"challenge_seconds": 30}, "without challenge seconds, and cannot continue with 30"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, dict) else "",
)
def test_a_setting_that_an_older_plan_lacks_cannot_be_added(
    chain: ServedChain, tmp_path: Path, added: dict[str, Any], told: str
) -> None:
    folder = tmp_path / "swarm"
    begin(chain, folder).quote()
    plan = json.loads((folder / "plan.json").read_text())
    older = json.dumps({key: value for key, value in plan.items() if key not in added})
    (folder / "plan.json").write_text(older)
    for same in (TERMS, replace(TERMS, challenge_seconds=6, families=default_families(TERMS.level))):
        assert begin(chain, folder, same).finished() is None  # it goes on as it was begun
    with pytest.raises(SapoError, match=told) as caught:
        begin(chain, folder, replace(TERMS, **added)).finished()
    assert "leave the setting out" in caught.value.hint
    assert (folder / "plan.json").read_text() == older


def test_a_plan_without_a_setting_that_every_release_writes_is_damaged(
    chain: ServedChain, tmp_path: Path
) -> None:
    folder = tmp_path / "swarm"
    begin(chain, folder).quote()
    plan = json.loads((folder / "plan.json").read_text())
    del plan["quorum"]
    (folder / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(SapoError, match=r"plan\.json is damaged"):
        begin(chain, folder).quote()


def test_another_chain_is_refused(chain: ServedChain, tmp_path: Path) -> None:
    begin(chain, tmp_path / "swarm").quote()
    other = ServedChain(tmp_path / "other.sqlite", chain_id=31337)
    with pytest.raises(SapoError, match="another chain id"):
        begin(other, tmp_path / "swarm").carry_out(SUITE)
    other.close()
    with pytest.raises(LedgerUnavailable):
        begin(other, tmp_path / "swarm")


@pytest.mark.parametrize("chain_id", [1, 8453, 99, 130, 2**62])
def test_on_a_chain_that_is_no_known_test_network_coins_are_taken_for_money(
    tmp_path: Path, chain_id: int
) -> None:
    assert chain_id not in TEST_NETWORKS
    chain = ServedChain(tmp_path / "main.sqlite", chain_id=chain_id)
    folder = tmp_path / "swarm"
    with pytest.raises(LedgerError, match="is not a known test network") as caught:
        begin(chain, folder)
    assert "--i-know-this-costs-money" in caught.value.hint
    assert not folder.exists()
    agreed = Founding(folder, [chain.url], DEPLOYER, TERMS, costs_money=True)
    assert agreed.quote().chain_id == chain_id
    chain.close()


def test_endpoints_of_two_chains_are_refused(chain: ServedChain, tmp_path: Path) -> None:
    other = ServedChain(tmp_path / "other.sqlite", chain_id=31337)
    with pytest.raises(LedgerError, match="disagree about the chain's id"):
        Founding(tmp_path / "swarm", [chain.url, other.url], DEPLOYER, TERMS)
    other.close()


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"genesis_seconds": "5"}'])
def test_a_damaged_plan_is_named(chain: ServedChain, tmp_path: Path, text: str) -> None:
    folder = tmp_path / "swarm"
    folder.mkdir()
    (folder / "plan.json").write_text(text)
    with pytest.raises(SapoError, match=r"plan\.json is damaged"):
        begin(chain, folder).quote()
    assert (folder / "plan.json").read_text() == text


def test_an_account_that_cannot_pay_gets_an_error_with_the_missing_amount() -> None:
    poor = Quote(
        5, (QuotedTransaction("create X", 1000, 10**18),), fee_wei=10**12, balance_wei=10**17, unsent=1
    )
    with pytest.raises(LedgerError, match=r"holds 0\.1 coins on chain 5; up to 1\.00125 are needed"):
        require_coins(poor, NEWCOMER)
    require_coins(replace(poor, unsent=0), NEWCOMER)
    assert coins(10**18) == "1"
