"""The bundled ReasoningGYM: its items and scores are those of the release that the index installs."""

import json
import subprocess
from pathlib import Path

from support import item_digests

from sapo_verification.jail.launch import command, environment

RECORDED = Path(__file__).parent / "data" / "item_digests.json"


def test_items_and_scores_are_those_of_the_installed_release() -> None:
    python = command("")[0]
    done = subprocess.run(
        [python, item_digests.__file__], env=environment(), capture_output=True, check=True, timeout=600
    )
    assert json.loads(done.stdout) == json.loads(RECORDED.read_text(encoding="utf-8"))
