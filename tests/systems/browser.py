"""A headless Chromium before the console, driven by Playwright: what it shows, says and lacks.

Needs the program `chromium`. Without one the tests are skipped and say so; with BROWSER=required in
the environment that is a failure, so that a machine meant to run them cannot pass by not doing so.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Response, sync_playwright

from tests.systems.palette_png import write_palette_png

# It asks nobody but the page, and works without a graphics card and as root.
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 400, "height": 800}
# A page that is built on two busy cores takes seconds; what takes longer has failed.
TIMEOUT_MS = 30_000
# Findings of axe that keep somebody from using a page.
_GRAVE = ("serious", "critical")


def chromium_or_skip() -> str:
    """The path of the browser. Skips the test where there is none, or fails it where one was
    promised."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is not None:
        return found
    if os.environ.get("BROWSER") == "required":
        pytest.fail("BROWSER=required, but there is no program chromium on the PATH")
    pytest.skip("there is no program chromium on the PATH")


@contextmanager
def start_browser() -> Iterator[Browser]:
    """A browser while the block runs. Until then no `asyncio.run` works in this thread."""
    path = chromium_or_skip()
    alone = ("--no-sandbox",) if os.geteuid() == 0 else ()
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=[*FLAGS, *alone])
        try:
            yield started
        finally:
            started.close()


class Tab:
    """One page in a context of its own; `errors` are those of its scripts and of its requests."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        *,
        size: Mapping[str, int] = WIDE,
        dark: bool = False,
        **options: Any,
    ) -> None:
        """`url`: before all paths; `options`: of the context."""
        self._context = browser.new_context(
            base_url=url,
            viewport=dict(size),
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="Europe/Berlin",
            **options,
        )
        self._context.set_default_timeout(TIMEOUT_MS)
        self.page: Page = self._context.new_page()
        self.errors: list[str] = []
        self.page.on("console", self._note_message)
        self.page.on("pageerror", self._note_error)
        self.page.on("response", self._note_response)

    def close(self) -> None:
        """Leave the page and forget its cookies."""
        self._context.close()

    def visit(self, path: str) -> Page:
        """Open a path of the console, and wait until its server hears what is done there."""
        self.page.goto(path)
        self.wait_connected()
        return self.page

    def wait_connected(self) -> None:
        """Wait until the page's socket is there: what is typed before reaches nobody."""
        self.page.wait_for_function("window.did_handshake === true")

    def grave_findings(self) -> list[str]:
        """What axe finds on the page as it is that keeps somebody from using it."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{each['impact']} {each['id']}: {each['help']}: {_places(each)}"
            for each in found
            if each["impact"] in _GRAVE
        ]

    def write_screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Write what is in view as a small PNG; `whole`: all of the page."""
        write_palette_png(path, self._context, self.page.screenshot(full_page=whole))

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{self.page.url}: {message.text}")

    def _note_error(self, error: Error) -> None:
        self.errors.append(f"{self.page.url}: {error}")

    def _note_response(self, response: Response) -> None:
        if response.status >= 400:
            self.errors.append(f"{response.url}: {response.status}")


def _places(finding: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{node['html'][:160]} {node['failureSummary'][:300]}" for node in finding["nodes"][:4]
    )


@contextmanager
def open_tab(browser: Browser, url: str, **options: Any) -> Iterator[Tab]:
    """A tab while the block runs; its options are those of `Tab`."""
    tab = Tab(browser, url, **options)
    try:
        yield tab
    finally:
        tab.close()
