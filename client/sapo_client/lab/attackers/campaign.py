"""`sapo lab attack`: every attack against every arm, compared with the same swarm without attackers.

One folder per experiment of `lab.store`: ``clean``, ATTACK-N for an attack by N accounts, and ``alone`` if
agents that train alone have another number of rounds. The honest agents have the same keys, tasks, initial
models and seeds in all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sapo_client.errors import ExitCode, SapoError
from sapo_client.lab.arms import ARMS, BASELINE, Arm
from sapo_client.lab.attackers.catalogue import ATTACKS, LabAttack, attack_named, is_possible
from sapo_client.lab.campaign import Progress, execute_runs
from sapo_client.lab.plan import ExperimentPlan, Run
from sapo_client.lab.simulate import manifest_of
from sapo_client.lab.store import ExperimentStore
from sapo_protocol.manifest import Manifest
from sapo_verification.suites.catalogue import family

CLEAN: Final = "clean"
ALONE: Final = "alone"


@dataclass(frozen=True, slots=True)
class AttackCampaign:
    """Experiments that differ only in their attack.

    Attributes:
        root: folder of all experiments.
        plan: plan without an attack.
        attacks: attacks, each with its number of accounts.
        alone_rounds: number of rounds of agents that train alone; by default the plan's. Their rounds are
            cheaper, so they need more of them to spend as many seconds as the others.
    """

    root: Path
    plan: ExperimentPlan
    attacks: tuple[tuple[LabAttack, int], ...]
    alone_rounds: int | None = None

    @property
    def clean(self) -> ExperimentStore:
        """The experiment without attackers."""
        return ExperimentStore(self.root / CLEAN)

    @property
    def alone(self) -> ExperimentStore:
        """The experiment whose agents train alone: the clean one, unless their number of rounds differs."""
        return self.clean if self.alone_rounds is None else ExperimentStore(self.root / ALONE)

    def plans(self) -> Iterator[tuple[ExperimentStore, ExperimentPlan]]:
        """Yield all experiments with their plans, the clean one first."""
        yield self.clean, self.plan
        for attack, accounts in self.attacks:
            plan = self.plan.under(attack.name, accounts)
            yield ExperimentStore(self.root / f"{attack.name}-{accounts}"), plan

    def runs(self, arms: Sequence[Arm], seeds: Sequence[int]) -> list[tuple[ExperimentStore, list[Run]]]:
        """Return the runs of every experiment; the arm that trains alone needs no attack."""
        alone = [ARMS[BASELINE]]
        sharing = [arm for arm in arms if arm.name != BASELINE]
        clean, *attacked = self.plans()
        if self.alone_rounds is None:
            first = [(*clean, [*alone, *sharing])]
        else:
            first = [(self.alone, replace(self.plan, rounds=self.alone_rounds), alone), (*clean, sharing)]
        return [
            (store, [Run(plan, arm, seed) for seed in seeds for arm in chosen])
            for store, plan, chosen in (*first, *((*each, sharing) for each in attacked))
            if chosen
        ]

    def execute_runs(
        self, runs: Sequence[tuple[ExperimentStore, list[Run]]], jobs: int, progress: Progress
    ) -> None:
        """Execute the unfinished runs.

        Raises:
            SapoError: one of them fails, or a folder contains an experiment with another plan.
        """
        manifest: list[Manifest] = []

        def shared() -> Manifest:
            if not manifest:
                manifest.append(manifest_of(self.plan))
            return manifest[0]

        for store, each in runs:
            store.create(each[0].plan, shared)
        for store, each in runs:
            execute_runs(store, each, jobs, progress)


def campaign_of(
    root: Path,
    plan: ExperimentPlan,
    names: Sequence[str],
    attackers: Sequence[int],
    alone_rounds: int | None = None,
) -> AttackCampaign:
    """Return the campaign of the named attacks, by default of all that are possible with the plan's families.

    Args:
        attackers: numbers of accounts to try; empty for the number closest to each attack's share. Attacks
            with a share of their own keep it.

    Raises:
        SapoError: there is no such attack, a named one is impossible with these families, attackers are not a
            minority, or agents that train alone have fewer rounds than the others.
    """
    if alone_rounds is not None and alone_rounds < plan.rounds:
        raise SapoError(
            f"{alone_rounds} rounds alone beside {plan.rounds} of the swarm",
            hint="--alone-rounds takes as many rounds as the swarm has, or more",
            exit_code=ExitCode.USAGE,
        )
    if any(not 0 < number < plan.honest for number in attackers):
        raise SapoError(
            f"{max(attackers)} attackers among {plan.honest} honest accounts",
            hint="--attackers takes numbers from 1 to one less than these",
            exit_code=ExitCode.USAGE,
        )
    families = [family(name, plan.level) for name in plan.families]
    chosen = [attack_named(name) for name in names]
    chosen = chosen or [attack for attack in ATTACKS.values() if is_possible(attack, families)]
    pairs = [
        (attack, number)
        for attack in chosen
        for number in (
            attackers if attackers and not attack.has_own_share else (attack.accounts(plan.honest),)
        )
    ]
    for attack, number in pairs:
        plan.under(attack.name, number)  # refuses an impossible attack before anything is written
    return AttackCampaign(root, plan, tuple(pairs), alone_rounds)
