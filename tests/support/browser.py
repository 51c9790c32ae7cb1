"""Headless Chromium for tests, where there is one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

PATIENCE_SECONDS: Final = 240
"""For a page or a script on a busy machine; a script has 30 by default."""

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser() -> tuple[str, str] | None:
    """Return the paths of the browser and of its driver; none if one of them is missing."""
    browser = next(filter(None, map(shutil.which, NAMES)), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


def require_browser() -> None:
    """Skip the test, by name, where no browser is found."""
    if find_browser() is None:
        pytest.skip("no browser: install chromium and chromium-driver")


@contextmanager
def open_browser() -> Iterator[Chrome]:
    """Yield a browser, which is ended afterwards."""
    from selenium.webdriver import Chrome
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service

    found = find_browser()
    assert found is not None
    options = Options()
    options.binary_location = found[0]
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options=options, service=Service(found[1]))
    try:
        chrome.set_page_load_timeout(PATIENCE_SECONDS)
        chrome.set_script_timeout(PATIENCE_SECONDS)
        yield chrome
    finally:
        chrome.quit()


@contextmanager
def window(chrome: Chrome, *, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[None]:
    """Use a new window of a size, light or dark, in a browser that keeps nothing of earlier ones."""
    chrome.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "*", "storageTypes": "all"})
    chrome.execute_cdp_cmd("Network.clearBrowserCookies", {})
    chrome.execute_cdp_cmd("Network.clearBrowserCache", {})
    first = chrome.current_window_handle
    chrome.switch_to.new_window("tab")
    chrome.get_log("browser")  # type: ignore[no-untyped-call]  # each entry is given out once
    try:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield
    finally:
        chrome.close()
        chrome.switch_to.window(first)


@contextmanager
def browsing() -> Iterator[Chrome]:
    """Yield a browser of its own with a window."""
    with open_browser() as chrome, window(chrome):
        yield chrome
