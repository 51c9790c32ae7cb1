"""``sapo ledger audit``, ``export`` and ``verify``: an epoch's root, recomputed from the tallies behind it.

No key is needed: anyone can repeat an auditor's computation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger.artifact import LEDGER_VERSION
from sapo_client.ledger.contract import EpochLedgerContract
from sapo_client.ledger.errors import LedgerError
from sapo_client.ledger.history import History
from sapo_client.ledger.records import EpochRecord
from sapo_client.ledger.rpc import Rpc
from sapo_client.node.auditing.dossier import Dossier, authentic, collect
from sapo_client.node.auditing.settlement import settlement_check
from sapo_client.node.runtime.manifests import require_manifest, settle_manifest
from sapo_client.paths import DataDir
from sapo_protocol.contributions import Proposal, Tally, settle
from sapo_protocol.eip712 import EpochRoot
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.manifest import Manifest
from sapo_protocol.merkle import RootOf, plain_root, sum_root
from sapo_verification.admission.contribution_store import ContributionStore


@dataclass(frozen=True, slots=True)
class Posting:
    """An epoch's posting on the chain, and the contract's limits for it.

    Attributes:
        is_final: whether it can no longer be challenged.
        last: root of the last final epoch before it; none if there is none.
    """

    record: EpochRecord
    is_final: bool
    last: EpochRoot | None
    auditors: tuple[Account, ...]
    quorum: int
    points_cap: int
    epoch_budget: int
    root_of: RootOf


def audit(config: Config, epoch: int) -> dict[str, Any]:
    """Check an epoch's root against this node's archive."""
    manifest, data = _own(config)
    return _recompute(_posting(manifest, config, epoch), collect(manifest, data, epoch), manifest)


def export(config: Config, epoch: int, file: Path) -> dict[str, Any]:
    """Write an epoch's messages to a new file."""
    manifest, data = _own(config)
    dossier = collect(manifest, data, epoch)
    if not dossier.messages:
        raise SapoError(
            f"{data.root} holds no messages of epoch {epoch}",
            hint="name an epoch that ended while this node ran, or shortly before it started",
            exit_code=ExitCode.DATA,
        )
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(dossier.to_json())
    except OSError as error:
        raise SapoError(
            f"cannot write {file}: {error.strerror}", hint="name a new file", exit_code=ExitCode.USAGE
        ) from error
    return {"file": str(file), "epoch": epoch, "messages": len(dossier.messages)}


def verify(config: Config, file: Path) -> dict[str, Any]:
    """Check an epoch's root against an exported file."""
    manifest = require_manifest(config.swarm.manifest, DataDir(config.data_dir))
    try:
        dossier = Dossier.from_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SapoError(
            f"cannot read {file}: {error}", hint="name an exported file", exit_code=ExitCode.USAGE
        ) from error
    if dossier.swarm_id != manifest.swarm_id:
        raise SapoError(
            f"{file} belongs to another swarm ({dossier.swarm_id})",
            hint="name that swarm's manifest with --manifest",
            exit_code=ExitCode.CONFIG,
        )
    return _recompute(_posting(manifest, config, dossier.epoch), dossier, manifest)


def _own(config: Config) -> tuple[Manifest, DataDir]:
    data = DataDir(config.data_dir)
    if not data.database.exists():
        raise SapoError(
            f"no node ever ran in {data.root}",
            hint="name its data directory with --data-dir; a file is verified without one",
            exit_code=ExitCode.DATA,
        )
    return settle_manifest(config.swarm.manifest, data), data


def _posting(manifest: Manifest, config: Config, epoch: int) -> Posting:
    """Read an epoch from the chain.

    Raises:
        SapoError: the chain has no such epoch, or no endpoint answers.
    """
    if manifest.ledger is None:
        raise LedgerError("this swarm has no chain", hint="only a swarm with a chain posts its epochs")
    if not config.ledger.rpc_urls:
        raise SapoError("no RPC endpoint is named", hint="name one with --rpc URL", exit_code=ExitCode.CONFIG)
    ledger = EpochLedgerContract(Rpc(config.ledger.rpc_urls, chain_id=manifest.chain_id), manifest.ledger)
    version = ledger.version()
    if version is None:
        raise LedgerError(
            f"there is no ledger of this version at {manifest.ledger}",
            hint="use the manifest's chain, and the version of sapo that the swarm uses",
        )
    live, history = ledger.live(), History(ledger)
    final, last = history.record(epoch), history.before(epoch)
    record = final or (live if live and live.root.epoch == epoch else None)
    if record is None:
        raise SapoError(
            f"nothing was posted for epoch {epoch}",
            hint="`sapo ledger status` names the last final epoch",
            exit_code=ExitCode.LEDGER,
        )
    limits = ledger.verifier().points_cap(), ledger.epoch_budget()
    root_of = sum_root if version == LEDGER_VERSION else plain_root
    auditors, quorum = ledger.auditors()
    terms = auditors.of(epoch), quorum, *limits, root_of
    return Posting(record, final is not None, last.root if last else None, *terms)


def _recompute(posting: Posting, dossier: Dossier, manifest: Manifest) -> dict[str, Any]:
    """Compare the root with the messages behind it, and with all tallies that were received."""
    archive = authentic(dossier, manifest, posting.auditors)
    root, tallies = posting.record.root, archive.tallies(dossier.epoch)
    proposal = archive.proposal(ContentId(root.archive_digest))
    taken = set(proposal.tallies) if proposal else set()
    rows = _accounts(proposal, list(tallies.values()), posting)
    return {
        "epoch": root.epoch,
        "state": "final" if posting.is_final else "can be challenged",
        "root": root.contribution_root.hex(),
        "total": root.total,
        "budget": posting.epoch_budget,
        "quorum": posting.quorum,
        "verdict": _verdict(posting, proposal, archive, manifest),
        "paid as by all tallies": all(row["posted"] == row["all tallies"] for row in rows),
        "tallies": [
            {"auditor": str(tally.account), "taken": id_ in taken, "points": sum(dict(tally.points).values())}
            for id_, tally in tallies.items()
        ],
        "accounts": rows,
    }


EXPLAINED = "the root follows from its tallies"


def _verdict(
    posting: Posting, proposal: Proposal | None, archive: ContributionStore, manifest: Manifest
) -> str:
    root = posting.record.root
    if proposal is None:
        return "unknown: the proposal behind the root is missing here"
    if proposal.root(ContentId(root.archive_digest), posting.root_of) != root:
        return "FALSE: the root does not follow from the proposal behind it"
    is_true = settlement_check(
        archive,
        proposal,
        posting.last,
        manifest=manifest,
        quorum=posting.quorum,
        points_cap=posting.points_cap,
        epoch_budget=posting.epoch_budget,
        root_of=posting.root_of,
    )()
    if not is_true:
        return "FALSE, or tallies are missing here: the tallies here settle to another result"
    return EXPLAINED


def _accounts(proposal: Proposal | None, tallies: list[Tally], posting: Posting) -> list[dict[str, Any]]:
    """Return, for every account paid or counted, its posted points and those by all tallies together."""
    posted = {share.account: share.points for share in proposal.shares if share.points} if proposal else {}
    terms = {"points_per_epoch": posting.points_cap, "epoch_budget": posting.epoch_budget}
    settled = settle(tallies, {}, **terms)
    granted = {share.account: share.points for share in settled}
    counts = [dict(tally.points) for tally in tallies]
    return [
        {
            "account": str(account),
            "posted": posted.get(account, 0),
            "all tallies": granted.get(account, 0),
            "counts": [count.get(account, 0) for count in counts],
        }
        for account in sorted(set(posted).union(*counts))
    ]
