"""Goal: what records hold is shown as text on each page, and what goes wrong in a page is seen.

Method: a console with markup in its records before a headless Chromium; then pages that do what
ours must not, so that it is known that the tests would find it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from nicegui import ui

from streaming.console.form import show_button
from streaming.console.page import Page, View
from streaming.console.pages import PAGES
from tests.builders.operators_console import MARKUP, serving_operators
from tests.systems.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as BrowserPage

    from tests.systems.browser import Tab


@contextmanager
def tab_on(browser: "Browser", pages: Sequence[Page]) -> "Iterator[Tab]":
    """A tab of alice on a console of its own."""
    from tests.systems.browser import open_tab

    alice = {"X-Forwarded-User": "alice"}
    with (
        serving_operators(pages, hostile=True) as address,
        open_tab(browser, address, extra_http_headers=alice) as tab,
    ):
        yield tab


def injected(page: "BrowserPage") -> int:
    """How many elements of a page came out of data."""
    return page.locator(".injected").count()


def test_markup_in_records_is_text(browser: "Browser", faults: list[str]) -> None:
    with tab_on(browser, PAGES) as tab:
        for path in ("/moves", "/alerts", "/requests", "/", "/streams/orders"):
            page = tab.visit(path)
            page.locator("bdi", has_text="class=injected").first.wait_for()
            assert injected(page) == 0, path
        assert (tab.errors, faults) == ([], [])


@pytest.mark.long
def test_markup_that_becomes_elements_is_found(browser: "Browser", faults: list[str]) -> None:
    """Goal: the test above fails on a page that takes data for HTML."""

    async def build(view: View) -> None:
        ui.html(MARKUP, sanitize=False)

    careless = Page("/careless", "Careless", build)
    with tab_on(browser, (careless,)) as tab:
        page = tab.visit("/careless")
        page.locator(".injected").first.wait_for(state="attached")
        assert injected(page) == 2
    assert faults == []


@pytest.mark.long
def test_a_fault_in_a_page_is_seen(browser: "Browser", faults: list[str]) -> None:
    """Goal: what goes wrong in the server alone fails these tests too."""

    async def build(view: View) -> None:
        show_button("Break", lambda: 1 // 0)

    with tab_on(browser, (Page("/broken", "Broken", build),)) as tab:
        page = tab.visit("/broken")
        page.click("text=Break")
        page.get_by_text("a fault of the console's own").wait_for()
        until(lambda: faults, "the server's log")
    assert "ZeroDivisionError" in faults.pop()
