"""Goal: the operators' pages in a real browser, and the pictures of the README.

Method: the console on a model that is filled without Kafka, served on this machine, before a
headless Chromium. `pytest -m long --rewrite` on this file writes `deploy/console` anew.
"""

import copy
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlencode

import pytest
from nicegui import Client
from nicegui.testing.general import nicegui_reset_globals

from placement.model import Liveness, NodeAttributes, NodeChanged, StreamCreated
from schemas.requests import OperatorRequest
from streaming import codec
from streaming.api import AccessRules, ApiServer, GuardRules, ServerOptions
from streaming.api.access import Role
from streaming.codec import RawRecord
from streaming.console import Console, SessionAccess, make_console
from streaming.console.letters import LetterPage
from streaming.outbox.dead_letters import make_letter
from streaming.requests import DeadLetter, Redriven
from streaming.requests.operators import DryRun
from streaming.requests.rehearsal import rehearse_request
from tests.builders.api_service import NOW_MS, ServedModel
from tests.builders.published_state import as_read

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog

    from tests.systems.browser import Tab

NOW = datetime(2026, 3, 2, 9, 41, 27, tzinfo=UTC)
PICTURES = Path(__file__).parents[3] / "deploy" / "console"
PICTURE_BYTES_MAX = 60_000
# So that the letters below are on two pages.
LETTERS_A_PAGE = 2
HOSTILE = ("<script>alert(1)</script>", "\u202egnp.exe", "x" * 2_000)


class BuiltLetters:
    """Dead letters whose keys and reasons are hostile."""

    def __init__(self) -> None:
        self._letters = [_letter(offset, text) for offset, text in enumerate(HOSTILE)]

    def read(self, before: Mapping[int, int]) -> LetterPage:
        end = before.get(0, len(self._letters))
        start = max(end - LETTERS_A_PAGE, 0)
        return LetterPage(self._letters[start:end], {0: start} if start else {})

    def find(self, partition: int, offset: int) -> DeadLetter | None:
        here = partition == 0 and offset < len(self._letters)
        return self._letters[offset] if here else None

    def redrive(self, letters: Sequence[DeadLetter], only_try: bool) -> list[Redriven]:
        return [] if only_try else [Redriven(each, None) for each in letters]


def _letter(offset: int, text: str) -> DeadLetter:
    value = text.encode()
    raw = RawRecord("streams.v1", 0, offset, NOW_MS, value, b'{"a":1}', [])
    made = make_letter(raw, "decode", "KEY_MISMATCH", text)
    record = SimpleNamespace(
        partition=0,
        offset=offset,
        headers={name: (said or b"").decode() for name, said in made.headers},
        raw=made.value,
        raw_key=made.key,
        key=(made.key or b"").decode(),
        raw_headers=tuple(made.headers),
    )
    return DeadLetter(cast("Any", record))


def _now_ms() -> int:
    """The time of the server and of the browser: pictures are the same whenever they are made."""
    return int(NOW.timestamp() * 1_000)


def _fleet(served: ServedModel) -> None:
    def commit(*events: Any) -> None:
        served.model.commit(as_read(served.committer.apply(events, _now_ms())))

    for number in range(1, 25):
        place = f"/{('eu', 'us')[number % 2]}/az{number // 2 % 3 + 1}/r{number // 6 % 4 + 1}"
        host = HOSTILE[number - 1] if number <= len(HOSTILE) else f"host-{number}.example"
        attributes = NodeAttributes(place, host=host)
        commit(NodeChanged(_now_ms(), f"broker-{number}", "a", 1, Liveness.UP, attributes))
    for name, shards in (("orders", 24), ("payments", 12), ("clicks", 40)):
        commit(StreamCreated(_now_ms(), name, 1, shards, 3, body_hash=name))
    commit(NodeChanged(_now_ms(), "broker-5", "a", 2, Liveness.DEAD))


def _dry_run(served: ServedModel, request: OperatorRequest) -> Mapping[str, Any]:
    """What the reconciler of the model would do, tried on a copy."""
    copied = copy.deepcopy(served.committer.reconciler)
    order = codec.event_of_order(request, copied.now)
    seen = copied.preview(replace(order, expected_hash=None))
    first = copied.apply([replace(order, expected_hash=seen.hash or None)], copied.now)
    asked = (order.action, request.target, seen.shards, "region")
    return DryRun(seen, first, rehearse_request(copied, first, [], *asked)).summary


@contextmanager
def _served() -> Iterator[str]:
    served = ServedModel(operate=True)
    _fleet(served)

    served.operating.dry_run = lambda request: _dry_run(served, request)  # type: ignore[method-assign]
    here = [ipaddress.ip_network("127.0.0.0/8")]
    rules = AccessRules(proxies=here, roles={"alice": Role.OPERATE})
    with nicegui_reset_globals():
        access = SessionAccess(rules=rules)
        console = Console(served.service, _now_ms, letters=BuiltLetters(), access=access)
        server = ApiServer(
            make_console(console, GuardRules(access=rules)), served.hub, ServerOptions(port=0)
        )
        try:
            with server.running():
                yield server.address
        finally:
            Client.page_routes.clear()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with _served() as address:
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
    url: str, browser: "Browser"
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
        assert tab.errors == []


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
