"""The candidate: the average of weights trained on demonstrations, next to an unchanged policy."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from support.policies import make_policy_folder
from support.trainers import demonstration, make_trainer

from sapo_client.learner.baseline import MIN_SAMPLES, Baselines, FamilyBaseline
from sapo_client.learner.batch import TrainingGroup
from sapo_client.learner.cpu.kept_states import KeptStates
from sapo_client.learner.imitation.demonstrations import DemonstrationText
from sapo_client.learner.report import StepReport
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.trainer import Trainer

FAMILY = 4
FAILING = Baselines({FAMILY: FamilyBaseline(0.0, MIN_SAMPLES)})
SOLVED = Baselines({FAMILY: FamilyBaseline(0.9, MIN_SAMPLES)})
TEXTS = [
    DemonstrationText(
        (30, 31, 32, 50 + i), tuple(range(40 + i, 46 + 3 * i)), FAMILY, b"ann", b"%d" % i, steps=3
    )
    for i in range(4)
]
OWN = TrainingGroup((30, 31), ((40, 41), (42,)), (1.0, 0.0), external=False, behaviour=None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_policy_folder(tmp_path / "model")


def trainer_of(folder: Path, *, held_back: bool) -> Trainer:
    trainer = make_trainer(
        folder,
        held_back=held_back,
        demonstration_rate=1e-2,
        demonstration_steps=3,
        demonstration_averaging=0.75,
        demonstrations_per_step=2,
    )
    trainer.baselines = FAILING
    return trainer


def policy(trainer: Trainer) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trainer.parameters])


def candidate(trainer: Trainer) -> torch.Tensor:
    values = trainer.supervised.weights.candidate
    assert values is not None
    return torch.cat([value.flatten() for value in values])


def plain(report: StepReport) -> dict[str, object]:
    return asdict(replace(report, seconds=0.0, has_candidate=False))


def test_demonstrations_train_the_candidate_as_they_would_have_trained_the_policy(folder: Path) -> None:
    """The reports are equal, too, so that what steps are worth is what they are worth to the candidate."""
    held, at_once = trainer_of(folder, held_back=True), trainer_of(folder, held_back=False)
    before = policy(held)
    for round_ in range(4):
        news = TEXTS if round_ == 0 else [replace(TEXTS[0], completion=(41, 42, 43, 44 + round_))]
        reports = [trainer.step([], demonstrations=news) for trainer in (held, at_once)]
        assert [report.has_candidate for report in reports] == [round_ > 0, False], "four steps are asked for"
        assert plain(reports[0]) == plain(reports[1])
        assert torch.equal(policy(held), before)
        assert torch.equal(candidate(held), policy(at_once))
    held.supervised.weights.promote()
    assert torch.equal(policy(held), policy(at_once))
    reports = [trainer.step([OWN], demonstrations=TEXTS[:1]) for trainer in (held, at_once)]
    assert reports[0].has_candidate is False, "from then on the policy is the average"
    assert plain(reports[0]) == plain(reports[1])
    assert torch.equal(policy(held), policy(at_once))


def test_a_policy_beside_a_candidate_trains_on_its_groups_as_without_one(folder: Path) -> None:
    held, alone = trainer_of(folder, held_back=True), trainer_of(folder, held_back=True)
    for round_ in range(4):
        held.step([OWN], demonstrations=TEXTS if round_ == 0 else ())
        alone.step([OWN])
        assert torch.equal(policy(held), policy(alone))
    assert alone.supervised.weights.candidate is None


def test_the_candidate_moves_with_the_policy(folder: Path) -> None:
    trainer = trainer_of(folder, held_back=True)
    trainer.step([], demonstrations=TEXTS)
    before = policy(trainer), candidate(trainer)
    with trainer.supervised.weights.training_policy(), torch.no_grad():
        for parameter in trainer.parameters:
            parameter.mul_(1.01)
    moved = policy(trainer) - before[0]
    assert float(moved.abs().max()) > 1e-3
    assert torch.allclose(candidate(trainer) - before[1], moved, atol=1e-6)


def test_the_candidate_is_dropped_when_every_family_is_solved(folder: Path) -> None:
    trainer = trainer_of(folder, held_back=True)
    trainer.step([], demonstrations=TEXTS)
    before = policy(trainer)
    trainer.baselines = SOLVED
    assert trainer.step([]).has_candidate is False
    trainer.supervised.weights.promote()
    assert torch.equal(policy(trainer), before)
    trainer.baselines = FAILING
    reports = [trainer.step([], demonstrations=TEXTS) for _ in range(2)]
    assert [report.has_candidate for report in reports] == [False, True], "a new one, with steps of its own"


PROMPTS = ["12 + 7 =\n", "6/8\n", "9 - 4 =\n"]
SHOWN = [demonstration(number, family=0) for number in range(8)]


@pytest.fixture
def settings(folder: Path) -> LearnerSettings:
    return LearnerSettings(
        model=str(folder),
        directory=folder.parent / "run",
        max_new_tokens=8,
        checkpoint_share=0.0,
        demonstrations_per_step=2,
        demonstration_rate=1e-2,
        demonstration_steps=3,
        demonstration_averaging=0.5,
        held_back=True,
    )


def taught(settings: LearnerSettings) -> Service:
    service = Service(settings)
    service._trainer.baselines = Baselines({0: FamilyBaseline(0.0, MIN_SAMPLES)})
    service.call("train", {"groups": [], "demonstrations": SHOWN})
    return service


def asked(service: Service) -> list[bytes]:
    """Return the policy's answers, sampled as ``compare`` does."""
    found: list[bytes] = service.call("evaluate", {"prompts": PROMPTS, "temperature": 1.0, "seed": 5})[
        "completions"
    ]
    return found


def test_a_comparison_answers_the_same_prompts_with_both_and_changes_neither(
    settings: LearnerSettings,
) -> None:
    service = taught(settings)
    before = policy(service._trainer), candidate(service._trainer), asked(service)
    found = service.call("compare", {"prompts": PROMPTS, "seed": 5})
    after = policy(service._trainer), candidate(service._trainer), asked(service)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert found["policy"] == before[2] == after[2]
    assert found["candidate"] != found["policy"]
    assert 2 * len(PROMPTS) <= found["tokens"] <= 2 * len(PROMPTS) * settings.max_new_tokens
    assert service.call("promote", {}) == {"step": 1}
    assert asked(service) == found["candidate"]


def test_without_a_candidate_a_comparison_returns_the_answers_of_the_policy_twice(
    settings: LearnerSettings,
) -> None:
    service = Service(settings)
    found = service.call("compare", {"prompts": PROMPTS, "seed": 5})
    assert found["policy"] == found["candidate"] == asked(service)


@pytest.mark.parametrize("promoted", [False, True])
def test_a_restart_keeps_the_candidate_or_its_absence(settings: LearnerSettings, *, promoted: bool) -> None:
    """And in how many steps it was trained, so that it is compared in time."""
    service = taught(replace(settings, demonstration_averaging=0.8))
    if promoted:
        service.call("promote", {})
    service.call("checkpoint", {})
    resumed = Service(replace(settings, demonstration_averaging=0.8))
    reports = [
        {**each.call("train", {"groups": [], "demonstrations": SHOWN[:2]}), "seconds": 0.0}
        for each in (resumed, service)
    ]
    assert reports[0] == reports[1]
    assert reports[0]["has_candidate"] is not promoted
    assert torch.equal(policy(resumed._trainer), policy(service._trainer))
    if not promoted:
        assert torch.equal(candidate(resumed._trainer), candidate(service._trainer))


def test_a_promotion_is_not_undone_by_a_crash(settings: LearnerSettings) -> None:
    """Its evidence was found in many rounds; a large policy is rarely saved otherwise."""
    rarely = replace(settings, checkpoint_share=1e-9)
    service = taught(rarely)
    service.call("checkpoint", {})
    service.call("promote", {})
    promoted = policy(service._trainer)
    resumed = Service(rarely)
    assert torch.equal(policy(resumed._trainer), promoted)
    assert resumed._trainer.supervised.weights.candidate is None


@pytest.mark.parametrize("planters", [[], [SHOWN[0]["author"]]])
def test_a_policy_that_goes_back_has_no_candidate_that_may_bring_the_harm_back(
    settings: LearnerSettings, planters: list[bytes]
) -> None:
    """Whoever planted text in it before the good policy was kept has no demonstrations to find it by."""
    service = taught(settings)
    service.call("keep_good", {})
    before = policy(service._trainer)
    service.call("promote", {})
    assert not torch.equal(policy(service._trainer), before)
    service.call("roll_back", {"planters": planters})
    for each in (service, Service(settings)):
        each.call("promote", {})
        assert torch.equal(policy(each._trainer), before)
        assert each._trainer.supervised.weights.student is None


def test_states_from_sampling_are_reused_beside_a_candidate(
    settings: LearnerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts for the weights that sampled, so texts are valued by the candidate after the update."""
    fresh: list[bool] = []
    is_fresh = vars(KeptStates)["is_fresh"].fget

    def noted(kept: KeptStates) -> bool:
        fresh.append(is_fresh(kept))
        return fresh[-1]

    monkeypatch.setattr(KeptStates, "is_fresh", property(noted))
    service = taught(replace(settings, max_new_tokens=60))
    texts = service.call("generate", {"prompts": PROMPTS[:1], "completions_per_prompt": 4, "handles": [1]})
    group = {"prompt": PROMPTS[0], "completions": texts["completions"][0], "rewards": [1.0, 0.0, 0.0, 1.0]}
    steps = [shown | {"completion": b"1+2:3<answer>%d</answer>" % place} for place, shown in enumerate(SHOWN)]
    batch = [group | {"external": False, "handle": 1, "family": 1}]
    report = service.call("train", {"groups": batch, "demonstrations": steps})
    assert any(value is not None for value in report["step_values"])
    assert fresh
    assert all(fresh)


def test_with_held_back_disabled_a_stored_candidate_becomes_the_policy(
    settings: LearnerSettings,
) -> None:
    service = taught(settings)
    held = candidate(service._trainer)
    service.call("checkpoint", {})
    open_ = Service(replace(settings, held_back=False))
    with open_._trainer.supervised.weights.training_student():
        pass
    assert open_._trainer.supervised.weights.candidate is None
    assert torch.equal(policy(open_._trainer), held)


def test_a_policy_that_is_rolled_back_has_no_candidate(settings: LearnerSettings) -> None:
    """The good policy had none; nor has the shadow, which is trained on own groups alone."""
    service = Service(replace(settings, own_steps_kept=4))
    service.call("keep_good", {})
    service._trainer.baselines = Baselines({0: FamilyBaseline(0.0, MIN_SAMPLES)})
    assert service.call("train", {"groups": [], "demonstrations": SHOWN})["has_candidate"] is True
    before = candidate(service._trainer)
    service.call("shadow", {"prompts": PROMPTS})
    assert torch.equal(candidate(service._trainer), before)
    service.call("roll_back", {})
    assert service._trainer.supervised.weights.candidate is None
    assert service._trainer.supervised.weights.student is None
