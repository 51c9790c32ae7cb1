"""The checks of `sapo doctor` beyond this machine: the swarm, its bootstrap nodes, its chain."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from sapo_client.cli.checks import Check
from sapo_client.config import Config
from sapo_client.errors import SapoError
from sapo_client.logs import without_secrets
from sapo_client.paths import DataDir
from sapo_client.units import TOKEN

if TYPE_CHECKING:
    from sapo_client.ledger.rpc import Rpc
    from sapo_client.observe.reports import IslandsReport, StatusReport
    from sapo_protocol.identifiers import Account
    from sapo_protocol.manifest import Manifest
    from sapo_protocol.terms.gate import BondGate, EasGate

CLOCK_WARN_SECONDS = 5.0  # half of the slack that peers allow at an epoch's edge
CLOCK_FAIL_SECONDS = 60.0  # beyond it messages fall into the wrong epoch
NETWORK_TIMEOUT_SECONDS = 5.0
LOOK_AROUND_SECONDS = 2.0  # neighbours answer within half a second
MAX_BYTES = 1 << 20  # of an answer; a block without its transactions has a few kilobytes


def check_manifest(config: Config) -> tuple[Manifest | None, Check]:
    """Check the swarm's manifest: the configured one, or that of the data directory."""
    from sapo_client.node.runtime.manifests import read_manifest

    kept = DataDir(config.data_dir).manifest
    path = config.swarm.manifest or (kept if kept.exists() else None)
    if path is None:
        hint = (
            "join one by its link (sapo join 'sapo://...') or its manifest (--manifest FILE), or found one:"
            " sapo swarm new FOLDER"
        )
        return None, Check("manifest", "warn", "no swarm is configured", hint)
    try:
        manifest = read_manifest(path)
    except SapoError as error:
        return None, Check("manifest", "fail", error.text, error.hint)
    return manifest, Check("manifest", "ok", f"{manifest.name}, swarm {manifest.swarm_id.hex()[:12]}")


def check_suite(manifest: Manifest) -> Check:
    """Check that this installation derives the same tasks as the swarm."""
    from sapo_client.node.runtime.manifests import require_same_suite

    try:
        require_same_suite(manifest)
    except SapoError as error:
        return Check("suite", "fail", error.text, error.hint)
    families = len(manifest.suite.families)
    return Check("suite", "ok", f"{families} families, reasoning-gym {manifest.suite.reasoning_gym}")


def check_genesis(manifest: Manifest) -> Check:
    """Check that the swarm has started, by this machine's clock."""
    from sapo_client.observe.findings import duration_text

    ahead = manifest.genesis_seconds - time.time()
    if ahead > 0:
        return Check(
            "genesis", "warn", f"the swarm starts in {ahead:.0f} s", "wait, or set this machine's clock"
        )
    return Check("genesis", "ok", f"the swarm started {duration_text(-ahead)} ago")


def check_peers(config: Config, manifest: Manifest) -> Iterator[Check]:
    """Check how peers can be found: bootstrap nodes and the local network."""
    from sapo_client.node.runtime.manifests import is_alone

    if is_alone(manifest):
        yield Check("peers", "ok", "none, for this node trains alone; `sapo join LINK` joins a swarm")
        return
    yield from check_bootstrap((*config.swarm.bootstrap, *manifest.bootstrap))
    yield check_local_network(config, manifest)


def check_bootstrap(addresses: tuple[str, ...]) -> Iterator[Check]:
    """Check that the bootstrap nodes accept a connection."""
    if not addresses:
        hint = "name a node with --bootstrap; the first node of a swarm needs none"
        yield Check("bootstrap", "warn", "no bootstrap node is known", hint)
    for address in addresses:
        target = _tcp_target(address)
        if target is None:
            yield Check("bootstrap", "warn", f"{address} is not /ip4|ip6|dns.../tcp/..., so not tried")
            continue
        try:
            socket.create_connection(target, timeout=NETWORK_TIMEOUT_SECONDS).close()
        except OSError as error:
            hint = "ask its operator, or name another one with --bootstrap"
            yield Check("bootstrap", "fail", f"{address} does not answer: {error}", hint)
        else:
            yield Check("bootstrap", "ok", f"{address} answers")


def check_local_network(config: Config, manifest: Manifest) -> Check:
    """Look for nodes of the swarm in the local network, for two seconds."""
    from zeroconf import Error

    from sapo_client.cli.inspect import neighbours_text
    from sapo_client.swarm.addresses import listens_beyond_loopback
    from sapo_client.swarm.neighbours import look_around

    if not (config.swarm.mdns and listens_beyond_loopback(config.swarm.listen)):
        return Check("local network", "ok", neighbours_text(None))
    try:
        found = look_around(manifest.swarm_id.hex(), LOOK_AROUND_SECONDS)
    except (OSError, Error) as error:
        hint = (
            "allow UDP port 5353 in the firewall, or switch it off with swarm.mdns; --bootstrap works without"
        )
        return Check("local network", "warn", f"no nodes of this swarm can be looked for: {error}", hint)
    return Check("local network", "ok", neighbours_text(len(found)))


def check_running(data: DataDir) -> Iterator[Check]:
    """Check whether the running node is reachable and knows the swarm's islands."""
    from pydantic import ValidationError

    from sapo_client.observe.control_client import ControlClient
    from sapo_client.observe.reports import StatusReport

    try:
        status = StatusReport.model_validate_json(ControlClient(data).get_text("status"))
    except (SapoError, ValidationError):
        return  # no node of this version runs here, so there is nobody to connect to
    if not status.alone:
        yield _check_reachable(status)
    if status.islands is not None:
        yield _check_islands(status.islands)


def _check_reachable(status: StatusReport) -> Check:
    from sapo_client.observe.findings import UNREACHABLE_HINT
    from sapo_client.observe.reachable import reachable_text

    found = reachable_text(status.reachable, status.router)
    if status.reachable != "unreachable":
        return Check("reachable", "ok", found)
    return Check("reachable", "warn", found, UNREACHABLE_HINT)


def _check_islands(islands: IslandsReport) -> Check:
    from sapo_client.cli.inspect import islands_text
    from sapo_client.observe.findings import ISLANDS_HINT

    if islands.is_known:
        return Check("islands", "ok", islands_text(islands))
    return Check("islands", "warn", islands_text(islands), ISLANDS_HINT)


def check_chain(config: Config, manifest: Manifest) -> Iterator[Check]:
    """Check chain id, contracts and clock of each RPC endpoint."""
    if not manifest.chain_id or not config.ledger.enabled:
        yield Check(
            "ledger", "ok", "off" if manifest.chain_id else "this swarm has no chain and pays nothing"
        )
        return
    if not config.ledger.rpc_urls:
        yield Check(
            "ledger", "warn", "no RPC endpoint is configured", "name one with --rpc, or use --no-ledger"
        )
    from sapo_client.ledger.answers import BadAnswer

    for url in config.ledger.rpc_urls:
        name = without_secrets(url)  # its path or password may hold a key, and people show others this list
        try:
            ask = _asker(url)
            contracts = _check_contracts(name, manifest, ask)
            yield contracts
            if contracts.state == "ok":  # account and treasury on another chain would be misleading
                yield from _check_account(config.identity, manifest, ask)
                yield _check_treasury(url, manifest)
                yield from _check_quorum(url, manifest)
                yield from _check_bond(url, config.identity, manifest)
            block = ask("eth_getBlockByNumber", "latest", False)
            if block is None:
                raise BadAnswer("it has no block")
            yield clock_check(name, int(block["timestamp"], 16), time.time())
        except (OSError, HTTPException, ValueError, BadAnswer) as error:
            hint = "check the URL and the connection; without it this node trains alone, unpaid"
            why = without_secrets(str(error))
            yield Check("ledger", "fail", f"{name} does not answer as a chain: {why}", hint)


Ask = Callable[..., Any]


def _check_contracts(name: str, manifest: Manifest, ask: Ask) -> Check:
    chain_id = int(ask("eth_chainId"), 16)
    if chain_id != manifest.chain_id:
        detail = f"{name} serves chain {chain_id}, the manifest names {manifest.chain_id}"
        return Check("ledger", "fail", detail, "use an endpoint of the manifest's chain")
    for kind, contract in (("NodeRegistry", manifest.registry), ("EpochLedger", manifest.ledger)):
        if not _is_code(kind, bytes.fromhex(ask("eth_getCode", str(contract), "latest")[2:])):
            detail = f"there is no {kind} of this version of sapo at {contract} on chain {chain_id}"
            hint = "the manifest is of another chain or another version; ask for the right one"
            return Check("ledger", "fail", detail, hint)
    return Check("ledger", "ok", f"{name} serves chain {chain_id} with the swarm's contracts")


def _is_code(name: str, code: bytes) -> bool:
    from sapo_client.ledger.artifact import EARLIER, LEDGER_VERSION, load

    return any(load(name, version).is_code(code) for version in (LEDGER_VERSION, *EARLIER.get(name, ())))


def _check_treasury(url: str, manifest: Manifest) -> Check:
    """Report until when the swarm's treasury can pay claims."""
    from sapo_client.ledger.contract import EpochLedgerContract
    from sapo_client.ledger.errors import LedgerError
    from sapo_client.ledger.history import History
    from sapo_client.ledger.rpc import Rpc
    from sapo_client.ledger.terms import RATE_EPOCHS, read_treasury

    if manifest.ledger is None:
        return Check("treasury", "ok", "none: this swarm pays nothing")
    ledger = EpochLedgerContract(Rpc([url], chain_id=manifest.chain_id), manifest.ledger)
    try:
        treasury = read_treasury(ledger.distributor(), History(ledger).recent(RATE_EPOCHS))
    except LedgerError as error:
        return Check("treasury", "warn", error.text, error.hint)
    found = f"{treasury.tokens / TOKEN:,.0f} tokens: {treasury.in_words(manifest.epoch_seconds)}"
    if treasury.owed <= treasury.tokens:
        return Check("treasury", "ok", found)
    return Check("treasury", "warn", found, "claims wait until somebody sends tokens to the distributor")


def _check_quorum(url: str, manifest: Manifest) -> Iterator[Check]:
    """Report how many auditors decide on payment, which the founder chose and the manifest does not state."""
    from sapo_client.ledger.contract import EpochLedgerContract
    from sapo_client.ledger.errors import LedgerError
    from sapo_client.ledger.rpc import Rpc
    from sapo_protocol.settlement import max_faulty, quorum_size

    if manifest.ledger is None:
        return
    try:
        auditors, quorum = EpochLedgerContract(
            Rpc([url], chain_id=manifest.chain_id), manifest.ledger
        ).auditors()
    except LedgerError as error:
        yield Check("auditors", "warn", error.text, error.hint)
        return
    count = len(auditors.founders)
    found, best = f"{quorum} of {count} auditors agree on what is paid", quorum_size(count)
    if quorum == best:
        yield Check("auditors", "ok", f"{found}; {max_faulty(count)} may lie or be absent")
        return
    # The lower median of a quorum's tallies is within the honest ones while less than half of them lie.
    few, done = ((quorum + 1) // 2, "change") if quorum < best else (count - quorum + 1, "stop")
    detail = f"{found}, not {best}: {few} can {done} it"
    yield Check("auditors", "warn", detail, "ask whoever founded the swarm, or join only if you trust them")


def _check_account(identity: str | None, manifest: Manifest, ask: Ask) -> Iterator[Check]:
    """Check that the identity's account can pay for its registration."""
    from sapo_client import keystore

    try:
        account = keystore.read(keystore.locate(identity)).account
    except SapoError:
        return  # the check of the identity says so
    if int(ask("eth_getBalance", account, "latest"), 16):
        yield Check("account", "ok", f"{account} holds coins for transactions")
        return
    hint = "have coins sent to it: the swarm's operator runs `sapo swarm faucet`; until then nothing is paid"
    detail = f"{account} holds no coins on chain {manifest.chain_id}, so its node cannot register"
    yield Check("account", "fail", detail, hint)


def _check_bond(url: str, identity: str | None, manifest: Manifest) -> Iterator[Check]:
    """Report how much the identity's account counts, in a swarm with a gate."""
    from sapo_client import keystore
    from sapo_client.ledger.errors import LedgerError
    from sapo_client.ledger.rpc import Rpc
    from sapo_protocol.identifiers import Account
    from sapo_protocol.terms.gate import AskingGate, BondGate

    gate = manifest.gate
    if not isinstance(gate, AskingGate):
        return
    name = "bond" if isinstance(gate, BondGate) else "attestation"
    try:
        account = Account.from_hex(keystore.read(keystore.locate(identity)).account)
        rpc = Rpc([url], chain_id=manifest.chain_id)
        if isinstance(gate, BondGate):
            yield _bond_check(rpc, gate, account, manifest.limits.points_per_epoch)
        else:
            yield _attestation_check(rpc, gate, account)
    except LedgerError as error:
        yield Check(name, "warn", error.text, error.hint)
    except SapoError:
        return  # the check of the identity says so


def _bond_check(rpc: Rpc, gate: BondGate, account: Account, points_per_epoch: int) -> Check:
    from sapo_client.ledger.account_bond import AccountBond
    from sapo_protocol.terms.gate import points_cap

    bonded = AccountBond(rpc, gate.contract).bonded(account)
    points = points_cap(points_per_epoch, gate.units(bonded))
    found = f"{bonded / TOKEN:g} of {gate.unit / TOKEN:g} tokens: at most {points} points in an epoch"
    if points:
        return Check("bond", "ok", found)
    return Check(
        "bond", "fail", found, "bond tokens with `sapo ledger bond`; they count from the next epoch on"
    )


def _attestation_check(rpc: Rpc, gate: EasGate, account: Account) -> Check:
    from sapo_client.ledger.attestations import attestations_of

    if attestations_of(rpc, gate, account):
        return Check("attestation", "ok", f"{account} is attested")
    whom = " or ".join(map(str, gate.attesters))
    hint = f"ask {whom} to attest it; the attestation counts from the next epoch on"
    return Check("attestation", "fail", f"{account} has no attestation: nothing that it makes counts", hint)


def clock_check(name: str, block_seconds: float, now_seconds: float) -> Check:
    """Compare the clock with the latest block: blocks may be old, but never from the future."""
    behind = block_seconds - now_seconds
    if behind > CLOCK_FAIL_SECONDS:
        return Check("clock", "fail", f"{behind:.0f} s behind {name}", "set the clock, for example with NTP")
    if behind > CLOCK_WARN_SECONDS:
        return Check("clock", "warn", f"{behind:.0f} s behind {name}", "set the clock, for example with NTP")
    return Check("clock", "ok", f"latest block of {name} is {max(0.0, -behind):.0f} s old")


def _asker(url: str) -> Ask:
    import requests
    from web3.types import RPCEndpoint

    from sapo_client.ledger.answers import BadAnswer, StrictProvider

    if not url.startswith(("http://", "https://")):
        raise ValueError("not an http:// or https:// address")
    provider = StrictProvider(url, requests.Session(), NETWORK_TIMEOUT_SECONDS, MAX_BYTES)

    def ask(method: str, *parameters: object) -> Any:
        answer = provider.make_request(RPCEndpoint(method), parameters)
        if "error" in answer:
            raise BadAnswer(f"it refuses {method}: {answer['error']['message']}")
        return answer["result"]

    return ask


def _tcp_target(address: str) -> tuple[str, int] | None:
    parts = address.strip("/").split("/")
    if len(parts) < 4 or parts[0] not in {"ip4", "ip6", "dns", "dns4", "dns6"} or parts[2] != "tcp":
        return None
    return (parts[1], int(parts[3])) if parts[3].isdigit() else None
