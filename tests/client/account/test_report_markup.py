"""A stranger names a swarm: in a node's Markdown report and its model card the name is text, not markup."""

from pathlib import Path

from support.swarm import make_manifest

from sapo_client.account.node_report import model_card, read_lineage, write_report
from sapo_client.observe.events import EventLog
from sapo_client.observe.outcomes import OutcomeStore
from sapo_client.paths import DataDir
from sapo_protocol.manifest_file import manifest_to_json

NAME = (
    "friends |\n\n# Official\n<img src=https://x.example/t>![t](https://x.example/t)"
    "[claim](https://x.example) **now** `x` \\| &lt;"
)
SHOWN = (
    r"friends \| # Official \<img src=https://x.example/t\>\!\[t\](https://x.example/t)"
    r"\[claim\](https://x.example) \*\*now\*\* \`x\` \\\| \&lt;"
)


def test_the_name_of_a_swarm_is_one_line_without_markup(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "node").create()
    manifest = make_manifest(name=NAME)
    data.manifest.write_text(manifest_to_json(manifest))
    store = OutcomeStore(data.outcomes, clock=lambda: 1_800_000_000.0)
    with EventLog(data.events) as events:
        events.listen(store.note)
        events.write("step", step=1, epoch=0, reward=0.5, local=[b"1"], external=[], private=0)
        events.write("rolled_back", step=1, why="[x](https://x.example)\n# y")
    store.close()
    write_report(data, tmp_path / "report")
    told = r"rolled back (step 1, why \[x\](https://x.example) # y)"
    for text in ((tmp_path / "report" / "report.md").read_text(), model_card(read_lineage(data))):
        lines = text.splitlines()
        assert [line for line in lines if "x.example" in line and "swarm" in line] == [
            f"| swarm | {SHOWN} ({manifest.swarm_id}) |"
        ]
        assert [line.partition(": ")[2] for line in lines if line.startswith("* ")] == [told]
