"""The page in headless Chromium, on a real node that trains and is sent hostile text."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from support.browser import open_browser, require_browser, window
from support.page_swarm import HOSTILE, STRANGER, hostile_texts
from support.sapo_process import SAPO

from sapo_client.dashboard.history import FinalEpoch, Sample, open_history
from sapo_client.lab.store import FORMAT
from sapo_client.observe.control_client import ControlClient
from sapo_client.paths import DataDir
from sapo_client.testnet.plan import CONTROL_NAME, Layout

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.e2e

MAX_BYTES: Final = 300_000
PATIENCE_SECONDS: Final = 240
SECTIONS: Final = ("overview", "rollouts", "peers", "ledger", "log", "settings")
AXE: Final = Path(__file__).with_name("node_modules") / "axe-core" / "axe.min.js"

# Runs as a script of the test, outside the page's policy.
INERT: Final = """
  return {
    pwned: window.pwned ?? null,
    elements: document.querySelectorAll(arguments[0]).length,
    texts: [...document.querySelectorAll(".answer .text")].map((each) => each.textContent),
    children: document.querySelectorAll(".answer .text > *").length,
    where: location.pathname,
  };
"""


FOREIGN: Final = (
    "main script, main img, main iframe, main form, main style, main base, main meta, main template,"
    " main math, [onerror], [onload], [onfocus], a[href^='javascript']"
)
"""What the page itself never holds."""


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    """Return one browser for all tests; skips where none is found."""
    require_browser()
    with open_browser() as opened:
        yield opened


@pytest.fixture
def link(page_node: DataDir) -> str:
    """Return a fresh link to the page of a running node."""
    return ControlClient(page_node).page_link()


def wait(chrome: Any, script: str) -> Any:
    """Return the value of a script once it is true."""
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(chrome, PATIENCE_SECONDS).until(
        lambda driver: driver.execute_script(f"return {script}")
    )


def complaints(chrome: Any) -> list[str]:
    """Return the errors in the browser's console."""
    return [entry["message"] for entry in chrome.get_log("browser") if entry["level"] == "SEVERE"]


def test_the_page_shows_a_real_node(chrome: Chrome, link: str) -> None:
    with window(chrome):
        chrome.get(link)
        assert wait(chrome, "document.querySelectorAll('.chart polyline').length > 2")
        assert wait(chrome, "document.querySelectorAll('.feed li').length > 3")
        step = "Number(document.querySelectorAll('.tile dd')[2].textContent.replace(/,/g, ''))"
        first = wait(chrome, step)
        assert wait(chrome, f"{step} > {first}")  # it is live
        assert chrome.execute_script("return document.querySelector('#state').textContent") != "connecting"
        assert "code=" not in chrome.current_url
        for section in SECTIONS:
            chrome.execute_script("location.hash = arguments[0]", section)
            assert wait(chrome, f"document.querySelector('#tabs [aria-current]').hash === '#{section}'")
            assert wait(chrome, "document.querySelector('main').innerText.length > 60")
        assert wait(chrome, "document.querySelectorAll('main tbody tr').length > 40")  # the settings
        assert complaints(chrome) == []


def test_continued_curves_equal_newly_read_ones(chrome: Chrome, link: str) -> None:
    """Points of the last minute are asked for again, what left the window is dropped."""
    held = {"own": [[0, 1], [20, 2], [40, 3]], "gone": [[0, 1]]}
    newer = {"since": 30, "seconds": 20, "figures": {"own": [[40, 4], [60, 5]], "new": [[60, 1]]}}
    with window(chrome):
        chrome.get(link)
        found = chrome.execute_async_script(
            """
            const [held, newer, done] = arguments;
            (async () => {
            const code = await import(new URL("curves.js", location).href);
            const same = new code.Curves("self");
            const first = await same.window(2), second = await same.window(2);
            const whole = await code.Curves.prototype.read.call(same, 2, 0);
            const starts = (data) => data.figures.step.map(([start]) => start);
            done([
              code.joined(held, newer, 40),
              code.settled({ now: 1000, seconds: 20 }),
              starts(second).slice(0, starts(first).length).join() === starts(first).join(),
              starts(whole).slice(0, starts(second).length).join() === starts(second).join(),
            ]);
            })();
            """,
            held,
            newer,
        )
        assert complaints(chrome) == []
    continued = {"own": [[20, 2], [40, 4], [60, 5]], "new": [[60, 1]]}
    assert found == [continued, 920, True, True]


def test_hostile_texts_are_only_text(chrome: Chrome, link: str) -> None:
    expected, shown = set(hostile_texts()), set()
    with window(chrome):
        chrome.get(link)
        wait(chrome, "document.querySelectorAll('.feed li').length > 0")
        where = chrome.execute_script("return location.pathname")
        ids = chrome.execute_async_script(
            """
            const [account, done] = arguments, ids = [];
            for (let offset = 0; ; offset += 200) {
              const query = `show=others&limit=200&offset=${offset}`;
              const page = await (await fetch(`api/self/rollouts?${query}`)).json();
              const theirs = page.rollouts.filter((each) => each.account.toLowerCase() === account);
              ids.push(...theirs.map((each) => each.content_id));
              if (offset + 200 >= page.total) break;
            }
            done(ids);
            """,
            str(STRANGER.account).lower(),
        )
        for content_id in ids:
            chrome.execute_script("location.hash = `rollouts/${arguments[0]}`", content_id)
            title = "document.querySelector('.inspector h2 .mono')?.textContent"
            wait(chrome, f"{title}?.startsWith('{content_id[:16]}')")
            found = chrome.execute_script(INERT, FOREIGN)
            shown |= set(found.pop("texts"))
            assert found == {"pwned": None, "elements": 0, "children": 0, "where": where}
        chrome.execute_script("location.hash = 'overview'")
        wait(chrome, "document.querySelectorAll('.bars li').length > 0")
        assert chrome.execute_script(INERT, FOREIGN)["elements"] == 0
        assert complaints(chrome) == []
    # a decoder of UTF-8 drops nothing of these texts but a byte order mark is text, too
    assert len(shown & expected) == HOSTILE


def test_a_message_that_was_not_admitted_is_shown_with_its_stage_and_sender(
    chrome: Chrome, link: str
) -> None:
    with window(chrome):
        chrome.get(f"{link}#rollouts")
        wait(chrome, "document.querySelector('main .segments')")
        buttons = "[...document.querySelectorAll('main button')]"
        chrome.execute_script(f"{buttons}.find((each) => each.textContent === 'not admitted').click()")
        cells = "(row) => row.innerText.split('\\t').slice(1, 4)"
        rows = f"[...document.querySelectorAll('main tbody tr')].map({cells})"
        assert wait(chrome, f"{rows}.length === 2 && {rows}") == [
            ["stranger", "7 signature", "refused: bad signature"],
            ["stranger", "1 encoding", "refused: not canonical"],
        ]
        assert chrome.execute_script("return document.querySelector('main ul.note').innerText") == (
            "stranger not canonical 1, bad signature 1"
        )
        chrome.execute_script("document.querySelector('main tbody button').click()")
        signs = "[...document.querySelectorAll('.stages b')].map((each) => each.title)"
        expected = ["passed"] * 7 + ["failed"] + ["not checked"] * 6
        assert chrome.execute_script(f"return {signs}") == expected
        assert "R7.1" in chrome.execute_script("return document.querySelector('.inspector').innerText")
        assert complaints(chrome) == []


def test_the_page_is_small_and_loads_nothing_from_other_hosts(chrome: Chrome, link: str) -> None:
    with window(chrome):
        chrome.get(link)
        wait(chrome, "document.querySelectorAll('.chart polyline').length > 2")
        entries = chrome.execute_script(
            "return ['resource', 'navigation'].flatMap((kind) => performance.getEntriesByType(kind))"
            ".map((each) => [each.name, each.transferSize])"
        )
        origin = chrome.execute_script("return location.origin")
        assert [name for name, _ in entries if not name.startswith(origin)] == []
        assert 0 < sum(size for _, size in entries) < MAX_BYTES


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_axe_finds_no_serious_violation_and_no_section_overflows(
    chrome: Chrome, link: str, width: int, dark: bool
) -> None:
    if not AXE.exists():
        pytest.skip("no axe-core: run npm ci in tests/client/dashboard")
    with window(chrome, width=width, dark=dark):
        chrome.get(link)
        wait(chrome, "document.querySelectorAll('.feed li').length > 0")
        for section in SECTIONS:
            chrome.execute_script("location.hash = arguments[0]", section)
            wait(chrome, "document.querySelector('main').innerText.length > 60")
            chrome.execute_script(AXE.read_text(encoding="utf-8"))
            found = chrome.execute_async_script(
                "const done = arguments[0]; axe.run().then((result) => done(result.violations"
                ".filter((each) => ['serious', 'critical'].includes(each.impact))"
                ".map((each) => [each.id, each.nodes.map((node) => node.html)])))"
            )
            assert (section, found) == (section, [])
            wide = chrome.execute_script("return document.documentElement.scrollWidth")
            assert (section, wide <= width) == (section, True)  # nothing sticks out on a phone


def test_the_tiles_show_held_out_results_and_that_a_node_alone_shares_nothing(
    chrome: Chrome, link: str
) -> None:
    """The section of a real node's status, as one that trains alone has it."""
    with window(chrome):
        chrome.get(link)
        wait(chrome, "document.querySelectorAll('.feed li').length > 0")
        found = chrome.execute_async_script(
            """
            const [done] = arguments;
            (async () => {
            const { Overview } = await import(new URL("panels.js", location).href);
            const shown = new Overview("self"), status = await (await fetch("api/self/status")).json();
            const words = (element) => [...element.children].map((each) => each.textContent.trim());
            const tiles = () => [...shown.element.querySelectorAll(".tile")].map(words);
            const copy = { step: 90, reward: 0.42, lead: 0.19, lead_error: 0.03 };
            const check = { step: 120, items: 64, reward: 0.61, reward_first: 0.3, own_alone: copy };
            shown.status({ ...status, held_out: check });
            const heldOut = tiles()[1];
            const held_out = { ...check, own_alone: null };
            shown.status({ ...status, alone: true, shared: 24, peers: 0, held_out });
            const made = { event: "published", at: 0, family: "binary_matrix", peers: 0 };
            shown.decisions({ decisions: [made], left_out: 0 });
            const [, alone, , , ...rest] = tiles();
            done([heldOut, alone, ...rest.slice(0, 3), words(shown.feed.firstChild).slice(1)]);
            })();
            """
        )
        assert complaints(chrome) == []
    first = "0.30 in the first check"
    assert found == [
        ["Held-out reward", "0.61", f"{first}; +0.19 ± 0.06 over own answers alone"],
        ["Held-out reward", "0.61", first],
        ["Peers", "–", "this node trains alone"],
        ["Made", "24", "none of them shared"],
        ["Refused", "–", "nothing arrives"],
        ["made", "binary matrix"],
    ]


def test_every_table_can_be_read_on_a_phone(chrome: Chrome, link: str, page_node: DataDir) -> None:
    """No cell is outside of the window, and each has a label: the column headers are hidden."""
    history = open_history(page_node.history)
    history.add_epoch(FinalEpoch(3, time.time(), 120, "ab" * 32))
    history.close()
    with window(chrome, width=390):
        chrome.get(link)
        wait(chrome, "document.querySelectorAll('.feed li').length > 0")
        for section in ("rollouts", "peers", "ledger", "settings"):
            chrome.execute_script("location.hash = arguments[0]", section)
            wait(chrome, f"document.querySelector('#tabs [aria-current]').hash === '#{section}'")
            wait(chrome, "document.querySelectorAll('main tbody td').length > 4")
            cells = "[...document.querySelectorAll('main tbody td')]"
            outside = f"{cells}.filter((each) => each.getBoundingClientRect().right > 390).length"
            named = f"[...new Set({cells}.map((each) => getComputedStyle(each, '::before').content))]"
            assert (section, chrome.execute_script(f"return {outside}")) == (section, 0)
            assert "none" not in chrome.execute_script(f"return {named}"), section
        assert complaints(chrome) == []


def test_every_section_has_its_whole_name_on_a_narrow_phone(chrome: Chrome, link: str) -> None:
    with window(chrome, width=360):
        chrome.get(link)
        wait(chrome, "document.querySelectorAll('#tabs a').length === 6")
        for section in SECTIONS:
            chrome.execute_script("location.hash = arguments[0]", section)
            wait(chrome, f"document.querySelector('#tabs [aria-current]').hash === '#{section}'")
            ends = "[...document.querySelectorAll('#tabs a')].map((a) => a.getBoundingClientRect().right)"
            assert (section, chrome.execute_script(f"return Math.max(...{ends}) <= 360")) == (section, True)


def test_a_printed_page_has_no_controls_and_cuts_nothing(chrome: Chrome, link: str) -> None:
    with window(chrome, width=1000, dark=True):
        chrome.get(link)
        wait(chrome, "document.querySelectorAll('.feed li').length > 0")
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        shown = chrome.execute_script(
            "const style = (name) => getComputedStyle(document.querySelector(name));"
            "return [style('nav').display, style('.top').position, style('.feed').maxHeight,"
            " style('body').color]"
        )
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    assert shown[:3] == ["none", "static", "none"]
    assert sum(map(int, re.findall(r"\d+", shown[3])[:3])) < 3 * 128  # dark on the white of paper


def test_every_section_is_reached_by_keyboard(chrome: Chrome, link: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    with window(chrome):
        keyboard = ActionChains(chrome)  # its keys go to what has the focus when they are pressed
        chrome.get(link)
        wait(chrome, "document.querySelectorAll('#tabs a').length === 6")
        for section in SECTIONS:
            for _ in range(20):
                keyboard.send_keys(Keys.TAB).perform()
                if chrome.execute_script("return document.activeElement.hash") == f"#{section}":
                    break
            keyboard.send_keys(Keys.ENTER).perform()
            assert wait(chrome, f"document.querySelector('#tabs [aria-current]').hash === '#{section}'")
        chrome.execute_script("location.hash = 'rollouts'")
        wait(chrome, "document.querySelector('main tbody button') !== null")
        chrome.execute_script("document.querySelector('main tbody button').focus()")
        keyboard.send_keys(Keys.ENTER).perform()
        assert wait(chrome, "document.querySelectorAll('.stages li').length === 14")


def test_a_new_list_keeps_the_focus(chrome: Chrome, link: str) -> None:
    """A row that newer ones have pushed out leaves the focus to the one in its place."""
    with window(chrome):
        chrome.get(link)
        found = chrome.execute_async_script(
            """
            const [done] = arguments;
            (async () => {
            const { el, replace } = await import(new URL("dom.js", location).href);
            const list = el("div"), other = el("button", { "data-id": "other" }), found = [];
            document.body.append(list, other);
            const show = (ids) => {
              replace(list, ...[...ids].map((id) => el("button", { "data-id": id })));
              found.push(document.activeElement.dataset.id ?? document.activeElement.tagName);
            };
            show("abc");
            list.children[1].focus();
            for (const ids of ["xabc", "xyz", "wv", "", "abc"]) show(ids);
            other.focus();
            show("other");
            done([found, document.activeElement === other]);
            })();
            """
        )
        assert complaints(chrome) == []
    assert found == [["BODY", "b", "z", "v", "BODY", "BODY", "other"], True]


def test_findings_are_spoken_once_and_commands_stay_whole(chrome: Chrome, link: str) -> None:
    """Their figures change every ten seconds, which would interrupt a reader of the page each time."""
    with window(chrome):
        chrome.get(link)
        found = chrome.execute_async_script(
            """
            const [done] = arguments;
            (async () => {
            const { announce, el, sentence } = await import(new URL("dom.js", location).href);
            const spoken = el("p"), said = [];
            const observer = new MutationObserver(() => {});
            observer.observe(spoken, { childList: true, characterData: true, subtree: true });
            const say = (...findings) => {
              announce(spoken, findings);
              said.push([spoken.textContent, observer.takeRecords().length > 0]);
            };
            say();
            say({ level: "warning", code: "no_peers", text: "no peer for 40 s" });
            say({ level: "warning", code: "no_peers", text: "no peer for 50 s" });
            say();
            const shown = el("p", {}, ...sentence("see `sapo peers`; or take --rpc, not -- this"));
            done([said, shown.innerHTML, document.querySelector("#health").ariaLive]);
            })();
            """
        )
        assert complaints(chrome) == []
    said = [["", False], ["warning: no peer for 40 s", True], ["warning: no peer for 40 s", False]]
    shown = "see <code>sapo peers</code>; or take <code>--rpc</code>, not -- this"
    assert found == [[*said, ["nothing is wrong", True]], shown, None]


def test_with_reduced_motion_nothing_moves(chrome: Chrome, link: str) -> None:
    with window(chrome):
        motion = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": motion})
        chrome.get(link)
        wait(chrome, "document.querySelectorAll('.feed li').length > 0")
        running = "document.getAnimations({subtree: true}).length"
        assert chrome.execute_script(f"return {running}") == 0


@contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """End a process also where a test fails: to leave it to ``Popen`` would wait for ever."""
    with process:
        try:
            yield process
        finally:
            process.terminate()


def test_the_arms_of_an_experiment_are_drawn_by_round(chrome: Chrome, tmp_path: Path) -> None:
    (tmp_path / "experiment.json").write_text(json.dumps({"format": FORMAT}), encoding="utf-8")
    for arm, slope in (("8-0", 0.1), ("4-4", 0.2)):
        for seed in (0, 1):
            rows = [
                {"round": number, "agent": 0, "local": slope * number + seed / 20, "held_out": {"a": 0.5}}
                for number in range(1, 5)
            ]
            finished = tmp_path / arm / f"seed-{seed}" / "rounds.jsonl"
            finished.parent.mkdir(parents=True)
            finished.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    argv = [SAPO, "lab", "page", str(tmp_path)]
    with _ended(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)) as process, window(chrome):
        assert process.stdout is not None
        chrome.get(process.stdout.readline().strip())
        assert wait(chrome, "document.querySelectorAll('.chart polyline').length === 4")
        assert chrome.execute_script("return document.querySelectorAll('.chart polygon').length") == 4
        label = "document.querySelector('.chart svg').getAttribute('aria-label')"
        assert chrome.execute_script(f"return {label}").endswith(
            "Latest: 4-4 0.83 ± 0.32 (n = 2); 8-0 0.43 ± 0.32 (n = 2)."
        )
        assert complaints(chrome) == []


def test_a_testnet_page_shows_attacks_and_the_node_without_sharing(chrome: Chrome, tmp_path: Path) -> None:
    layout, start = Layout(tmp_path), int(time.time()) // 60 * 60 - 600
    layout.manifest.write_text(json.dumps({"name": "three"}), encoding="utf-8")
    for name, reward in (("ada", 0.5), ("bo", 1.0), (CONTROL_NAME, 0.25)):
        history = open_history(layout.node(name).data.create().history)
        names = ("own", "own/sums") if name != CONTROL_NAME else ("own",)
        history.add(Sample(one, start + 20.0 * number, reward) for one in names for number in range(10))
        history.close()
    log = layout.attacker("mallory").attacks
    log.parent.mkdir(parents=True)
    sent = [
        {"time": start + at, "attacker": "mallory", "kind": kind, "message": "", "content_id": None}
        for at, kind in ((50, "bad_signature"), (120, "flood"))
    ]
    log.write_text("".join(f"{json.dumps(each)}\n" for each in sent), encoding="utf-8")
    argv = [SAPO, "testnet", "page", "--data-dir", str(tmp_path)]
    with _ended(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)) as process, window(chrome):
        assert process.stdout is not None
        chrome.get(process.stdout.readline().strip())
        whole = "document.querySelector('main .chart')"
        assert wait(chrome, f"{whole}?.querySelectorAll('polyline').length === 2")
        assert (
            chrome.execute_script(f"return {whole}.querySelectorAll('polygon').length") == 1
        )  # of two nodes
        label = chrome.execute_script(f"return {whole}.querySelector('svg').getAttribute('aria-label')")
        assert "nodes that share (mean) 0.75" in label
        assert "a node that trains alone 0.25" in label
        marks = f"[...{whole}.querySelectorAll('g > .mark + title')].map((each) => each.textContent)"
        assert chrome.execute_script(f"return {marks}") == ["mallory: bad signature", "mallory: flood"]
        assert wait(chrome, "document.querySelectorAll('main .grid .chart').length === 4")
        labels = "[...document.querySelectorAll('main .grid .chart svg')].map((each) => each.ariaLabel)"
        by_family = chrome.execute_script(f"return {labels}")[0]
        assert by_family.startswith("Mean reward in the family sums. Latest: ada 0.50")
        assert "; bo 1.00" in by_family
        text = chrome.execute_script("return document.querySelector('main').innerText")
        assert "Red lines: 2 moments at which attackers sent something" in text
        # none of the three nodes runs, and the browser logs each such response
        assert [each for each in complaints(chrome) if "/status - " not in each or "503" not in each] == []
