"""Rounds that are sampled while the round before is trained."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.policies import make_policy_folder

from sapo_client.errors import SapoError
from sapo_client.learner.ahead import require_possible
from sapo_client.learner.ranks.group import RankGroup
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import Message

PROMPTS = ["12 + 7 =\n", "Monday +3\n"]
COMPLETIONS = 4
ADAPTERS = {"lora_rank": 4, "gradient_checkpointing": True, "learning_rate": 1e-2}


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    folder = make_policy_folder(tmp_path / "model")
    return LearnerSettings(
        model=str(folder), directory=tmp_path / "run", max_new_tokens=10, learning_rate=3e-3, overlap=True
    )


def request_of(number: int) -> Message:
    """Return the arguments of ``generate`` of a round."""
    handles = [2 * number + 1, 2 * number + 2]
    return {"prompts": PROMPTS, "completions_per_prompt": COMPLETIONS, "handles": handles}


def rewarded(number: int, texts: list[list[bytes]]) -> list[Message]:
    """Return the groups of a round; one completion of each is right."""
    handles = request_of(number)["handles"]
    return [
        {"prompt": prompt, "completions": group, "rewards": [1.0, 0.0, 0.0, 0.0], "external": False}
        | {"handle": handle}
        for prompt, group, handle in zip(PROMPTS, texts, handles, strict=True)
    ]


def figures(report: Message) -> Message:
    """Return a report without its duration and without what was sampled meanwhile.

    Sums differ in the last bits where one of two learners reuses what sampling has computed.
    """
    found = {name: value for name, value in report.items() if name not in ("seconds", "generated")}
    return {
        name: pytest.approx(value, rel=1e-4, abs=1e-6) if isinstance(value, float) else value
        for name, value in found.items()
    }


@pytest.mark.parametrize("changes", [{}, ADAPTERS], ids=["all parameters", "adapters, recomputed"])
def test_an_overlapped_round_is_sampled_with_the_weights_of_the_previous_step(
    settings: LearnerSettings, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """The same in turn: sample both rounds, then train the first, then the second."""
    together = Service(replace(settings, **changes))
    in_turn = Service(replace(settings, **changes, overlap=False, directory=tmp_path / "other"))
    first = together.call("generate", request_of(0))["completions"]
    assert first == in_turn.call("generate", request_of(0))["completions"]
    second = in_turn.call("generate", request_of(1))["completions"]
    step = together.call("train", {"groups": rewarded(0, first), "ahead": request_of(1)})
    assert step["generated"]["completions"] == second
    assert in_turn.call("train", {"groups": rewarded(0, first)}) | {"seconds": 0} == figures(step) | {
        "seconds": 0
    }
    last = together.call("train", {"groups": rewarded(1, second)})
    assert in_turn.call("train", {"groups": rewarded(1, second)}) | {"seconds": 0} == figures(last) | {
        "seconds": 0
    }
    assert (step["age"], last["age"], last["reencoded_groups"]) == (0.0, 1.0, 0)
    assert step["mismatch"] < 1e-6 < last["mismatch"]


def test_states_sampled_ahead_are_not_reused_after_an_update(settings: LearnerSettings) -> None:
    service = Service(settings)
    service.call("generate", request_of(0))
    assert all(item.states is None for held in service._held.values() for item in held.completions)


def test_an_overlapped_policy_learns(settings: LearnerSettings) -> None:
    """Completions that contain a chosen byte are right; after some steps most do."""
    service = Service(replace(settings, temperature=1.0))
    texts = service.call("generate", request_of(0))["completions"]
    joined = b"".join(texts[0] + texts[1])
    letter = min(set(joined), key=joined.count)
    shares = []
    for number in range(40):
        groups = rewarded(number, texts)
        for group in groups:
            group["rewards"] = [float(letter in text) for text in group["completions"]]
        shares.append(sum(sum(group["rewards"]) for group in groups) / (2 * COMPLETIONS))
        report = service.call("train", {"groups": groups, "ahead": request_of(number + 1)})
        texts = report["generated"]["completions"]
    assert sum(shares[-5:]) > 2 * sum(shares[:5])


def test_a_checkpoint_continues_with_the_next_samples(settings: LearnerSettings) -> None:
    """The sampler's stream counts what was sampled ahead, so no round is sampled twice."""
    service = Service(settings)
    first = service.call("generate", request_of(0))["completions"]
    service.call("train", {"groups": rewarded(0, first), "ahead": request_of(1)})
    service.checkpoint()
    third = service.call("generate", request_of(2))["completions"]
    resumed = Service(settings)
    assert resumed.call("generate", request_of(2))["completions"] == third


def test_adapters_share_the_frozen_model(settings: LearnerSettings) -> None:
    service = Service(replace(settings, lora_rank=4))
    trained, sampled = service._policy.model, service._replica.policy.model
    own = {id(each) for each in trained.parameters()}
    copied = [each.numel() for each in sampled.parameters() if id(each) not in own]
    assert sum(copied) == sum(each.numel() for each in trained.parameters() if each.requires_grad)


def test_several_ranks_do_not_overlap(settings: LearnerSettings) -> None:
    with pytest.raises(SapoError, match=r"learner\.overlap needs a single rank") as caught:
        require_possible(settings, RankGroup(0, 2))
    assert "learner.overlap = false" in caught.value.hint
