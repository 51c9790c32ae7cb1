"""The report of a node and its model card: lineage, curves with their intervals, and events."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from support.swarm import make_manifest

from sapo_client.account.curves import Bin, binned, svg
from sapo_client.account.node_report import model_card, read_lineage, write_report
from sapo_client.errors import SapoError
from sapo_client.observe.events import EventLog
from sapo_client.observe.outcomes import OutcomeStore
from sapo_client.paths import DataDir
from sapo_protocol.manifest_file import manifest_to_json


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    """A data directory with forty steps, of which every second imitated something of another account."""
    data = DataDir(tmp_path / "node").create()
    data.manifest.write_text(manifest_to_json(make_manifest(name="<b>friends</b> | co")))
    store = OutcomeStore(data.outcomes, clock=lambda: 1_800_000_000.0)
    with EventLog(data.events) as events:
        events.listen(store.note)
        for step in range(1, 41):
            uses = [{"use": "imitated"}] if step % 2 else []
            events.write(
                "step", step=step, epoch=step // 10, reward=step / 40, local=[b"1", b"2"], external=uses,
                private=1,
            )  # fmt: skip
        events.write("rolled_back", step=17, why="reward fell")
    store.close()
    return data


def test_a_report_names_lineage_and_events(data: DataDir, tmp_path: Path) -> None:
    written = write_report(data, tmp_path / "report")
    assert written["steps"] == 40
    page = (tmp_path / "report" / "report.html").read_text()
    text = (tmp_path / "report" / "report.md").read_text()
    for line in (
        "| training steps | 1 to 40 (40 remembered) |",
        "| epochs | 0 to 4, 60 s each |",
        "| own groups | 120 of 140 groups (85.7 %) |",
        "| others' right answers, imitated | 20 of 140 groups (14.3 %) |",
        "rolled back (step 17, why reward fell)",
        "![Mean reward of own completions](reward.svg)",
    ):
        assert line in text
    assert "<b>friends</b>" not in page, "names of strangers are text"
    assert "&lt;b&gt;friends&lt;/b&gt;" in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", ""), "it loads nothing"
    root = ElementTree.fromstring((tmp_path / "report" / "reward.svg").read_text())
    assert root.tag.endswith("svg")
    card = model_card(read_lineage(data))
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "| own groups | 120 of 140 groups (85.7 %) |" in card


def test_a_directory_without_steps_has_no_report(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "node").create()
    data.manifest.write_text(manifest_to_json(make_manifest()))
    with pytest.raises(SapoError, match="no training step is remembered") as caught:
        write_report(data, tmp_path / "report")
    assert caught.value.exit_code == 8


def test_bins_hold_equal_numbers_and_their_interval() -> None:
    bins = binned([(float(n), float(n % 2)) for n in range(120)], bins=30)
    assert [each.n for each in bins] == [4] * 30
    assert bins[0] == Bin(1.5, 0.5, bins[0].half_width, 4)
    assert bins[0].half_width == pytest.approx(1.96 * (1 / 3 / 4) ** 0.5)
    assert binned([(1.0, 0.3)])[0] == Bin(1.0, 0.3, None, 1)
    assert "mean of 4 steps per bin" in svg("t", bins, "x", "y")
