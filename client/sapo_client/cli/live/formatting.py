"""Formatting of `sapo watch`: views of the page as lines of text, for any width from 60 columns on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sapo_client.intervals import NORMAL_975
from sapo_client.observe.terminal import plain

SPARKS: Final = "▁▂▃▄▅▆▇█"
SHORT: Final = 8
STATE: Final = 14  # what sixty columns leave beside the other four
FAMILY: Final = 14
LABEL: Final = 18
MIN_COLUMNS: Final = 60

View = Mapping[str, Any]

_CURVES: Final = {
    "own": "own answers",
    "batch": "batch",
    "others": "others",
    "held_out": "held out",
    "held_out_own_alone": "  own answers alone",
}


def sparkline(points: Sequence[Sequence[Any]], width: int) -> str:
    """Return a curve of values from 0 to 1 as block characters, one per part of the curve."""
    if not points or width < 1:
        return ""
    width = min(width, len(points))
    means = [float(point[1]) for point in points]
    parts = [means[place * len(means) // width : (place + 1) * len(means) // width] for place in range(width)]
    top = len(SPARKS) - 1
    return "".join(SPARKS[min(top, max(0, round(sum(part) / len(part) * top)))] for part in parts)


def head(status: View) -> str:
    """Return the state of the node in one line."""
    errors = any(finding["level"] == "error" for finding in status["findings"])
    state = status["state"] if status["state"] != "running" else "unhealthy" if errors else "healthy"
    return f"{state}  {status['swarm_name']}  node {status['node_id'][:SHORT]}  step {status['step']}"


def health(status: View) -> list[str]:
    """Return the findings, each with its hint."""
    found = [f"{each['level']}: {each['text']}\n  {each['hint']}" for each in status["findings"]]
    return found or ["nothing is wrong"]


def figures(status: View) -> list[tuple[str, str]]:
    """Return the node's main figures by name."""
    even = status["refused"].get("no_signal", 0)  # neither for nor against its author
    refused = sum(status["refused"].values()) - even
    arrived = refused + status["accepted"]
    share = f"{refused / arrived:.0%}".replace("%", " %") if arrived else "-"
    ledger = status["ledger"]
    registered = "registered" if ledger["registered"] else "not registered"
    alone = status["alone"]
    peers = f"{status['peers']}, pool of {status['pool']} rollouts"
    rollouts = f"{status['shared']} shared, {status['accepted']} accepted"
    return [
        ("reward", f"{_share(status['reward'])}  ({_share(status['reward_start'])} at the start)"),
        ("held out", _held_out(status.get("held_out"))),
        ("round", f"{status['round']}, epoch {status['epoch']}"),
        ("peers", "none: this node trains alone" if alone else peers),
        ("rollouts", f"{status['shared']} made, none shared" if alone else rollouts),
        ("refused", f"{share} of {arrived} messages, {even} without advantage"),
        ("ledger", f"{ledger['points']} points, {registered}" if ledger["enabled"] else "off"),
    ]


def curves(view: View, width: int) -> list[str]:
    """Return a sparkline per figure of reward, with its latest mean and 95 % interval."""
    found = view["figures"]
    own = sorted(name for name in found if name.startswith("own/"))
    names = [name for name in (*_CURVES, *own) if found.get(name)]
    labels = {name: _CURVES.get(name, f"  {name[4:]}").replace("_", " ") for name in names}
    place = min(max(map(len, labels.values()), default=LABEL), LABEL + max(0, width - MIN_COLUMNS))
    room = max(8, width - place - 18)
    lines = [
        f"{labels[name][:place]:<{place}} {sparkline(found[name], room)} {_estimate(found[name][-1])}"
        for name in names
    ]
    return lines or ["no answers yet"]


def reasons(view: View) -> list[tuple[str, int]]:
    """Return how often each decision was made in the window, most frequent first."""
    counts = {
        name.removeprefix("refused/").replace("_", " "): round(sum(point[4] for point in points))
        for name, points in view["figures"].items()
        if name == "admitted" or name.startswith("refused/")
    }
    return sorted(counts.items(), key=lambda each: -each[1])


def rollout_rows(view: View, width: int = MIN_COLUMNS) -> list[tuple[str, ...]]:
    """Return a row per rollout: id, author, family, reward, state; half of the room beyond 60 columns each
    for family and state."""
    more = max(0, width - MIN_COLUMNS) // 2
    return [
        (
            each["content_id"][:SHORT],
            "own" if each["own"] else plain(each["account"]).removeprefix("0x")[:SHORT],
            plain(each["family"]).replace("_", " ")[: FAMILY + more],
            _share(each["reward"]),
            each["state"].replace("refused: ", "✗ ").replace("_", " ")[: STATE + more],
        )
        for each in view["rollouts"]
    ]


def rollout_lines(view: View) -> list[str]:
    """Return one rollout in full: epoch and slot, prompt, answers and every stage of its verification."""
    mark = {True: "ok  ", False: "fail", None: "-   "}
    return [
        f"rollout {view['content_id']}",
        f"author {'this node' if view['own'] else view['account']}",
        f"epoch {view['epoch']}, slot {view['slot']}",
        f"state {view['state'].replace('_', ' ')}",
        *(f"{use['use']} in step {use['step']}" for use in view["uses"]),
        "",
        "prompt",
        plain(view["prompt"] or "not derived yet"),
        *_answers(view),
        "",
        *(
            f"{each['stage']:>2} {mark[each['passed']]} {each['name']}  {_stage(each)}"
            for each in view["stages"]
        ),
    ]


def peer_rows(view: View) -> list[tuple[str, ...]]:
    """Return a row per connected peer: peer id, account, reputation, accepted, refused."""
    return [
        (
            f"…{plain(peer['peer_id'])[-SHORT:]}",
            (plain(peer["account"]).removeprefix("0x") if peer["account"] else "unknown")[:SHORT],
            _share(peer["reputation"]),
            str(peer["accepted"]),
            str(peer["refused"]),
        )
        for peer in view["peers"]
    ]


def ledger_lines(view: View) -> list[str]:
    """Return the state of the ledger and the latest final epochs."""
    ledger = view["ledger"]
    if not ledger["enabled"]:
        return ["this node takes part in no ledger"]
    ends = [f"{end['name']}: {end['trouble'] or end['head']}" for end in ledger["endpoints"]]
    epochs = [
        f"epoch {each['epoch']}: {_points(each['points'])} of {each['total']} points"
        for each in view["epochs"]
    ]
    return [
        f"account {view['account']}",
        "registered" if ledger["registered"] else "not registered: what this node shares is not paid",
        f"{ledger['points']} points, {ledger['outbox']} transactions waiting, {ledger['stuck']} stuck",
        *([f"last error: {plain(ledger['last_error'])}"] if ledger["last_error"] else []),
        *ends,
        "",
        *(epochs or ["no epoch is final yet"]),
        "",
        "claim with: sapo ledger claim",
    ]


def log_text(view: View) -> str:
    """Return the lines of the log, the newest first."""
    return "\n".join(reversed(view["lines"])) or f"no lines yet in {view['path']}"


def _answers(view: View) -> Iterator[str]:
    for number, answer in enumerate(view["answers"], 1):
        reward = answer["reward"]
        yield f"\nanswer {number}: {'not scored' if reward is None else 'right' if reward > 0 else 'wrong'}"
        yield plain(answer["text"])


def _stage(stage: View) -> str:
    return f"{stage['rule']}: {plain(stage['detail'])}" if stage["rule"] else plain(stage["detail"])


def _estimate(point: Sequence[Any]) -> str:
    _, mean, half, n, _ = point
    return f"{mean:.2f}" + ("" if half is None else f" ± {half:.2f}") + f" n={n}"


def lead_text(lead: float, error: float) -> str:
    """Return a difference of rewards with its 95 % interval."""
    return f"{lead:+.2f} ± {NORMAL_975 * error:.2f}"


def _held_out(found: View | None) -> str:
    """Return the results of the last check on held-out tasks."""
    if found is None:
        return "no check yet"
    reward, copy = _share(found["reward"]), found["own_alone"]
    if copy is None:
        return reward
    return f"{reward}  ({lead_text(copy['lead'], copy['lead_error'])} over own answers alone)"


def _points(value: int | None) -> str:
    return "?" if value is None else str(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
