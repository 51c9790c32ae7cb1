"""A node's own report, as Markdown and as one HTML page with its curves, and the card of its model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Final

from sapo_client.account.curves import binned, svg
from sapo_client.errors import ExitCode, SapoError
from sapo_client.node.runtime.manifests import kept_manifest
from sapo_client.observe.events import Event, read_events
from sapo_client.observe.outcomes import OutcomeStore, StepRecord
from sapo_client.observe.reports import StatusReport, kept_status
from sapo_client.paths import DataDir, output_folder
from sapo_protocol.manifest import Manifest

_POLICY_EVENTS: Final = (
    "policy_reset",
    "rolled_back",
    "good_lost",
    "checkpoint_set_aside",
    "learner_moved",
    "learner_restarted",
    "training_privately",
)
"""Events listed below the curves, since they explain jumps."""

_SHOWN_EVENTS: Final = 50

_MARKS: Final = re.compile(r"[\\`*_{}\[\]<>|!&]")
"""Characters of Markdown markup, each of which a backslash before it makes plain."""

_STYLE: Final = (
    "body{font:16px/1.5 sans-serif;max-width:48rem;margin:2rem auto;padding:0 1rem;"
    "color:#111;background:#fff}"
    "table{border-collapse:collapse}td,th{padding:.2rem .8rem .2rem 0;text-align:left;vertical-align:top}"
    "svg{width:100%;height:auto}"
)


@dataclass(frozen=True, slots=True)
class Lineage:
    """Origin of a policy.

    Attributes:
        status: the node's last status; none if it never ran long enough.
        steps: the stored training steps, oldest first.
        events: restarts, resets and similar events of the policy, oldest first.
    """

    manifest: Manifest
    status: StatusReport | None
    steps: tuple[StepRecord, ...]
    events: tuple[Event, ...]

    def facts(self) -> list[tuple[str, str]]:
        """Return the lineage as pairs of label and value."""
        steps, suite = self.steps, self.manifest.suite
        used = sum(each.own + each.reinforced + each.practised + each.imitated for each in steps)
        families = ", ".join(f"{each.name} ({each.level})" for each in suite.families)
        rows = [
            ("swarm", f"{self.manifest.name} ({self.manifest.swarm_id})"),
            ("started from", self.status.model if self.status else "unknown"),
            ("epochs", f"{steps[0].epoch} to {steps[-1].epoch}, {self.manifest.epoch_seconds} s each"),
            ("training steps", f"{steps[0].step} to {steps[-1].step} ({len(steps)} remembered)"),
            ("from", f"{_time(steps[0].seconds)} to {_time(steps[-1].seconds)} UTC"),
            ("task families", f"{families}; reasoning-gym {suite.reasoning_gym}"),
            ("own groups", _share(sum(each.own for each in steps), used)),
            ("others' text in the policy gradient", _share(sum(each.reinforced for each in steps), used)),
            ("others' tasks, answered by itself", _share(sum(each.practised for each in steps), used)),
            ("others' right answers, imitated", _share(sum(each.imitated for each in steps), used)),
            ("made by", f"sapo {version('sapo-swarm')}"),
        ]
        if self.status is not None:
            rows.insert(1, ("node", self.status.node_id))
        return rows


def read_lineage(data: DataDir) -> Lineage:
    """Return the lineage of the policy in a data directory; the node may run.

    Raises:
        SapoError: no training step is stored there (exit code 8).
    """
    manifest = kept_manifest(data)
    with closing(OutcomeStore(data.outcomes)) as store:
        steps = tuple(store.steps())
    if not steps:
        raise SapoError(
            f"no training step is remembered in {data.root}",
            hint="train first: sapo join --identity KEY; or name another directory with --data-dir",
            exit_code=ExitCode.DATA,
        )
    events = tuple(event for event in read_events(data.events) if event["event"] in _POLICY_EVENTS)
    return Lineage(manifest, kept_status(data), steps, events[-_SHOWN_EVENTS:])


def write_report(data: DataDir, folder: Path) -> dict[str, object]:
    """Write report.md, report.html and reward.svg into a folder; return what was written.

    Raises:
        SapoError: there is nothing to report, or the folder cannot be written.
    """
    lineage = read_lineage(data)
    points = [(float(index), each.reward) for index, each in enumerate(lineage.steps, 1)]
    picture = svg("Mean reward of own completions", binned(points), "remembered step", "share right, 0 to 1")
    others = [
        (float(index), (each.reinforced + each.imitated) / max(1, each.own + each.reinforced + each.imitated))
        for index, each in enumerate(lineage.steps, 1)
    ]
    shares = svg("Share of others' text in what was trained", binned(others), "remembered step", "share")
    texts = {
        "reward.svg": picture,
        "others.svg": shares,
        "report.md": _markdown(lineage),
        "report.html": _html(lineage, (picture, shares)),
    }
    try:
        output_folder(folder)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SapoError(
            f"cannot write to {folder}: {error.strerror}", hint="name another folder", exit_code=ExitCode.DATA
        ) from error
    return {"folder": str(folder), "steps": len(lineage.steps), "files": sorted(texts)}


def model_card(lineage: Lineage) -> str:
    """Return the model card of an exported model."""
    return (
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\n"
        "tags: [reinforcement-learning, grpo, sapo]\n"
        "---\n\n# A policy trained in a swarm\n\n"
        "It was trained by reinforcement learning on the task families below, on its node's own completions"
        " and, where the table says so, on text of other nodes. Every text of others was scored again by this"
        " node before it was used; a right answer may still hold text that nobody checked.\n\n"
        f"{_table(lineage.facts())}\n{_events(lineage.events)}"
        "\nOutside of these families nothing was measured.\n"
    )


def _markdown(lineage: Lineage) -> str:
    return (
        f"# Report of a node\n\n{_table(lineage.facts())}\n"
        "![Mean reward of own completions](reward.svg)\n\n![Share of others' text](others.svg)\n\n"
        "Each bin of a curve holds the same number of steps; a step's reward is the share of right answers"
        " among its own completions, on tasks that changed with every step.\n"
        f"{_events(lineage.events)}"
    )


def _html(lineage: Lineage, pictures: Sequence[str]) -> str:
    rows = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in lineage.facts()
    )
    items = "".join(f"<li>{escape(_line(event))}</li>" for event in lineage.events)
    events = f"<h2>What happened to the policy</h2><ul>{items}</ul>" if items else ""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Report of a node</title>'
        '<meta name="viewport" content="width=device-width">'
        f"<style>{_STYLE}</style><h1>Report of a node</h1>"
        f"<table>{rows}</table>{''.join(pictures)}{events}</html>\n"
    )


def _table(rows: Sequence[tuple[str, str]]) -> str:
    lines = [f"| {name} | {_plain(text)} |" for name, text in rows]
    return "\n".join(("| | |", "| --- | --- |", *lines)) + "\n"


def _events(events: Sequence[Event]) -> str:
    if not events:
        return ""
    return "\n## What happened to the policy\n\n" + "".join(f"* {_plain(_line(event))}\n" for event in events)


def _plain(text: str) -> str:
    """Return a text as Markdown that shows it in one line: a stranger wrote the names in a manifest."""
    return _MARKS.sub(r"\\\g<0>", " ".join(text.split()))


def _line(event: Event) -> str:
    known = {"time", "seq", "event"}
    rest = ", ".join(f"{name} {value}" for name, value in event.items() if name not in known)
    return f"{event['time']}: {str(event['event']).replace('_', ' ')} ({rest})"


def _share(count: int, of: int) -> str:
    return f"{count} of {of} groups ({count / max(1, of):.1%})".replace("%", " %")


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="minutes").partition("+")[0]
