"""Goal: the operators' pages in a real browser, and the pictures of the README.

Method: the console on a model that is filled without Kafka, served on this machine, before a
headless Chromium. `pytest -m long --rewrite` on this file writes `deploy/console` anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from tests.builders.operators_console import HOSTILE, NOW, serving_operators

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

    from tests.systems.browser import Tab

PICTURES = Path(__file__).parents[3] / "deploy" / "console"
PICTURE_BYTES_MAX = 60_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving_operators() as address:
        yield address


@contextmanager
def _tab(browser: "Browser", url: str, **options: Any) -> "Iterator[Tab]":
    from tests.systems.browser import open_tab

    alice = {"X-Forwarded-User": "alice"}
    with open_tab(browser, url, extra_http_headers=alice, **options) as tab:
        yield tab


PAGES = {
    "/moves": "Moves",
    "/requests": "Requests",
    "/dead-letters": "Dead letters",
    "/alerts": "Alerts",
    "/what-if": "What if",
}


def test_hostile_texts_are_shown_as_texts_on_the_pages_of_operators(
    url: str, browser: "Browser", faults: list[str]
) -> None:
    from tests.systems.browser import NARROW

    def note_dialog(dialog: "Dialog") -> None:
        tab.errors.append(f"{tab.page.url}: a dialog says {dialog.message}")
        dialog.dismiss()

    with _tab(browser, url, size=NARROW, dark=True) as tab:
        tab.page.on("dialog", note_dialog)
        for path, title in PAGES.items():
            for text in HOSTILE:
                asked = urlencode({"target": text, "lose": text, "q": text})
                page = tab.visit(f"{path}?{asked}")
                page.get_by_role("heading", level=1, name=title).wait_for()
                width = page.evaluate("document.documentElement.scrollWidth")
                assert width == NARROW["width"], (path, text[:20])
        for offset, text in enumerate(HOSTILE):
            page = tab.visit(f"/dead-letters/0/{offset}")
            page.get_by_role("heading", level=1).wait_for()
            assert text[:30] in page.locator("#main").inner_text()
            assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
        assert (tab.errors, faults) == ([], [])


def test_nothing_is_typed_before_somebody_hears_it(
    url: str, browser: "Browser", faults: list[str]
) -> None:
    from playwright.sync_api import expect

    with _tab(browser, url) as tab:
        # A socket that nobody answers.
        tab.page.route_web_socket("**/_nicegui_ws/**", lambda _: None)
        tab.page.goto("/what-if")
        expect(tab.page.locator("#field-lose")).to_be_disabled()
        expect(tab.page.get_by_role("button", name="Show what follows")).to_be_disabled()
        link = tab.page.get_by_role("link", name="Alerts")
        expect(link).to_be_enabled()
    with _tab(browser, url) as tab:
        page = tab.visit("/what-if")
        expect(page.locator("#field-lose")).to_be_enabled()
        page.fill("#field-lose", "/nowhere")
        page.click("text=Show what follows")
        page.locator("#about-lose .field-fault", has_text="/nowhere").wait_for()
        assert (tab.errors, faults) == ([], [])


def test_a_shard_is_explained_for_another_node_by_clicks(
    url: str, browser: "Browser", faults: list[str]
) -> None:
    with _tab(browser, url) as tab:
        page = tab.visit("/streams/orders/shards/1")
        held = page.locator(".replica .name").all_inner_texts()
        other = next(f"broker-{n}" for n in range(10, 25) if f"broker-{n}" not in held)
        page.get_by_placeholder("any other node").fill(other)
        page.get_by_role("button", name="Explain").click()
        answer = page.get_by_role("status").get_by_role("link", name=other)
        answer.wait_for()
        assert len(answer.locator("xpath=ancestor::li").inner_text()) > len(other) + 10
        page.get_by_placeholder("any other node").fill("nobody")
        page.get_by_role("button", name="Explain").click()
        page.get_by_text("there is no node 'nobody'").wait_for()
        assert (tab.errors, faults) == ([], [])


def test_older_letters_are_a_page_of_their_own(
    url: str, browser: "Browser", faults: list[str]
) -> None:
    from tests.systems.browser import NARROW

    with _tab(browser, url, size=NARROW) as tab:
        page = tab.visit("/dead-letters")
        page.get_by_text("2 letters").wait_for()
        assert page.locator("tbody th").all_inner_texts() == ["0/2", "0/1"]
        assert _scrolling(page) == []
        page.get_by_role("link", name="Older letters").click()
        page.get_by_text("1 letters").wait_for()
        assert page.locator("tbody th").all_inner_texts() == ["0/0"]
        assert page.get_by_role("link", name="Older letters").count() == 0
        page.get_by_role("link", name="The latest letters").wait_for()
        page = tab.visit("/dead-letters/0/0")
        page.get_by_role("heading", level=1).wait_for()
        assert (tab.grave_findings(), tab.errors, faults) == ([], [], [])


def test_tables_fit_a_narrow_screen(url: str, browser: "Browser", faults: list[str]) -> None:
    from tests.systems.browser import NARROW

    with _tab(browser, url, size=NARROW) as tab:
        for path in ("/moves", "/nodes", "/locations", "/streams", "/shards", "/"):
            page = tab.visit(path)
            page.locator("tbody tr").first.wait_for(state="attached")
            if path == "/":
                page.click("text=The same as a table")
            assert _scrolling(page) == [], path
            role = page.locator("tbody tr").first.locator("td").first.get_attribute("role")
            assert role == "cell", "a row that is drawn as a block is one of a table"
        assert (tab.errors, faults) == ([], [])


def _scrolling(page: "Page") -> list[str]:
    """The tables that have to be scrolled sideways."""
    found: list[str] = page.evaluate(
        """[...document.querySelectorAll('.scroll')].filter((each) => each.scrollWidth >
        each.clientWidth).map((each) => each.getAttribute('aria-label'))"""
    )
    return found


@pytest.mark.long
def test_pictures_of_the_console(
    url: str, browser: "Browser", tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    from tests.systems.browser import NARROW

    place = PICTURES if pytestconfig.getoption("--rewrite") else tmp_path
    place.mkdir(exist_ok=True)
    pictures: dict[str, tuple[str, dict[str, Any]]] = {
        "overview": ("/", {}),
        "overview-dark": ("/", {"dark": True}),
        "overview-narrow": ("/", {"size": NARROW}),
        "shard": ("/streams/orders/shards/1", {}),
        "requests": ("/requests?type=Drain&target=broker-1", {}),
    }
    for name, (path, options) in pictures.items():
        with _tab(browser, url, **options) as tab:
            tab.page.clock.set_fixed_time(NOW)
            page = tab.visit(path)
            if name == "requests":
                page.click("button:has-text('Dry run')")
                page.get_by_role("heading", name="What it would do").wait_for()
                page.locator(".carry-out").wait_for()
            page.wait_for_load_state("networkidle")
            tab.write_screenshot(place / f"{name}.png", whole=name == "requests")
            assert tab.errors == []
    assert {each.stem for each in PICTURES.iterdir()} == set(pictures)
    readme = PICTURES.parents[1].joinpath("README.md").read_text()
    assert all(f"(deploy/console/{name}.png)" in readme for name in pictures)
    assert all(each.stat().st_size < PICTURE_BYTES_MAX for each in place.iterdir())
