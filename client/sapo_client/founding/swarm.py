"""Founding a swarm on an existing chain: its contracts, and the manifest that nodes join with.

A founding has a folder, and can be resumed after any interruption:

plan.json         what will be deployed: written first, and never changed
outbox.sqlite     the transactions, signed and sent
deployment.json   the addresses of the contracts
manifest.json     what every node needs to join; written last
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sapo_client import locks
from sapo_client.atomic_files import write_atomically
from sapo_client.errors import ExitCode, SapoError
from sapo_client.founding import contracts, defaults
from sapo_client.founding.chains import agreed_chain_id
from sapo_client.founding.deployer import Deployer
from sapo_client.founding.gates import EasTerms, account_exit_seconds, gate_of
from sapo_client.founding.quote import Quote, quote
from sapo_client.founding.tasks import FIXED, default_families, difficulty_of
from sapo_client.ledger.attestations import require_service
from sapo_client.ledger.outbox import EntryState, Outbox
from sapo_client.ledger.rpc import Rpc
from sapo_client.units import COIN
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import manifest_from_json, manifest_to_json
from sapo_protocol.suite import Suite
from sapo_protocol.terms.audits import AuditTerms
from sapo_protocol.terms.gate import Gate
from sapo_protocol.terms.islands import IslandTerms

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount

DEPLOYMENT_FILE: Final = "deployment.json"


@dataclass(frozen=True, slots=True)
class SwarmTerms:
    """Settings that the founder of a swarm chooses.

    Attributes:
        auditors: accounts whose signatures count.
        quorum: number of auditors that must sign a posting.
        bootstrap: multiaddrs of the first nodes to connect to.
        finality_seconds: age at which a block of this chain counts as final.
        faucet_coins: coins that the faucet receives.
        coins_per_drip: coins that the faucet sends to each newcomer.
        level: of the tasks.
        families: of the tasks.
        challenge_seconds: time in which a posting can be challenged; none: a tenth of an epoch.
        difficulty: ``fixed``, or ``follow`` for levels that follow the swarm's success.
        bond: tokens that an account must bond to count in full; none: accounts need no bond.
        eas: the attestation that an account must have to count; none: it needs none. Not beside a bond.
        islands: how the swarm is divided; none: it is not.
        audits: how auditors check a sample; none: they check every rollout.
    """

    name: str
    auditors: tuple[Account, ...]
    quorum: int
    epoch_seconds: int
    bootstrap: tuple[str, ...]
    finality_seconds: int
    faucet_coins: float
    coins_per_drip: float
    level: str = "nano"
    families: tuple[str, ...] = ()
    challenge_seconds: int | None = None
    difficulty: str = FIXED
    bond: float | None = None
    eas: EasTerms | None = None
    islands: IslandTerms | None = None
    audits: AuditTerms | None = None


_LATER_SETTINGS: Final[dict[str, Any]] = json.loads(
    json.dumps({each.name: each.default for each in fields(SwarmTerms) if each.default is not MISSING})
)
"""Values of settings that plans of earlier releases lack, as in the plan's JSON."""


class Founding:
    """The folder of a founding, and its progress; for one process at a time.

    Args:
        rpc_urls: endpoints of one chain, the same one at every run.
        costs_money: accept chains that are not known test networks.

    Raises:
        LedgerError: no endpoint answers, or coins may be money on this chain.
    """

    def __init__(
        self,
        folder: Path,
        rpc_urls: Sequence[str],
        founder: LocalAccount,
        terms: SwarmTerms,
        *,
        costs_money: bool = False,
    ) -> None:
        self.chain_id = agreed_chain_id(Rpc(rpc_urls), costs_money=costs_money)
        self._folder = folder
        self._rpc = Rpc(rpc_urls, chain_id=self.chain_id)
        self._founder = founder
        self._terms = terms

    def finished(self) -> Manifest | None:
        """Return the manifest if the founding is complete, none otherwise.

        Raises:
            SapoError: the founding was started with other settings, or on another chain.
        """
        path = self._folder / "manifest.json"
        with self._open():
            return manifest_from_json(path.read_text(encoding="utf-8")) if path.exists() else None

    def quote(self) -> Quote:
        """Return the transactions that remain to be signed, and their cost.

        Raises:
            SapoError: the founding was started with other settings, or on another chain, or the chain
                has no such schema of attestations.
        """
        self.concerns()  # raises without the schema
        with self._open() as (wanted, outbox):
            return quote(self._rpc, self._founder, wanted, mined=len(outbox.entries(EntryState.CONFIRMED)))

    def concerns(self) -> tuple[str, ...]:
        """Return warnings about the required attestations, before anything is paid.

        Raises:
            SapoError: the chain has no such schema of attestations.
        """
        if self._terms.eas is None:
            return ()
        return require_service(self._rpc, self._terms.eas.gate(after_block=0)).concerns

    def carry_out(self, suite: Suite) -> Manifest:
        """Deploy all contracts, and return the manifest of a swarm with these tasks.

        Raises:
            SapoError: a transaction fails, or is not mined in time; it can be resumed.
        """
        self.concerns()  # raises without the schema
        with self._open() as (wanted, outbox):
            deployment = contracts.deploy(self._rpc, Deployer(self._founder, outbox), wanted)
            write_atomically(self._folder / DEPLOYMENT_FILE, _to_json(asdict(deployment)))
            manifest = self._manifest(deployment, wanted, suite)
            write_atomically(self._folder / "manifest.json", manifest_to_json(manifest))
            return manifest

    def _manifest(
        self, deployment: contracts.Deployment, wanted: contracts.LedgerTerms, suite: Suite
    ) -> Manifest:
        difficulty = difficulty_of(suite)
        gate = self._gate(deployment, wanted)
        terms = (gate, difficulty, self._terms.islands, self._terms.audits)
        return Manifest(
            name=self._terms.name,
            bootstrap=self._terms.bootstrap,
            chain_id=deployment.chain_id,
            registry=deployment.registry,
            ledger=deployment.ledger,
            finality_seconds=self._terms.finality_seconds,
            genesis_seconds=wanted.genesis_seconds,
            epoch_seconds=wanted.epoch_seconds,
            suite=suite,
            limits=defaults.LIMITS,
            version=1 if all(term is None for term in terms) else 2,
            gate=gate,
            difficulty=difficulty,
            islands=self._terms.islands,
            audits=self._terms.audits,
        )

    def _gate(self, deployment: contracts.Deployment, wanted: contracts.LedgerTerms) -> Gate | None:
        if self._terms.eas is not None:
            return self._terms.eas.gate(after_block=self._rpc.survey())
        return gate_of(deployment.account_bond, self._terms.bond, wanted.account_exit_seconds)

    @contextmanager
    def _open(self) -> Iterator[tuple[contracts.LedgerTerms, Outbox]]:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locks.lock(self._folder / "lock", what=f"the founding in {self._folder}"):
            wanted = self._settled_plan()
            outbox = Outbox(self._folder / "outbox.sqlite", owner=f"founding by {self._founder.address}")
            try:
                yield wanted, outbox
            finally:
                outbox.close()

    def _settled_plan(self) -> contracts.LedgerTerms:
        """Return the plan of this founding; write it if this is the first run."""
        path = self._folder / "plan.json"
        if not path.exists():
            write_atomically(path, _to_json(self._settings(int(time.time()))))
        started = _read_plan(path)
        wanted = json.loads(_to_json(self._settings(started["genesis_seconds"])))
        if missing := wanted.keys() - started.keys() - _LATER_SETTINGS.keys():
            raise _damaged_plan(path) from KeyError(*sorted(missing))
        begun, asked = _in_effect(_LATER_SETTINGS | started), _in_effect(wanted)
        for name in wanted:
            if begun[name] != asked[name]:
                raise self._differs(name, begun[name], asked[name], is_planned=name in started)
        return self._plan(started["genesis_seconds"])

    def _differs(self, name: str, begun: object, asked: object, *, is_planned: bool) -> SapoError:
        """Return the error about a setting that differs from that of the founding's first run."""
        words, path = name.replace("_", " "), self._folder / "plan.json"
        if is_planned:
            return SapoError(
                f"the founding in {self._folder} was started with another {words}: {begun}, not {asked}",
                hint=f"repeat the settings in {path}, or name another folder",
                exit_code=ExitCode.CONFIG,
            )
        return SapoError(
            f"the founding in {self._folder} was started by an earlier release, without {words}, "
            f"and cannot continue with {asked}",
            hint="leave the setting out to continue as it was started, or name another folder",
            exit_code=ExitCode.CONFIG,
        )

    def _settings(self, genesis_seconds: int) -> dict[str, Any]:
        origin = {"chain_id": self.chain_id, "founder": str(self._founder.address)}
        return origin | {"genesis_seconds": genesis_seconds} | asdict(self._terms)

    def _plan(self, genesis_seconds: int) -> contracts.LedgerTerms:
        terms = self._terms
        return contracts.LedgerTerms(
            auditors=terms.auditors,
            quorum=terms.quorum,
            genesis_seconds=genesis_seconds,
            epoch_seconds=terms.epoch_seconds,
            challenge_seconds=terms.challenge_seconds or defaults.challenge_seconds(terms.epoch_seconds),
            epoch_budget_points=defaults.EPOCH_BUDGET_POINTS,
            points_cap=defaults.LIMITS.points_per_epoch * (terms.audits.one_in if terms.audits else 1),
            account_exit_seconds=(
                None
                if terms.bond is None
                else account_exit_seconds(terms.epoch_seconds, terms.finality_seconds)
            ),
            faucet_wei=round(terms.faucet_coins * COIN),
            wei_per_drip=round(terms.coins_per_drip * COIN),
        )


@dataclass(frozen=True, slots=True)
class FaucetPlace:
    """Where a swarm's faucet is."""

    chain_id: int
    contract: Account


def faucet_of(folder: Path) -> FaucetPlace:
    """Return the chain and the address of the faucet of a swarm that was founded in a folder.

    Raises:
        SapoError: no swarm was founded there.
    """
    path = folder / DEPLOYMENT_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return FaucetPlace(int(found["chain_id"]), Account.from_hex(found["faucet"]))
    except (OSError, ValueError, KeyError, TypeError, LocalProtocolError) as error:
        raise SapoError(
            f"no swarm was founded in {folder}: {path.name} is missing or damaged",
            hint="name the folder that was given to `sapo swarm deploy`",
            exit_code=ExitCode.CONFIG,
        ) from error


def _read_plan(path: Path) -> dict[str, Any]:
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(plan, dict) and isinstance(plan.get("genesis_seconds"), int):
            return plan
    except (OSError, ValueError) as error:
        raise _damaged_plan(path) from error
    raise _damaged_plan(path)


def _in_effect(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the defaults of those that are missing."""
    epoch_seconds, level = settings["epoch_seconds"], settings["level"]
    return settings | {
        "challenge_seconds": settings["challenge_seconds"] or defaults.challenge_seconds(epoch_seconds),
        "families": settings["families"] or list(default_families(level)),
    }


def _damaged_plan(path: Path) -> SapoError:
    return SapoError(
        f"{path} is damaged",
        hint="put it back from a copy; without it, deploy into another folder",
        exit_code=ExitCode.CONFIG,
    )


def _to_json(facts: dict[str, Any]) -> str:
    return json.dumps(facts, indent=2, default=str) + "\n"
