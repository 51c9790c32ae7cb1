"""Text of strangers has no effect on a terminal: in tables, in JSON and in a node's lines."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sapo_process import Run
from support.swarm import Identity, make_manifest

from sapo_client import logs
from sapo_client.account.verify_file import VerificationStep
from sapo_client.cli.render import Grid, Output, Pairs, print_error
from sapo_client.cli.verify import print_step
from sapo_client.node.runtime.host import say_joined
from sapo_client.node.runtime.statements import show_signed
from sapo_client.observe.terminal import say
from sapo_protocol.manifest_file import manifest_to_json

HOSTILE = "".join(map(chr, (*range(0x20), *range(0x7F, 0xA0)))) + "\u202eabc\u2066\u200b\U000e0041\ud800"
"""All control characters, an override of direction, invisible ones, and half of a character."""

WRITERS: dict[str, Callable[[str], None]] = {
    "json": lambda text: Output(as_json=True).emit({text: [text]}),
    "text": lambda text: Output().emit(None, text),
    "pairs": lambda text: Output().emit(None, Pairs([("name", text)])),
    "grid": lambda text: Output().emit(None, Grid(("name",), [(text,)])),
    "note": lambda text: Output().note(text),
    "warning": lambda text: Output().warn(text),
    "error": lambda text: print_error(text, text),
    "verification": lambda text: print_step(VerificationStep(7, True, text)),
    "node": say,
    "joined": lambda text: say_joined(text, "begin", [text]),
    "stack": lambda text: log_trace(text),
    "statement": lambda text: show_signed({"name": text}),
}


def log_trace(text: str) -> None:
    """Log an exception with a text of a stranger, with its stack, as `-v` does."""
    logs.configure(1, quiet=False)
    try:
        raise ValueError(text)
    except ValueError:
        logging.getLogger("sapo_client.node").exception("begin")
    finally:
        logs.configure(0)


def acting(text: str) -> list[str]:
    """Return the characters of an output that are neither text, nor a space, nor the end of a line."""
    return [s for s in text if not s.isprintable() and s not in "\n\t" and category(s) != "Zs"]


@pytest.mark.parametrize("writer", WRITERS)
def test_no_output_contains_a_control_character(writer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(sys, "stdout", written)
    monkeypatch.setattr(sys, "stderr", written)
    # pytest keeps what is logged, and cannot hand half of a character to another process
    monkeypatch.setattr(logging.getLogger("sapo_client"), "propagate", False)
    WRITERS[writer](f"begin{HOSTILE}end")
    assert "begin" in written.getvalue()
    assert acting(written.getvalue()) == []


@given(st.recursive(st.text(), lambda inner: st.dictionaries(st.text(), inner, max_size=3)))
def test_json_reads_as_the_same_document(document: object) -> None:
    written = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", written)
        Output(as_json=True).emit(document)
    assert json.loads(written.getvalue()) == document
    assert acting(written.getvalue()) == []


def test_a_manifests_name_is_printed_without_control_characters(sapo: Run, tmp_path: Path) -> None:
    """No digest covers the name: anyone who passes a manifest on can change it."""
    manifest, envelope = tmp_path / "manifest.json", tmp_path / "rollout.sapo"
    named = make_manifest(name="swarm\x9b31m\x7f\x85end")
    manifest.write_text(manifest_to_json(named), encoding="utf-8")
    envelope.write_bytes(Identity(1).message(named))
    done = sapo("doctor", "--json", "--manifest", manifest)
    checks = {check["name"]: check["detail"] for check in json.loads(done.stdout)["checks"]}
    assert named.name in checks["manifest"]
    steps = sapo("verify", envelope, "--manifest", manifest).stdout
    assert "of swarm swarm" in steps
    assert acting(done.stdout + steps) == []
