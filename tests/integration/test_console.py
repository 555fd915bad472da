"""Goal: `placer console` in a real browser beside the real application: what people do by clicks.

Method: the application on the embedded broker, the command as a process of its own, a headless
Chromium. A detector speaks for the nodes of a zone, so that it is lost when the test says so.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from schemas.topics import OPERATOR
from streaming.brokers import CommittedReader
from streaming.simulator.fleet import Executor
from tests.integration.conftest import System
from tests.systems.application import PATIENT
from tests.systems.console_process import ConsoleProcess
from tests.systems.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.systems.browser import Tab

TOKEN = "a token of the operator alice"
SETTINGS = {**PATIENT, "PLACER_TICK__INTERVAL_SECONDS": "2"}
HELD = [f"h{number}" for number in range(3)]
# What a page shows when it is there.
PAGES = {
    "/": "Overview",
    "/nodes": "Nodes",
    "/locations": "Locations",
    "/streams": "Streams",
    "/shards": "Shards",
    "/moves": "Moves",
    "/requests": "Requests",
    "/alerts": "Alerts",
    "/dead-letters": "Dead letters",
    "/what-if": "What if",
    "/nodes/n0": "n0",
    "/streams/s": "s",
    "/streams/s/shards/0": "s/0",
}


@pytest.fixture(scope="module", autouse=True)
def application(system: System) -> None:
    system.start(**SETTINGS)
    for number in range(6):
        register(system, f"n{number}", f"/eu/z{number % 3}")
    for number, node in enumerate(HELD):
        register(system, node, f"/held/r{number}", liveness="external")
        detect(system, node, "up", 2)
    system.inputs.stream("s", shards=2, policy={"strategy": "spread", "within": ["/eu"]})
    spread = {"strategy": "spread", "nodes": [*HELD, "n0", "n1", "n2"]}
    system.inputs.stream("t", shards=4, replication_factor=2, policy=spread)
    assert system.outputs.decision("t")["outcome"] == "placed"
    system.outputs.decision("s")


def register(system: System, node: str, location: str, **fields: str) -> None:
    body = {"node_id": node, "incarnation": "a", "sequence": 1, "location": location}
    system.inputs.send("nodes.v1", "NodeRegistered", node, body | fields)


def detect(system: System, node: str, status: str, sequence: int) -> None:
    body = {"node_id": node, "incarnation": "a", "sequence": sequence, "status": status}
    system.inputs.send("detector.v1", "NodeLivenessReported", node, body)


@pytest.fixture(scope="module")
def running(
    system: System, application: None, tmp_path_factory: pytest.TempPathFactory
) -> "Iterator[ConsoleProcess]":
    """The console of the application, on which alice may operate."""
    tokens = tmp_path_factory.mktemp("console") / "tokens.yaml"
    tokens.write_text(f"- {{name: alice, role: operate, token: {TOKEN}}}\n")
    place = ["--bootstrap", system.bootstrap, "--prefix", system.prefix]
    started = ConsoleProcess("--operate", "--tokens", str(tokens), *place)
    try:
        yield started
    finally:
        status, printed = started.end()
    assert (status, TOKEN in printed, "Traceback" in printed) == (0, False, False), printed


@pytest.fixture(scope="module")
def signed_in(running: ConsoleProcess, browser: "Browser") -> "Iterator[Tab]":
    """A tab in which alice has signed in."""
    from tests.systems.browser import open_tab

    with open_tab(browser, running.url) as opened:
        page = opened.page
        page.goto("/sign-in")
        page.fill("input[type=password]", TOKEN)
        page.click("button[type=submit]")
        page.wait_for_url("**/")
        yield opened


@pytest.fixture
def tab(signed_in: "Tab", running: ConsoleProcess) -> "Iterator[Tab]":
    """The tab of alice; neither it nor the server may meet a fault."""
    yield signed_in
    assert (signed_in.errors, running.faults) == ([], [])


def ask(tab: "Tab", kind: str, target: str) -> None:
    """The dry run of a request, by the form."""
    page = tab.visit("/requests")
    page.select_option("#field-type", kind)
    page.fill("#field-target", target)
    page.click("button:has-text('Dry run')")


def carry_out(page: "Page") -> None:
    """Agree to the impact that is shown."""
    page.get_by_role("heading", name="What it would do").wait_for()
    page.click(".carry-out")
    page.locator(".notice.good").wait_for()


def test_each_page_opens_without_errors_and_can_be_used_by_all(tab: "Tab") -> None:
    graver: dict[str, list[str]] = {}
    for path, title in PAGES.items():
        page = tab.visit(path)
        page.get_by_role("heading", level=1, name=title).wait_for()
        page.wait_for_load_state("networkidle")
        found = tab.grave_findings()
        if found:
            graver[path] = found
    assert (tab.errors, graver) == ([], {})


def test_a_drain_from_its_dry_run_to_its_end(system: System, tab: "Tab") -> None:
    outputs = system.outputs
    node = min(outputs.replicas("s")[0])
    ask(tab, "Drain", node)
    tab.page.get_by_role("heading", name="What it would do").wait_for()
    shown = tab.page.locator(".impact").inner_text()
    assert "1 node" in shown
    assert "in 1 wave" in shown
    status = outputs.latest("topology.v1")[node]["status"]
    assert status == "up", "nothing is sent by a dry run"
    with Executor(system.bootstrap, system.prefix, 0.05):
        carry_out(tab.page)
        tab.page.get_by_text("done, no replica is left there").wait_for()
    assert not any(node in shard for shard in outputs.replicas("s"))
    with CommittedReader(system.bootstrap, system.prefix, [OPERATOR]) as reader:
        asked = [each.value for each in reader.read_to_end()]
    assert [(each["target"], each["requested_by"]) for each in asked] == [(node, "alice")]


def test_what_is_wrong_is_said_beside_the_field_and_nothing_is_sent(
    system: System, tab: "Tab"
) -> None:
    ask(tab, "Drain", "n99")
    tab.page.locator("#about-target .field-fault", has_text="n99").wait_for()
    ask(tab, "Maintenance", "n1")
    tab.page.locator("#about-ttl_seconds .field-fault", has_text="how long").wait_for()
    assert tab.page.locator(".carry-out").count() == 0
    with CommittedReader(system.bootstrap, system.prefix, [OPERATOR]) as reader:
        assert "n99" not in {each.key for each in reader.read_to_end()}


def test_a_lost_zone_is_held_and_healed_by_an_override(system: System, tab: "Tab") -> None:
    outputs = system.outputs
    assert any(node in shard for shard in outputs.replicas("t") for node in HELD)
    for node in HELD:
        detect(system, node, "down", 3)
    page = tab.visit("/requests")
    link = page.get_by_role("link", name="Look at the impact of an override")
    link.wait_for()
    link.click()
    page.wait_for_url("**/requests?type=OverrideHold**")
    tab.wait_connected()
    assert page.input_value("#field-target") == "/held"
    page.click("button:has-text('Dry run')")
    with Executor(system.bootstrap, system.prefix, 0.05):
        carry_out(page)
        page.get_by_text("Repair is held nowhere.").wait_for()
        outputs.wait(
            lambda: not any(node in shard for shard in outputs.replicas("t") for node in HELD),
            "it is healed",
        )
    alerts = [record.value for record in outputs.of("alerts.v1")]
    told = [each["detail"]["state"] for each in alerts if each and each["kind"] == "HOLD"]
    assert told[-1] == "overridden"
    tab.visit("/alerts").get_by_text("HOLD").first.wait_for()


def test_a_dead_letter_is_sent_again(system: System, tab: "Tab") -> None:
    body = {"node_id": "late", "incarnation": "a", "sequence": 2, "location": "/eu/z0"}
    system.inputs.send("nodes.v1", "NodeLocalityChanged", "late", body)
    outputs = system.outputs
    until(lambda: [*outputs.of("dlq.v1")], "a dead letter")
    register(system, "late", "/eu/z1")
    outputs.wait(lambda: "late" in outputs.latest("topology.v1"), "the node is known")
    page = tab.visit("/dead-letters")
    page.locator("tbody th a").first.click()
    page.get_by_role("heading", level=1, name="Letter").wait_for()
    assert tab.grave_findings() == []
    page = tab.visit("/dead-letters")
    page.click(".redrive")
    page.click(".carry-out")
    page.get_by_text("sent again, behind").wait_for()
    outputs.wait(
        lambda: outputs.latest("topology.v1")["late"]["location"] == "/eu/z0", "it was applied"
    )


def test_a_cluster_file_is_shown_and_changed_in_thought(browser: "Browser", tmp_path: Path) -> None:
    from tests.systems.browser import open_tab

    file = tmp_path / "cluster.yaml"
    nodes = "".join(f"  - {{id: n{n}, location: /eu/z{n % 3}}}\n" for n in range(6))
    file.write_text(
        f"levels: [region, zone]\nnodes:\n{nodes}streams:\n"
        "  - {stream: s, shards: 2, replication_factor: 3, "
        "replicas: [[n0, n1, n2], [n3, n4, n5]]}\n"
    )
    running = ConsoleProcess(str(file))
    try:
        with open_tab(browser, running.url) as tab:
            page = tab.visit("/what-if")
            page.fill("#field-lose", "/eu/z1")
            page.click("button:has-text('Show what follows')")
            page.get_by_role("heading", name="What follows", exact=True).wait_for()
            shown = page.locator(".main").inner_text()
            assert "No shard loses its quorum." in shown
            assert tab.grave_findings() == []
            tab.visit("/plan").get_by_role("heading", level=1, name="Check and plan").wait_for()
            assert tab.grave_findings() == []
            page = tab.visit("/what-if")
            page.fill("#field-lose", "/mars")
            page.click("button:has-text('Show what follows')")
            page.locator("#about-lose .field-fault", has_text="/mars").wait_for()
            assert (tab.errors, running.faults) == ([], [])
    finally:
        status, printed = running.end()
    assert (status, "Traceback" in printed) == (0, False), printed
