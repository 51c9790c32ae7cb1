"""The page's list of peers when there are very many, in headless Chromium."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.browser import open_browser, require_browser, window

from sapo_client.observe.control_client import ControlClient
from sapo_client.observe.reports import PeerReport, PeersReport
from sapo_client.paths import DataDir

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.e2e

WALK = """
const [many, few, one, done] = arguments;
(async () => {
const { Peers } = await import(new URL("panels.js", location).href);
const fetched = window.fetch;
let peers = many;
window.fetch = (path, options) =>
  path === "api/self/peers" ? Promise.resolve(new Response(JSON.stringify(peers))) : fetched(path, options);
const shown = new Peers("self"), found = [];
document.getElementById("main").replaceChildren(shown.element);
const look = async () => {
  await shown.load();
  const texts = (selector) => [...shown.connected.querySelectorAll(selector)].map((each) => each.textContent);
  const accounts = texts("tbody tr > :nth-child(2)"), focused = document.activeElement.dataset.id ?? null;
  found.push([accounts.length, accounts[0], accounts.at(-1), texts(".pager > *"), focused]);
};
await look();
shown.connected.querySelector("[data-id=older]").focus();
for (let turn = 0; turn < 2; turn++) {
  document.activeElement.click();
  await look();
}
for (peers of [few, one]) await look();
done([...found, shown.connected.lastChild.className]);
})().catch((error) => done(String(error)));
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    """Return one browser for this module; skips where none is found."""
    require_browser()
    with open_browser() as opened:
        yield opened


def peers_of(number: int) -> dict[str, object]:
    """Return a report of that many peers, whose accounts are numbered."""
    peers = tuple(
        PeerReport(peer_id=f"12D3KooW{n:044d}", account=f"0x{n:06d}{n:034d}") for n in range(number)
    )
    return PeersReport(peers=peers).model_dump(mode="json")


def test_many_peers_are_on_pages_that_keep_the_focus(browser: Chrome, page_node: DataDir) -> None:
    """Two hundred were one list of 32,000 pixels on a phone, before the accounts; more were not shown."""
    with window(browser, width=360):
        browser.get(ControlClient(page_node).page_link())
        found = browser.execute_async_script(WALK, peers_of(260), peers_of(26), peers_of(1))
    words = ["Previous", "Next"]
    assert found == [
        [25, "0x000000…", "0x000024…", [*words, "1 to 25 of 260"], None],
        [25, "0x000025…", "0x000049…", [*words, "26 to 50 of 260"], "older"],
        [25, "0x000050…", "0x000074…", [*words, "51 to 75 of 260"], "older"],
        [1, "0x000025…", "0x000025…", [*words, "26 to 26 of 26"], None],
        [1, "0x000000…", "0x000000…", [], None],
        "scroll",
    ]
