"""The successor documents in a data directory, and the list of those that the node follows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from sapo_client.atomic_files import write_atomically
from sapo_client.errors import ExitCode, SapoError
from sapo_protocol.errors import LocalProtocolError
from sapo_protocol.identifiers import Digest
from sapo_protocol.manifest import Manifest
from sapo_protocol.manifest_file import successor_from_json
from sapo_protocol.terms.successor import MAX_SUCCESSOR_BYTES, Successor, successor_digest

_OBEYED: Final = "obeyed.json"

_Entries = TypeAdapter(list[tuple[int, str]])


class SuccessorFolder:
    """Documents as files named by their digests; a file whose digest differs from its name is ignored."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def document(self, digest: Digest) -> bytes | None:
        """Return the document with a digest; None if it is not held."""
        try:
            document = (self._root / f"{digest}.json").read_bytes()
        except FileNotFoundError:
            return None
        return document if successor_digest(document) == digest else None

    def add(self, document: bytes) -> Digest:
        """Keep a document, and return its digest.

        Raises:
            LocalProtocolError: it is larger than any successor.
        """
        if len(document) > MAX_SUCCESSOR_BYTES:
            raise LocalProtocolError(f"a successor has at most {MAX_SUCCESSOR_BYTES} bytes")
        digest = successor_digest(document)
        self._write(f"{digest}.json", document)
        return digest

    def obey(self, successions: Iterable[tuple[int, Digest]]) -> None:
        """Store the epochs from which on documents are followed, with their digests, ascending."""
        entries = [(epoch, str(digest)) for epoch, digest in successions]
        self._write(_OBEYED, _Entries.dump_json(entries))

    def obeyed(self) -> list[tuple[int, Digest]]:
        """Return the epochs from which on documents are followed, with their digests, ascending.

        Raises:
            SapoError: the file is damaged.
        """
        file = self._root / _OBEYED
        try:
            entries = _Entries.validate_json(file.read_bytes())
            return [(epoch, Digest.from_hex(digest)) for epoch, digest in entries]
        except FileNotFoundError:
            return []
        except (ValidationError, LocalProtocolError) as error:
            raise _damaged(file) from error

    def apply(self, manifest: Manifest) -> Manifest:
        """Return a swarm's first manifest with the successors that are followed.

        Raises:
            SapoError: one of them is missing, damaged, or of another swarm or release.
        """
        for epoch, digest in self.obeyed():
            file = self._root / f"{digest}.json"
            if (document := self.document(digest)) is None:
                raise _damaged(file)
            try:
                manifest = manifest.succeeded_by(epoch, successor_from_json(document))
            except LocalProtocolError as error:
                raise SapoError(
                    f"the successor {file} cannot be followed: {error}",
                    hint="install the newest release of sapo, or remove the folder: it is fetched again",
                    exit_code=ExitCode.CONFIG,
                ) from error
        return manifest

    def _write(self, name: str, content: bytes) -> None:
        self._root.mkdir(mode=0o700, exist_ok=True)
        write_atomically(self._root / name, content)


def what_changes(manifest: Manifest, successor: Successor) -> list[str]:
    """Return the differences between a swarm's newest terms and a successor, as text, one each."""
    families, before = successor.suite.families, len(manifest.suite.families)
    limits = manifest.limits
    was_retired = manifest.successions[-1].successor.retired if manifest.successions else ()
    lines = [f"new family {each.name} ({each.level})" for each in families[before:]]
    for place in sorted(set(successor.retired) ^ set(was_retired)):
        verb = "retires" if place in successor.retired else "comes back"
        lines.append(f"family {families[place].name} ({families[place].level}) {verb}")
    for name, old, new in (
        ("slots per epoch", limits.slots_per_epoch, successor.slots_per_epoch),
        ("completions per group", limits.max_completions, successor.max_completions),
    ):
        if old != new:
            lines.append(f"{name}: {new} instead of {old}")
    return lines or ["nothing"]


def _damaged(file: Path) -> SapoError:
    return SapoError(
        f"{file} is missing or damaged",
        hint=f"remove the folder {file.parent}: the node fetches it again from its peers",
        exit_code=ExitCode.DATA,
    )
