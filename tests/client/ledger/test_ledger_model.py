"""The ledger model of the auditors' state machine accepts and refuses the same calls as the contract."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

import pytest
from support.ledger import (
    AUDITORS,
    BUDGET_POINTS,
    CHALLENGE_SECONDS,
    EPOCH_SECONDS,
    GENESIS_SECONDS,
    NOW_SECONDS,
    QUORUM,
    Contracts,
    address,
    make_root,
    sign,
)
from support.ledger_model import LedgerModel

from sapo_client.ledger.fraud import Equivocation
from sapo_client.ledger.transactions import Refused
from sapo_protocol import merkle
from sapo_protocol.eip712 import EpochApproval, EpochRoot
from sapo_protocol.identifiers import Account, Digest

STEPS: Final = 50
WAITS: Final = (1, 1, CHALLENGE_SECONDS, CHALLENGE_SECONDS + EPOCH_SECONDS)
ACTIONS: Final = ("post",) * 4 + ("finalise",) * 3 + ("bond",) * 2 + ("equivocate", "leave")
CURRENT_EPOCH: Final = (NOW_SECONDS - GENESIS_SECONDS) // EPOCH_SECONDS


class Both:
    """A contract and its model, to which the same happens.

    Attributes:
        done: how often each action was taken and refused.
    """

    def __init__(self, contracts: Contracts, seed: int) -> None:
        self.contracts, self._rng = contracts, random.Random(seed)
        self.model = LedgerModel(
            domain=contracts.domain,
            auditors=tuple(map(address, AUDITORS)),
            quorum=QUORUM,
            genesis_seconds=GENESIS_SECONDS,
            epoch_seconds=EPOCH_SECONDS,
            challenge_seconds=CHALLENGE_SECONDS,
            epoch_budget=BUDGET_POINTS,
        )
        self.done: set[tuple[str, bool]] = set()

    def step(self) -> None:
        """Advance the time, apply one action to both, and compare their results and states."""
        self.contracts.chain.now_seconds += self._rng.choice(WAITS)
        name = self._rng.choice(ACTIONS)
        answers: tuple[bool, bool] = getattr(self, f"_{name}")()
        assert answers[0] == answers[1], name
        self.done.add((name, answers[0]))
        assert self._state_of_contract() == self._state_of_model(), name

    def _post(self) -> tuple[bool, bool]:
        rng, live = self._rng, self.model.live
        root = live if live is not None and rng.random() < 0.3 else self._root()  # more signatures
        statement = EpochApproval(rng_turn(rng), root)
        signers = sorted(rng.sample(AUDITORS, rng.choice((2, 3, 4, 4, 4, 4))), key=address)
        if rng.random() < 0.05:
            signers.reverse()
        signatures = sign(statement.root, self.contracts.domain, signers, statement.turn)
        ledger = self.contracts.ledger
        taken = self._sent(ledger.address, lambda: ledger.post(statement, signatures))
        return taken, self.model.post(self.contracts.chain.now_seconds, statement, signatures)

    def _finalise(self) -> tuple[bool, bool]:
        ledger = self.contracts.ledger
        taken = self._sent(ledger.address, ledger.finalise)
        return taken, self.model.finalise(self.contracts.chain.now_seconds)

    def _equivocate(self) -> tuple[bool, bool]:
        rng, domain = self._rng, self.contracts.domain
        auditor, turn, live = rng.choice(AUDITORS), rng_turn(rng), self.model.live
        a = live if live is not None and rng.random() < 0.8 else self._root()
        b = a if rng.random() < 0.1 else make_root(a.epoch + (rng.random() < 0.1), archive=99)
        [of_a], [of_b] = (sign(root, domain, [auditor], turn) for root in (a, b))
        verifier = self.contracts.verifier
        proof = Equivocation(turn, a, b, of_a, of_b)
        taken = self._sent(verifier.address, lambda: verifier.prove(proof))
        pair = EpochApproval(turn, a), EpochApproval(turn, b)
        return taken, self.model.prove_equivocation(*pair, (of_a, of_b))

    def _leave(self) -> tuple[bool, bool]:
        auditor, vault = self._rng.choice(AUDITORS), self.contracts.vault
        if not vault.bonded(address(auditor)):
            return True, True
        self.contracts.chain.send(auditor, vault.address, vault.request_exit(vault.bonded(address(auditor))))
        self.model.leave(address(auditor))
        return True, True

    def _bond(self) -> tuple[bool, bool]:
        for auditor in AUDITORS:
            if not self.contracts.vault.bonded(address(auditor)):
                self.contracts.bond(auditor)
                self.model.bond(address(auditor))
        return True, True

    def _root(self) -> EpochRoot:
        rng = self._rng
        next_epoch = self.model.final[-1].epoch + 1 if self.model.final else 0
        epoch = max(0, rng.choice((*(next_epoch,) * 6, next_epoch + 1, next_epoch - 1, CURRENT_EPOCH * 9)))
        base = self.model.base_root if rng.random() < 0.9 else Digest(bytes([7] * 32))
        total = BUDGET_POINTS + 1 if rng.random() < 0.05 else 10
        return make_root(epoch, base_root=base, total=total, archive=rng.randrange(2**64))

    def _sent(self, to: Account, data: Callable[[], bytes]) -> bool:
        try:
            self.contracts.chain.send(AUDITORS[0], to, data())
        except Refused:
            return False
        return True

    def _state_of_contract(self) -> object:
        live, contracts = self.contracts.ledger.live(), self.contracts
        bonded = {a for a in map(address, AUDITORS) if contracts.vault.bonded(a)}
        return (
            live.root if live else None,
            live.signers.bit_count() if live else 0,
            contracts.distributor.granted_points(),
            contracts.base_root,
            bonded,
        )

    def _state_of_model(self) -> object:
        state = self.model.state()
        signatures = state.live_signatures if state.live else 0
        return state.live, signatures, state.granted_points, state.base_root, state.bonded


def rng_turn(rng: random.Random) -> int:
    """Return a turn: few, so that the same one comes again."""
    return rng.choice((0, 1, 2**32 - 1))


@pytest.mark.parametrize("seed", range(3))
def test_contracts_and_model_give_equal_results_for_random_actions(contracts: Contracts, seed: int) -> None:
    both = Both(contracts, seed)
    assert both.model.base_root == merkle.EMPTY_ROOT
    for _ in range(STEPS):
        both.step()
    assert both.done >= {(name, answer) for name in ("post", "finalise") for answer in (True, False)}
