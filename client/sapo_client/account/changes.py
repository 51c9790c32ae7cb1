"""``sapo swarm change``: a change of terms or auditors, from a draft to its announcement.

The change is one file that the auditors pass on. Its author writes it; each auditor adds its signature after
its owner has seen the change; once a quorum has signed, anyone can announce it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sapo_client import keystore, locks
from sapo_client.account.ledger_session import Consent, LedgerSession, open_session, queued_error, run
from sapo_client.atomic_files import write_atomically
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.keystore import Identity
from sapo_client.ledger.records import Announcement
from sapo_client.node.runtime.manifests import require_same_suite
from sapo_client.node.runtime.statements import SignedFields, describe_statement, describe_transaction
from sapo_client.node.runtime.successor_folder import SuccessorFolder, what_changes
from sapo_client.passphrase import PassphraseSource
from sapo_client.paths import DataDir
from sapo_protocol import secp256k1
from sapo_protocol.eip712 import SuccessionNotice, SuccessionWithdrawal
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account, Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import successor_from_json, successor_to_json
from sapo_protocol.suite import Suite
from sapo_protocol.terms.successor import NOTICE_EPOCHS, Successor, successor_digest
from sapo_verification.jail.launch import sample_digest
from sapo_verification.suites.catalogue import family

SIGNING_EPOCHS: Final = 8
"""Default number of epochs for collecting signatures before the notice period begins."""

_NO_DIGEST, _NOBODY = Digest(bytes(32)), Account(bytes(20))

Change = SuccessionNotice | SuccessionWithdrawal


class ChangeFile(BaseModel):
    """The file that the auditors pass on and sign.

    Attributes:
        successor: the document of the terms that follow, as text; its digest is that of its bytes.
        withdraws: the announcement of this number is withdrawn; then all of the other fields are empty.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    format: Literal["sapo/change/1"] = "sapo/change/1"
    swarm_id: str
    number: int
    activation_epoch: int = 0
    successor: str | None = None
    leaving: str | None = None
    entering: str | None = None
    withdraws: bool = False
    signatures: tuple[str, ...] = ()

    @property
    def statement(self) -> Change:
        """The statement that the auditors sign.

        Raises:
            LocalProtocolError: a field is out of its bounds.
        """
        if not 0 <= self.number < 2**64 or not 0 <= self.activation_epoch < 2**40:
            raise LocalProtocolError("its number or its epoch is out of bounds")
        if self.withdraws:
            return SuccessionWithdrawal(self.number)
        return SuccessionNotice(
            self.number,
            self.activation_epoch,
            _NO_DIGEST if self.successor is None else successor_digest(self.successor.encode()),
            _NOBODY if self.leaving is None else Account.from_hex(self.leaving),
            _NOBODY if self.entering is None else Account.from_hex(self.entering),
        )


@dataclass(frozen=True, slots=True)
class ChangeDraft:
    """The settings of a draft; everything else stays as it is.

    Attributes:
        families: families to add, by name and level.
        retired: families to remove, by name and level.
        leaving: the auditor who is replaced, and ``entering`` by whom.
        epoch: the first one in which it is in force; none for the earliest that leaves time to sign.
        withdraws: instead, withdraw the pending announcement.
    """

    families: Sequence[tuple[str, str]] = ()
    retired: Sequence[tuple[str, str]] = ()
    slots_per_epoch: int | None = None
    max_completions: int | None = None
    leaving: Account | None = None
    entering: Account | None = None
    epoch: int | None = None
    withdraws: bool = False

    @property
    def changes_terms(self) -> bool:
        """Whether a document is needed."""
        numbers = self.slots_per_epoch, self.max_completions
        return bool(self.families or self.retired) or any(number is not None for number in numbers)


def propose(config: Config, file: Path, draft: ChangeDraft, consent: Consent) -> dict[str, Any]:
    """Write a change as a file, signed if the account is an auditor.

    Raises:
        SapoError: the change cannot be announced; the text says why.
    """
    if file.exists():
        raise _refusal(f"{file} exists already", "name another file, or remove it", ExitCode.USAGE)
    with _opened(config) as (session, identity):
        change = run(_draft, session, draft)
        return run(_sign, session, identity, change, file, consent)


def sign(config: Config, file: Path, consent: Consent) -> dict[str, Any]:
    """Show a change, and add this auditor's signature to its file.

    Raises:
        SapoError: the file belongs to another swarm, the account is not an auditor, or its owner refuses.
    """
    with _opened(config) as (session, identity):
        return run(_sign, session, identity, _read(file, session.manifest), file, consent)


def announce(config: Config, file: Path, consent: Consent) -> dict[str, Any]:
    """Send a change that a quorum has signed to the ledger, and wait until it is announced.

    Raises:
        SapoError: signatures are missing, the ledger refuses it, or the account's owner does.
    """
    with _opened(config) as (session, _):
        return run(_announce, session, _read(file, session.manifest), consent)


def account_of(text: str) -> Account:
    """Parse an account's address.

    Raises:
        SapoError: it is not an address.
    """
    try:
        return Account.from_hex(text)
    except LocalProtocolError as error:
        raise _refusal(
            f"{text} is not an account", "name it as 0x and 40 hex digits", ExitCode.USAGE
        ) from error


def show(config: Config) -> dict[str, Any]:
    """Return the announced changes, and the auditors."""
    with _opened(config) as (session, _):
        return run(_show, session)


@contextmanager
def _opened(config: Config) -> Iterator[tuple[LedgerSession, Identity]]:
    """Open the session and the identity of a configuration."""
    data = DataDir(config.data_dir).create()
    identity = keystore.load(keystore.locate(config.identity), PassphraseSource(config.passphrase_file))
    sends = locks.holder(data.lock) is None
    with open_session(config, identity, needs_archive=False, sends=sends) as session:
        yield session, identity


async def _show(session: LedgerSession) -> dict[str, Any]:
    auditors, quorum = await session.ledger.changes.auditors()
    now = await session.ledger.changes.current_epoch()
    held = SuccessorFolder(session.data.successors)
    return {
        "auditors": list(map(str, auditors.of(now))),
        "quorum": quorum,
        "epoch": now,
        "changes": [
            {
                "number": each.number,
                "from epoch": each.activation_epoch,
                "terms": None if each.successor is None else str(each.successor),
                "terms are here": each.successor is not None and held.document(each.successor) is not None,
                "leaving": None if each.replacement is None else str(each.replacement.leaving),
                "entering": None if each.replacement is None else str(each.replacement.entering),
            }
            for each in await session.ledger.successions()
        ],
    }


async def _draft(session: LedgerSession, draft: ChangeDraft) -> ChangeFile:
    ledger, manifest = session.ledger, session.manifest
    await ledger.check()
    announced = await ledger.successions()
    now = await ledger.changes.current_epoch()
    pending = announced[-1] if announced and announced[-1].activation_epoch > now else None
    if draft.withdraws:
        if pending is None:
            raise _refusal("nothing announced is pending", "`sapo swarm change show` lists the changes")
        return ChangeFile(swarm_id=str(manifest.swarm_id), number=pending.number, withdraws=True)
    if pending is not None:
        raise _refusal(
            f"another change is announced for epoch {pending.activation_epoch}",
            "wait until it is in force, or withdraw it with: sapo swarm change propose FILE --withdraw",
        )
    document = None
    if draft.changes_terms:
        _require_newest(announced, session)
        document = successor_to_json(_successor(manifest, draft)).decode()
    return ChangeFile(
        swarm_id=str(manifest.swarm_id),
        number=await ledger.changes.next_number(),
        activation_epoch=now + NOTICE_EPOCHS + SIGNING_EPOCHS if draft.epoch is None else draft.epoch,
        successor=document,
        leaving=None if draft.leaving is None else str(draft.leaving),
        entering=None if draft.entering is None else str(draft.entering),
    )


def _successor(manifest: Manifest, draft: ChangeDraft) -> Successor:
    try:
        added = tuple(family(name, level) for name, level in draft.families)
    except LocalProtocolError as error:
        raise _refusal(str(error), "name each family as NAME:LEVEL", ExitCode.USAGE) from error
    families = (*manifest.suite.families, *added)
    names = [(each.name, each.level) for each in families]
    if unknown := [":".join(each) for each in draft.retired if each not in names]:
        text = f"the swarm has no family {', '.join(unknown)}"
        raise _refusal(text, "name it as NAME:LEVEL", ExitCode.USAGE)
    before = manifest.successions[-1].successor.retired if manifest.successions else ()
    suite = manifest.suite
    if added:
        suite = Suite(manifest.suite.reasoning_gym, families, sample_digest(families))
    return Successor(
        manifest.swarm_id,
        suite,
        draft.slots_per_epoch or manifest.limits.slots_per_epoch,
        draft.max_completions or manifest.limits.max_completions,
        tuple(sorted({*before, *(names.index(each) for each in draft.retired)})),
    )


def _require_newest(announced: Sequence[Announcement], session: LedgerSession) -> None:
    """Raise unless this data directory holds the newest terms, on which the next ones build."""
    terms = [each for each in announced if each.terms is not None]
    if len(terms) != len(session.manifest.successions):
        raise _refusal(
            f"{session.data.root} does not hold the newest terms of this swarm",
            "let the node run for a minute: it fetches them from its peers",
            ExitCode.DATA,
        )


async def _sign(
    session: LedgerSession, identity: Identity, change: ChangeFile, file: Path, consent: Consent
) -> dict[str, Any]:
    statement, domain = change.statement, session.manifest.ledger_domain
    auditors, quorum = await session.ledger.changes.auditors()
    voices = auditors.of(await session.ledger.changes.current_epoch())
    shown = {**describe_statement(statement, domain), **_meaning(change, session)}
    if session.account in voices:
        consent([shown])
        signature = secp256k1.sign(identity.account_key, statement.digest(domain))
        kept = [each for each in change.signatures if _signer(statement, domain, each) != session.account]
        change = change.model_copy(update={"signatures": (*kept, "0x" + signature.hex())})
    elif change.signatures:
        raise _refusal(
            f"account {session.account} is not an auditor of this swarm: its signature would not count",
            "name an auditor's identity with --identity",
        )
    _write(file, change)
    signers = {_signer(statement, domain, each) for each in change.signatures} & set(voices)
    return {"file": str(file), **shown, "signed by": sorted(map(str, signers)), "needed": quorum}


async def _announce(session: LedgerSession, change: ChangeFile, consent: Consent) -> dict[str, Any]:
    ledger, statement, domain = session.ledger, change.statement, session.manifest.ledger_domain
    auditors, quorum = await ledger.changes.auditors()
    bonded = await ledger.changes.bonded(auditors.of(await ledger.changes.current_epoch()))
    valid = {_signer(statement, domain, each): bytes.fromhex(each[2:]) for each in change.signatures}
    signatures = [signature for signer, signature in valid.items() if signer in bonded]
    if len(signatures) < quorum:
        missing = ", ".join(sorted(str(each) for each in bonded - valid.keys()))
        raise _refusal(
            f"{len(signatures)} auditors with a bond have signed, and {quorum} must",
            f"let others sign it with `sapo swarm change sign`: {missing}",
        )
    function = "withdrawSuccessor" if change.withdraws else "announceSuccessor"
    consent([_transaction(session, function, statement, change)])

    def is_announced(found: Sequence[Announcement]) -> bool:
        return any(each.number == change.number for each in found) != change.withdraws

    async def is_done() -> bool:
        return is_announced(await ledger.successions())

    before = await ledger.refused("succession")
    await ledger.changes.send(statement, signatures)
    if not await session.drain("succession"):
        raise queued_error("announcement")
    if not await is_done() or await ledger.refused("succession") > before:
        raise _refusal(
            "the ledger refuses it",
            f"it needs {NOTICE_EPOCHS} epochs of notice, number {await ledger.changes.next_number()},"
            " and to replace an auditor by an account that never was one",
        )
    return {"announced": not change.withdraws, **_meaning(change, session)}


def _transaction(
    session: LedgerSession, function: str, statement: Change, change: ChangeFile
) -> SignedFields:
    fields = describe_statement(statement, session.manifest.ledger_domain)
    follows = "every node goes over at that epoch" if not change.withdraws else "nothing changes"
    contract = session.manifest.ledger
    return describe_transaction(
        f"EpochLedger.{function}", session.signer, contract=contract, fields=fields, follows=follows
    )


def _meaning(change: ChangeFile, session: LedgerSession) -> SignedFields:
    """Return a description of a change; and keep its document, which this node's peers may request.

    Raises:
        SapoError: its document cannot follow the swarm's terms, or this release does not support it.
    """
    if change.successor is None:
        return {}
    document = change.successor.encode()
    try:
        successor = successor_from_json(document)
        after = session.manifest.succeeded_by(change.activation_epoch, successor)
    except LocalProtocolError as error:
        raise _refusal(f"the terms cannot follow those of this swarm: {error}", "draft others") from error
    require_same_suite(after)
    SuccessorFolder(session.data.successors).add(document)
    return {"changes": "; ".join(what_changes(session.manifest, successor))}


def _signer(statement: Change, domain: Any, signature: str) -> Account | None:
    try:
        return secp256k1.recover(statement.digest(domain), bytes.fromhex(signature.removeprefix("0x")))
    except ValueError:
        return None


def _read(file: Path, manifest: Manifest) -> ChangeFile:
    try:
        change = ChangeFile.model_validate_json(file.read_bytes())
        change.statement  # noqa: B018  # refuses fields out of their bounds
    except FileNotFoundError as error:
        hint = "`sapo swarm change propose` writes one"
        raise _refusal(f"there is no file {file}", hint, ExitCode.USAGE) from error
    except (ValidationError, LocalProtocolError) as error:
        hint = "ask its author for it again"
        raise _refusal(f"{file} is not a valid change file: {error}", hint, ExitCode.DATA) from error
    if change.swarm_id != str(manifest.swarm_id):
        raise _refusal(f"{file} belongs to the swarm {change.swarm_id}", "name that swarm's --manifest")
    return change


def _write(file: Path, change: ChangeFile) -> None:
    write_atomically(file, change.model_dump_json(indent=2) + "\n")


def _refusal(text: str, hint: str, exit_code: ExitCode = ExitCode.LEDGER) -> SapoError:
    return SapoError(text, hint=hint, exit_code=exit_code)
