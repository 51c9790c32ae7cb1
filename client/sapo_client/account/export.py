"""Export from a data directory: the policy, and rollouts as received envelopes or as a table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import trio

from sapo_client import extras
from sapo_client.account.node_report import model_card, read_lineage
from sapo_client.config import Config, LearnerConfig
from sapo_client.errors import ExitCode, SapoError
from sapo_client.learner.backend import LearnerCrashed
from sapo_client.learner.loading.identity import checkpoint_model
from sapo_client.learner.process import Learner
from sapo_client.learner.settings import LearnerSettings
from sapo_client.node.runtime.backends import learner_settings
from sapo_client.node.runtime.manifests import kept_manifest
from sapo_client.node.runtime.supervisor import find_sapo_error
from sapo_client.observe.events import read_events
from sapo_client.observe.outcomes import OutcomeStore
from sapo_client.paths import DataDir, output_folder
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.identifiers import ContentId
from sapo_protocol.rollout import parse_rollout
from sapo_verification.admission.envelope_store import EnvelopeStore


async def export_model(config: Config, folder: Path) -> int:
    """Write the newest checkpoint's policy to a folder; return its step.

    The model and its settings are those of the directory's last run, whatever the configuration says.

    Raises:
        SapoError: there is no checkpoint, the learner cannot load it, or the folder takes no files.
    """
    data = DataDir(config.data_dir)
    if not data.checkpoints.exists():
        raise SapoError(
            f"{data.root} holds no trained policy",
            hint="train one: sapo join --identity KEY",
            exit_code=ExitCode.DATA,
        )
    output_folder(folder)
    step = await _written(_export_settings(config, data), folder)
    try:
        card = model_card(read_lineage(data))
    except SapoError:
        return step  # trained by a version that remembered no steps
    (folder / "README.md").write_text(card, encoding="utf-8")
    return step


async def _written(settings: LearnerSettings, folder: Path) -> int:
    """Let a learner write its policy to a folder; return the step.

    Raises:
        SapoError: the learner cannot start, or could not write the policy.
    """
    learner = Learner(settings)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(learner.run)
            try:
                step = await learner.export(folder)
            except LearnerCrashed as crash:
                raise SapoError(
                    f"the policy was not written to {folder}: {crash}",
                    hint="free space there if none is left, or name another folder; see"
                    f" {settings.directory}/learner.log",
                    exit_code=ExitCode.DATA,
                ) from crash
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        if (error := find_sapo_error(group)) is not None:
            raise error from group
        raise
    return step


def _export_settings(config: Config, data: DataDir) -> LearnerSettings:
    """Return the settings of the last run's learner, without those for sampling and training.

    Model and rank are the checkpoint's, since a refused run leaves a record as well. If the model's folder
    was moved, its path is the configured one.
    """
    learner = _recorded_learner(data) or config.learner
    settings = learner_settings(learner, data.learner, max_new_tokens=1, seed=0, fresh=False)
    if not settings.tinker and (found := checkpoint_model(data.checkpoints)) is not None:
        model, rank = found
        has_moved = Path(model).is_absolute() and not Path(model).is_dir()
        base = settings.base if rank else "auto"
        settings = replace(settings, lora_rank=rank, base=base)
        settings = settings if has_moved else replace(settings, model=model)
    return replace(settings, vllm=False, overlap=False, kl_weight=0.0, ranks_socket=None)


def _recorded_learner(data: DataDir) -> LearnerConfig | None:
    """Return the learner's configuration in the last run; None if it was not recorded.

    Settings that this version does not know are left out.

    Raises:
        SapoError: the record is damaged.
    """
    try:
        content = json.loads(data.config.read_text(encoding="utf-8"))
        section = dict(content["learner"])
        known = {name: value for name, value in section.items() if name in LearnerConfig.model_fields}
        return LearnerConfig.model_validate_json(json.dumps(known))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SapoError(
            f"cannot read the settings of the last run in {data.config}",
            hint="remove that file, and name the model and learner.lora_rank in a file for --config",
            exit_code=ExitCode.DATA,
        ) from error


def export_rollouts(data: DataDir, folder: Path, count: int) -> int:
    """Write the latest admitted envelopes, each to CONTENT_ID.envelope; return their number.

    Raises:
        SapoError: no node ever ran in the data directory, or the folder takes no files.
    """
    require_history(data)
    output_folder(folder)
    written = 0
    for content_id, envelope in EnvelopeStore(data.database).latest(count):
        (folder / f"{content_id}.envelope").write_bytes(envelope)
        written += 1
    return written


def export_parquet(data: DataDir, file: Path, count: int) -> int:
    """Write the latest admitted rollouts as a Parquet table, one row each; return their number.

    Columns: content_id, node, account (EIP-55), epoch, slot, family, completions (list of text),
    mean_reward (as this node scored it; null if it did not).

    Raises:
        SapoError: no node ever ran in the data directory, or the file cannot be written.
    """
    extras.require(extras.PARQUET)
    import pyarrow
    from pyarrow import parquet

    require_history(data)
    output_folder(file.parent)
    if file.is_dir():
        raise SapoError(
            f"{file} is a folder", hint="name a file, such as rollouts.parquet", exit_code=ExitCode.DATA
        )
    manifest = kept_manifest(data)
    latest = list(EnvelopeStore(data.database).latest(count))
    rewards = _rewards(data, [content_id for content_id, _ in latest])
    rows = []
    for content_id, message in latest:
        rollout = parse_rollout(parse_envelope(message, manifest.swarm_id).payload)
        rows.append(
            {
                "content_id": content_id.hex(),
                "node": rollout.node.hex(),
                "account": str(rollout.account),
                "epoch": rollout.epoch,
                "slot": rollout.slot,
                "family": manifest.suite.families[rollout.family].name,
                "completions": [completion.decode() for completion in rollout.completions],
                "mean_reward": rewards.get(content_id),
            }
        )
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=_schema()), file)
    return len(rows)


def _rewards(data: DataDir, content_ids: Sequence[ContentId]) -> Mapping[bytes, float]:
    """Return mean rewards by content id; a version before 0.2 wrote them into the event file alone."""
    verified = (event for event in read_events(data.events) if event["event"] == "verified")
    logged = {bytes.fromhex(str(each["content_id"])): float(str(each["mean_reward"])) for each in verified}
    with closing(OutcomeStore(data.outcomes)) as outcomes:
        return {**logged, **outcomes.rewards(content_ids)}


def _schema() -> Any:
    import pyarrow

    text, number = pyarrow.string(), pyarrow.int64()
    columns = [("content_id", text), ("node", text), ("account", text), ("epoch", number), ("slot", number)]
    columns += [("family", text), ("completions", pyarrow.list_(text)), ("mean_reward", pyarrow.float64())]
    return pyarrow.schema(columns)


def require_history(data: DataDir) -> None:
    """Raise unless a node has run in the data directory.

    Raises:
        SapoError: none has.
    """
    if not data.database.exists():
        raise SapoError(
            f"no node ever ran in {data.root}",
            hint="name its data directory with --data-dir",
            exit_code=ExitCode.DATA,
        )
