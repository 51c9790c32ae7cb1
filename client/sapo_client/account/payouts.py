"""``sapo ledger payout``: the address that an account's claims are paid to, and announced changes of it."""

from __future__ import annotations

import time
from typing import Any, Final

from sapo_client.account.ledger_session import Consent, LedgerSession, format_time, open_session, run
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger.records import PayoutAddress
from sapo_client.node.runtime import statements
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Account

_OWN_ACCOUNT: Final = "name an account whose key you hold"

_NO_KEYS: Final = frozenset({Account(bytes(20)), Account(bytes(18) + b"\xde\xad")})
"""Addresses that tokens are burned at."""


def payout(config: Config, address: str, consent: Consent) -> dict[str, Any]:
    """Set, announce or apply the address that claims are paid to, and wait for it.

    To name the present address while another one is announced replaces the announcement.
    """
    receiver = _address(address)
    with open_session(config) as session:
        return run(_payout, session, receiver, consent)


async def payout_facts(session: LedgerSession) -> dict[str, Any]:
    """Return the rows of `sapo ledger status` about the payout address."""
    found = await session.ledger.payout()
    return {
        "claims go to": str(found.receiver),
        "announced payout address": None if found.announced is None else str(found.announced),
        "which counts from": None if found.announced is None else format_time(found.from_seconds),
    }


def claim_fields(found: PayoutAddress) -> dict[str, str]:
    """Return who is paid, for the fields of a claim that are shown before it is signed."""
    fields = {"paid to": str(found.receiver)}
    if found.is_changing:
        fields["announced instead"] = f"{found.announced}, from {format_time(found.from_seconds)} on"
    return fields


async def require_receiver(session: LedgerSession, shown: Account) -> None:
    """Raise unless claims are still paid to the address that was shown.

    Raises:
        SapoError: an announced address was applied meanwhile, which any account may do.
    """
    found = (await session.ledger.payout()).receiver
    if found != shown:
        raise SapoError(
            f"claims are paid to {found} now, not to {shown}",
            hint="claim again if that is right, or set another address: sapo ledger payout",
            exit_code=ExitCode.LEDGER,
        )


async def _payout(session: LedgerSession, receiver: Account, consent: Consent) -> dict[str, Any]:
    await session.ledger.check()
    await session.require_current()
    before = await session.ledger.payout()
    _require_open(before, receiver)
    await _require_account(session, receiver)
    applies = before.announced == receiver
    function = "applyPayout" if applies else "setPayout"
    follows = "it takes effect at once for a first address or after its delay, otherwise in seven days"
    if before.receiver == receiver:
        follows = f"claims stay with this address: the announced change to {before.announced} is dropped"
    words = statements.describe_transaction(
        f"RewardDistributor.{function}",
        session.signer,
        contract=(await session.ledger.contracts()).distributor,
        fields={"claims go to": str(receiver)},
        follows=follows,
    )
    consent([words])

    async def submit() -> None:
        if applies:
            await session.ledger.apply_payout()
        else:
            await session.ledger.set_payout(receiver, instead_of=before)

    async def is_done() -> bool:
        known = await session.ledger.payout()
        if before.receiver == receiver or not applies:
            return known.announced == receiver or (known.receiver == receiver != before.receiver)
        return known.receiver == receiver

    await session.submit_and_wait("payout address", submit, is_done)
    known = await session.reading(session.ledger.payout)
    return {
        "account": str(session.account),
        "claims go to": str(known.receiver),
        "announced": None if known.announced is None else str(known.announced),
        "from": None if known.announced is None else format_time(known.from_seconds),
    }


def _require_open(before: PayoutAddress, receiver: Account) -> None:
    """Raise if nothing is to be sent, or not yet.

    Raises:
        SapoError: claims go there already, or the change was announced and its delay is not over.
    """
    if before.receiver == receiver and not before.is_changing:
        raise SapoError(
            f"claims are already paid to {receiver}", hint="nothing to do", exit_code=ExitCode.LEDGER
        )
    if before.announced == receiver and time.time() < before.from_seconds:
        raise SapoError(
            f"claims can be paid to {receiver} from {format_time(before.from_seconds)}",
            hint="run the same command again after that time",
            exit_code=ExitCode.LEDGER,
        )


async def _require_account(session: LedgerSession, receiver: Account) -> None:
    """Raise if what is paid to an address is lost.

    Raises:
        SapoError: it is one that tokens are burned at, or one of the contracts that this package ships.
    """
    if receiver in _NO_KEYS:
        raise SapoError(
            f"claims paid to {receiver} are lost: nobody can have the key of this address",
            hint=_OWN_ACCOUNT,
            exit_code=ExitCode.USAGE,
        )
    if (name := await session.ledger.contract_name(receiver)) is not None:
        raise SapoError(
            f"{receiver} is a contract of this swarm ({name}), which cannot send on what it is paid",
            hint=_OWN_ACCOUNT,
            exit_code=ExitCode.USAGE,
        )


def _address(text: str) -> Account:
    try:
        return Account.from_hex(text)
    except LocalProtocolError as error:
        raise SapoError(
            f"{text!r} is not an account",
            hint="an account is 0x and 40 hexadecimal digits",
            exit_code=ExitCode.USAGE,
        ) from error
