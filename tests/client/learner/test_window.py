"""Prompts longer than a model's context window are left out and counted; the node continues."""

from pathlib import Path
from typing import Any

import pytest
from support.policies import make_policy_folder

from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings

WINDOW, NEW = 128, 100
FITS, TOO_LONG = "1" * (WINDOW - NEW), "1" * (WINDOW - NEW + 1)


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    folder = make_policy_folder(tmp_path / "model", "gpt2")
    return LearnerSettings(
        str(folder), tmp_path / "run", max_new_tokens=NEW, device="cpu", checkpoint_share=0.0, overlap=True
    )


def group(prompt: str, answers: list[bytes], handle: int | None = None) -> dict[str, Any]:
    rewards = [float(place % 2) for place in range(len(answers))]
    external = handle is None
    return {
        "prompt": prompt,
        "completions": answers,
        "rewards": rewards,
        "external": external,
        "handle": handle,
        "family": 0,
    }


def counts(groups: list[list[bytes]]) -> list[int]:
    return [len(each) for each in groups]


def test_a_prompt_that_leaves_no_room_is_not_answered(settings: LearnerSettings) -> None:
    service = Service(settings)
    prompts = {"prompts": [TOO_LONG, FITS, TOO_LONG], "completions_per_prompt": 4, "handles": [7, 8, 9]}
    sampled = service.call("generate", prompts)["completions"]
    assert counts(sampled) == [0, 4, 0]
    told = dict.fromkeys(range(3), ("window", "the prompt and an answer exceed the model's context window"))
    report = service.call("train", {"groups": [group(FITS, sampled[1], 8)], "ahead": prompts})
    assert counts(report.pop("generated")["completions"]) == [0, 4, 0]
    assert (report["too_long"], report["reencoded_groups"], report["tokens"] > 0) == (0, 0, True)
    none = {**prompts, "prompts": [TOO_LONG] * 3}
    nothing = {"completions": [[], [], []], "tokens": 0, "refusals": told}
    assert service.call("generate", none) == nothing
    report = service.call("train", {"groups": [], "ahead": none})
    assert report["generated"] == nothing


def test_a_question_that_leaves_no_room_has_an_empty_answer(settings: LearnerSettings) -> None:
    service = Service(settings)
    [alone] = service.call("evaluate", {"prompts": [FITS]})["completions"]
    assert service.call("evaluate", {"prompts": [TOO_LONG, FITS]})["completions"] == [b"", alone]
    assert service.call("evaluate", {"prompts": [TOO_LONG]})["completions"] == [b""]


def test_texts_of_others_that_exceed_the_window_are_not_trained(settings: LearnerSettings) -> None:
    shown = {"completion": b"19", "family": 0, "author": b"7" * 7, "answer": b"19"}
    service = Service(settings)
    report = service.call(
        "train",
        {
            "groups": [group("1" * 127, [b"3", b"4"]), group("6/8\n", [b"3", b"4"])],
            "demonstrations": [{**shown, "prompt": "1" * 127}, {**shown, "prompt": "12 + 7 =\n"}],
        },
    )
    counted = ("external_groups", "too_long", "tokens", "demonstrations_held")
    assert {name: report[name] for name in counted} == {
        "external_groups": 2,
        "too_long": 1,
        "tokens": 4,
        "demonstrations_held": 1,
    }
    assert len(report["external_weights"]) == 2
    assert report["gradient_norm"] > 0.0


def test_an_external_text_of_exactly_the_window_is_trained(settings: LearnerSettings) -> None:
    report = Service(settings).call("train", {"groups": [group("1" * 126, [b"3", b"4"])]})
    assert (report["too_long"], report["tokens"]) == (0, 4)


def test_a_window_without_room_for_any_task_is_refused_at_the_start(tmp_path: Path) -> None:
    folder = make_policy_folder(tmp_path / "model", "gpt2")
    with pytest.raises(SapoError) as caught:
        Service(LearnerSettings(str(folder), tmp_path / "run", max_new_tokens=WINDOW, device="cpu"))
    assert (caught.value.text, caught.value.hint, caught.value.exit_code) == (
        "the model reads 128 tokens, and answers of 128 leave no room for a task",
        "lower learner.max_new_tokens, or take a model with a longer window",
        ExitCode.CONFIG,
    )
