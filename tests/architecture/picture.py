"""The picture of the rooms: the imports between them, and a rollout's path from network to training step."""

from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

from architecture.figures import ROOT
from architecture.rooms import BY_NAME, ROOMS, Room, needed, size_of

COLUMN, GAP, BOX, STEP, MARGIN, BAND_TOP = 100, 34, 44, 70, 50, 40
"""Pixels: a column, the space between boxes, a box's height, a row, the frame, and a band's heading."""

BANDS: Final = {"client": "#e9f0fa", "verification": "#e8f5ec", "protocol": "#fbf1e2"}
FRAMES: Final = {"client": "#7c9cc9", "verification": "#6fae84", "protocol": "#cfa25a"}
TITLES: Final = {
    "client": "client: one node, and everything around it",
    "verification": "verification: from bytes to trusted rollouts, without network, clock or model",
    "protocol": "protocol: what goes over the wire, pure",
}
PATH_COLOUR: Final = "#d1495b"

ROLLOUT_PATH: Final = (
    (
        "swarm",
        "client/sapo_client/swarm/intake.py",
        "Reassembles libp2p frames to one message of a topic; drops duplicates and floods.",
    ),
    (
        "node/gossip",
        "client/sapo_client/node/gossip/handlers.py",
        "The topic's validator passes the bytes and the clock's time to the engine.",
    ),
    (
        "engine",
        "verification/sapo_verification/engine.py",
        "`Engine.receive` calls the topic's admission, and applies its verdict.",
    ),
    (
        "admission",
        "verification/sapo_verification/admission/rollouts.py",
        "Stages 0 to 7: envelope, schema, epoch, certificate, signature. The result is an `AdmittedRollout`.",
    ),
    (
        "sampling",
        "verification/sapo_verification/sampling/pool.py",
        "The pool keeps it until the sampler draws it: first an account by weight, then one of its groups.",
    ),
    ("verifier", "verification/sapo_verification/verifier.py", "Verifies a drawn rollout, stage by stage."),
    (
        "jail",
        "verification/sapo_verification/jail/checkers.py",
        "Derives the task again, and scores the answers in a process without network and files.",
    ),
    (
        "screens",
        "verification/sapo_verification/screens/screens.py",
        "Screens for copies, planted phrases and improbable text.",
    ),
    (
        "reputation",
        "verification/sapo_verification/reputation/evidence.py",
        "Records the findings as evidence about the account. The result is a `VerifiedRollout`.",
    ),
    (
        "node/training",
        "client/sapo_client/node/training/rounds.py",
        "The round puts drawn and own groups into one `SampledBatch`.",
    ),
    ("learner", "client/sapo_client/learner/trainer.py", "One GRPO step on the batch, and its `StepReport`."),
)
"""The path of another node's rollout: the room, the file at which it enters, and what happens there."""

RIGHT: Final = 7.5
"""Rooms from this column on have their badges at the right."""


def _band_rows(band: str) -> int:
    return 1 + max(room.row for room in ROOMS if room.band == band)


def _band_top(band: str) -> int:
    top = MARGIN // 2
    for name in BANDS:
        if name == band:
            return top
        top += BAND_TOP + _band_rows(name) * STEP + 8
    raise KeyError(band)


def _box(room: Room) -> tuple[float, float, float]:
    """Return left, top and width of a room's box."""
    top = _band_top(room.band) + BAND_TOP + room.row * STEP
    return MARGIN + GAP + room.column * COLUMN, top, room.span * COLUMN - GAP


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _arrow(source: Room, target: Room, weight: float) -> str:
    """Return a curve from the bottom of one box to the top of another, as straight as the boxes allow."""
    left, top, width = _box(source)
    other_left, other_top, other_width = _box(target)
    low, high = max(left, other_left), min(left + width, other_left + other_width)
    if low < high:
        start = end = (low + high) / 2
    elif left < other_left:
        start, end = left + width - 22, other_left + 22
    else:
        start, end = left + 22, other_left + other_width - 22
    begin, finish = top + BOX, other_top - 5
    bend = max(24.0, (finish - begin) / 2)
    path = f"M{_number(start)} {_number(begin)}C{_number(start)} {_number(begin + bend)} "
    path += f"{_number(end)} {_number(finish - bend)} {_number(end)} {_number(finish)}"
    return f'<path d="{path}" stroke-width="{weight:.1f}" marker-end="url(#tip)"/>'


def _room(room: Room, root: Path) -> str:
    left, top, width = _box(room)
    middle = _number(left + width / 2)
    count = size_of(room, root)
    return (
        f'<rect x="{_number(left)}" y="{_number(top)}" width="{_number(width)}" height="{BOX}" rx="7" '
        f'fill="#ffffff" stroke="{FRAMES[room.band]}" stroke-width="1.4"/>'
        f'<text x="{middle}" y="{_number(top + 19)}" class="name">{escape(room.name)}</text>'
        f'<text x="{_number(left + width - 16)}" y="{_number(top + 15)}" class="count">{count}</text>'
        f'<text x="{middle}" y="{_number(top + 36)}" class="does">{escape(room.does)}</text>'
    )


def draw(root: Path = ROOT) -> str:
    """Return the picture as SVG; the same tree always gives the same text."""
    width = 2 * MARGIN + GAP + 10 * COLUMN
    height = _band_top("protocol") + BAND_TOP + STEP + 44
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" '
        'markerUnits="userSpaceOnUse" orient="auto">'
        '<path d="M0 0.5L7 4L0 7.5z" fill="#8b95a3"/></marker></defs>',
        "<style>.name{font-size:14px;font-weight:600;text-anchor:middle;fill:#1d2733}"
        ".count{font-size:10.5px;text-anchor:end;fill:#7b8794}"
        ".does{font-size:11.5px;text-anchor:middle;fill:#4a5563}"
        ".band{font-size:14px;font-weight:600;fill:#33404f}"
        ".legend{font-size:12px;fill:#4a5563}"
        ".badge{font-size:11px;font-weight:700;text-anchor:middle;fill:#ffffff}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]  # fmt: skip
    for band, colour in BANDS.items():
        top, inner = _band_top(band), BAND_TOP + _band_rows(band) * STEP - 14
        parts.append(
            f'<rect x="{MARGIN - 10}" y="{top}" width="{width - 2 * MARGIN + 20}" height="{inner}" '
            f'rx="12" fill="{colour}"/>'
            f'<text x="{MARGIN + GAP}" y="{top + 25}" class="band">{escape(TITLES[band])}</text>'
        )
    pairs = [(BY_NAME[source], BY_NAME[target]) for source, target in sorted(needed(root))]
    inside = [_arrow(source, target, 1.2) for source, target in pairs if source.band == target.band]
    parts.append(f'<g fill="none" stroke="#9aa5b3">{"".join(inside)}</g>')
    parts.append(_path_line())
    parts += [_room(room, root) for room in ROOMS]
    parts += [_badges(), _legend(height - 26)]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _stops() -> list[tuple[float, float]]:
    """Return where the badge of each stop lies: on the outer edge of its box."""
    stops = []
    for name, _file, _text in ROLLOUT_PATH:
        left, top, width = _box(BY_NAME[name])
        stops.append((left + width * (BY_NAME[name].column >= RIGHT), top + BOX / 2))
    return stops


def _path_line() -> str:
    path = ""
    for (x, y), (to_x, to_y) in pairwise(_stops()):
        side = 1 if x > BY_NAME["cli"].span * COLUMN / 2 else -1
        bulge = side * min(38, 22 + abs(to_y - y) / 18) if x == to_x else 0
        path += f"M{_number(x)} {_number(y)}C{_number(x + bulge)} {_number(y + (to_y - y) / 3)} "
        path += f"{_number(to_x + bulge)} {_number(to_y - (to_y - y) / 3)} {_number(to_x)} {_number(to_y)}"
    return f'<path d="{path}" fill="none" stroke="{PATH_COLOUR}" stroke-width="3" stroke-linecap="round"/>'


def _legend(top: float) -> str:
    left = MARGIN + GAP
    return (
        f'<path d="M{left} {top}h34" stroke="{PATH_COLOUR}" stroke-width="3" stroke-linecap="round"/>'
        f'<text x="{left + 46}" y="{top + 4}" class="legend">the path of a rollout, as listed below</text>'
        f'<path d="M{left + 330} {top}h34" stroke="#9aa5b3" stroke-width="1.2" marker-end="url(#tip)"/>'
        f'<text x="{left + 376}" y="{top + 4}" class="legend">imports, less those that others imply</text>'
        f'<text x="{left + 700}" y="{top + 4}" class="legend">in the corner: modules</text>'
    )


def _badges() -> str:
    return "".join(
        f'<circle cx="{_number(x)}" cy="{_number(y)}" r="10" fill="{PATH_COLOUR}" '
        'stroke="#ffffff" stroke-width="1.5"/>'
        f'<text x="{_number(x)}" y="{_number(y + 4)}" class="badge">{number}</text>'
        for number, (x, y) in enumerate(_stops(), start=1)
    )
