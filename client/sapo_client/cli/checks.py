"""The checks of `sapo doctor` on this machine, one function each."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sapo_client.errors import SapoError
from sapo_client.paths import DataDir
from sapo_client.units import GIB

if TYPE_CHECKING:
    from sapo_client.config import Config
    from sapo_client.learner.loading.weights import UnusedWeights
    from sapo_client.learner.sizing.fit import LearnerFit
    from sapo_client.learner.sizing.presets import SuiteLevel

State = Literal["ok", "warn", "fail"]
LOW_DISK_BYTES = 5 * GIB  # a 0.5 B model, its optimiser and three checkpoints
FIRST_GROUPS = 100
FEW_TEACH = 0.1  # fewer make a step of eight groups without any more likely than not
NO_DISK_BYTES = GIB // 2  # the bundled model, its checkpoints and the event files


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    state: State
    detail: str
    hint: str = ""


def check_python() -> Check:
    """Check the interpreter and the operating system."""
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.platform != "linux":
        return Check("python", "warn", found, "only Linux is tested; the checker jail is weaker elsewhere")
    return Check("python", "ok", found)


def check_disk(data: DataDir) -> Check:
    """Check free space and permission in the data directory."""
    folder = next(path for path in (data.root, *data.root.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    found = f"{free / GIB:.1f} GiB free for {data.root}"
    if not folder.is_dir():
        return Check("disk", "fail", f"{folder} is not a folder", "choose another directory with --data-dir")
    if not os.access(folder, os.W_OK | os.X_OK):
        return Check("disk", "fail", f"{folder} is not writable", "choose another directory with --data-dir")
    if free < NO_DISK_BYTES:
        return Check("disk", "fail", found, "free some space, or choose another disk with --data-dir")
    if free < LOW_DISK_BYTES:
        return Check("disk", "warn", found, "enough for the bundled model; a larger one needs 5 GiB")
    return Check("disk", "ok", found)


def check_identity(identity: str | None) -> Check:
    """Check the identity file and its mode, without decrypting it."""
    from sapo_client import keystore

    path, name = keystore.locate(identity), identity or keystore.DEFAULT_NAME
    if identity is None and not path.exists():
        return Check("identity", "warn", "none is configured", "make one: sapo keys new key")
    try:
        file = keystore.read(path)
    except SapoError as error:
        return Check("identity", "fail", error.text, error.hint)
    if not file.encrypted:
        return Check(
            "identity", "warn", f"{name} is stored without a passphrase", "acceptable on a testnet only"
        )
    return Check("identity", "ok", f"{name}, account {file.account}, encrypted")


def check_torch(device: str) -> Check:
    """Check the training library and its device."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return Check("torch", "fail", str(error), "reinstall sapo-swarm: pip install --force-reinstall torch")
    from sapo_client.learner.sizing.kernels import missing_gpu, require_kernels

    cuda = torch.cuda.is_available()
    if device == "cuda" and not cuda:
        refusal = missing_gpu()
        return Check("torch", "fail", refusal.text, refusal.hint)
    if not cuda or device == "cpu":
        return Check("torch", "ok", f"{torch.__version__} on CPU, {os.cpu_count()} cores")
    try:
        require_kernels()
    except SapoError as error:
        return Check("torch", "fail", error.text, error.hint)
    return Check("torch", "ok", f"{torch.__version__} on {torch.cuda.get_device_name()}")


def check_versions() -> Check:
    """Check that the installed libraries are releases that this package works with."""
    from sapo_client.extras import mixed_versions

    if mixed := mixed_versions():
        return Check("versions", "fail", "; ".join(mixed), "pip install --upgrade sapo-swarm")
    return Check("versions", "ok", "all libraries are releases that this one works with")


def check_extras(config: Config) -> Iterator[Check]:
    """Check that the optional packages which the settings need are installed; no rows if all are."""
    from sapo_client import extras

    learner = config.learner
    needed = {
        'learner.backend = "vllm"': (extras.VLLM, learner.backend == "vllm"),
        'learner.backend = "tinker"': (extras.TINKER, learner.backend == "tinker"),
        "learner.lora_rank": (extras.LORA, learner.trains and learner.lora_rank > 0),
        'learner.base = "nf4"': (extras.QUANTISED, learner.trains and learner.base == "nf4"),
        'learner.optimizer = "adamw8bit"': (extras.QUANTISED, learner.optimizer == "adamw8bit"),
        'observe.tracker = "trackio"': (extras.TRACKIO, config.observe.tracker == "trackio"),
        'observe.tracker = "tensorboard"': (extras.TENSORBOARD, config.observe.tracker == "tensorboard"),
    }
    for setting, (extra, is_needed) in needed.items():
        if is_needed and (missing := extra.missing()):
            found = f"{setting} needs {extra.provides}; not installed: {', '.join(missing)}"
            yield Check("extras", "fail", found, f"{extra.command}, or change the setting")


def check_model(config: Config) -> Iterator[Check]:
    """Check that the configured model can be trained and fits into memory, without loading its weights.

    For a name on a hub only small files are read, for a folder also the headers of its weights. The packaged
    policies always fit, and an endpoint's model runs elsewhere.
    """
    from sapo_client.learner.policy import PACKAGED

    learner = config.learner
    if learner.model in PACKAGED or not learner.trains:
        return
    from sapo_client.learner.loading.tokenizers import has_chat_template
    from sapo_client.learner.sizing.presets import COMPLETION_BYTES, completion_tokens, level_for
    from sapo_client.learner.sizing.skeleton import make_skeleton, shape_of

    found: LearnerFit | None = None
    try:
        shape = shape_of(make_skeleton(learner.model))
        wanted = completion_tokens(
            COMPLETION_BYTES[level_for(shape.parameters)], shape.vocabulary, shape.window
        )
        tokens = learner.max_new_tokens or wanted
        found = _fit(config, tokens)
        unused = None
        if learner.backend != "tinker":  # its server has the weights
            unused = _check_weights(config)
        templated = has_chat_template(learner.model)
    except SapoError as error:
        yield Check("model", "fail", error.text, error.hint)
        if found is not None and not found.fits:  # as told at once of a config.json without its weights
            yield _memory(found)
        return
    millions = found.shape.parameters / 1e6
    size = f"{millions:,.0f}" if millions >= 10 else f"{millions:.2g}"
    size += f" million parameters ({found.shape.kind})"
    if templated:
        yield Check("model", "ok", f"{size}; tasks of level {found.level} suit it")
    else:
        hint = "a model without chat template gets the bare prompt; instruction-tuned ones learn faster"
        words = f"{size}, without chat template; tasks of level {found.level} suit it"
        yield Check("model", "warn", words, hint)
    if unused is not None:
        yield Check("weights", "warn", unused.text, unused.hint)
    yield _memory(found)
    yield from _check_window(shape.window, tokens, found.level)
    if tokens < wanted:
        hint = f"answers of level {found.level} take up to {wanted}: leave learner.max_new_tokens unset"
        yield Check("completions", "warn", f"at most {tokens} tokens", hint)


def _check_window(window: int | None, tokens: int, level: SuiteLevel) -> Iterator[Check]:
    """Check that the model's context window has room for a usual prompt and an answer.

    Args:
        window: longest text of the model in tokens; None if it has no limit.
        tokens: of the longest answer.
    """
    from sapo_client.learner.sizing.presets import PROMPT_TOKENS

    if window is None or window >= tokens + PROMPT_TOKENS[level]:
        return
    left = max(0, window - tokens)
    found = f"{window} tokens; beside an answer of {tokens} they leave {left} for a prompt"
    hint = f"prompts of level {level} usually take {PROMPT_TOKENS[level]}: take a model with a longer window"
    yield Check("window", "warn" if left else "fail", found, f"{hint}, or lower learner.max_new_tokens")


def _fit(config: Config, tokens: int) -> LearnerFit:
    """Return the plan of the configured learner with completions of so many tokens."""
    from sapo_client.learner.sizing.fit import fit
    from sapo_client.node.runtime.backends import learner_settings

    learner = config.learner
    settings = learner_settings(
        learner,
        DataDir(config.data_dir).learner,
        max_new_tokens=tokens,
        seed=0,
        fresh=False,
        reinforces=config.sampler.reinforces,
    )
    return fit(
        settings,
        groups=learner.local_groups + learner.external_groups,
        completions=learner.completions,
        sampled_groups=learner.local_groups,
    )


def _memory(found: LearnerFit) -> Check:
    """Return whether the planned memory is free."""
    planned, parts = found.estimate.peak / GIB, found.estimate.in_words()
    plan = f"{planned:.1f} GiB planned, {found.free / GIB:.1f} free; {parts}"
    return Check("memory", "ok" if found.fits else "fail", plan, "" if found.fits else found.hint)


def _check_weights(config: Config) -> UnusedWeights | None:
    """Return the weights that the learner would not use.

    Raises:
        SapoError: what the learner would raise about the model's weights, tokenizer or chat template.
    """
    from sapo_client.learner.loading.folder import check_folder
    from sapo_client.learner.ranks.serving import quiet_libraries
    from sapo_client.learner.sizing.skeleton import quantisation_of, require_trainable

    quiet_libraries()
    model = config.learner.model
    require_trainable(model, config.learner.lora_rank)
    return check_folder(model, quantisation_of(model))


def check_advantage(data: DataDir) -> Iterator[Check]:
    """Report which share of a node's first hundred groups had an advantage, if it has trained."""
    from sapo_client.observe.events import read_events

    groups = skipped = 0
    for event in read_events(data.events) if data.events.exists() else ():
        if event["event"] == "step" and "groups" in event and groups < FIRST_GROUPS:
            groups += int(str(event["groups"]))
            skipped += int(str(event["skipped"]))
    if not groups:
        return
    share = 1 - skipped / groups
    found = f"{share * 100:.0f} % of the first {groups} groups had right and wrong answers"
    if share >= FEW_TEACH:
        yield Check("advantage", "ok", found)
    else:
        hint = "groups that are all right or all wrong teach nothing: take another model or level"
        yield Check("advantage", "warn", found, hint)


def check_jail() -> Iterator[Check]:
    """Check each isolation layer of the checker jail on this machine."""
    from sapo_verification.jail.launch import describe

    for restriction in describe():
        hint = (
            ""
            if restriction.works
            else "answers of strangers are scored behind the other layers; prefer Linux 5.13+"
        )
        yield Check(
            f"jail: {restriction.name}", "ok" if restriction.works else "warn", restriction.detail, hint
        )
