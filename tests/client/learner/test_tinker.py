"""A learner on a Tinker server: the real client, and a small server of its protocol that really trains."""

import math
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import trio
from support.policies import make_policy_folder

from sapo_client import extras
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.process import Learner
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.learner.wire import Message

pytest.importorskip("tinker")

from support.tinker_api import KEY, TinkerApi, tinker_api

from sapo_client.learner.ranks.opening import open_calls
from sapo_client.learner.remote.tinker_service import TinkerService

PROMPTS = ["12 + 7 =\n", "6/8\n"]
SAME = {
    "loss",
    "mean_reward",
    "external_weights",
    "tokens",
    "clipped_share",
    "demonstrations",
    "demonstration_loss",
    "demonstration_families",
}
"""What a report says of a step here and there; the server does not report the gradient's norm."""


@pytest.fixture
def api() -> Iterator[tuple[str, TinkerApi]]:
    torch.set_num_threads(1)
    with tinker_api() as served:
        yield served


@pytest.fixture
def settings(tmp_path: Path) -> LearnerSettings:
    folder = make_policy_folder(tmp_path / "model")
    return LearnerSettings(
        model=str(folder),
        directory=tmp_path / "here",
        device="cpu",
        max_new_tokens=8,
        learning_rate=1e-3,
        demonstration_rate=1e-3,
        checkpoint_share=0.0,
    )


def there(settings: LearnerSettings, url: str) -> LearnerSettings:
    """Return the settings of a learner on the server."""
    directory = settings.directory.with_name("there")
    return replace(settings, directory=directory, tinker=True, endpoint=url, endpoint_key=KEY)


def batch(number: int) -> dict[str, Any]:
    """Return a step's groups, of this node and of another one."""
    return {
        "groups": [
            {
                "prompt": f"{index} + {number} =\n",
                "completions": [b"%d" % (index + number + right) for right in range(4)],
                "rewards": [1.0, 0.0, float(index % 2), 0.0],
                "external": index % 2 == 1,
                "handle": None,
                "family": 0,
            }
            for index in range(4)
        ]
    }


def demonstrations() -> dict[str, Any]:
    """Return a step without groups whose families fail here, and right answers of others."""
    failed = {"prompt": "9 =\n", "completions": [b"1"] * 40, "rewards": [0.0] * 40, "external": False}
    shown = [
        {"prompt": f"{n} + 7 =\n", "completion": b"%d" % (n + 7), "family": 1, "author": b"%d" % n}
        | {"answer": b"%d" % n}
        for n in range(4)
    ]
    return {"groups": [{**failed, "handle": None, "family": 1}], "demonstrations": shown}


def same(report: dict[str, Any]) -> dict[str, Any]:
    """Return what must be equal in a report, within rounding."""
    return {
        name: report[name] if isinstance(report[name], dict) else pytest.approx(report[name], abs=1e-5)
        for name in SAME
    }


def test_steps_on_the_server_are_the_steps_made_here(
    settings: LearnerSettings, api: tuple[str, TinkerApi]
) -> None:
    settings = replace(settings, demonstration_steps=1, demonstration_averaging=0.0)
    here, remote = Service(settings), TinkerService(there(settings, api[0]))
    for number in range(2):
        expected = here.call("train", batch(number))
        report = remote.call("train", batch(number))
        assert {name: report[name] for name in SAME} == same(expected)
    assert remote.call("evaluate", {"prompts": PROMPTS}) == here.call("evaluate", {"prompts": PROMPTS})
    expected, report = (each.call("train", demonstrations()) for each in (here, remote))
    assert {name: report[name] for name in SAME} == same(expected)
    assert report["demonstrations"] == 4
    assert api[1].calls.count("optim_step") == 3


def test_sampled_tokens_are_trained_with_the_servers_log_probabilities(
    settings: LearnerSettings, api: tuple[str, TinkerApi]
) -> None:
    service = open_calls(there(settings, api[0]))
    sampled = service.call("generate", {"prompts": PROMPTS, "completions_per_prompt": 3, "handles": [1, 2]})
    assert [len(group) for group in sampled["completions"]] == [3, 3]
    groups = [
        {"prompt": prompt, "completions": texts, "rewards": [0.0, 1.0, 0.0], "external": False}
        | {"handle": handle, "family": 0}
        for prompt, texts, handle in zip(PROMPTS, sampled["completions"], (1, 2), strict=True)
    ]
    report = service.call("train", {"groups": groups})
    assert (report["reencoded_groups"], report["clipped_share"]) == (0, 0.0)
    assert report["entropy"] > 0


def test_a_checkpoint_resumes_on_the_server(settings: LearnerSettings, api: tuple[str, TinkerApi]) -> None:
    remote = there(settings, api[0])
    first = TinkerService(remote)
    first.call("train", batch(0))
    first.call("keep_good", {})
    first.call("checkpoint", {})
    answers = first.call("evaluate", {"prompts": PROMPTS})
    expected = first.call("train", batch(1))
    first.call("roll_back", {})
    assert first.call("evaluate", {"prompts": PROMPTS}) == answers

    first.call("checkpoint", {})
    again = TinkerService(remote)
    assert again.about()["step"] == 2
    report = again.call("train", batch(1))
    assert {name: report[name] for name in SAME} == same(expected)
    with pytest.raises(SapoError, match="the weights are on the server, as tinker://"):
        again.call("export", {"folder": "anywhere"})
    with pytest.raises(SapoError, match="whose weights are on a server as tinker://"):
        Service(replace(settings, directory=remote.directory))


def test_the_shadow_is_trained_on_the_server_and_the_policy_stays(
    settings: LearnerSettings, api: tuple[str, TinkerApi]
) -> None:
    """As here: own groups alone; after it the policy answers as before, and a rollback gives the shadow."""
    kept = replace(settings, own_steps_kept=4)
    here, remote = Service(kept), TinkerService(there(kept, api[0]))
    for service in (here, remote):
        service.call("keep_good", {})
        service.call("train", batch(0))
    asked = {"prompts": PROMPTS}
    before = remote.call("evaluate", asked)
    shadow = remote.call("shadow", asked)
    assert shadow == here.call("shadow", asked)
    assert remote.call("evaluate", asked) == before
    remote.call("roll_back", {})
    assert remote.call("evaluate", asked) == shadow


def test_a_loss_that_is_not_finite_changes_nothing(
    settings: LearnerSettings, api: tuple[str, TinkerApi]
) -> None:
    service = TinkerService(there(settings, api[0]))
    answers = service.call("evaluate", {"prompts": PROMPTS})
    broken = batch(0)
    broken["groups"][0]["rewards"][0] = 1e39  # more than float32 holds
    report = service.call("train", broken)
    assert (report["rolled_back"], report["rollbacks"]) == (True, 1)
    assert "optim_step" not in api[1].calls
    assert service.call("evaluate", {"prompts": PROMPTS}) == answers
    assert not service.call("train", batch(1))["rolled_back"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kl_weight": 0.1}, "learner.kl_weight cannot be used"),
        ({"passes": 2}, "learner.passes and learner.mini_batches above 1 cannot be used"),
        ({"temperature": 0.5}, "learner.temperature other than 1 cannot be used"),
        ({"ranks": 2}, "learner.ranks other than 1 cannot be used"),
    ],
)
def test_settings_that_the_server_does_not_support_are_refused(
    settings: LearnerSettings, change: dict[str, Any], text: str
) -> None:
    with pytest.raises(SapoError, match=text) as caught:
        TinkerService(replace(there(settings, "http://127.0.0.1:9"), **change))
    assert caught.value.exit_code == ExitCode.CONFIG


def test_a_refused_key_and_a_missing_package_are_named(
    settings: LearnerSettings, api: tuple[str, TinkerApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SapoError, match="does not open a model") as caught:
        TinkerService(replace(there(settings, api[0]), endpoint_key="tml-other"))
    assert caught.value.exit_code == ExitCode.NETWORK
    monkeypatch.setattr(extras, "_is_found", lambda module: module != "tinker")
    with pytest.raises(SapoError, match="the Tinker API; not installed: tinker"):
        TinkerService(there(settings, api[0]))


def logprobs_of(value: float) -> Callable[[list[Any]], object]:
    """Return what puts one value in place of all log-probabilities of the first sequence."""

    def falsify(sequences: list[Any]) -> None:
        count = len(sequences[0].tokens) // 4
        sequences[0].logprobs = np.full(count, value, np.float32).tobytes()

    return falsify


@pytest.mark.parametrize(
    ("falsify", "why"),
    [
        (logprobs_of(math.nan), "the log-probability nan"),
        (logprobs_of(0.5), "the log-probability 0.5"),
        (lambda sequences: sequences.pop(), "2 completions; 3 were requested"),
        (
            lambda sequences: setattr(sequences[0], "tokens", b"\xff\xff\xff\x7f"),
            "tokens? with|token id 2147483647",
        ),
    ],
)
def test_samples_that_were_not_requested_are_refused(
    settings: LearnerSettings, api: tuple[str, TinkerApi], falsify: Callable[[list[Any]], object], why: str
) -> None:
    service = open_calls(there(settings, api[0]))
    api[1].falsify = falsify
    with pytest.raises(SapoError, match=f"{api[0]} sent an invalid reply: .*({why})") as caught:
        service.call("generate", {"prompts": PROMPTS, "completions_per_prompt": 3, "handles": [1, 2]})
    assert (caught.value.exit_code, caught.value.transient) == (ExitCode.CONFIG, False)


@pytest.mark.parametrize(
    ("falsify", "why"),
    [
        (lambda rows: rows[0].fill(math.nan), "log-probabilities that are not finite"),
        (lambda rows: rows.append(rows.pop()[1:]), r"log-probabilities of rows of \[.*\] tokens; \["),
    ],
)
def test_no_step_is_made_with_false_log_probabilities(
    settings: LearnerSettings, api: tuple[str, TinkerApi], falsify: Callable[[list[Any]], object], why: str
) -> None:
    service = open_calls(there(settings, api[0]))
    api[1].falsify_rows = falsify
    with pytest.raises(SapoError, match=f"sent an invalid reply: {why}"):
        service.call("train", batch(0))
    assert "optim_step" not in api[1].calls


def test_after_a_failure_the_model_continues_from_its_checkpoint(
    settings: LearnerSettings, api: tuple[str, TinkerApi]
) -> None:
    """The failed step's gradients may be on the server, and must not enter the next one."""
    service = open_calls(there(settings, api[0]))
    service.call("train", batch(0))
    service.call("checkpoint", {})
    untroubled = Service(
        replace(settings, demonstration_steps=1, demonstration_averaging=0.0, directory=settings.directory)
    )
    untroubled.call("train", batch(0))
    api[1].failing = 425
    for _ in range(2):
        with pytest.raises(SapoError, match=f"{api[0]} does not answer: ") as caught:
            service.call("train", batch(1))
        assert (caught.value.transient, caught.value.finding) == (True, "server_away")
    api[1].failing = None
    report = service.call("train", batch(1))
    assert report["happened"] == [("learner_restarted", {"step": 1, "why": caught.value.text})]
    assert {name: report[name] for name in SAME} == same(untroubled.call("train", batch(1)))
    assert "happened" not in service.call("evaluate", {"prompts": PROMPTS})


async def test_a_learner_that_dies_waits_for_its_server(
    settings: LearnerSettings, api: tuple[str, TinkerApi], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    learner = Learner(there(settings, api[0]))
    async with trio.open_nursery() as nursery:
        await nursery.start(learner.run)
        assert learner.pid is not None
        api[1].failing = 425
        os.kill(learner.pid, signal.SIGKILL)
        waited: list[tuple[str, Message]] = []
        with trio.fail_after(120):
            while not waited:
                await trio.sleep(0.05)
                waited += learner.take_happened()
        api[1].failing = None
        with trio.fail_after(120):
            assert len(await learner.evaluate(PROMPTS)) == len(PROMPTS)
        nursery.cancel_scope.cancel()
    name, fields = waited[0]
    assert (name, fields["finding"]) == ("learner_waits", "server_away")
    assert fields["why"].startswith(f"{api[0]} does not answer: ")
