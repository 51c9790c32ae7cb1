"""Rollouts that an agent receives from others, and its weights of honest accounts and of attackers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Final

from sapo_client.lab.journal import CurvePoint
from sapo_protocol.errors import RemoteProtocolError
from sapo_protocol.identifiers import Account, ContentId
from sapo_protocol.rules import Rule
from sapo_verification.engine import Engine
from sapo_verification.observer import Observer
from sapo_verification.types import AdmittedRollout, SampledBatch, VerifiedRollout

FAULTS: Final = frozenset(
    {
        *(Rule.NOT_BANNED, Rule.VISIBLE_TEXT, Rule.CHECKED_IN_TIME, Rule.CHECKER_SURVIVES, Rule.NO_CODE),
        *(Rule.ASSIGNED_LEVEL, Rule.OWN_WORK, Rule.LIKELY, Rule.NO_PLANTED_PHRASE),
    }
)
"""Rules that no group of an honest account should break, whatever its policy and tokenizer."""


class Exposure(Observer):
    """Observer of an agent's engine; every account that is not an agent's or a teacher's is an attacker's.

    Args:
        agents: accounts of all agents and teachers, the own one included, in the order of their numbers.
    """

    def __init__(self, engine: Engine, agents: Sequence[Account]) -> None:
        self._engine = engine
        self._agents = frozenset(agents)
        self._number = {account: str(number) for number, account in enumerate(agents)}
        self._heard: Counter[str] = Counter()
        self._carried: frozenset[int] = frozenset()
        self._attackers: set[Account] = set()
        self._bytes = 0
        self._epoch = 0
        self._examined: set[ContentId] = set()
        self._blamed: dict[ContentId, Rule] = {}

    def admitted(self, admitted: AdmittedRollout, message: bytes, source: str) -> None:
        """Count a rollout that arrived."""
        self._bytes += len(message)
        self._epoch = max(self._epoch, admitted.rollout.epoch)
        if admitted.account not in self._agents:
            self._attackers.add(admitted.account)
        elif self._is_honest(admitted.account):
            self._heard[self._number[admitted.account]] += 1
            self._carried = self._engine.islands.carried

    def message_refused(self, error: RemoteProtocolError, message: bytes, source: str) -> None:
        """Count a message that was received and refused."""
        self._bytes += len(message)

    def refused(self, rule: Rule, admitted: AdmittedRollout, detail: str) -> None:
        """Count an honest group that is refused for a fault; repeated refusals count once."""
        if rule in FAULTS and self._is_honest(admitted.account):
            self._examined.add(admitted.content_id)
            self._blamed.setdefault(admitted.content_id, rule)

    def verified(self, rollout: VerifiedRollout) -> None:
        """Count an honest group that was checked."""
        if self._is_honest(rollout.account):
            self._examined.add(rollout.content_id)

    def added_to(self, row: CurvePoint, batch: SampledBatch) -> CurvePoint:
        """Return an agent's row with the data received since the round began."""
        others = self._agents - {self._engine.own}
        set_aside = [account for account, _ in self._engine.sampler.set_aside()]
        if self._engine.islands.is_divided:
            row = replace(
                row,
                carried=sorted(self._carried),
                heard=dict(sorted(self._heard.items())),
                shown=self._shown(batch),
            )
        return replace(
            row,
            received_bytes=self._bytes,
            attackers=sum(account not in self._agents for account in _sources(batch)),
            practised=len(batch.practised),
            demonstrations=len(batch.demonstrations),
            attackers_demonstrations=sum(each.account in self._attackers for each in batch.demonstrations),
            honest_weight=self._mean_weight(others),
            attackers_weight=self._mean_weight(self._attackers),
            honest_set_aside=sum(account in others for account in set_aside),
            attackers_set_aside=sum(account in self._attackers for account in set_aside),
            examined=len(self._examined),
            blamed=dict(sorted(Counter(rule.number for rule in self._blamed.values()).items())),
        )

    def begin_round(self) -> None:
        """Reset the counts for a new round, also after a round that was replayed from the journal."""
        self._bytes = 0
        self._heard.clear()
        self._carried = frozenset()

    def _is_honest(self, account: Account) -> bool:
        """Whether an account is another agent's or teacher's."""
        return account in self._agents and account != self._engine.own

    def _shown(self, batch: SampledBatch) -> dict[str, dict[str, int]]:
        """Return how many demonstrations of each family an agent or teacher made."""
        families = self._engine.manifest.suite.families
        shown: dict[str, Counter[str]] = {}
        for each in batch.demonstrations:
            by_author = shown.setdefault(families[each.family].name, Counter())
            by_author[self._number.get(each.account, "attackers")] += 1
        return {family: dict(sorted(by_author.items())) for family, by_author in sorted(shown.items())}

    def _mean_weight(self, accounts: Collection[Account]) -> float | None:
        """Return the mean weight by which accounts are drawn; None if all are newcomers.

        Newcomers and banned accounts add 0.
        """
        standing = self._engine.sampler.weigh(accounts, self._epoch)
        if len(standing.newcomers) == len(accounts):
            return None
        return fmean(standing.weights.get(account, 0.0) for account in accounts)


class PairedStream(random.Random):
    """Random stream of an agent whose families do not depend on what others send.

    A family is drawn with ``randrange`` for each new slot. These draws come from a stream of their own that
    restarts with every epoch, as slots do, so slot n of an epoch holds the same task in every arm and
    under every attack. Everything else is drawn from the stream itself.

    Args:
        epoch: returns the current epoch.
    """

    def __init__(self, name: str, epoch: Callable[[], int]) -> None:
        super().__init__(name)
        self._name = name
        self._epoch_now = epoch
        self._families: tuple[int, random.Random] | None = None

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Return a number from the current epoch's stream."""
        epoch = self._epoch_now()
        if self._families is None or self._families[0] != epoch:
            self._families = (epoch, random.Random(f"{self._name}/{epoch}"))
        families = self._families[1]
        return families.randrange(start) if stop is None else families.randrange(start, stop, step)


def _sources(batch: SampledBatch) -> list[Account]:
    """Return the accounts of others' groups that a batch uses as text or as tasks."""
    groups = [*batch.external, *(group.hint for group in batch.practised)]
    return [group.account for group in groups]
