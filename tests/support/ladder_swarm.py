"""Real learners over sixteen epochs with difficulty that follows or is fixed: pay, levels, learning.

    sapo lab pretrain START --recipe ladders
    PYTHONPATH=tests python -m support.ladder_swarm FOLDER --model START --difficulty follow
    PYTHONPATH=tests python -m support.ladder_swarm OTHER_FOLDER --model START --difficulty fixed

Starts `sapo testnet up` with three honest nodes, keeps every node's last checkpoint of each epoch, and then
lets each of them answer the same held-out items of every level at temperature 1. Prints a table as Markdown,
and writes it as JSON to ``table.json``. All of it takes twenty minutes of two cores.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from sapo_client.lab.held_out import HeldOut, pass_at_1
from sapo_client.learner.service import Service
from sapo_client.learner.settings import LearnerSettings
from sapo_client.node.runtime.manifests import read_manifest
from sapo_protocol.contributions import Proposal, parse_proposal
from sapo_protocol.envelope import parse_envelope
from sapo_protocol.manifest import Manifest
from sapo_protocol.terms.difficulty import WHOLE
from sapo_verification.suites.catalogue import NANO_DEFAULT, family, ladder_levels

NODES = ("ada", "bo", "cleo")
LEVELS = ladder_levels(NANO_DEFAULT[0], "nano")
POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class EpochOfRun:
    """Result of an epoch; parts are of all nodes' groups.

    Attributes:
        points: of the three nodes together, as the ledger has them.
        groups: that they shared and that counted.
        right: part that was all right; None in a fixed swarm, which does not count it.
        mixed: part with right and wrong answers.
        position: mean over ladders of the record that the epoch settled, in levels; 0 in a fixed swarm.
        held_out: share of right answers after the epoch, by level; a mean over nodes and families.
    """

    epoch: int
    points: int
    groups: int
    right: float | None
    mixed: float
    position: float
    held_out: dict[str, float]


def main() -> None:
    """Run the swarm unless the folder holds one, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", default="bundled")
    parser.add_argument("--difficulty", choices=("follow", "fixed"), default="follow")
    parser.add_argument("--epochs", type=int, default=16)
    parser.add_argument("--epoch-seconds", type=int, default=50)
    parser.add_argument("--items", type=int, default=64, help="Held-out items of each family and level.")
    options = parser.parse_args()
    if not (options.folder / "report").exists():
        _run(options)
    rows = list(_rows(options.folder, options.model, options.items))
    (options.folder / "table.json").write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print(_table(rows))


def _run(options: argparse.Namespace) -> None:
    """Run the swarm to its end, and keep the nodes' checkpoints of every epoch."""
    folder, seconds = options.folder / "swarm", options.epoch_seconds
    command = [str(Path(sys.executable).with_name("sapo")), "testnet", "up", "--nodes", str(len(NODES))]
    command += ["--attackers", "0", "--epochs", str(options.epochs), "--epoch-seconds", str(seconds)]
    command += ["--difficulty", options.difficulty, "--model", options.model, "--no-progress"]
    command += ["--data-dir", str(folder), "--report", str(options.folder / "report")]
    swarm, kept = subprocess.Popen(command), set[int]()
    while swarm.poll() is None:
        time.sleep(POLL_SECONDS)
        manifest_file = folder / "nodes" / NODES[0] / "data" / "manifest.json"
        if not manifest_file.exists():
            continue
        elapsed = time.time() - read_manifest(manifest_file).genesis_seconds
        epoch = int(elapsed // seconds)
        if elapsed % seconds > seconds - 3 * POLL_SECONDS and epoch not in kept and epoch >= 0:
            kept.add(epoch)
            for name in NODES:
                _keep_checkpoint(folder / "nodes" / name, options.folder / "kept" / f"{epoch:02}" / name)
    if swarm.returncode not in (0, 7):
        raise SystemExit(swarm.returncode)


def _keep_checkpoint(node: Path, target: Path) -> None:
    """Copy a node's last checkpoint; where the node replaces it meanwhile, copy the new one."""
    for _ in range(5):
        steps = sorted((node / "data" / "learner" / "checkpoints").glob("step-*"))
        try:
            shutil.copytree(steps[-1], target / "checkpoints" / steps[-1].name, dirs_exist_ok=True)
        except (shutil.Error, FileNotFoundError):
            shutil.rmtree(target, ignore_errors=True)
            continue
        return
    raise SystemExit(f"no checkpoint of {node.name} could be copied")


def _rows(folder: Path, model: str, items: int) -> Iterator[EpochOfRun]:
    node = folder / "swarm" / "nodes" / NODES[0] / "data"
    manifest = read_manifest(node / "manifest.json")
    database = sqlite3.connect(f"file:{node / 'node.sqlite'}?mode=ro", uri=True)
    sets = {level: HeldOut.of([family(name, level) for name in NANO_DEFAULT], items) for level in LEVELS}
    for kept in sorted((folder / "kept").iterdir()):
        epoch = int(kept.name)
        proposal = _proposal(database, manifest, epoch)
        if proposal is None:
            continue
        groups, right, mixed = _counts(database, epoch, follows=manifest.difficulty is not None)
        if not groups:  # a node forgets counts after sixteen epochs
            continue
        yield EpochOfRun(
            epoch,
            sum(share.points for share in proposal.shares),
            groups,
            None if right is None else right / groups,
            mixed / groups,
            _position(manifest, proposal),
            {level: _held_out(kept, model, found) for level, found in sets.items()},
        )


def _counts(database: sqlite3.Connection, epoch: int, *, follows: bool) -> tuple[int, int | None, int]:
    """Return the groups that counted in an epoch, those that were all right if known, and the mixed ones."""
    query = (
        'SELECT count(*), sum(wrong = 0), sum("right" > 0 AND wrong > 0) FROM counted_group WHERE epoch = ?'
        if follows
        else "SELECT count(*), NULL, sum(payable) FROM rollout_outcome WHERE epoch = ?"
    )
    groups, right, mixed = database.execute(query, (epoch,)).fetchone()
    return groups, right, mixed


def _proposal(database: sqlite3.Connection, manifest: Manifest, epoch: int) -> Proposal | None:
    found = database.execute(
        "SELECT envelope FROM contribution JOIN posted_proposal USING (content_id, epoch) WHERE epoch = ?",
        (epoch,),
    ).fetchone()
    if found is None:
        return None
    return parse_proposal(parse_envelope(found[0], manifest.swarm_id).payload)


def _position(manifest: Manifest, proposal: Proposal) -> float:
    if manifest.difficulty is None:
        return 0.0
    ladders = manifest.difficulty.ladders
    return fmean(
        sum(place * proposal.record[index].weight for place, index in enumerate(ladder)) / WHOLE
        for ladder in ladders
    )


def _held_out(kept: Path, model: str, items: HeldOut) -> float:
    scores = []
    for name in NODES:
        learner = Service(LearnerSettings(model=model, directory=kept / name, seed=0))
        scores.append(fmean(pass_at_1(items.answers(learner, 1.0, 0)).values()))
    return fmean(scores)


def _table(rows: Sequence[EpochOfRun]) -> str:
    head = ["epoch", "position", "groups", "all right", "mixed", "points", *LEVELS]
    lines = ["| " + " | ".join(head) + " |", "|" + " ---: |" * len(head)]
    lines += [
        f"| {row.epoch} | {row.position:.2f} | {row.groups} | {_part(row.right)} | {row.mixed:.0%} "
        f"| {row.points} | {' | '.join(f'{row.held_out[level]:.0%}' for level in LEVELS)} |"
        for row in rows
    ]
    return "\n".join(lines)


def _part(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


if __name__ == "__main__":
    main()
