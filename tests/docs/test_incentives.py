"""The page on incentives shows what the command prints."""

import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "incentives.md"
SAPO = Path(sys.executable).with_name("sapo")


def test_the_table_is_the_command_s_output() -> None:
    _, _, after = PAGE.read_text(encoding="utf-8").partition("<!-- sapo lab economy -->\n```\n")
    shown, fence, _ = after.partition("```\n")
    done = subprocess.run([SAPO, "lab", "economy"], capture_output=True, text=True, check=True)
    assert fence
    assert shown == done.stdout
