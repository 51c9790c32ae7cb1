"""The page on incentives shows the output of the command."""

import json
import subprocess
import sys
from pathlib import Path

from sapo_client.lab.economy import STRATEGIES

PAGE = Path(__file__).parents[2] / "docs" / "incentives.md"
SAPO = Path(sys.executable).with_name("sapo")


def test_the_table_is_the_command_s_output() -> None:
    _, _, after = PAGE.read_text(encoding="utf-8").partition("<!-- sapo lab economy -->\n```\n")
    shown, fence, _ = after.partition("```\n")
    done = subprocess.run([SAPO, "lab", "economy"], capture_output=True, text=True, check=True)
    assert fence
    assert shown == done.stdout


def test_the_same_figures_come_as_json() -> None:
    command = [str(SAPO), "lab", "economy", "--json", "--epochs", "2", "--honest", "1", "--point", "1"]
    document = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert document["format"] == "sapo/lab/economy/1"
    assert (document["world"]["epochs"], document["world"]["honest"], document["prices"]["point"]) == (
        2,
        1,
        1,
    )
    assert [row["name"] for row in document["strategies"]] == [strategy.name for strategy in STRATEGIES]
