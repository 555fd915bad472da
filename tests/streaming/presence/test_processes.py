"""Goal: who is there is told whatever this machine's clock says.

Method: ticks on the embedded broker, asked for with clocks that are wrong by seconds to hours.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from schemas.inputs import STANDBY
from streaming.presence import TickAuthor, TickLog, read_processes

HOUR_MS = 3_600_000


@pytest.fixture
def ticking(bootstrap: str, prefix: str) -> Iterator[None]:
    """An active process and a standby, each of which ticks often."""
    authors = (TickAuthor("main", "a", 3), TickAuthor("main", "b"))
    stop = threading.Event()

    def tick(author: TickAuthor) -> None:
        with closing(TickLog(bootstrap, prefix, author, 1, {})) as log:
            while not stop.is_set():
                log.write_and_wait("active" if author.instance == "a" else STANDBY, None)
                stop.wait(0.2)

    threads = [threading.Thread(target=tick, args=(each,)) for each in authors]
    for each in threads:
        each.start()
    yield
    stop.set()
    for each in threads:
        each.join()


def seen(bootstrap: str, prefix: str, off_ms: int) -> list[str]:
    at_ms = time.time_ns() // 1_000_000 + off_ms
    found = read_processes(bootstrap, prefix, {}, 3, at_ms, watch_seconds=2.0)
    assert all(each.seconds_ago < 5 for each in found)
    return [each.instance for each in found]


@pytest.mark.usefixtures("ticking")
@pytest.mark.parametrize("off_ms", [0, 8_000, HOUR_MS, -8_000, -HOUR_MS])
def test_a_clock_that_is_wrong_hides_nobody(bootstrap: str, prefix: str, off_ms: int) -> None:
    assert seen(bootstrap, prefix, off_ms) == ["a", "b"]


def test_a_clock_that_is_behind_shows_nobody_who_is_gone(
    bootstrap: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.presence.processes.SEEN_WITHIN_MS", 500)
    with closing(TickLog(bootstrap, prefix, TickAuthor("main", "gone"), 1, {})) as log:
        first, at_ms = log.write_and_wait(STANDBY, None)
    later = first
    with closing(TickLog(bootstrap, prefix, TickAuthor("main", "there"), 1, {})) as log:
        stamp = at_ms
        while stamp <= at_ms + 500:
            later, stamp = log.write_and_wait(STANDBY, None)
    assert later > first
    assert seen(bootstrap, prefix, -HOUR_MS) == ["there"]


def test_where_nobody_ticks_nobody_is_seen(bootstrap: str, prefix: str) -> None:
    assert read_processes(bootstrap, prefix, {}, 3, 0, watch_seconds=0.3) == []
