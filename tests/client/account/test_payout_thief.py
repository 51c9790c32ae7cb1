"""A thief of an account's key who redirects its claims, and payout addresses from which nothing returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.auditor_harness import AUDITORS, WORKERS, World, agree, refuse
from support.epoch_harness import EPOCH, EpochHarness
from support.ledger import TOKENS_PER_POINT, address, keys

from sapo_client import keystore
from sapo_client.account.ledger_commands import claim, status
from sapo_client.account.ledger_session import format_time
from sapo_client.account.payouts import payout
from sapo_client.config import Config
from sapo_client.errors import SapoError
from sapo_client.node.runtime.statements import SignedFields
from sapo_protocol.contributions import Proposal, Share
from sapo_protocol.identifiers import Account, ContentId

ALICE, WALLET = WORKERS
THIEF_KEYS = keys(4)
THIEF = address(THIEF_KEYS)
DELAY_SECONDS = 7 * 24 * 3600
POINTS = 5
PAYOUT_FACTS = ("claims go to", "announced payout address", "which counts from")
PROPOSAL = Proposal(
    node=AUDITORS[0].node,
    account=AUDITORS[0].account,
    epoch=EPOCH,
    tallies=(ContentId(bytes(32)),),
    shares=(Share(ALICE.account, POINTS, POINTS),),
)


@dataclass(frozen=True)
class Robbed:
    """Alice's node after an epoch of five points; her claims go to a wallet, and a thief has her key."""

    world: World
    config: Config

    def announce(self, receiver: Account) -> int:
        """Announce another payout address, as the thief; return when it may count, Unix seconds."""
        chain, paying = self.world.chain, self.world.contracts.distributor
        chain.send(keys(ALICE.number), paying.address, paying.set_payout(receiver))
        return chain.engine.head.timestamp + DELAY_SECONDS

    def apply(self) -> None:
        """Put the announced address in place, which any account may."""
        paying = self.world.contracts.distributor
        self.world.chain.send(THIEF_KEYS, paying.address, paying.apply_payout(ALICE.account))

    def tokens(self, account: Account) -> int:
        return self.world.contracts.token.balance(account)

    @property
    def payees(self) -> tuple[Account, tuple[Account, int]]:
        """The payout address, and the announced one with its time."""
        paying = self.world.contracts.distributor
        return paying.payout(ALICE.account), paying.payout_change(ALICE.account)


@pytest.fixture
def robbed(tmp_path: Path) -> Iterator[Robbed]:
    with World.running(tmp_path) as world:
        node = EpochHarness(tmp_path, world)
        node.post_unheard(PROPOSAL)
        node.hear(AUDITORS[0], PROPOSAL)
        world.contracts.finalise()
        key = tmp_path / "alice.json"
        keystore.create(key, None, node_seed=ALICE.seed, account_key=ALICE.secret)
        config = node.config.model_copy(update={"identity": str(key)})
        payout(config, str(WALLET.account), agree)
        yield Robbed(world, config)


def test_status_and_claim_tell_that_another_address_was_announced(robbed: Robbed) -> None:
    before = status(robbed.config)
    assert [before[name] for name in PAYOUT_FACTS] == [str(WALLET.account), None, None]
    from_seconds = robbed.announce(THIEF)
    after = status(robbed.config)
    assert [after[name] for name in PAYOUT_FACTS] == [
        str(WALLET.account),
        str(THIEF),
        format_time(from_seconds),
    ]
    shown: list[SignedFields] = []
    told = claim(robbed.config, shown.extend)
    assert [(fields["paid to"], fields["announced instead"]) for fields in shown] == [
        (str(WALLET.account), f"{THIEF}, from {format_time(from_seconds)} on")
    ]
    assert (told["points claimed"], told["paid to"]) == (POINTS, str(WALLET.account))
    assert robbed.tokens(WALLET.account) == POINTS * TOKENS_PER_POINT


def test_the_owner_takes_a_thiefs_announcement_back(robbed: Robbed) -> None:
    """Naming the present address again replaces what was announced; the thief's never counts."""
    from_seconds = robbed.announce(THIEF)
    told = payout(robbed.config, str(WALLET.account), agree)
    assert (told["claims go to"], told["announced"]) == (str(WALLET.account), str(WALLET.account))
    robbed.world.chain.now_seconds = from_seconds + DELAY_SECONDS
    robbed.apply()
    claim(robbed.config, agree)
    assert (robbed.tokens(THIEF), robbed.tokens(WALLET.account)) == (0, POINTS * TOKENS_PER_POINT)
    with pytest.raises(SapoError, match="already paid to"):
        payout(robbed.config, str(WALLET.account), refuse)


def test_a_claim_is_not_sent_when_its_address_changed_after_it_was_shown(robbed: Robbed) -> None:
    robbed.world.chain.now_seconds = robbed.announce(THIEF)

    def agree_late(_: Sequence[SignedFields]) -> None:
        robbed.apply()

    with pytest.raises(SapoError, match=f"claims are paid to {THIEF} now, not to {WALLET.account}") as told:
        claim(robbed.config, agree_late)
    assert told.value.hint == "claim again if that is right, or set another address: sapo ledger payout"
    assert (robbed.tokens(THIEF), robbed.tokens(WALLET.account)) == (0, 0)


def test_claims_are_not_sent_to_where_they_are_lost(robbed: Robbed) -> None:
    """No contract of the swarm sends on what it is paid; the distributor pays it to others."""
    deployment, before = robbed.world.contracts.deployment, robbed.payees
    names = ("registry", "ledger", "distributor", "token", "verifier", "vault", "faucet")
    lost = {f"0x{'00' * 20}": "nobody can have the key", f"0x{'00' * 18}dEaD": "nobody can have the key"}
    lost |= {str(getattr(deployment, name)): "is a contract of this swarm" for name in names}
    told = {}
    for receiver in lost:
        with pytest.raises(SapoError) as refused:
            payout(robbed.config, receiver, refuse)
        told[receiver] = (refused.value.text, refused.value.hint)
    assert {receiver: hint for receiver, (_, hint) in told.items()} == dict.fromkeys(
        lost, "name an account whose key you hold"
    )
    assert [receiver for receiver, why in lost.items() if why not in told[receiver][0]] == []
    assert robbed.payees == before
