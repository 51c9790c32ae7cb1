"""Plug-ins: an example package is installed, found by name, and used by real nodes."""

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.nodes import manifest_of

import sapo
from sapo_client import plugins
from sapo_client.config import Config, SamplerConfig
from sapo_client.config_layers import resolve
from sapo_client.errors import SapoError
from sapo_client.lab.arms import ARMS, arms_named, known_arms
from sapo_client.learner.losses.external import ExternalRows, external_loss, reinforce
from sapo_client.node.training.assembly import sampling_policy
from sapo_client.observe.events import Event, read_events
from sapo_client.paths import DataDir
from sapo_protocol.manifest_file import manifest_to_json
from sapo_protocol.suite import Suite
from sapo_verification.sampling.own_success import FamilyRecord
from sapo_verification.sampling.strategies import STRATEGIES, SamplingStrategy

SOURCE = Path(__file__).parents[1] / "data" / "plugin"


@pytest.fixture(scope="session")
def installed_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the example package with pip, without a network, and return the folder it lies in."""
    root = tmp_path_factory.mktemp("plugin")
    source = root / "source"
    shutil.copytree(SOURCE, source, ignore=shutil.ignore_patterns("__pycache__"))
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--target", str(root / "site"))
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return root / "site"


@pytest.fixture
def plugin(installed_package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put the package on the path of this process and of its children."""
    monkeypatch.syspath_prepend(str(installed_package))
    before = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(installed_package), before))))
    external_loss.cache_clear()
    yield installed_package
    external_loss.cache_clear()
    for name in [name for name in sys.modules if name.startswith("sapo_toy_")]:
        del sys.modules[name]


def policy_of(**sampler: str) -> object:
    return sampling_policy(Config(sampler=SamplerConfig(**sampler)))  # type: ignore[arg-type]


def test_names_of_built_in_plugins_equal_those_of_the_code() -> None:
    from sapo_client.learner.losses.external import EXTERNAL_LOSSES

    assert plugins.STRATEGIES.built_in == tuple(STRATEGIES)
    assert plugins.LOSSES.built_in == tuple(EXTERNAL_LOSSES)


@pytest.mark.usefixtures("plugin")
def test_a_package_that_is_installed_is_found_by_name() -> None:
    assert [list(plugins.installed(group)) for group in plugins.GROUPS] == [
        ["absent", "broken", "dividing", "newest", "number"],
        ["beyond", "forgetful", "too-large", "weakest"],
        ["halved"],
        ["newest-first"],
    ]
    policy = sampling_policy(Config(sampler=SamplerConfig(strategy="newest", task_sampler="weakest")))
    assert isinstance(policy.strategy, SamplingStrategy)
    assert [policy.strategy.waiting(age) for age in (0, 1)] == [1.0, 0.0]
    records = tuple(FamilyRecord(name, "nano", 9, success) for name, success in (("a", 1.0), ("b", 0.0)))
    assert policy.task_sampler is not None
    rng = random.Random(0)
    drawn = Counter(policy.task_sampler(records, rng) for _ in range(1000))
    assert drawn[1] > 900 > drawn[0] > 10  # what is solved is asked seldom, and not never


@pytest.mark.usefixtures("plugin")
def test_no_package_replaces_built_in_names() -> None:
    assert sampling_policy(Config(sampler=SamplerConfig(strategy="weighted"))).strategy == "weighted"


@pytest.mark.usefixtures("plugin")
def test_a_loss_is_found_by_name() -> None:
    rows = ExternalRows(
        logprobs=torch.tensor([[-1.0, -2.0]]),
        old=torch.tensor([[-1.0, -2.0]]),
        mask=torch.tensor([[True, True]]),
        advantages=torch.tensor([1.0]),
        rewards=torch.tensor([1.0]),
        group_means=torch.tensor([0.5]),
        group_deviations=torch.tensor([0.5]),
        own_means=torch.tensor([0.5]),
        weights=torch.tensor([1.0]),
        own_logprob=-1.0,
        progress=0.0,
    )
    assert torch.equal(2 * external_loss("halved")(rows), reinforce(rows))


@pytest.mark.usefixtures("plugin")
def test_an_arm_joins_the_built_in_ones() -> None:
    assert list(known_arms()) == [*ARMS, "newest-first"]
    [arm] = arms_named(["newest-first"])
    assert (arm.local, arm.external, arm.sampler) == (6, 2, "informative")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "sampler.strategy",
            "there is no sampling strategy 'nwest'; built in: uniform, informative, weighted",
        ),
        (
            "sampler.task_sampler",
            "there is no task sampler 'nwest'; built in: none; installed: beyond, forgetful, too-large",
        ),
        ("learner.external_loss", "with an entry point 'nwest' in the group sapo.external_losses"),
    ],
)
@pytest.mark.usefixtures("plugin")
def test_an_unknown_name_is_refused_with_those_there_are(setting: str, said: str) -> None:
    with pytest.raises(SapoError) as caught:
        resolve({setting: "nwest"}, environment={}, user_file=False)
    assert said in str(caught.value)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        (
            "absent",
            "'absent' of sapo-toy-plugin 1.2.3 cannot be imported",
            "repair or update sapo-toy-plugin",
        ),
        (
            "broken",
            "'broken' of sapo-toy-plugin 1.2.3 cannot be imported: KeyError: 'b'",
            "repair or update sapo-toy-plugin",
        ),
        ("number", "is a int, nothing that is a SamplingStrategy", "sapo_toy_plugin:NUMBER"),
    ],
)
@pytest.mark.usefixtures("plugin")
def test_a_broken_plugin_names_its_package(name: str, said: str, hint: str) -> None:
    with pytest.raises(SapoError) as caught:
        policy_of(strategy=name)
    assert said in str(caught.value)
    assert hint in caught.value.hint


@pytest.mark.usefixtures("plugin")
def test_an_error_in_a_plugin_names_it_and_the_place(plugin: Path) -> None:
    policy = sampling_policy(Config(sampler=SamplerConfig(strategy="dividing", task_sampler="forgetful")))
    assert isinstance(policy.strategy, SamplingStrategy)
    assert policy.task_sampler is not None
    with pytest.raises(SapoError) as of_strategy:
        policy.strategy.account(1.0, 1.0, 0.0)
    with pytest.raises(SapoError) as of_sampler:
        policy.task_sampler((FamilyRecord("a", "nano", 0, 0.0),), random.Random(0))
    file = plugin / "sapo_toy_plugin.py"
    lines = file.read_text(encoding="utf-8").splitlines()
    divides = lines.index("    return reputation / usefulness") + 1
    looks_up = lines.index('    return {"a": 0}[families[0].level]') + 1
    whose = "of sapo-toy-plugin 1.2.3 failed"
    told = [
        f"the sampling strategy 'dividing' {whose}: ZeroDivisionError: float division by zero"
        f" ({file}, line {divides})",
        f"the task sampler 'forgetful' {whose}: KeyError: 'nano' ({file}, line {looks_up})",
    ]
    assert [str(of_strategy.value), str(of_sampler.value)] == told
    assert (of_sampler.value.hint, of_sampler.value.exit_code) == (
        "repair or update sapo-toy-plugin 1.2.3, or choose another sampler.task_sampler",
        3,
    )


@pytest.mark.usefixtures("plugin")
def test_running_out_of_memory_is_not_attributed_to_a_plugin() -> None:
    policy = sampling_policy(Config(sampler=SamplerConfig(task_sampler="too-large")))
    assert policy.task_sampler is not None
    with pytest.raises(MemoryError):
        policy.task_sampler((FamilyRecord("a", "nano", 0, 0.0),), random.Random(0))


@pytest.mark.usefixtures("plugin")
def test_a_family_that_does_not_exist_is_refused() -> None:
    policy = sampling_policy(Config(sampler=SamplerConfig(task_sampler="beyond")))
    assert policy.task_sampler is not None
    with pytest.raises(SapoError, match="returned 1; the suite has 1 families"):
        policy.task_sampler((FamilyRecord("a", "nano", 0, 0.0),), random.Random(0))


@pytest.mark.long
@pytest.mark.e2e
@pytest.mark.usefixtures("plugin")
def test_two_nodes_train_with_plugins(
    policy: Path, weekdays: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = tmp_path / "note.txt"
    monkeypatch.setenv("SAPO_TOY_NOTE", str(note))
    manifest = tmp_path / "manifest.json"
    manifest.write_text(manifest_to_json(manifest_of(weekdays)), encoding="utf-8")
    settings: dict[str, object] = {
        "sampler.strategy": "newest",
        "sampler.task_sampler": "weakest",
        "sampler.text_use": "reinforce",
        "learner.external_loss": "halved",
        "learner.local_groups": 2,
        "learner.external_groups": 2,
        "learner.completions": 6,
        "learner.max_new_tokens": 6,
        "verification.audit_share": 1.0,
        "verification.audit_time": 1.0,
        "verification.account_cap": 1.0,
        "verification.newcomer_cap": 1.0,
    }
    listen = ["/ip4/127.0.0.1/tcp/0"]
    with sapo.Node(tmp_path / "1", manifest=manifest, model=policy, listen=listen, settings=settings) as one:
        other = sapo.Node(
            tmp_path / "2",
            manifest=manifest,
            model=policy,
            listen=listen,
            bootstrap=one.addresses,
            settings=settings,
        )
        with other:
            for _ in other.rounds():
                if note.exists():
                    break
    assert note.read_text(encoding="utf-8").endswith(" rows\n")
    used = [step["external"] for node in (one, other) for step in _steps(node)]
    assert any(used), "the loss was that of rollouts of the other node"


def _steps(node: sapo.Node) -> list[Event]:
    return [event for event in read_events(DataDir(node.data_dir).events) if event["event"] == "step"]
