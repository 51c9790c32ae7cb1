"""Changes in the folder of a run, to be applied to its copy on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Files = Mapping[str, bytes]
"""Contents of files by their path below the experiment's folder."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one round in the folder of a run.

    Attributes:
        appended: new bytes of append-only files, with the previous length.
        written: all other new or changed files.
        removed: files that were removed.
    """

    appended: Mapping[str, tuple[int, bytes]]
    written: Files
    removed: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Apply the changes to a copy of the folder; journals first: no checkpoint may be ahead of them."""
        for name, (offset, data) in self.appended.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            with path.open("r+b") as file:
                file.truncate(offset)
                file.seek(offset)
                file.write(data)
        for name, data in self.written.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        for name in self.removed:
            (root / name).unlink(missing_ok=True)
            _remove_empty(root / name, root)


class FolderWatch:
    """Finds the changes in a folder since the last call.

    Args:
        root: folder of the experiment.
        folder: folder of the run inside it.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._seen: dict[str, tuple[int, int, int]] = {}
        self.changes()

    def changes(self) -> Changes:
        """Return the changes since the last call."""
        appended: dict[str, tuple[int, bytes]] = {}
        written: dict[str, bytes] = {}
        found = {str(path.relative_to(self._root)): path for path in files_of(self._folder)}
        for name, path in found.items():
            stat = path.stat()
            state = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            before = self._seen.get(name)
            if state == before:
                continue
            if name.endswith(".jsonl") and before is not None and before[2] <= stat.st_size:
                appended[name] = (before[2], path.read_bytes()[before[2] :])
            elif name.endswith(".jsonl"):
                appended[name] = (0, path.read_bytes())
            else:
                written[name] = path.read_bytes()
            self._seen[name] = state
        removed = tuple(sorted(self._seen.keys() - found.keys()))
        for name in removed:
            del self._seen[name]
        return Changes(appended, written, removed)


def files_of(folder: Path) -> list[Path]:
    """Return the files of a run, without incomplete files and its lock."""
    paths = sorted(folder.rglob("*"))
    return [path for path in paths if path.is_file() and path.name != "lock" and ".writing" not in str(path)]


def _remove_empty(path: Path, root: Path) -> None:
    """Remove the folders above a removed file that are empty now."""
    for parent in path.parents:
        if parent == root or not parent.is_dir() or any(parent.iterdir()):
            return
        parent.rmdir()
