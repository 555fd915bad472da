"""Goal: open pages go on behind a proxy that ends TLS, and over the absence of the broker.

Method: the command as a process of its own on a broker of its own, to which commits are published
without the application; a headless Chromium. The proxy names the principal in a header.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from placement.model import Configuration, Liveness, NodeChanged
from streaming.administration import apply_topics
from streaming.runtime import EmbeddedBroker
from tests.builders.published_state import Publisher, nodes_up
from tests.systems.cluster import free_ports
from tests.systems.console_process import ConsoleProcess
from tests.systems.tls_proxy import TlsProxy

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PREFIX = "console."


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker whose data outlive it."""
    with EmbeddedBroker(data_dir=tmp_path / "broker") as started:
        apply_topics(started.bootstrap_servers, PREFIX, 1)
        yield started


def make_publisher(broker: EmbeddedBroker, after: Publisher | None = None) -> Publisher:
    committer = None if after is None else after.committer
    return Publisher(broker.bootstrap_servers, PREFIX, Configuration(), committer)


def kill_node(publisher: Publisher, number: int) -> None:
    change = NodeChanged(10 + number, f"n{number}", "a", 2, Liveness.DEAD)
    publisher.apply([change], 10 + number)


def wait_dead(page: "Page", number: int) -> None:
    row = page.locator("tbody tr", has=page.get_by_role("link", name=f"n{number}", exact=True))
    row.get_by_text("dead").first.wait_for()


def test_a_page_goes_on_when_the_broker_was_away(
    broker: EmbeddedBroker, browser: "Browser"
) -> None:
    from tests.systems.browser import open_tab

    publisher = make_publisher(broker)
    publisher.apply(nodes_up(4), 1)
    running = ConsoleProcess("--bootstrap", broker.bootstrap_servers, "--prefix", PREFIX)
    try:
        running.wait_ready()
        with open_tab(browser, running.url) as tab:
            page = tab.visit("/nodes")
            page.evaluate("window.untouched = true")
            kill_node(publisher, 1)
            wait_dead(page, 1)
            port = int(broker.bootstrap_servers.rpartition(":")[2])
            data = broker.data_dir
            broker.stop()
            banner = page.locator(".banner")
            banner.get_by_text("The topics cannot be read").wait_for(timeout=60_000)
            assert "What is shown is commit 2" in banner.inner_text()
            wait_dead(page, 1)
            with EmbeddedBroker(port, data) as again:
                kill_node(make_publisher(again, publisher), 2)
                wait_dead(page, 2)
                banner.wait_for(state="detached", timeout=60_000)
                assert page.evaluate("window.untouched"), "the page was not loaded again"
                assert tab.errors == []
    finally:
        status, printed = running.end()
    assert (status, "Traceback" in printed) == (0, False), printed


def test_a_page_that_is_opened_too_early_shows_itself_later(
    broker: EmbeddedBroker, browser: "Browser"
) -> None:
    """Goal: whoever opens the console while it reads the topics need not load the page again."""
    from tests.systems.browser import open_tab

    make_publisher(broker).apply(nodes_up(4), 1)
    running = ConsoleProcess("--bootstrap", broker.bootstrap_servers, "--prefix", PREFIX)
    try:
        with open_tab(browser, running.url) as tab:
            # Mostly before the console has read the topics; then the answer is 503.
            page = tab.visit("/nodes")
            page.get_by_role("link", name="n4", exact=True).wait_for()
    finally:
        running.end()


def test_behind_a_proxy_that_ends_tls(
    broker: EmbeddedBroker, browser: "Browser", tmp_path: Path
) -> None:
    from tests.systems.browser import open_tab

    publisher = make_publisher(broker)
    publisher.apply(nodes_up(4), 1)
    tokens = tmp_path / "tokens.yaml"
    tokens.write_text("- {name: alice, role: operate, token: a token of the operator alice}\n")
    place = ["--bootstrap", broker.bootstrap_servers, "--prefix", PREFIX, "--port"]
    # The origin has to be allowed before the proxy has a port: it is found first.
    (port,) = free_ports(1)
    proxy = TlsProxy(f"http://127.0.0.1:{port}", tmp_path, {"X-Forwarded-User": "alice"})
    with proxy.running() as address:
        running = ConsoleProcess(
            *place,
            str(port),
            *("--operate", "--tokens", str(tokens), "--no-anonymous"),
            *("--trusted-proxy", "127.0.0.1", "--allow-origin", address),
        )
        try:
            running.wait_ready()
            with open_tab(browser, address, ignore_https_errors=True) as tab:
                page = tab.visit("/nodes")
                page.get_by_text("alice").wait_for()
                page.locator(".mode.operating").wait_for()
                kill_node(publisher, 3)
                wait_dead(page, 3)
                assert proxy.upgrades == 1, "pages speak over a websocket through the proxy"
                page = tab.visit("/requests")
                page.fill("#field-target", "n99")
                page.click("button:has-text('Dry run')")
                page.locator("#about-target .field-fault", has_text="n99").wait_for()
                page.goto("/sign-in")
                page.fill("input[type=password]", "a token of the operator alice")
                page.click("button[type=submit]")
                page.wait_for_url("**/")
                (cookie,) = page.context.cookies()
                assert (cookie["secure"], cookie["httpOnly"]) == (True, True)
                assert tab.errors == []
        finally:
            status, printed = running.end()
    assert (status, "Traceback" in printed) == (0, False), printed
