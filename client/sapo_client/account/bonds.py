"""``sapo ledger bond``, ``exit`` and ``withdraw``: what an auditor stakes on what it signs."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Final

from sapo_client.account.ledger_session import (
    Consent,
    Facts,
    LedgerSession,
    moment,
    open_books,
    run,
    still_queued,
)
from sapo_client.account.tokens import show_tokens
from sapo_client.config import Config
from sapo_client.errors import ExitCode, SapoError
from sapo_client.ledger.records import Stake
from sapo_client.node.runtime.statements import Words, transaction_words
from sapo_client.paths import DataDir

_WHOLE: Final = 10**18


def bond(config: Config, amount: int | None, consent: Consent) -> Facts:
    """Bond tokens of the account, and waits for it.

    Args:
        amount: in the token's smallest unit; none for what the bond lacks.

    Raises:
        SapoError: the account audits nothing, holds too little or lacks nothing, or its owner does not agree.
    """
    DataDir(config.data_dir).create()
    with open_books(config, needs_archive=False) as books:
        return run(_bond, books, amount, consent)


def leave(config: Config, amount: int | None, consent: Consent) -> Facts:
    """Begin to take a part of the bond out, and waits for the chain to have that.

    Args:
        amount: in the token's smallest unit; none for all that is bonded.

    Raises:
        SapoError: less is bonded, or the owner does not agree.
    """
    DataDir(config.data_dir).create()
    with open_books(config, needs_archive=False) as books:
        return run(_leave, books, amount, consent)


def withdraw(config: Config, consent: Consent) -> Facts:
    """Take out what has waited for its time, and waits for it.

    Raises:
        SapoError: nothing is on its way out, it is too early, or the owner does not agree.
    """
    DataDir(config.data_dir).create()
    with open_books(config, needs_archive=False) as books:
        return run(_withdraw, books, consent)


async def bond_facts(books: LedgerSession) -> Facts:
    """Return how an account stands with the vault; a bond suffices only for who is an auditor."""
    ledger = books.ledger
    stake, needed, is_auditor = await ledger.stake(), await ledger.auditor_bond(), await _is_auditor(books)
    return {
        "auditor": is_auditor,
        "tokens bonded": stake.bonded / _WHOLE,
        "bond needed": needed / _WHOLE if is_auditor else None,
        "bond suffices": stake.bonded >= needed if is_auditor else None,
        "tokens exiting": stake.exiting / _WHOLE,
        "withdrawable from": moment(stake.withdrawable_at_seconds) if stake.exiting else None,
    }


async def _bond(books: LedgerSession, amount: int | None, consent: Consent) -> Facts:
    ledger = books.ledger
    await ledger.check()
    if (earlier := await _finish_earlier(books, "bond")) is not None:
        return earlier
    if not await _is_auditor(books):
        raise _refusal(
            f"account {books.account} is no auditor of this swarm: a bond of it counts for nothing",
            "auditors are named when a swarm is founded: sapo swarm deploy --auditor ADDRESS",
        )
    stake, needed = await ledger.stake(), await ledger.auditor_bond()
    if amount is None and stake.bonded >= needed:
        raise _refusal(
            f"{show_tokens(stake.bonded)} tokens are bonded, and {show_tokens(needed)} suffice",
            "name an AMOUNT to bond more",
        )
    wanted = needed - stake.bonded if amount is None else amount
    held = await ledger.balance()
    if held < wanted:
        raise _refusal(
            f"the account holds {show_tokens(held)} tokens, and {show_tokens(wanted)} are to be bonded",
            "collect what was granted with `sapo ledger claim`, or have tokens sent to the account",
        )
    words = await _bond_words(books, wanted, stake)
    return await _send(books, "bond", queue=lambda: ledger.bond(wanted), words=words, consent=consent)


async def _bond_words(books: LedgerSession, amount: int, stake: Stake) -> list[Words]:
    contracts, tokens = await books.ledger.contracts(), show_tokens(amount)
    allowance = {"spender": str(contracts.vault), "tokens": tokens}
    deposit = {"tokens": tokens, "bonded after it": show_tokens(stake.bonded + amount)}
    return [
        transaction_words(
            "SapoToken.approve",
            books.signer,
            contract=contracts.token,
            fields=allowance,
            follows="the vault may take these tokens",
        ),
        transaction_words(
            "StakeVault.deposit",
            books.signer,
            contract=contracts.vault,
            fields=deposit,
            follows="the account's bond: whoever proves one of its signatures false takes all of it",
        ),
    ]


async def _leave(books: LedgerSession, amount: int | None, consent: Consent) -> Facts:
    ledger = books.ledger
    await ledger.check()
    if (earlier := await _finish_earlier(books, "exit")) is not None:
        return earlier
    stake = await ledger.stake()
    wanted = stake.bonded if amount is None else amount
    if wanted > stake.bonded or not stake.bonded:
        raise _refusal(
            f"account {books.account} has {show_tokens(stake.bonded)} tokens bonded",
            "name no more than that; what is exiting already is taken out with `sapo ledger withdraw`"
            if stake.bonded
            else "what is exiting already is taken out with `sapo ledger withdraw`",
        )
    delay = await ledger.exit_seconds()
    fields = {
        "tokens": show_tokens(wanted),
        "bonded after it": show_tokens(stake.bonded - wanted),
        "withdrawable from": f"about {moment(int(time.time()) + delay)}",
    }
    follows = "these tokens count as a bond no more, and can be slashed until they are withdrawn"
    if stake.exiting:
        follows += f"; the {show_tokens(stake.exiting)} that are exiting already wait anew with them"
    vault = (await ledger.contracts()).vault
    words = transaction_words(
        "StakeVault.requestExit", books.signer, contract=vault, fields=fields, follows=follows
    )
    return await _send(
        books, "exit", queue=lambda: ledger.request_exit(wanted), words=[words], consent=consent
    )


async def _withdraw(books: LedgerSession, consent: Consent) -> Facts:
    ledger = books.ledger
    await ledger.check()
    if (earlier := await _finish_earlier(books, "withdrawal")) is not None:
        return earlier
    stake = await ledger.stake()
    if not stake.exiting:
        raise _refusal("nothing is on its way out", "`sapo ledger exit` begins to take a bond out")
    if time.time() < stake.withdrawable_at_seconds:
        raise _refusal(
            f"{show_tokens(stake.exiting)} tokens may be withdrawn"
            f" from {moment(stake.withdrawable_at_seconds)}",
            "run the same command again then",
        )
    vault, fields = (await ledger.contracts()).vault, {"tokens": show_tokens(stake.exiting)}
    words = transaction_words(
        "StakeVault.withdraw",
        books.signer,
        contract=vault,
        fields=fields,
        follows="the account holds these tokens again",
    )
    return await _send(books, "withdrawal", queue=ledger.withdraw, words=[words], consent=consent)


async def _finish_earlier(books: LedgerSession, kind: str) -> Facts | None:
    """See a wish through that was agreed to before and waits, of a command that was broken off perhaps.

    Each wish of these adds to the one before it, so whoever asks again may mean the one that waits.
    """
    if not await books.ledger.pending(kind):
        return None
    if not await books.drain(kind):
        raise still_queued(kind)
    return await _standing(books, f"the {kind} that was asked for earlier, nothing new")


async def _send(
    books: LedgerSession,
    kind: str,
    queue: Callable[[], Awaitable[bool]],
    words: list[Words],
    consent: Consent,
) -> Facts:
    """Shows, asks, queues once, and waits."""
    consent(words)
    before = await books.ledger.refused(kind)
    if not await queue():
        raise _refusal(
            f"another {kind} was asked for in the meantime",
            "`sapo ledger status` shows what waits; ask again when nothing does",
        )
    if not await books.drain(kind):
        raise still_queued(kind)
    if await books.ledger.refused(kind) > before:
        raise _refusal(
            f"the contract refuses the {kind}: the bond is not what it was when the {kind} was asked for",
            "`sapo ledger status` shows how the account stands now",
        )
    return await _standing(books, "as asked")


async def _standing(books: LedgerSession, done: str) -> Facts:
    balance = await books.ledger.balance()
    return {
        "account": str(books.account),
        "done": done,
        "tokens": balance / _WHOLE,
        **await bond_facts(books),
    }


async def _is_auditor(books: LedgerSession) -> bool:
    auditors, _ = await books.ledger.auditors()
    return books.account in auditors


def _refusal(text: str, hint: str) -> SapoError:
    return SapoError(text, hint=hint, exit_code=ExitCode.LEDGER)
