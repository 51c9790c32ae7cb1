"""The attested accounts as of a block, on the real Ethereum Attestation Service, with dishonest endpoints."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from eth_utils import keccak
from support.eas import ATTESTERS, Eas, deploy_eas
from support.ledger import (
    ALICE,
    AUDITORS,
    BOB,
    Contracts,
    address,
)
from support.lying_endpoint import Liar, Logs
from support.network import Network
from support.rewound import RewoundSite, forking_ledger

from sapo_client.ledger.account_bond import Gate
from sapo_client.ledger.attestations import AttestationHistory, require_service
from sapo_client.ledger.chain.errors import REFUSED, RpcError
from sapo_client.ledger.errors import AttestationsInvented, Disagreement, LedgerError
from sapo_protocol.identifiers import Account, Digest

A, B = address(ALICE), address(BOB)
FIRST, SECOND = ATTESTERS


class Endpoint(Liar):
    """An endpoint that may also refuse logs of many blocks, and change what the state says.

    Attributes:
        asked: how often it was asked what, by method.
        max_blocks: in one question for logs.
        state: what it says of every call, if not the truth.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.asked: Counter[str] = Counter()
        self.max_blocks = 10_000
        self.state: str | None = None

    def _call(self, method: str, params: list[Any]) -> object:
        self.asked[method] += 1
        if method == "eth_call" and self.state is not None:
            return self.state
        answer = super()._call(method, params)
        if method == "eth_getLogs" and self.sought[-1][1] - self.sought[-1][0] >= self.max_blocks:
            raise RpcError(REFUSED, "too many blocks")
        return answer


class Site(RewoundSite[Endpoint]):
    """A service on a chain that can be reorganised, and the addresses at which it is read."""

    def __init__(self, contracts: Contracts, eas: Eas) -> None:
        super().__init__(contracts, eas.after_block, Endpoint)
        self.eas = eas
        contracts.chain.now_seconds = self.seconds + 1.0  # younger than the gate's block

    @property
    def seconds(self) -> int:
        return self.engine.head.timestamp

    def pass_seconds(self, seconds: int) -> None:
        """Let a block come so many seconds after the last one."""
        self.contracts.chain.now_seconds = float(self.seconds + seconds)
        self.network.fill(1)

    def read_by(self, endpoints: int = 1) -> tuple[AttestationHistory, list[Endpoint]]:
        rpc, liars = self.rpc(endpoints)
        return AttestationHistory(rpc, self.eas.gate()), liars


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Contracts, Eas]]:
    with forking_ledger(tmp_path_factory.mktemp("eas")) as contracts:
        yield contracts, deploy_eas(contracts.chain)


@pytest.fixture
def site(deployed: tuple[Contracts, Eas]) -> Site:
    """The chain as after the deployment."""
    return Site(*deployed)


def test_attestations_as_of_each_block(site: Site) -> None:
    """What a history says of a block does not depend on what it was asked before."""
    site.pass_seconds(1)
    none = site.block
    site.pass_seconds(1)
    uid = site.eas.attest(FIRST, A)
    first = site.block
    site.pass_seconds(1)
    site.eas.attest(SECOND, A)
    site.eas.attest(SECOND, B)
    both = site.block
    site.pass_seconds(1)
    site.eas.revoke(FIRST, uid)
    revoked = site.block
    expected = {none: {}, first: {A: 1}, both: {A: 2, B: 1}, revoked: {A: 1, B: 1}}
    history, _ = site.read_by()
    for blocks in (list(expected), list(expected)[::-1], [revoked, first, both, none]):
        assert [history.at(block) for block in blocks] == [expected[block] for block in blocks]
    for block, attested in expected.items():
        fresh, _ = site.read_by()
        assert fresh.at(block) == attested


def test_attestations_of_unlisted_attesters_do_not_count(site: Site) -> None:
    site.eas.attest(BOB, A)
    site.eas.attest(ALICE, A)  # itself
    site.eas.attest(AUDITORS[0], A)
    history, _ = site.read_by()
    assert history.at(site.block) == {}


def test_another_schema_does_not_count(site: Site) -> None:
    site.eas.attest(FIRST, A, schema=site.eas.other)
    history, _ = site.read_by()
    assert history.at(site.block) == {}


def test_an_attestation_that_expires(site: Site) -> None:
    """It counts in the block a second before its expiration, and not in the block of it."""
    end = site.seconds + 100
    site.eas.attest(FIRST, A, expiration_seconds=end)
    site.pass_seconds(end - site.seconds - 1)
    before = site.block
    site.pass_seconds(1)
    assert site.seconds == end
    history, _ = site.read_by()
    assert (history.at(site.block), history.at(before)) == ({}, {A: 1})


def test_a_new_attestation_after_a_revoked_one(site: Site) -> None:
    history, _ = site.read_by()
    site.eas.revoke(FIRST, site.eas.attest(FIRST, A))
    assert history.at(site.block) == {}
    site.eas.attest(FIRST, A)
    assert history.at(site.block) == {A: 1}


def _hide(logs: Logs) -> Logs:
    return []


def _invent(logs: Logs) -> Logs:
    """Add a thousand attestations that do not exist."""
    made = [
        {**log, "data": "0x" + number.to_bytes(32, "big").hex()} for log in logs for number in range(1000)
    ]
    return [*logs, *made]


def _end(logs: Logs) -> Logs:
    """Say that every attestation was revoked."""
    revoked = "0x" + keccak(text="Revoked(address,address,bytes32,bytes32)").hex()
    return [*logs, *({**log, "topics": [revoked, *log["topics"][1:]]} for log in logs)]


def test_an_attestation_hidden_by_all_endpoints_is_not_found(site: Site) -> None:
    """The service keeps no hash over its events; docs/adr/gate-attestations.md says so."""
    site.eas.attest(FIRST, A)
    history, [endpoint] = site.read_by()
    endpoint.tamper = _hide
    assert history.at(site.block) == {}


@pytest.mark.parametrize("tamper", [_hide, _invent, _end])
def test_one_honest_endpoint_suffices_for_the_events(site: Site, tamper: Callable[[Logs], Logs]) -> None:
    history, liars = site.read_by(3)
    uid = site.eas.attest(FIRST, A)
    for liar in liars[:2]:
        liar.tamper = tamper
    assert history.at(site.block) == {A: 1}
    site.eas.revoke(FIRST, uid)
    site.eas.attest(SECOND, B)
    assert history.at(site.block) == {B: 1}


@pytest.mark.parametrize("tamper", [_invent, _end])
def test_an_invented_attestation_of_a_single_endpoint_is_refused(
    site: Site, tamper: Callable[[Logs], Logs]
) -> None:
    site.eas.attest(FIRST, A)
    history, [endpoint] = site.read_by()
    endpoint.tamper = tamper
    with pytest.raises(AttestationsInvented):
        history.at(site.block)
    assert site.told == ["http://0: it shows an attestation, or its end, that is not on the chain"]


def test_an_endpoint_that_invents_attestations_is_not_excluded_permanently(site: Site) -> None:
    site.eas.attest(FIRST, A)
    history, [liar, other] = site.read_by(2)
    liar.tamper = _invent
    for _ in range(3):
        site.pass_seconds(1)
        other.asked.clear()
        assert history.at(site.block) == {A: 1}
        assert other.asked["eth_call"] <= 32 + 1  # one batch of inventions, and the one that is read again
    liar.tamper, other.tamper = other.tamper, _hide
    site.eas.attest(FIRST, B)
    assert history.at(site.block) == {A: 1, B: 1}


def test_a_single_endpoint_that_invented_attestations_is_trusted_when_it_stops(site: Site) -> None:
    site.eas.attest(FIRST, A)
    history, [endpoint] = site.read_by()
    endpoint.tamper = _invent
    with pytest.raises(AttestationsInvented):
        history.at(site.block)
    endpoint.tamper = lambda logs: logs
    assert history.at(site.block) == {A: 1}


def test_a_reorganisation_after_a_reading_that_failed(site: Site) -> None:
    """One endpoint was read up to a block that then changes, while the reading of the other ones fails."""
    history, [right, broken] = site.read_by(2)
    site.network.fill(3)
    site.eas.attest(FIRST, A)
    site.network.fill(3)
    before = site.block
    broken.state = "0x"
    with pytest.raises(LedgerError):
        history.at(before)
    broken.state = None
    site.engine.rewind(site.eas.after_block)
    site.network.fill(1)
    site.eas.attest(FIRST, B)
    site.network.fill(before)
    assert right.sought
    assert history.at(before) == {B: 1}


def test_a_revocation_that_all_endpoints_hide_is_found_in_the_state(site: Site) -> None:
    uid = site.eas.attest(FIRST, A)
    history, [endpoint] = site.read_by()
    assert history.at(site.block) == {A: 1}
    endpoint.tamper = _hide
    site.eas.revoke(FIRST, uid)
    assert history.at(site.block) == {}


def test_reading_of_an_honest_endpoint_continues_after_its_last_read_block(site: Site) -> None:
    history, [liar, honest, other] = site.read_by(3)
    liar.tamper = other.tamper = _hide
    honest.max_blocks = 0
    site.eas.attest(FIRST, A)
    assert history.at(site.block) == {}
    honest.max_blocks = 10_000
    site.pass_seconds(1)
    assert history.at(site.block) == {A: 1}


def test_attestations_older_than_the_gate_do_not_count(site: Site) -> None:
    """It exists, but the gate counts those alone that are younger than its block."""
    older = site.eas.attest(FIRST, A)
    gate = replace(site.eas.gate(), after_block=site.block)
    site.pass_seconds(1)
    site.eas.attest(FIRST, B)
    rpc, [liar, _] = site.rpc(2)
    history = AttestationHistory(rpc, gate)
    liar.tamper = lambda logs: [*logs, *({**log, "data": "0x" + older.hex()} for log in logs)]
    assert history.at(site.block) == {B: 1}
    assert history.at(gate.after_block) == {}


def test_two_endpoints_that_disagree_about_the_state(site: Site) -> None:
    site.eas.attest(FIRST, A)
    history, [liar, _] = site.read_by(2)
    liar.state = "0x" + (bytes(31) + b"\x20").hex() + bytes(11 * 32).hex()
    with pytest.raises(Disagreement):
        history.at(site.block)


def test_each_block_is_read_once(site: Site) -> None:
    history, [endpoint] = site.read_by()
    first = site.eas.after_block + 1
    site.eas.attest(FIRST, A)
    one = site.block
    assert history.at(one) == {A: 1}
    site.pass_seconds(1)
    site.pass_seconds(1)
    two = site.block
    assert [history.at(block) for block in (two, one, two)] == [{A: 1}] * 3
    assert endpoint.sought == [(first, one), (one + 1, two)]


def test_an_epoch_costs_the_same_whatever_the_number_of_accounts(site: Site) -> None:
    """The figures of docs/adr/gate-attestations.md: one question for logs, and 32 calls at most."""
    accounts = [Account(number.to_bytes(Account.SIZE, "big")) for number in range(1, 41)]
    site.eas.attest_all(FIRST, accounts)
    history, [endpoint] = site.read_by()
    assert history.at(site.block) == dict.fromkeys(accounts, 1)
    for _ in range(2):
        endpoint.asked.clear()
        site.pass_seconds(1)
        assert history.at(site.block) == dict.fromkeys(accounts, 1)
        assert (endpoint.asked["eth_getLogs"], endpoint.asked["eth_call"]) == (1, 32)
        assert endpoint.asked.total() == 100  # web3 asks for the chain's id twice around each call


def test_fewer_blocks_at_once_where_an_endpoint_refuses_many(site: Site) -> None:
    site.eas.attest(FIRST, A)
    site.network.fill(150)
    history, [endpoint] = site.read_by()
    endpoint.max_blocks = 100
    assert history.at(site.block) == {A: 1}
    assert max(last - first + 1 for first, last in endpoint.sought[2:]) == 100
    asked = len(endpoint.sought)
    site.network.fill(150)
    assert history.at(site.block) == {A: 1}
    assert [last - first + 1 for first, last in endpoint.sought[asked:]] == [100, 50]  # no try of more


def test_attestations_removed_by_a_reorganisation_do_not_count(site: Site) -> None:
    history, _ = site.read_by()
    site.eas.attest(FIRST, A)
    kept = site.block
    assert history.at(kept) == {A: 1}
    site.eas.attest(FIRST, B)
    assert history.at(site.block) == {A: 1, B: 1}
    site.engine.rewind(kept)
    site.contracts.chain.now_seconds += 5
    site.network.fill(3)
    assert history.at(site.block) == {A: 1}
    site.engine.rewind(site.eas.after_block)
    site.network.fill(1)
    site.eas.attest(SECOND, B)
    site.network.fill(8)
    assert history.at(site.block) == {B: 1}


def test_a_gate_needs_an_attestation_service_with_its_schema(site: Site) -> None:
    rpc, _ = site.rpc(1)
    gate = site.eas.gate()
    require_service(rpc, gate)
    with pytest.raises(LedgerError, match="knows no schema"):
        require_service(rpc, replace(gate, schema=Digest(b"\x07" * 32)))
    for contract in (A, site.contracts.ledger.address):
        with pytest.raises(LedgerError, match="no attestation service"):
            require_service(rpc, replace(gate, contract=contract))


def test_a_manifest_with_an_attestation_gate_opens_its_history(site: Site) -> None:
    manifest = site.contracts.manifest(version=2, gate=site.eas.gate())
    gate = Gate(site.contracts.chain.rpc, manifest, site.contracts.ledger)
    gate.require(lambda: Account(bytes(20)))
    site.eas.attest(FIRST, B)
    assert gate.bonds_at(site.block) == {B: 1}
    with pytest.raises(LedgerError, match="an attestation, not a bond"):
        gate.bonds(gate=True)
