"""Terminals without UTF-8, and names of files that are not text: what `sapo` prints there."""

from __future__ import annotations

import json
import os

from support.sapo_process import Run

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale whose encoding has 128 characters."""


def test_a_character_that_the_terminal_lacks_is_printed_as_an_escape(sapo: Run, home: dict[str, str]) -> None:
    made = sapo("keys", "new", "caf\u00e9", "--no-passphrase", PYTHONIOENCODING="ascii")
    assert (made.returncode, "caf\\u00e9" in made.stdout) == (0, True), made
    shown = sapo("keys", "list", "--json", PYTHONIOENCODING="ascii")
    assert (shown.returncode, "caf\\u00e9" in shown.stdout) == (0, True), shown
    assert "caf\u00e9" in str(json.loads(shown.stdout))


def test_a_path_that_is_not_text_is_refused_in_one_sentence(sapo: Run) -> None:
    for words in ("status", "join"):
        done = sapo(words, "--data-dir", os.fsdecode(b"node\xff"))
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr == (
            "error: data_dir = 'node\\udcff' from flag is not text in the encoding utf-8\n"
            "hint: name it in that encoding, or set LC_ALL=C.UTF-8\n"
        )


def test_a_name_in_a_locale_of_ascii_is_refused_in_one_sentence(sapo: Run) -> None:
    done = sapo("status", "--data-dir", "dat\u00e4", **ASCII)
    assert (done.returncode, done.stderr) == (
        3,
        "error: data_dir = 'dat\\udcc3\\udca4' from flag is not text in the encoding ascii\n"
        "hint: name it in that encoding, or set LC_ALL=C.UTF-8\n",
    )
