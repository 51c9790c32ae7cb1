"""Files that are replaced in one step."""

import os
from pathlib import Path


def write_atomically(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Write a file of which readers find the old or the new content, never a part.

    Args:
        content: text is written as UTF-8.
        durable: return only once the content is on the disk, so that it survives a power failure.
    """
    writing = path.with_name(f".{path.name}.writing")  # runs on other machines leave such files out
    with writing.open("wb") as stream:
        stream.write(content.encode("utf-8") if isinstance(content, str) else content)
    if durable:
        force_to_disk(writing)
    writing.replace(path)
    if durable:
        force_to_disk(path.parent)


def force_to_disk(path: Path) -> None:
    """Return once a file's content, or the list of a folder's entries, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
