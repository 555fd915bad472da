"""Goal: a store of coroutines is served as one of threads is, by the same state machine.

Method: the embedded broker with the stand-in of `conformance`; a store in memory whose copies wait
until they are let go, or are cancelled.
"""

import asyncio

import pytest
from prometheus_client import REGISTRY

from schemas.topics import ACKS
from streaming.brokers import CommittedReader
from streaming.client import (
    AsyncExecutor,
    AsyncPlacementView,
    AsyncReplicaStore,
    AsyncRequester,
    Change,
    DecisionAwaited,
    Move,
    Progress,
    Replica,
    ShardId,
)
from streaming.client.aio import CopyHeldUp, _OnLoop
from streaming.client.permit import Permit
from streaming.conformance.reconciler import PlayedShard, StandIn
from streaming.errors import StreamingError
from tests.systems.waiting import until

TIMEOUT_SECONDS = 20.0


class Memory(AsyncReplicaStore):
    """Keeps replicas in a set; a copy waits until it may end."""

    def __init__(self) -> None:
        self.replicas: set[Replica] = set()
        self.copying: list[str] = []
        self.cancelled: list[str] = []
        self.may_end = asyncio.Event()

    async def holds(self, replica: Replica) -> bool:
        return replica in self.replicas

    async def copy(self, move: Move, progress: Progress) -> None:
        self.copying.append(move.move_id)
        progress(1000)
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.2)
            self.cancelled.append(move.move_id)
            raise
        self.replicas.add(Replica(move.stream, move.shard, move.add))

    async def delete(self, replica: Replica) -> None:
        self.replicas.discard(replica)

    async def create(self, replica: Replica) -> None:
        self.replicas.add(replica)


def said(bootstrap: str, prefix: str) -> list[str]:
    with CommittedReader(bootstrap, prefix, [ACKS]) as reader:
        return [each.headers["ce_type"].split(".")[1] for each in reader.read_to_end()]


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"placement_client_{name}", labels) or 0.0


def test_moves_are_carried_out_and_called_off_on_the_loop(bootstrap: str, prefix: str) -> None:
    stand_in = StandIn(bootstrap, prefix)
    stand_in.start()
    shard = PlayedShard("orders", 0, ["a", "b"])
    stand_in.create(shard)
    copied, completed = (
        counted("copied_bytes_total"),
        counted("acknowledgements_total", message="MoveCompleted"),
    )

    async def play() -> list[Change]:
        store = Memory()
        async with (
            AsyncExecutor(bootstrap, prefix, store) as executor,
            AsyncPlacementView(bootstrap, prefix) as followed,
        ):
            assert await executor.wait_ready(TIMEOUT_SECONDS)
            assert await followed.wait_complete(TIMEOUT_SECONDS)
            changes = followed.changes()
            await asyncio.to_thread(
                until, lambda: len(store.replicas) == 2, "the first replicas are made"
            )
            first = stand_in.issue(shard, remove="a", add="d")
            await asyncio.to_thread(
                until, lambda: store.copying == [first["move_id"]], "the copy has begun"
            )
            stand_in.end(shard, first, "cancelled")
            await asyncio.to_thread(
                until, lambda: "MoveStopped" in said(bootstrap, prefix), "it is called off"
            )
            # The word came behind the end of what was cancelled.
            assert store.cancelled == [first["move_id"]]
            store.may_end.set()
            second = stand_in.issue(shard, remove="a", add="d")
            await asyncio.to_thread(
                until, lambda: "MoveCompleted" in said(bootstrap, prefix), "it is carried out"
            )
            assert Replica("orders", 0, "d") in store.replicas
            stand_in.complete(shard, second)
            at = ("orders", 0, shard.epoch, TIMEOUT_SECONDS)
            assert await followed.wait_for_epoch(*at) == ("d", "b")
            await asyncio.to_thread(
                until, lambda: Replica("orders", 0, "a") not in store.replicas, "a is deleted"
            )
            assert executor.running
        return [changes.get_nowait() for _ in range(changes.qsize())]

    assert asyncio.run(play())[-1] == Change(ShardId("orders", 0), shard.epoch, ("d", "b"))
    assert said(bootstrap, prefix).count("MoveCompleted") == 1
    assert counted("copied_bytes_total") - copied == 2000
    assert counted("acknowledgements_total", message="MoveCompleted") == completed + 1


def test_a_copy_on_the_loop_is_cancelled_while_the_executor_may_not_act() -> None:
    permit = Permit()
    permit.extend(float("inf"))
    progress = Progress(permit)
    move = Move("m1", "add", "orders", 0, 2, "issued", 1_000, 0, add="d")

    async def play() -> None:
        store = Memory()
        copying = asyncio.create_task(
            asyncio.to_thread(_OnLoop(store, asyncio.get_running_loop()).copy, move, progress)
        )
        await asyncio.to_thread(until, lambda: store.copying, "the copy has begun")
        permit.extend(float("-inf"))
        # On the loop a call does not wait: everything else on it would wait, too.
        progress(1)
        with pytest.raises(CopyHeldUp):
            await copying
        assert store.cancelled == ["m1"]

    asyncio.run(play())
    assert (progress.may_wait, progress.is_called_off) == (True, False)


def test_requests_are_awaited(bootstrap: str, prefix: str) -> None:
    async def ask() -> None:
        async with AsyncRequester(bootstrap, prefix) as requester:
            assert await requester.decision("orders") is None
            with pytest.raises(DecisionAwaited, match="repeat"):
                await requester.create("orders", 2, 3, timeout_seconds=0.01)
            assert await requester.drop("none") is None

    asyncio.run(ask())


def test_what_was_not_entered_says_so() -> None:
    with pytest.raises(StreamingError, match="async with"):
        _ = AsyncPlacementView("nowhere:1", "p.").view
    with pytest.raises(StreamingError, match="async with"):
        asyncio.run(AsyncRequester("nowhere:1", "p.").create("orders", 1, 1))
