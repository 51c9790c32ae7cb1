"""Generate the tables and the picture of docs/architecture.md; ``make architecture`` runs this.

``python tests/architecture/page.py --measure FOLDER`` prints the figures of another tree, such as a checkout
of an older version, in the same way.
"""

import argparse
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio
from trio.testing import MockClock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from architecture import figures
from architecture.figures import ROOT
from architecture.picture import ROLLOUT_PATH, draw
from architecture.rooms import ROOMS, arrows, size_of

PAGE: Final = ROOT / "docs/architecture.md"
PICTURE: Final = ROOT / "docs/images/architecture.svg"


@dataclass(frozen=True)
class Figure:
    """A row of the table of figures.

    Attributes:
        what: is counted.
        before: in version 0.1.0, tree eae0a53, by this script.
        limit: the architecture test's.
        test: its name.
    """

    what: str
    before: int
    limit: str
    test: str


FIGURES: Final = {
    "positional": Figure("most positional arguments of a call", 13, "6", "test_calls_name_their_arguments"),
    "wide": Figure("calls with more than six of them", 27, "0", "test_calls_name_their_arguments"),
    "folder": Figure("most modules in a folder", 49, "25", "test_folders_stay_small"),
    "root": Figure(
        "own imports of the composition root, `client/sapo_client/node/app.py`",
        56,
        "29",
        "test_the_root_is_small",
    ),
    "twice": Figure("class names that stand twice", 25, "0", "test_class_names_are_unique"),
    "circles": Figure("circles of imports", 2, "0", "test_there_is_no_import_cycle"),
    "wire": Figure(
        "files from the wire to the pool", 22, "19", "test_the_path_from_message_to_pool_has_few_calls"
    ),
    "wirings": Figure("files that build the graph of trusted state", 7, "1", "test_the_graph_is_built_once"),
}


def measured(root: Path = ROOT) -> dict[str, int]:
    """Return the figures that the sources alone give, by the keys of ``FIGURES``."""
    calls = [count for count, _place in figures.calls_by_position(root)]
    return {
        "positional": max(calls),
        "wide": sum(count > 6 for count in calls),
        "folder": max(count for count, _folder in figures.modules_by_folder(root)),
        "root": len(figures.composition_imports(root)),
        "twice": len(figures.names_used_twice(root)),
        "circles": len(figures.circles(root)),
        "wirings": len(figures.wirings(root)),
    }


def files_to_pool() -> int:
    """Return how many files a rollout passes from the wire to the pool of the tree that runs."""
    from architecture.wire import files_to_pool as watched  # loads the node

    with TemporaryDirectory() as folder:
        return len(trio.run(watched, Path(folder), clock=MockClock(autojump_threshold=0)))


def _figures() -> str:
    now = measured() | {"wire": files_to_pool()}
    rows = [
        f"| {row.what} | {row.before} | {now[key]} | {row.limit} | `{row.test}` |"
        for key, row in FIGURES.items()
    ]
    head = "| figure | 0.1.0 (eae0a53) | now | at most | test |\n| --- | ---: | ---: | ---: | --- |"
    return "\n".join([head, *rows])


def _rooms() -> str:
    rows = ["| room | modules | what it does | imports |", "| --- | ---: | --- | --- |"]
    for room in ROOMS:
        imported = sorted(target for source, target in arrows() if source == room.name)
        rows.append(
            f"| `{room.folder}` | {size_of(room)} | {room.does} | {', '.join(imported) or 'nothing'} |"
        )
    return "\n".join(rows)


def _path() -> str:
    return "\n".join(
        f"{number}. `{file}`: {text}" for number, (_room, file, text) in enumerate(ROLLOUT_PATH, start=1)
    )


def filled(text: str) -> str:
    """Return the page with its generated parts made anew."""
    for name, body in {"figures": _figures(), "rooms": _rooms(), "path": _path()}.items():
        pattern = rf"(?s)<!-- generated: {name} -->\n.*?\n<!-- end -->"
        block = f"<!-- generated: {name} -->\n{body}\n<!-- end -->"
        text, found = re.subn(pattern, block.replace("\\", r"\\"), text)
        if found != 1:
            raise ValueError(f"{PAGE.name} has {found} places for {name}, not one")
    return text


def main() -> None:
    """Write page and picture, or print the figures of another tree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=Path, metavar="FOLDER")
    folder = parser.parse_args().measure
    if folder is not None:
        for key, value in measured(folder.resolve()).items():
            print(f"{value:5}  {FIGURES[key].what}")
        return
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
