"""Goal: what a commit changes is computed once, shown everywhere, and keeps nothing else waiting.

Method: values, turns and views one by one in an event loop, without a browser.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from placement.model import Liveness, NodeChanged
from streaming.console.derived import CommitState, DerivedValues
from streaming.console.pulse import SLICE_SECONDS, Pulse, Turns
from streaming.read_model import NotReady
from tests.builders.api_service import ServedModel

if TYPE_CHECKING:
    from streaming.console.page import View


def test_a_value_is_computed_once_for_a_commit() -> None:
    served, computed = ServedModel().fill(), []

    def count(state: CommitState) -> int:
        computed.append(state)
        return sum(view.liveness is Liveness.DEAD for view in state.views.values())

    async def ask() -> None:
        values = DerivedValues(served.service)
        assert await asyncio.gather(*(values.get("dead", count) for _ in range(9))) == [0] * 9
        assert len(computed) == 1
        served.commit(NodeChanged(5, "n2", "a", 2, Liveness.DEAD))
        assert await values.get("dead", count) == 1
        assert await values.get("other", count) == 1
        assert len(computed) == 3
        assert computed[1] is computed[2], "what both need of a commit is shared"

    asyncio.run(ask())


def test_a_part_is_made_once_and_a_fault_is_told_to_each() -> None:
    state, made = CommitState(ServedModel().model), []
    for _ in range(2):
        with pytest.raises(NotReady):
            assert state.snapshot
    assert [state.part("p", made.append) for _ in range(3)] == [None] * 3
    assert made == [state]


def test_what_changes_without_commits_is_read_for_all_at_once() -> None:
    release, read = threading.Event(), []

    def slow() -> int:
        release.wait()
        read.append(1)
        return len(read)

    async def ask() -> None:
        values = DerivedValues(ServedModel().service)
        asked = [asyncio.ensure_future(values.poll("lag", slow)) for _ in range(5)]
        await asyncio.sleep(0)
        release.set()
        assert await asyncio.gather(*asked) == [1] * 5
        assert await values.poll("lag", slow) == 1, "within the second"

    asyncio.run(ask())


def test_turns_are_taken_in_order_and_others_come_between() -> None:
    seen: list[str] = []

    def show(name: str) -> Callable[[], None]:
        def work() -> None:
            time.sleep(SLICE_SECONDS)
            seen.append(name)

        return work

    async def other() -> None:
        for _ in range(3):
            seen.append("other")
            await asyncio.sleep(0)

    async def run() -> None:
        turns = Turns()
        await asyncio.gather(*(turns.take(show(name)) for name in "abc"), other())

    asyncio.run(run())
    assert [each for each in seen if each != "other"] == ["a", "b", "c"]
    assert "other" in seen[1 : seen.index("c")], "a slice of time is not exceeded by all"


class Viewed:
    """A view that is connected, shows what it is told to, and waits while it is held."""

    def __init__(self, number: int) -> None:
        self.page = SimpleNamespace(path=f"/{number}")
        self.client = SimpleNamespace(
            has_socket_connection=True, on_connect=self._keep, on_delete=self._leaves
        )
        self.held, self.showing, self.shown = asyncio.Event(), asyncio.Event(), 0
        self.held.set()
        self.connect: Callable[[], None] = lambda: None
        self.leave: Callable[[], None] = lambda: None

    def _keep(self, handler: Callable[[], None]) -> None:
        self.connect = handler

    def _leaves(self, handler: Callable[[], None]) -> None:
        self.leave = handler

    async def prepare(self) -> Callable[[], None]:
        await self.held.wait()
        return self._show

    def _show(self) -> None:
        self.shown += 1
        self.showing.set()


def test_a_page_that_waits_keeps_no_other_from_a_commit() -> None:
    served = ServedModel().fill()

    async def run() -> None:
        served.hub.open()
        pulse = Pulse(served.hub)
        slow, quick = Viewed(1), Viewed(2)
        slow.held.clear()
        for view in (slow, quick):
            pulse.add(cast("View", cast("Any", view)))
            view.connect()
            view.connect()
        async with asyncio.timeout(10):
            while quick.shown < 2:
                served.commit(NodeChanged(5, "n9", "a", quick.shown + 1, Liveness.UP))
                await asyncio.sleep(0.05)
            assert slow.shown == 0
            slow.held.set()
            await slow.showing.wait()
        for view in (slow, quick):
            view.leave()
        await pulse.stop()
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1, "who has left is not followed"

    asyncio.run(run())
