"""``sapo ledger bond``, ``exit`` and ``withdraw``: the bonds of auditors and of accounts.

In a swarm whose gate requires a bond of every account, there are two bonds: the auditor's in the vault, and
the account's behind the gate. The commands take the auditor's for an auditor, the account's for all others.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from sapo_client.account.ledger_session import (
    Consent,
    LedgerSession,
    format_time,
    open_session,
    queued_error,
    run,
)
from sapo_client.account.tokens import show_tokens
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger.records import Stake
from sapo_client.node.runtime.statements import SignedFields, describe_transaction
from sapo_client.paths import DataDir
from sapo_client.units import TOKEN
from sapo_protocol.identifiers import Account
from sapo_protocol.terms.gate import BondGate, EasGate, points_cap


def bond(config: Config, amount: int | None, consent: Consent, *, account: bool = False) -> dict[str, Any]:
    """Bond tokens of the account, and wait until the chain has it.

    Args:
        amount: in the token's smallest unit; none for the missing part of the bond, if there is one.
        account: the account's bond behind the gate, also for an auditor; so in the two functions below.

    Raises:
        SapoError: the account is no auditor or holds too few tokens, or its owner refuses.
    """
    DataDir(config.data_dir).create()
    with open_session(config, needs_archive=False) as session:
        return run(_bond, session, amount, consent, account)


def leave(config: Config, amount: int | None, consent: Consent, *, account: bool = False) -> dict[str, Any]:
    """Start the exit of a part of the bond, and wait until the chain has it.

    Args:
        amount: in the token's smallest unit; none for the whole bond.

    Raises:
        SapoError: less is bonded, or the owner refuses.
    """
    DataDir(config.data_dir).create()
    with open_session(config, needs_archive=False) as session:
        return run(_leave, session, amount, consent, account)


def withdraw(config: Config, consent: Consent, *, account: bool = False) -> dict[str, Any]:
    """Withdraw exiting tokens whose delay is over, and wait until the chain has it.

    Raises:
        SapoError: no tokens are exiting, it is too early, or the owner refuses.
    """
    DataDir(config.data_dir).create()
    with open_session(config, needs_archive=False) as session:
        return run(_withdraw, session, consent, account)


async def bond_facts(session: LedgerSession) -> dict[str, Any]:
    """Return the account's bond in the vault (auditors only), and its bond or attestations for the gate."""
    ledger = session.ledger
    stake, needed, is_auditor = await ledger.stake(), await ledger.auditor_bond(), await _is_auditor(session)
    return {
        "auditor": is_auditor,
        "tokens bonded": stake.bonded / TOKEN,
        "bond needed": needed / TOKEN if is_auditor else None,
        "bond suffices": stake.bonded >= needed if is_auditor else None,
        "tokens exiting": stake.exiting / TOKEN,
        "withdrawable from": format_time(stake.withdrawable_at_seconds) if stake.exiting else None,
        **await _account_facts(session),
    }


async def _account_facts(session: LedgerSession) -> dict[str, Any]:
    """Return the account's bond or attestations and their effect, if the gate requires them."""
    gate = session.manifest.gate
    if isinstance(gate, EasGate):
        found = await session.ledger.attestations()
        return {
            "attestations": found,
            "counts for": float(gate.units(found)),
            "attesters to ask": None if found else ", ".join(map(str, gate.attesters)),
        }
    if not isinstance(gate, BondGate):
        return {}
    stake = await session.ledger.stake(gate=True)
    units = gate.units(stake.bonded)
    return {
        "account's tokens bonded": stake.bonded / TOKEN,
        "bond of a whole account": gate.unit / TOKEN,
        "counts for": float(units),
        "points per epoch at most": points_cap(session.manifest.limits.points_per_epoch, units),
        "account's tokens exiting": stake.exiting / TOKEN,
        "account's withdrawable from": format_time(stake.withdrawable_at_seconds) if stake.exiting else None,
    }


async def _takes_gate(session: LedgerSession, *, account: bool) -> bool:
    """Return whether a command is about the account's bond behind the gate, and not an auditor's.

    Raises:
        SapoError: the account's bond is meant, and the swarm requires none.
    """
    gate = session.manifest.gate
    if isinstance(gate, EasGate) and (account or not await _is_auditor(session)):
        raise _refusal(
            "accounts of this swarm need an attestation, not a bond",
            f"ask {' or '.join(map(str, gate.attesters))} to attest {session.account}",
        )
    has_gate = isinstance(gate, BondGate)
    if account and not has_gate:
        raise _refusal(
            "accounts of this swarm need no bond", "leave out --account: every account counts in full"
        )
    return account or (has_gate and not await _is_auditor(session))


async def _bond(
    session: LedgerSession, amount: int | None, consent: Consent, account: bool
) -> dict[str, Any]:
    ledger = session.ledger
    await ledger.check()
    if (earlier := await _finish_pending(session, "bond")) is not None:
        return earlier
    gate = await _takes_gate(session, account=account)
    if not gate and not await _is_auditor(session):
        raise _refusal(
            f"account {session.account} is not an auditor of this swarm: its bond would have no effect",
            "auditors are named when a swarm is founded, or replace one: sapo swarm change --help",
        )
    stake, needed = await ledger.stake(gate=gate), await _needed(session, gate=gate)
    if amount is None and stake.bonded >= needed:
        return await _result(session, "nothing, for the bond suffices")
    wanted = needed - stake.bonded if amount is None else amount
    held = await ledger.balance()
    if held < wanted:
        raise _refusal(
            f"the account holds {show_tokens(held)} tokens, and {show_tokens(wanted)} are to be bonded",
            "claim what was granted with `sapo ledger claim`, or send tokens to the account",
        )
    fields = await _describe_bond(session, wanted, stake, gate=gate)
    queue = partial(ledger.bond, wanted, gate=gate)
    return await _send(session, "bond", queue=queue, fields=fields, consent=consent)


async def _needed(session: LedgerSession, *, gate: bool) -> int:
    """Return the bond that makes an auditor's signatures count, or an account count in full."""
    terms = session.manifest.gate
    return terms.unit if gate and isinstance(terms, BondGate) else await session.ledger.auditor_bond()


async def _place(session: LedgerSession, *, gate: bool) -> tuple[str, Account]:
    """Return the name and the address of the contract that holds a bond."""
    terms = session.manifest.gate
    if gate and isinstance(terms, BondGate):
        return "AccountBond", terms.contract
    return "StakeVault", (await session.ledger.contracts()).vault


async def _describe_bond(
    session: LedgerSession, amount: int, stake: Stake, *, gate: bool
) -> list[SignedFields]:
    contracts, tokens = await session.ledger.contracts(), show_tokens(amount)
    name, place = await _place(session, gate=gate)
    allowance = {"spender": str(place), "tokens": tokens}
    deposit = {"tokens": tokens, "bonded after it": show_tokens(stake.bonded + amount)}
    return [
        describe_transaction(
            "SapoToken.approve",
            session.signer,
            contract=contracts.token,
            fields=allowance,
            follows="the contract may take these tokens",
        ),
        describe_transaction(
            f"{name}.deposit",
            session.signer,
            contract=place,
            fields=deposit,
            follows=(
                "the account's bond: two contents that it signs for one slot cost all of it"
                if gate
                else "the account's bond: a proof that it signed something false takes all of it away"
            ),
        ),
    ]


async def _leave(
    session: LedgerSession, amount: int | None, consent: Consent, account: bool
) -> dict[str, Any]:
    ledger = session.ledger
    await ledger.check()
    if (earlier := await _finish_pending(session, "exit")) is not None:
        return earlier
    gate = await _takes_gate(session, account=account)
    stake = await ledger.stake(gate=gate)
    wanted = stake.bonded if amount is None else amount
    if wanted > stake.bonded or not stake.bonded:
        raise _refusal(
            f"account {session.account} has {show_tokens(stake.bonded)} tokens bonded",
            "give a smaller AMOUNT; tokens that are exiting are withdrawn with `sapo ledger withdraw`"
            if stake.bonded
            else "tokens that are exiting are withdrawn with `sapo ledger withdraw`",
        )
    delay = await ledger.exit_seconds(gate=gate)
    fields = {
        "tokens": show_tokens(wanted),
        "bonded after it": show_tokens(stake.bonded - wanted),
        "withdrawable from": f"about {format_time(int(time.time()) + delay)}",
    }
    follows = "these tokens no longer count as a bond, but can be slashed until they are withdrawn"
    if stake.exiting:
        follows += f"; the delay of the {show_tokens(stake.exiting)} that are already exiting starts again"
    name, place = await _place(session, gate=gate)
    signed = describe_transaction(
        f"{name}.requestExit", session.signer, contract=place, fields=fields, follows=follows
    )
    queue = partial(ledger.request_exit, wanted, gate=gate)
    return await _send(session, "exit", queue=queue, fields=[signed], consent=consent)


async def _withdraw(session: LedgerSession, consent: Consent, account: bool) -> dict[str, Any]:
    ledger = session.ledger
    await ledger.check()
    if (earlier := await _finish_pending(session, "withdrawal")) is not None:
        return earlier
    gate = await _takes_gate(session, account=account)
    stake = await ledger.stake(gate=gate)
    if not stake.exiting:
        raise _refusal("no tokens are exiting", "`sapo ledger exit` starts the exit of a bond")
    if time.time() < stake.withdrawable_at_seconds:
        raise _refusal(
            f"{show_tokens(stake.exiting)} tokens can be withdrawn"
            f" from {format_time(stake.withdrawable_at_seconds)}",
            "run the same command again after that time",
        )
    (name, place), fields = await _place(session, gate=gate), {"tokens": show_tokens(stake.exiting)}
    signed = describe_transaction(
        f"{name}.withdraw",
        session.signer,
        contract=place,
        fields=fields,
        follows="the account holds these tokens again",
    )
    queue = partial(ledger.withdraw, gate=gate)
    return await _send(session, "withdrawal", queue=queue, fields=[signed], consent=consent)


async def _finish_pending(session: LedgerSession, kind: str) -> dict[str, Any] | None:
    """Finish a queued transaction of an earlier, perhaps interrupted command; none if there is none.

    Transactions of this kind add up, so a repeated command may mean the one that is still queued.
    """
    if not await session.ledger.pending(kind):
        return None
    if not await session.drain(kind):
        raise queued_error(kind)
    return await _result(session, f"the {kind} that was requested earlier, nothing new")


async def _send(
    session: LedgerSession,
    kind: str,
    queue: Callable[[], Awaitable[bool]],
    fields: list[SignedFields],
    consent: Consent,
) -> dict[str, Any]:
    """Show the statement, ask for consent, queue the transaction once, and wait."""
    consent(fields)
    before = await session.ledger.refused(kind)
    if not await queue():
        raise _refusal(
            f"another {kind} was requested in the meantime",
            "`sapo ledger status` shows what is queued; run the command again when nothing is",
        )
    if not await session.drain(kind):
        raise queued_error(kind)
    if await session.ledger.refused(kind) > before:
        raise _refusal(
            f"the contract refuses the {kind}: the bond has changed since the {kind} was requested",
            "`sapo ledger status` shows the account's bond",
        )
    return await _result(session, "as requested")


async def _result(session: LedgerSession, done: str) -> dict[str, Any]:
    balance = await session.ledger.balance()
    return {
        "account": str(session.account),
        "done": done,
        "tokens": balance / TOKEN,
        **await bond_facts(session),
    }


async def _is_auditor(session: LedgerSession) -> bool:
    """Whether the account is, was or will be an auditor: its bond is in the vault."""
    auditors, _ = await session.ledger.changes.auditors()
    return session.account in auditors.all_accounts


def _refusal(text: str, hint: str) -> SapoError:
    return SapoError(text, hint=hint, exit_code=ExitCode.LEDGER)
