"""A console for operators on a fleet in memory, with hostile texts in it, for browsers.

Its time stands still, so that what it shows is the same whenever it is looked at.
"""

import copy
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import orjson

from placement.model import Liveness, NodeAttributes, NodeChanged, StreamCreated
from schemas.requests import OperatorRequest
from schemas.topics import ALERTS, MEMORY, MOVES, VIOLATIONS
from streaming import codec
from streaming.api import AccessRules, GuardRules
from streaming.api.access import Role
from streaming.brokers import RecordBytes
from streaming.codec import RawRecord
from streaming.console import Console, SessionAccess
from streaming.console.letters import LetterPage
from streaming.console.page import Page
from streaming.console.pages import PAGES
from streaming.outbox.dead_letters import make_letter
from streaming.requests import DeadLetter, Redriven
from streaming.requests.operators import DryRun
from streaming.requests.rehearsal import rehearse_request
from tests.builders.api_service import NOW_MS, ServedModel
from tests.builders.console_app import serving
from tests.builders.published_state import as_read

NOW = datetime(2026, 3, 2, 9, 41, 27, tzinfo=UTC)
# As HTML it would be an element that this finds, whatever the policy lets it run.
MARKUP = "\u202e<img src=x class=injected onerror=alert(1)><b class=injected>\u2066</b>"
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


def fill_fleet(served: ServedModel) -> None:
    """Commit two regions of nodes, one of them dead, and three streams."""

    def commit(*events: Any) -> None:
        served.model.commit(as_read(served.committer.apply(events, _now_ms())))

    for number in range(1, 25):
        place = f"/{('eu', 'us')[number % 2]}/az{number // 2 % 3 + 1}/r{number // 6 % 4 + 1}"
        attributes = NodeAttributes(place, host=f"host-{number}.example")
        commit(NodeChanged(_now_ms(), f"broker-{number}", "a", 1, Liveness.UP, attributes))
    for name, shards in (("orders", 24), ("payments", 12), ("clicks", 40)):
        commit(StreamCreated(_now_ms(), name, 1, shards, 3, body_hash=name))
    commit(NodeChanged(_now_ms(), "broker-5", "a", 2, Liveness.DEAD))


def commit_hostile_records(served: ServedModel) -> None:
    """Commit markup and signs of direction wherever a record holds text."""
    asked = {"action": "drain", "target": MARKUP, "reason": MARKUP, "requested_by": MARKUP}
    order = {"kind": "request", "name": MARKUP, "body": asked, "at": _now_ms()}
    _, snapshot = served.model.take_snapshot()
    move = next(iter(snapshot.latest[MOVES].values()))
    said = {**move["reason"], "message": MARKUP}
    forged = {**move, "move_id": MARKUP, "remove": MARKUP, "add": MARKUP, "reason": said}
    waiting = {
        "rule": MARKUP,
        "strength": "required",
        "count": 1,
        "limit": 1,
        "domain": MARKUP,
        "stream": "orders",
        "shard": 1,
        "class": "deferred",
        "reason": said,
        "since": _now_ms(),
    }
    broken = {"stream": "orders", "shard": 1, "violations": [waiting]}
    alerts = [
        {"kind": kind, "subject": MARKUP, "severity": "warning", "at": _now_ms(), "reason": said}
        for kind in ("HOLD", MARKUP)
    ]
    records = [
        (MOVES, b"m", forged),
        (VIOLATIONS, b"orders/1", broken),
        (MEMORY, b"request/x", order),
        *[(ALERTS, None, each) for each in alerts],
    ]
    served.model.commit(
        RecordBytes(topic, 0, number, key, orjson.dumps(body))
        for number, (topic, key, body) in enumerate(records)
    )


def _dry_run(served: ServedModel, request: OperatorRequest) -> Mapping[str, Any]:
    """What the reconciler of the model would do, tried on a copy."""
    copied = copy.deepcopy(served.committer.reconciler)
    order = codec.event_of_order(request, copied.now)
    seen = copied.preview(replace(order, expected_hash=None))
    first = copied.apply([replace(order, expected_hash=seen.hash or None)], copied.now)
    asked = (order.action, request.target, seen.shards, "region")
    return DryRun(seen, first, rehearse_request(copied, first, [], *asked)).summary


@contextmanager
def serving_operators(pages: Sequence[Page] = PAGES, *, hostile: bool = False) -> Iterator[str]:
    """The address of a console on which alice may operate, whom a proxy on this machine names.
    `hostile`: with markup in its records."""
    served = ServedModel(operate=True)
    fill_fleet(served)
    if hostile:
        commit_hostile_records(served)

    served.operating.dry_run = lambda request: _dry_run(served, request)  # type: ignore[method-assign]
    here = [ipaddress.ip_network("127.0.0.0/8")]
    rules = AccessRules(proxies=here, roles={"alice": Role.OPERATE})
    access = SessionAccess(rules=rules)
    console = Console(served.service, _now_ms, letters=BuiltLetters(), access=access)
    with serving(console, GuardRules(access=rules), pages) as address:
        yield address
