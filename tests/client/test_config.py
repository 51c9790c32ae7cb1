"""Settings: precedence, origins, refusals with suggestions, and the file that `config init` writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from sapo_client.config import Config
from sapo_client.config_layers import fields, misspelt_variables, resolve, variable_of
from sapo_client.config_template import template, write_template
from sapo_client.errors import SapoError


@pytest.fixture(autouse=True)
def _no_user_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SAPO_CONFIG", str(tmp_path / "missing.toml"))


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def refusal(
    flags: Mapping[str, object] | None = None,
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> SapoError:
    with pytest.raises(SapoError) as caught:
        resolve(flags, file=file, environment=environment or {})
    assert caught.value.exit_code == 3
    return caught.value


def test_flags_override_environment_file_and_defaults_in_this_order(tmp_path: Path) -> None:
    file = write(tmp_path, "[learner]\nseed = 1\ncompletions = 2\nlocal_groups = 5\n")
    environment = {"SAPO_LEARNER__SEED": "10", "SAPO_LEARNER__COMPLETIONS": "12"}
    resolved = resolve({"learner.seed": 100, "learner.model": None}, file=file, environment=environment)
    learner = resolved.config.learner
    assert (learner.seed, learner.completions, learner.local_groups, learner.external_groups) == (
        100,
        12,
        5,
        4,
    )
    origins = {item.name: item.origin for item in resolved.settings}
    assert {
        name: origins[f"learner.{name}"] for name in ("seed", "completions", "local_groups", "model")
    } == {
        "seed": "flag",
        "completions": "environment SAPO_LEARNER__COMPLETIONS",
        "local_groups": f"file {file}",
        "model": "default",
    }


@pytest.mark.parametrize(
    ("own", "external", "insists", "allowed"),
    [
        (4, None, False, True),
        (3, None, False, False),  # the default of four, too
        (3, 3, False, True),
        (2, 6, False, False),
        (2, 6, True, True),
        (8, 0, False, True),
    ],
)
def test_more_external_than_own_groups_need_a_setting(
    own: int, external: int | None, insists: bool, allowed: bool
) -> None:
    flags = {
        "learner.local_groups": own,
        "learner.external_groups": external,
        "learner.more_external_than_own": insists,
    }
    if allowed:
        learner = resolve(flags, environment={}).config.learner
        assert (learner.local_groups, learner.external_groups) == (own, 4 if external is None else external)
        return
    error = refusal(flags=flags)
    assert "learner.external_groups" in error.text
    assert "learner.more_external_than_own = true" in error.text


def test_without_any_layer_the_defaults_hold() -> None:
    resolved = resolve(environment={})
    assert resolved.config == Config()
    assert {item.origin for item in resolved.settings} == {"default"}
    assert [item.name for item in resolved.settings] == list(fields())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("swarm.bootstrap", "/ip4/1.2.3.4/tcp/1,/dns/a/tcp/2", ("/ip4/1.2.3.4/tcp/1", "/dns/a/tcp/2")),
        ("swarm.bootstrap", "", ()),
        ("learner.learning_rate", "1e-5", 1e-5),
        ("learner.temperature", "1", 1.0),
        ("learner.model", "123", "123"),
        ("ledger.enabled", "false", False),
        ("swarm.manifest", "~/m.json", Path.home() / "m.json"),
        ("identity", "alice", "alice"),
    ],
)
def test_the_environment_is_read_by_the_type_of_the_setting(name: str, text: str, value: object) -> None:
    config = resolve(environment={variable_of(name): text}).config
    section, _, key = name.rpartition(".")
    assert getattr(getattr(config, section) if section else config, key) == value


@pytest.mark.parametrize(
    ("text", "name", "suggestion"),
    [
        ("[learner]\ncompletons = 3", "learner.completons", "did you mean learner.completions?"),
        ("[lerner]\nseed = 3", "lerner.seed", "did you mean learner.seed?"),
        ("seed = 3", "seed", "did you mean learner.seed?"),
        ("identty = 'a'", "identty", "did you mean identity?"),
        ("[learner.optimiser]\nx = 3", "learner.optimiser", "did you mean learner.optimizer?"),
        ("[blockchain]", "blockchain", "`sapo config schema` lists every setting"),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(
    tmp_path: Path, text: str, name: str, suggestion: str
) -> None:
    file = write(tmp_path, text)
    error = refusal(file=file)
    assert (error.text, error.hint) == (f"unknown setting {name} in {file}", suggestion)


def test_an_unknown_variable_is_refused_unless_it_may_belong_to_another_program() -> None:
    assert refusal(environment={"SAPO_LEARNER__SEEED": "3"}).hint == "did you mean learner.seed?"
    assert resolve(environment={"SAPO_HOME": "/x", "SAPO_CONFIG": "/y"}).config == Config()


def test_an_unknown_variable_that_resembles_a_known_one_is_reported() -> None:
    misspelt = {
        "SAPO_LEARNER_TEMPERATURE": "SAPO_LEARNER__TEMPERATURE",
        "SAPO_MODEL": "SAPO_LEARNER__MODEL",
        "SAPO_IDENTTY": "SAPO_IDENTITY",
        "SAPO_KEY_DIR": "SAPO_KEYS_DIR",
        "SAPO_PASSPHRASE": "SAPO_PASSPHRASE_FILE",
    }
    right = dict.fromkeys((*misspelt.values(), "SAPO_CONFIG", "PATH"), "")
    of_others = ("HOME", "COMMAND", "WRITE_HEALTH", "VLLM_SERVER", "VLLM_MODEL", "POWER_CUTS", "TOY_NOTE")
    others = {f"SAPO_{name}": "" for name in of_others}
    assert misspelt_variables({**misspelt, **right, **others}) == misspelt


@pytest.mark.parametrize(
    ("flags", "environment", "text"),
    [
        ({"learner.completions": 1}, {}, ""),
        ({"learner.completions": True}, {}, ""),
        ({}, {"SAPO_LEARNER__COMPLETIONS": "8.0"}, ""),
        ({}, {"SAPO_LEARNER__LEARNING_RATE": "nan"}, ""),
        ({}, {"SAPO_LEDGER__ENABLED": "yes"}, ""),
        ({}, {}, "[learner]\ncompletions = '8'"),
        ({}, {}, "[learner]\ndevice = 'tpu'"),
        ({}, {}, "[swarm]\nlisten = []"),
        ({}, {}, "[swarm]\nlisten = '/ip4/0.0.0.0/tcp/0'"),
        ({}, {}, "learner = 3"),
    ],
)
def test_values_of_another_type_or_out_of_bounds_are_refused(
    tmp_path: Path, flags: dict[str, object], environment: dict[str, str], text: str
) -> None:
    error = refusal(flags=flags, environment=environment, file=write(tmp_path, text))
    assert "refused" in error.text or "unknown" in error.text


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert "cannot read" in refusal(file=tmp_path / "none.toml").text
    assert "is not TOML" in refusal(file=write(tmp_path, "[learner")).text
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"identity = '\xff'")
    assert "is not TOML" in refusal(file=latin).text


def test_the_template_holds_every_setting_with_its_default(tmp_path: Path) -> None:
    written = write_template(tmp_path / "made" / "config.toml")
    assert resolve(file=written, environment={}).config == Config()  # all comments
    uncommented = re.sub(r"^# (\w+ = )", r"\1", template(), flags=re.MULTILINE)
    set_ones = "\n".join(line for line in uncommented.splitlines() if not line.endswith("# unset"))
    resolved = resolve(file=write(tmp_path, set_ones), environment={})
    assert resolved.config == Config()
    unset = {name for name, info in fields().items() if info.default is None}
    assert {item.name for item in resolved.settings if item.origin == "default"} == unset
    with pytest.raises(SapoError) as caught:
        write_template(written)
    assert caught.value.exit_code == 3


def test_every_setting_is_described() -> None:
    assert [name for name, info in fields().items() if not info.description] == []


@pytest.mark.parametrize(
    "text", ["http://a,http://b", "http://a http://b", " http://a , http://b", '["http://a", "http://b"]']
)
def test_a_variable_of_several_values(text: str) -> None:
    config = resolve(environment={"SAPO_LEDGER__RPC_URLS": text}, user_file=False).config
    assert config.ledger.rpc_urls == ("http://a", "http://b")


@pytest.mark.parametrize("text", ["localhost:8545", '["http://127.0.0.1:8545"', "http:///", "ws://a"])
def test_an_endpoint_that_is_no_web_address_is_refused(text: str) -> None:
    refused = refusal(environment={"SAPO_LEDGER__RPC_URLS": text})
    assert refused.text == (
        f"ledger.rpc_urls = {text!r} from environment SAPO_LEDGER__RPC_URLS is refused:"
        " an address begins with http:// or https:// and names a host"
    )


def test_a_default_that_does_not_fit_another_setting_is_named_as_a_default() -> None:
    """It was said to come from a flag that nobody had given."""
    refused = refusal({"learner.local_groups": 1})
    assert (refused.text, refused.hint) == (
        "learner.external_groups = 4, its default, is refused: a step has 1 own groups, and more groups of"
        " others need learner.more_external_than_own = true",
        "set learner.external_groups as well; `sapo config schema` shows the allowed values of"
        " learner.external_groups",
    )


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("learner.device", "gpu", "it is one of auto, cpu, cuda"),
        ("observe.webhook", "example.org", "it begins with http:// or https://"),
    ],
)
def test_no_refusal_shows_a_regular_expression(name: str, value: str, reason: str) -> None:
    assert refusal({name: value}).text == f"{name} = {value!r} from flag is refused: {reason}"
