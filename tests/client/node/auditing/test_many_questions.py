"""Somebody asks for the leaves of many accounts at once: the auditors share the answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path

import pytest
from support.auditor_harness import CROWD, FOUR_AUDITORS
from support.ledger import CHALLENGE_SECONDS, DEPLOYER, found
from support.witness import EARNED, Witness

from sapo_client.ledger.outbox import Outbox
from sapo_protocol.identifiers import Account

ASKED = tuple(sorted(identity.account for identity in CROWD))
"""As many as there are auditors."""

AUDITED = 98


@pytest.fixture
def auditors(tmp_path: Path) -> Iterator[list[Witness]]:
    """All four, each of which holds the settlement of one epoch."""
    with ExitStack() as stack:
        contracts = found(tmp_path / "chain.sqlite")
        stack.callback(contracts.chain.close)
        opened = []
        for number, node in enumerate(FOUR_AUDITORS):
            (own := tmp_path / str(number)).mkdir()
            opened.append(stack.enter_context(closing(Witness(own, contracts=contracts, node=node))))
        opened[0].post_truth(AUDITED, {})
        for other in opened[1:]:
            other.hold_truth(AUDITED, {})
        yield opened


def ask_about_all(witness: Witness, *, is_final: bool) -> None:
    """Let a stranger ask for the leaves of four accounts."""
    contracts = witness.contracts
    chain, token, verifier = contracts.chain, contracts.token, contracts.verifier
    chain.send(
        DEPLOYER, token.address, token.approve(verifier.address, len(ASKED) * verifier.question_bond())
    )
    newest = contracts.history.newest(1)
    chain.now_seconds = chain.engine.head.timestamp + 1
    for account in ASKED:
        data = verifier.ask_final(newest, account) if is_final else verifier.ask(account)
        chain.send(DEPLOYER, verifier.address, data)


def answered(folder: Path, witness: Witness) -> list[Account]:
    """Return the accounts whose leaves an auditor wants to show, in the order in which it sends them."""
    owner = f"{witness.manifest.swarm_id} 0x{witness.ledger._account.hex()}"
    outbox = Outbox(folder / "outbox.sqlite", owner=owner)
    entries = outbox.entries()
    outbox.close()
    assert {entry.kind for entry in entries} <= {"answer"}
    return [Account.from_hex(entry.key.partition(":")[0]) for entry in entries]


@pytest.mark.parametrize("is_final", [False, True])
async def test_one_auditor_answers_each_question_at_once_and_all_nodes_until_half_of_the_time(
    auditors: list[Witness], tmp_path: Path, is_final: bool
) -> None:
    """Whoever does not answer in its turn delays the answer by one turn, and at the deadline it would be too
    late: then whoever asked can have the epoch rejected or recalled."""
    contracts, witness = auditors[0].contracts, auditors[0]
    (tmp_path / "node").mkdir()
    with closing(Witness(tmp_path / "node", contracts=contracts)) as node:
        node.hold_truth(AUDITED, {})
        if is_final:
            contracts.finalise()
        ask_about_all(witness, is_final=is_final)
        everybody = {str(number): auditor for number, auditor in enumerate(auditors)} | {"node": node}
        for each in everybody.values():
            await each.tower.look()
        at_once = {name: answered(tmp_path / name, each) for name, each in everybody.items()}
        assert sorted(chain.from_iterable(at_once.values())) == list(ASKED)
        assert at_once["node"] == []
        witness.wait(CHALLENGE_SECONDS / 2)
        for each in everybody.values():
            await each.tower.look()
        later = {name: set(answered(tmp_path / name, each)) for name, each in everybody.items()}
        assert later == {name: set(ASKED) for name in everybody}
    assert set(EARNED) < set(ASKED)
