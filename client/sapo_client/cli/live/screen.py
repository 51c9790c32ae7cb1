"""The screen of `sapo watch`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Static, TabbedContent, TabPane
from textual.worker import get_current_worker

from sapo_client.cli.live import formatting
from sapo_client.errors import SapoError

REFRESH_SECONDS: Final = 2.0
WINDOW: Final = "curves?hours=2"

ROLLOUT_COLUMNS: Final = ("rollout", "author", "family", "reward", "state")
PEER_COLUMNS: Final = ("peer", "account", "reputation", "accepted", "refused")
TABS: Final = ("overview", "rollouts", "peers", "ledger", "log")


class WatchApp(App[None]):
    """The page of a node in the terminal.

    Args:
        view: returns a view of the page; it blocks, and is called in a thread.
    """

    TITLE = "sapo"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "End"),
        *((str(number), f"show('{name}')", name.capitalize()) for number, name in enumerate(TABS, 1)),
    ]
    CSS = """
    #head { padding: 0 1; text-style: bold; height: 1; }
    #health { padding: 0 1; }
    .error { color: $error; }
    .warning { color: $warning; }
    TabPane { padding: 0 1; }
    DataTable { height: 1fr; }
    #rollout { height: 1fr; border-top: solid $panel; }
    """

    def __init__(self, view: Callable[[str], Any]) -> None:
        super().__init__()
        self._view = view
        self._chosen = ""

    def compose(self) -> ComposeResult:
        """Lay the screen out."""
        yield Static("connecting", id="head", markup=False)
        yield Static("", id="health", markup=False)
        with TabbedContent(initial=TABS[0]):
            with TabPane("Overview", id="overview"), VerticalScroll():
                yield Static("", id="figures", markup=False)
            with TabPane("Rollouts", id="rollouts"):
                yield DataTable(id="list", cursor_type="row", zebra_stripes=True)
                with VerticalScroll(id="rollout"):
                    yield Static("Choose a rollout with the arrow keys and Enter.", id="text", markup=False)
            with TabPane("Peers", id="peers"):
                yield DataTable(id="book", cursor_type="row")
            with TabPane("Ledger", id="ledger"), VerticalScroll():
                yield Static("", id="points", markup=False)
            with TabPane("Log", id="log"), VerticalScroll():
                yield Static("", id="lines", markup=False)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Start polling the node."""
        self.query_one("#list", DataTable).add_columns(*ROLLOUT_COLUMNS)
        self.query_one("#book", DataTable).add_columns(*PEER_COLUMNS)
        self.set_interval(REFRESH_SECONDS, self.refresh_views)
        self.refresh_views()

    def action_show(self, name: str) -> None:
        """Show a tab."""
        self.query_one(TabbedContent).active = name
        self.refresh_views()

    def on_tabbed_content_tab_activated(self) -> None:
        """Fill the tab that is now shown."""
        self.refresh_views()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the chosen rollout in full."""
        if event.data_table.id == "list" and event.row_key.value is not None:
            self._chosen = event.row_key.value
            self.refresh_views()

    def refresh_views(self) -> None:
        """Request the shown views from the node, in a thread; a pending earlier request is dropped."""
        self.run_worker(self._ask, thread=True, exclusive=True, group="views")

    def _ask(self) -> None:
        tab = self.query_one(TabbedContent).active
        try:
            status, found = self._view("status"), self._ask_tab(tab)
        except SapoError as error:
            self.call_from_thread(self._lost, error)
        else:
            if not get_current_worker().is_cancelled:  # a newer request was made meanwhile
                self.call_from_thread(self._show, tab, status, found)

    def _ask_tab(self, tab: str) -> Any:
        match tab:
            case "rollouts":
                text = self._view(f"rollout?id={self._chosen}") if self._chosen else None
                return self._view("rollouts?limit=100"), text
            case "peers" | "ledger":
                return self._view(tab)
            case "log":
                return self._view("log?lines=200")
        return self._view(WINDOW)

    def _lost(self, error: SapoError) -> None:
        self.query_one("#head", Static).update("not connected")
        self.query_one("#health", Static).update(Text(f"{error.text}\n  {error.hint}", style="red"))

    def _show(self, tab: str, status: Any, found: Any) -> None:
        self.query_one("#head", Static).update(formatting.head(status))
        style = "" if not status["findings"] else "yellow" if status["healthy"] else "red"
        self.query_one("#health", Static).update(Text("\n".join(formatting.health(status)), style=style))
        match tab:
            case "overview":
                self.query_one("#figures", Static).update(self._overview(status, found))
            case "rollouts":
                rollouts, text = found
                ids = [each["content_id"] for each in rollouts["rollouts"]]
                _fill(
                    self.query_one("#list", DataTable),
                    formatting.rollout_rows(rollouts, self.size.width),
                    ids,
                )
                if text is not None:
                    self.query_one("#text", Static).update("\n".join(formatting.rollout_lines(text)))
            case "peers":
                ids = [peer["peer_id"] for peer in found["peers"]]
                _fill(self.query_one("#book", DataTable), formatting.peer_rows(found), ids)
            case "ledger":
                self.query_one("#points", Static).update("\n".join(formatting.ledger_lines(found)))
            case "log":
                self.query_one("#lines", Static).update(formatting.log_text(found))

    def _overview(self, status: Any, curves: Any) -> str:
        width = max(40, self.size.width - 4)
        return "\n".join(
            (
                *(f"{name:<10}{value}" for name, value in formatting.figures(status)),
                "",
                "mean reward, last 2 hours (± half of the 95 % interval)",
                *formatting.curves(curves, width),
                "",
                "decisions, last 2 hours",
                *(f"{count:>7}  {name}" for name, count in formatting.reasons(curves)[:12]),
            )
        )


def _fill(table: DataTable[Any], rows: list[tuple[str, ...]], keys: list[str]) -> None:
    """Replace the rows of a table; the cursor stays on its row."""
    place = table.cursor_row
    table.clear()
    for row, key in zip(rows, keys, strict=True):
        table.add_row(*map(Text, row), key=key)
    if rows:
        table.move_cursor(row=min(place, len(rows) - 1))
