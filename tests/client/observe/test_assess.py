"""The assessment of health as a function of facts: limits, levels, and the sentences of rare cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest
from support.health_trial import require_row, without_figures

from sapo_client.observe.assessments.chain import ChainFacts, PrivateFacts, SettlementFacts
from sapo_client.observe.assessments.funds import AuditorBondFacts, TreasuryFacts
from sapo_client.observe.assessments.steps import StepFacts
from sapo_client.observe.checks import CheckFacts
from sapo_client.observe.clock import SignedAheadFacts
from sapo_client.observe.findings import FindingCode, FindingLevel, HealthFinding
from sapo_client.observe.health import (
    AccountFacts,
    BondFacts,
    CallFacts,
    ChangeFacts,
    HealthFacts,
    IslandFacts,
    PeerFacts,
    PolicyEvent,
    RoundFacts,
    assess,
    is_healthy,
)
from sapo_client.observe.own_groups import OwnGroupFacts
from sapo_client.observe.reachable import reachable_text
from sapo_client.observe.reports import RouterReport
from sapo_client.observe.storage import DiskFacts, StorageFacts

CHAIN = ChainFacts(silent_seconds=0.0, trouble=None, wrong=(), usable=True, epoch_seconds=600)
ACCOUNT = AccountFacts(account="0x" + "ab" * 20, coins_wei=10**18, unregistered_seconds=None)


def codes(facts: HealthFacts) -> list[tuple[str, str]]:
    return [(finding.code.value, finding.level.value) for finding in assess(facts)]


def test_a_healthy_node_has_no_findings() -> None:
    facts = HealthFacts(
        rounds=RoundFacts(silent_seconds=2.0, usual_seconds=1.0),
        call=CallFacts("train", seconds=1.0, usual_seconds=1.0, deadline_seconds=300.0),
        chain=CHAIN,
        account=ACCOUNT,
        peers=PeerFacts(connected=3),
        disk=DiskFacts("/data", free_bytes=2**30, reserve_bytes=2**29),
        storage=StorageFacts(dropped=0, room_mib=8192),
    )
    assert assess(facts) == ()
    assert is_healthy(())


@pytest.mark.parametrize(
    ("rounds", "reported"),
    [
        (RoundFacts(silent_seconds=299.0), False),
        (RoundFacts(silent_seconds=301.0), True),
        (RoundFacts(silent_seconds=29.0, usual_seconds=1.0), False),
        (RoundFacts(silent_seconds=31.0, usual_seconds=1.0), True),
        (RoundFacts(silent_seconds=299.0, usual_seconds=100.0), False),
        (RoundFacts(silent_seconds=301.0, usual_seconds=100.0), True),
        (RoundFacts(silent_seconds=301.0, usual_seconds=1.0, resumes_in_seconds=5.0), False),
        (RoundFacts(silent_seconds=301.0, start_seconds=340.0), False),
    ],
)
def test_silence_of_three_usual_rounds_is_an_error(rounds: RoundFacts, reported: bool) -> None:
    assert codes(HealthFacts(rounds=rounds)) == ([("no_round", "error")] if reported else [])


def test_a_silent_chain_warns_first_and_is_an_error_after_an_epoch() -> None:
    silent = replace(CHAIN, trouble="ConnectionError")
    found = [codes(HealthFacts(chain=replace(silent, silent_seconds=age))) for age in (59, 61, 601)]
    assert found == [[], [("chain_silent", "warning")], [("chain_silent", "error")]]


def test_a_signature_far_ahead_is_reported_with_its_date() -> None:
    texts = [
        assess(HealthFacts(signed_ahead=SignedAheadFacts(epoch, begins_seconds)))[0].text
        for epoch, begins_seconds in ((40, 1_800_000_000), (2**60, 2**70))
    ]
    assert [text.partition(", so")[0] for text in texts] == [
        "this data directory signed in epoch 40, which begins on 2027-01-15 08:00 UTC",
        "this data directory signed in epoch 1152921504606846976, which begins on 9999-12-31 23:59 UTC",
    ]


@pytest.mark.parametrize(("ahead", "found"), [(-11.0, 1), (-9.0, 0), (None, 0), (9.0, 0), (11.0, 1)])
def test_a_clock_that_is_ahead_or_behind_is_reported(ahead: float | None, found: int) -> None:
    assert codes(HealthFacts(chain=replace(CHAIN, clock_ahead_seconds=ahead))) == found * [
        ("clock_off", "error")
    ]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"unregistered_seconds": 1.0}, []),
        ({"unregistered_seconds": 121.0}, [("not_registered", "error")]),
        ({"unregistered_seconds": 1.0, "coins_wei": 0}, [("no_coins", "error")]),
        ({"coins_wei": 0}, [("no_coins", "warning")]),
        ({"coins_wei": None}, []),
        ({"stuck": 2}, [("transaction_stuck", "warning")]),
    ],
)
def test_an_account_that_is_not_paid(changes: dict[str, float], found: list[tuple[str, str]]) -> None:
    assert codes(HealthFacts(account=replace(ACCOUNT, **changes))) == found  # type: ignore[arg-type]


BOND = BondFacts(account="0x" + "ab" * 20, part=1.0)
ATTESTATION = replace(BOND, attesters=("0x" + "cd" * 20, "0x" + "ef" * 20))


@pytest.mark.parametrize(
    ("bond", "found"),
    [
        (BOND, []),
        (replace(BOND, part=0.01), []),
        (replace(BOND, part=0.0), [("no_bond", "error")]),
        (ATTESTATION, []),
        (replace(ATTESTATION, part=0.0), [("no_bond", "error")]),
        (replace(BOND, part=None, unread_seconds=59.0, trouble="no answer"), []),
        (replace(BOND, part=None, unread_seconds=61.0, trouble="no answer"), [("bonds_unread", "warning")]),
    ],
)
def test_an_account_without_a_bond_and_bonds_that_cannot_be_read(
    bond: BondFacts, found: list[tuple[str, str]]
) -> None:
    assert codes(HealthFacts(bond=bond)) == found


TOKEN = 10**18
VAULT = "0x" + "12" * 20


@pytest.mark.parametrize(
    ("tokens", "owed", "price", "found"),
    [
        (10 * TOKEN, 10 * TOKEN, TOKEN, []),
        (10 * TOKEN, 10 * TOKEN + 1, TOKEN, [("treasury_empty", "warning")]),
        (TOKEN, 2 * TOKEN, TOKEN, [("treasury_empty", "warning")]),
        (TOKEN - 1, 0, TOKEN, [("treasury_empty", "error")]),
        (0, 0, 0, []),
    ],
)
def test_a_treasury_that_cannot_pay_everybody_or_nobody(
    tokens: int, owed: int, price: int, found: list[tuple[str, str]]
) -> None:
    assert codes(HealthFacts(treasury=TreasuryFacts(tokens, owed, price, VAULT))) == found


def test_an_auditors_bond_that_falls_short_names_what_is_missing() -> None:
    account, bonds = "0x" + "ab" * 20, (100 * TOKEN, 99 * TOKEN + TOKEN // 2, 0)
    found = [assess(HealthFacts(auditor_bond=AuditorBondFacts(account, each, 100 * TOKEN))) for each in bonds]
    assert [[finding.line() for finding in each] for each in found] == [
        [],
        [
            f"error: auditor {account} has 99.5 tokens bonded, and 100 tokens are required: its signatures"
            " do not count, so epochs may not become final (auditor_bond); `sapo ledger bond` bonds the"
            " missing 0.5 tokens of the account; if nobody has taken tokens out, see `sapo ledger status`: a"
            " proof against the auditor took them"
        ],
        [
            f"error: auditor {account} has no tokens bonded, and 100 tokens are required: its signatures"
            " do not count, so epochs may not become final (auditor_bond); `sapo ledger bond` bonds the"
            " missing 100 tokens of the account; if nobody has taken tokens out, see `sapo ledger status`: a"
            " proof against the auditor took them"
        ],
    ]


CHANGE = ChangeFacts(
    "successor 0xab of this swarm's terms, from epoch 20 on", "no peer has sent its document yet", 5
)


@pytest.mark.parametrize(("epochs", "level"), [(5, "warning"), (4, "error"), (0, "error"), (-3, "error")])
def test_announced_terms_that_this_node_cannot_follow(epochs: int, level: str) -> None:
    assert codes(HealthFacts(change=replace(CHANGE, epochs=epochs))) == [("change_unfollowed", level)]


SOLVED = OwnGroupFacts(shared=128, reward=1.0)
NARROW = OwnGroupFacts(shared=1, skipped={"window": ["digits", "logic"], "template": ["weekdays"]})
UNSEEN = OwnGroupFacts(shared=15, withheld={"text_policy": 16, "epoch_past": 1}, reward=0.25)


@pytest.mark.parametrize(
    ("own", "found"),
    [
        (OwnGroupFacts(), []),
        (replace(SOLVED, shared=127), []),
        (replace(SOLVED, with_advantage=1), []),
        (SOLVED, [("no_advantage", "warning")]),
        (replace(UNSEEN, shared=17), []),
        (replace(UNSEEN, shared=14), []),
        (UNSEEN, [("own_withheld", "warning")]),
        (OwnGroupFacts(withheld={"epoch_past": 31}), []),
        (OwnGroupFacts(withheld={"epoch_past": 32}), [("own_withheld", "error")]),
        (NARROW, [("families_skipped", "warning")]),
        (replace(NARROW, shared=0), [("families_skipped", "error")]),
    ],
)
def test_own_groups_that_are_not_shared_or_teach_nothing(
    own: OwnGroupFacts, found: list[tuple[str, str]]
) -> None:
    assert codes(HealthFacts(own_groups=own)) == found


@pytest.mark.parametrize(
    ("checks", "undecided", "found"), [(31, 31, 0), (32, 8, 0), (32, 9, 1), (64, 16, 0), (64, 17, 1)]
)
def test_a_machine_that_is_too_slow_for_its_checks(checks: int, undecided: int, found: int) -> None:
    facts = HealthFacts(checks=CheckFacts(checks, undecided))
    assert codes(facts) == found * [("node_busy", "warning")]


@pytest.mark.parametrize(
    ("steps", "undone", "found"),
    [
        (15, 15, []),
        (16, 4, []),
        (16, 5, [("steps_undone", "warning")]),
        (16, 16, [("steps_undone", "error")]),
    ],
)
def test_training_steps_that_are_undone(steps: int, undone: int, found: list[tuple[str, str]]) -> None:
    assert codes(HealthFacts(steps=StepFacts(steps, undone))) == found


def test_a_chain_without_new_blocks_warns_first_and_is_an_error_after_an_epoch() -> None:
    ages = (299, 301, 601)
    found = [codes(HealthFacts(chain=replace(CHAIN, stalled_seconds=age))) for age in ages]
    assert found == [[], [("chain_stalled", "warning")], [("chain_stalled", "error")]]
    silent = replace(CHAIN, stalled_seconds=400.0, silent_seconds=61.0, trouble="ConnectionError")
    assert codes(HealthFacts(chain=silent)) == [("chain_silent", "warning")]


@pytest.mark.parametrize(("epochs", "last"), [(5, None), (6, None), (6, 40)])
def test_epochs_that_nobody_makes_final(epochs: int, last: int | None) -> None:
    found = codes(HealthFacts(settlement=SettlementFacts(epochs, last)))
    assert found == ([("not_settled", "warning")] if epochs > 5 else [])


def test_rounds_that_are_not_shared_are_explained_once() -> None:
    private = PrivateFacts(121.0, "no beacon for epoch 3 yet: the block before it is not settled yet")
    silent = replace(CHAIN, silent_seconds=61.0, trouble="ConnectionError")
    assert codes(HealthFacts(private=replace(private, seconds=119.0))) == []
    assert codes(HealthFacts(private=private)) == [("not_sharing", "error")]
    assert codes(HealthFacts(private=private, chain=silent)) == [("chain_silent", "warning")]


def test_errors_come_first() -> None:
    facts = HealthFacts(
        events=(PolicyEvent(FindingCode.LEARNER_RESTARTED, "the learner was restarted"),),
        disk=DiskFacts("/data", free_bytes=0, reserve_bytes=1),
    )
    assert [finding.level for finding in assess(facts)] == [FindingLevel.ERROR, FindingLevel.WARNING]
    assert not is_healthy(assess(facts))


def test_an_endpoint_of_another_chain_is_a_warning_while_another_one_is_right() -> None:
    wrong = replace(CHAIN, wrong=("http://a: it serves chain 5, the manifest names 7",))
    assert codes(HealthFacts(chain=wrong)) == [("wrong_chain", "warning")]
    assert codes(HealthFacts(chain=replace(wrong, usable=False))) == [("wrong_chain", "error")]


@pytest.mark.parametrize(
    ("islands", "found"),
    [
        (IslandFacts(), []),
        (IslandFacts(unknown_seconds=59.0), []),
        (IslandFacts(unknown_seconds=61.0), [("islands_unknown", "error")]),
        (IslandFacts(unknown_seconds=61.0, last_count=2), [("islands_unknown", "warning")]),
    ],
)
def test_a_number_of_islands_that_stays_unknown(islands: IslandFacts, found: list[tuple[str, str]]) -> None:
    assert codes(HealthFacts(islands=islands)) == found


def test_an_unreachable_node_has_a_finding() -> None:
    text = reachable_text("unreachable", RouterReport(state="silent"))
    [finding] = assess(HealthFacts(peers=PeerFacts(connected=3, unreachable=text)))
    assert finding.line() == (
        "warning: peers cannot connect to this node; it works through the connections that it opens; no"
        " router answered (UPnP) (unreachable); switch UPnP on in the router, or forward the TCP port of"
        " swarm.listen there to the same port of this machine and allow it in the firewall; a swarm needs"
        " nodes that can be reached"
    )


def row(finding: HealthFinding) -> str:
    cells = (f"`{finding.code}`", finding.level, without_figures(finding.text), without_figures(finding.hint))
    return f"| {' | '.join(cells)} |"


def test_further_findings_have_the_sentences_of_the_health_page() -> None:
    rolled_back = PolicyEvent(
        FindingCode.POLICY_ROLLED_BACK,
        "others' text has made the policy worse: its reward is 0.25, 0.5 without that text; the policy"
        " without it was restored at step 40",
    )
    spoilt = PolicyEvent(
        FindingCode.POLICY_ROLLED_BACK,
        "others' text has made the policy lose more than half of what it could do in 1 family; the policy"
        " without it was restored at step 40",
    )
    planted = PolicyEvent(
        FindingCode.POLICY_ROLLED_BACK,
        "others' text was planted in 40 of the canary's answers; 5 accounts are in quarantine; the policy"
        " without it was restored at step 40",
    )
    mismatch = PolicyEvent(
        FindingCode.SAMPLER_MISMATCH,
        "the sampler was off by 0.21 nats per token in step 7",
    )
    moved = PolicyEvent(FindingCode.LEARNER_MOVED, "the learner trains on cpu since its restart, not on cuda")
    full = PolicyEvent(FindingCode.DISK_FULL, "the disk is full: free space in /a/data")
    elsewhere = PolicyEvent(
        FindingCode.APPROVED_ELSEWHERE,
        "another node approves as this auditor (epoch 7), and two roots in one turn cost the bond, so this"
        " node approves nothing",
    )
    away = PolicyEvent(
        FindingCode.SERVER_AWAY,
        "http://127.0.0.1:8000 does not answer: [Errno 111] Connection refused",
    )
    limited = PolicyEvent(FindingCode.LIMIT_REACHED, "the learner cannot be started: Too many open files")
    facts = HealthFacts(
        account=replace(ACCOUNT, stuck=2, coins_wei=0),
        events=(rolled_back, spoilt, planted, mismatch, moved, full, elsewhere, away, limited),
        log="/a/logs/sapo.log",
    )
    with_coins = HealthFacts(account=replace(ACCOUNT, stuck=2))
    trouble = "no RPC address shows the change of the accounts' bonds that was recorded in block 9"
    unread = replace(BOND, part=0.0, unread_seconds=61.0, trouble=trouble)
    trouble = "no RPC address shows the attestations of this swarm as the chain holds them"
    unattested = replace(ATTESTATION, part=0.0, unread_seconds=61.0, trouble=trouble)
    by_gate = (assess(HealthFacts(bond=bond)) for bond in (unread, unattested))
    changed = assess(HealthFacts(change=CHANGE))
    counts = (None, 2)
    unknown = (assess(HealthFacts(islands=IslandFacts(61.0, last_count=count))) for count in counts)
    refused = RouterReport(state="refused", detail="Action not authorized")
    texts = (reachable_text("unreachable", router) for router in (None, refused))
    unreached = (assess(HealthFacts(peers=PeerFacts(connected=3, unreachable=text))) for text in texts)
    late, other = (OwnGroupFacts(withheld={reason: 32}) for reason in ("epoch_past", "certificate_unknown"))
    own = (assess(HealthFacts(own_groups=each)) for each in (SOLVED, UNSEEN, NARROW, late, other))
    slow = assess(HealthFacts(checks=CheckFacts(64, 20)))
    upgraded = assess(HealthFacts(replaced="sapo-swarm 1.0 runs here, and 1.1 was installed in its place"))
    some = assess(HealthFacts(steps=StepFacts(16, 5)))
    unsettled = (assess(HealthFacts(settlement=SettlementFacts(7, last))) for last in (40, None))
    rare = chain.from_iterable((*by_gate, *unknown, *unreached, *own, *unsettled, some, slow, upgraded))
    for finding in (*assess(facts), *assess(with_coins), *changed, *rare):
        require_row(row(finding))


def test_fees_are_not_reported_as_the_cause_of_missing_coins() -> None:
    waits = [assess(HealthFacts(account=replace(ACCOUNT, stuck=1, coins_wei=coins))) for coins in (0, 1)]
    hints = [found[-1].hint for found in waits]
    assert ["ledger.max_fee_gwei" in hint for hint in hints] == [False, True]
