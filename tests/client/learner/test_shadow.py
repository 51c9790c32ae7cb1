"""The shadow: the last good policy, trained since then only on own groups."""

import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch
from support.crashing import Killed
from support.killed_files import killed_after
from support.policies import make_policy_folder
from support.trainers import demonstration

from sapo_client.errors import SapoError
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import Message

PROMPTS = ["12 + 7 =\n", "6/8\n"]
REWARDS = [1.0, 0.0, 0.0, 1.0]
FOREIGN: Message = {
    "prompt": PROMPTS[0],
    "completions": [b"19", b"1", b"2", b"3"],
    "rewards": [1.0, 0.0, 0.0, 0.0],
    "external": True,
    "handle": None,
    "family": 0,
}
SHOWN = [demonstration(number, family=0) for number in range(8)]


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    folder = make_policy_folder(tmp_path / "model")
    return LearnerSettings(
        model=str(folder),
        directory=tmp_path / "run",
        learning_rate=1e-2,
        max_new_tokens=8,
        checkpoint_share=0.0,
        own_steps_kept=4,
        demonstrations_per_step=2,
        demonstration_rate=1e-2,
        need_below=1.0,
    )


def own_groups(service: Service, number: int) -> list[Message]:
    """Return the groups of a round that the policy sampled itself."""
    handles = [10 * number, 10 * number + 1]
    arguments = {"prompts": PROMPTS, "completions_per_prompt": 4, "handles": handles}
    sampled = service.call("generate", arguments)["completions"]
    return [
        {"prompt": prompt, "completions": texts, "rewards": REWARDS}
        | {"external": False, "handle": handle, "family": family}
        for family, (prompt, texts, handle) in enumerate(zip(PROMPTS, sampled, handles, strict=True))
    ]


def state(service: Service) -> dict[str, object]:
    """Return everything that training changes and a checkpoint holds."""
    trainer = service._trainer
    moments = trainer.optimizer.state_dict()["state"]
    return {
        "weights": torch.cat([parameter.detach().flatten() for parameter in trainer.parameters]).tolist(),
        "moments": [moments[index]["exp_avg"].flatten().tolist() for index in sorted(moments)],
        "shown": list(trainer.demonstrations),
        "own": list(trainer.own_successes),
        "baselines": trainer.baselines,
        "statistics": trainer.logprob_statistics,
        "steps": trainer.steps,
    }


def equal_share(one: Service, other: Service) -> float:
    """Return the share of weights that are equal but for rounding.

    The shadow computes again what sampling had kept; AdamW's first step turns the sign of a tiny gradient
    into a whole step.
    """
    pairs = zip(one._trainer.parameters, other._trainer.parameters, strict=True)
    equal = torch.cat([torch.isclose(mine, its, atol=1e-6).flatten() for mine, its in pairs])
    return float(equal.float().mean())


def test_the_shadow_is_the_policy_without_others_text(settings: LearnerSettings) -> None:
    """Against a learner that never saw that text; one round, since later ones are sampled by the policy."""
    service, alone = Service(settings), Service(replace(settings, directory=settings.directory / "alone"))
    service.call("keep_good", {})
    groups = own_groups(service, 0)
    assert own_groups(alone, 0) == groups
    service.call("train", {"groups": [*groups, FOREIGN], "demonstrations": SHOWN})
    alone.call("train", {"groups": groups})
    before = state(service)
    assert equal_share(service, alone) < 0.5

    asked = {"prompts": PROMPTS}
    assert service.call("shadow", asked) == alone.call("evaluate", asked)
    assert state(service) == before, "the policy itself goes on"
    assert service.call("roll_back", {}) == {"step": 1}
    assert equal_share(service, alone) > 0.99
    statistics = ("shown", "own", "baselines", "statistics", "steps")
    found, expected = state(service), state(alone)
    assert {name: found[name] for name in statistics} == {name: expected[name] for name in statistics}
    assert own_groups(service, 1) == own_groups(alone, 1), "the sampler's stream goes on as well"


def test_the_reference_for_text_of_others_stays_the_policy(settings: LearnerSettings) -> None:
    """The shadow's gradients on earlier own groups do not enter the mean of the policy's steps."""
    states = []
    for name in ("checked", "unchecked"):
        agreeing = replace(settings, agreement=True, directory=settings.directory / name)
        service = Service(agreeing)
        service.call("keep_good", {})
        for number in range(2):
            service.call("train", {"groups": [*own_groups(service, number), FOREIGN]})
        if name == "checked":
            service.call("shadow", {"prompts": PROMPTS})
        states.append([mean.tolist() for mean in service._trainer.own_gradient.mean])
    assert states[0] == states[1] != []


def test_the_shadow_continues_from_its_last_state(settings: LearnerSettings) -> None:
    """Own groups of two rounds, trained at once or in between, are the same training."""
    at_once, between = (Service(replace(settings, directory=settings.directory / name)) for name in "ab")
    for service in (at_once, between):
        service.call("keep_good", {})
        for number in range(2):
            service.call("train", {"groups": [*own_groups(service, number), FOREIGN]})
            if service is between:
                service.call("shadow", {"prompts": []})
    assert at_once.call("shadow", {"prompts": PROMPTS}) == between.call("shadow", {"prompts": PROMPTS})
    for service in (at_once, between):
        service.call("roll_back", {})
    assert state(at_once) == state(between)


def test_demonstrations_of_the_good_policy_are_kept_after_a_rollback(settings: LearnerSettings) -> None:
    """They are not trained in the shadow; after a rollback they are."""
    service = Service(settings)
    for number in range(9):
        groups = [group | {"rewards": [0.0] * 4} for group in own_groups(service, number)]
        service.call("train", {"groups": groups, "demonstrations": SHOWN})
    service.call("keep_good", {})
    kept = list(service._trainer.demonstrations)
    supervised = service._trainer.supervised.optimizer.state_dict()["state"][0]["step"].clone()
    other = {**SHOWN[0], "prompt": PROMPTS[1], "family": 1}
    service.call("train", {"groups": own_groups(service, 9), "demonstrations": [other]})
    assert len(service._trainer.demonstrations) == len(kept) + 1
    service.call("shadow", {"prompts": PROMPTS})
    service.call("roll_back", {})
    assert list(service._trainer.demonstrations) == kept
    assert torch.equal(service._trainer.supervised.optimizer.state_dict()["state"][0]["step"], supervised)


def test_after_a_rollback_only_texts_of_identified_accounts_are_deleted(settings: LearnerSettings) -> None:
    """Policy and optimizers go back, the buffer does not: what honest accounts showed is learned again."""
    service = Service(settings)
    service.call("keep_good", {})
    good = state(service)
    service.call("train", {"groups": own_groups(service, 0), "demonstrations": SHOWN})
    kept = [text for text in service._trainer.demonstrations if text.author != b"1"]
    assert 0 < len(kept) < len(SHOWN)
    service.call("roll_back", {"planters": [b"1"]})
    assert state(service) == good | {"steps": 1, "shown": kept}
    assert Service(settings)._trainer.demonstrations.families() == {0}


def test_stored_steps_are_bounded_by_those_of_one_check(settings: LearnerSettings) -> None:
    """Of five own steps the last four; one that keeps none has the good policy for a shadow."""
    service = Service(settings)
    service.call("keep_good", {})
    for number in range(5):
        service.call("train", {"groups": own_groups(service, number)})
    assert [len(groups) for groups in service._own_steps] == [2] * 4
    assert all(each.states is None for groups in service._own_steps for each in groups)
    forgetful = Service(replace(settings, own_steps_kept=0, fresh=True))
    forgetful.call("keep_good", {})
    good = state(forgetful)
    forgetful.call("train", {"groups": own_groups(forgetful, 0)})
    forgetful.call("shadow", {"prompts": PROMPTS})
    forgetful.call("roll_back", {})
    assert state(forgetful) == good | {"steps": 1}


def test_a_kill_at_any_moment_of_the_replacement_loses_no_good_policy(
    settings: LearnerSettings, tmp_path: Path
) -> None:
    """The new one has the old one's number of steps, as after a check without a step between."""
    service = Service(settings)
    service.call("keep_good", {})
    old = weights(service)
    with torch.no_grad():
        service._trainer.parameters[0].add_(1.0)
    new = weights(service)
    before = shutil.copytree(settings.directory / "good", tmp_path / "before")
    seen = []
    for changes in count():
        shutil.rmtree(settings.directory / "good")
        shutil.copytree(before, settings.directory / "good")
        try:
            with killed_after(changes):
                service.call("keep_good", {})
        except Killed:
            seen.append(kept_weights(settings))
            continue
        break
    assert seen == [old] * seen.count(old) + [new] * seen.count(new)
    assert seen.count(old) >= 3, "it was killed before the folder, and between the two renames"
    assert seen.count(new) >= 2, "and while the old one was removed"
    assert kept_weights(settings) == new


def weights(service: Service) -> list[list[float]]:
    return [parameter.flatten().tolist() for parameter in service._trainer.parameters]


def kept_weights(settings: LearnerSettings) -> list[list[float]]:
    """Return the weights to which a learner that starts now goes back."""
    started = Service(settings)
    assert started.call("roll_back", {}) == {"step": 0}
    shutil.rmtree(settings.directory / "checkpoints")
    return weights(started)


@pytest.mark.parametrize("loss", ["never kept", "removed", "damaged"])
@pytest.mark.parametrize(
    "call", [("shadow", {"prompts": PROMPTS}), ("roll_back", {})], ids=["shadow", "back"]
)
def test_a_good_policy_that_is_lost_is_replaced_by_the_present_one(
    settings: LearnerSettings, loss: str, call: tuple[str, Message]
) -> None:
    service = Service(settings)
    if loss != "never kept":
        service.call("keep_good", {})
    service.call("train", {"groups": own_groups(service, 0)})
    lose(settings, loss)
    before = state(service)
    name, arguments = call
    told = {"happened": [("good_lost", {"step": 1})]}
    answers = {"step": 1} if name == "roll_back" else service.call("evaluate", arguments)
    assert service.call(name, arguments) == answers | told
    assert state(service) == before
    service.call("train", {"groups": [FOREIGN]})
    assert service.call("roll_back", {}) == {"step": 2}, "nothing more is told, and it goes back"
    assert state(service) == before | {"steps": 2}


def lose(settings: LearnerSettings, loss: str) -> None:
    for checkpoint in (settings.directory / "good").glob("step-*"):
        if loss == "removed":
            shutil.rmtree(checkpoint)
        else:
            (checkpoint / "state.safetensors").write_bytes(b"half")


def test_a_shadow_that_cannot_be_written_changes_nothing(settings: LearnerSettings) -> None:
    """The next one is trained on the own groups of both."""
    service = Service(settings)
    service.call("keep_good", {})
    service.call("train", {"groups": [*own_groups(service, 0), FOREIGN]})
    before = state(service)
    in_the_way = settings.directory / "good" / ".writing-step-0000000001"
    in_the_way.write_bytes(b"")  # where the new one's folder is to be
    with pytest.raises(SapoError, match="could not be written") as caught:
        service.call("shadow", {"prompts": PROMPTS})
    assert (caught.value.transient, caught.value.finding) == (True, "checkpoint_failed")
    assert state(service) == before
    in_the_way.unlink()
    answers = service.call("shadow", {"prompts": PROMPTS})
    assert state(service) == before
    untroubled = Service(replace(settings, directory=settings.directory.with_name("untroubled")))
    untroubled.call("keep_good", {})
    untroubled.call("train", {"groups": [*own_groups(untroubled, 0), FOREIGN]})
    assert answers == untroubled.call("shadow", {"prompts": PROMPTS})
    for each in (service, untroubled):
        each.call("roll_back", {})
    assert weights(service) == weights(untroubled)


def test_a_killed_learner_resumes_the_policy_and_not_the_shadow(settings: LearnerSettings) -> None:
    service = Service(settings)
    service.call("keep_good", {})
    service.call("train", {"groups": [*own_groups(service, 0), FOREIGN]})
    service.call("shadow", {"prompts": PROMPTS})
    before = state(service)
    assert state(Service(settings)) == before
