"""Goal: a broker that is killed and started again under the whole library costs time, nothing else.

Method: a broker of its own; while it is away a copy ends and a request is asked. Afterwards each
acknowledgement is there once, and each absence was told once.
"""

import logging
import time
from pathlib import Path

import pytest

from schemas.topics import ACKS, NODES, STREAMS
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader
from streaming.client import (
    DecisionAwaited,
    Executor,
    NodeAgent,
    PlacementView,
    Requester,
)
from streaming.conformance.reconciler import PlayedShard, StandIn
from streaming.runtime import EmbeddedBroker
from tests.builders.counting_store import CountingStore
from tests.systems.waiting import until

PREFIX = "restart."
TIMEOUT_SECONDS = 60.0


@pytest.mark.long
def test_a_broker_that_was_away_costs_time_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "streaming.client")
    first = EmbeddedBroker(data_dir=tmp_path / "broker")
    first.start()
    at = first.bootstrap_servers
    apply_topics(at, PREFIX)
    stand_in, shard, store = (
        StandIn(at, PREFIX),
        PlayedShard("orders", 0, ["a", "b"]),
        CountingStore(),
    )
    stand_in.start()
    stand_in.create(shard)
    agent = NodeAgent(at, PREFIX, "n1", tmp_path / "n1.json")
    with (
        Executor(at, PREFIX, store) as executor,
        PlacementView(at, PREFIX) as view,
        Requester(at, PREFIX) as requester,
        agent,
    ):
        assert executor.wait_ready(TIMEOUT_SECONDS)
        move = stand_in.issue(shard, remove="a", add="d")
        until(lambda: len(store.copies) == 1, "the copy has begun")
        first.stop()
        until(lambda: view.freshness.age_seconds > 5, "the view knows that it is not fresh", 60)
        store.may_end.set()
        until(lambda: store.held, "the copy has ended")
        assert view.replicas("orders", 0) == ("a", "b")
        with EmbeddedBroker(int(at.rpartition(":")[2]), tmp_path / "broker"):

            def said(topic: str) -> list[str]:
                with CommittedReader(at, PREFIX, [topic]) as reader:
                    return [each.headers["ce_type"].split(".")[1] for each in reader.read_to_end()]

            until(lambda: "MoveCompleted" in said(ACKS), "the completion has arrived", 60)
            again = StandIn(at, PREFIX)
            again.start()
            again.complete(shard, move)
            at_epoch = ("orders", 0, shard.epoch, TIMEOUT_SECONDS)
            assert view.wait_for_epoch(*at_epoch) == ("d", "b")
            with pytest.raises(DecisionAwaited):
                requester.create("clicks", 1, 1, timeout_seconds=0.1)
            beats = said(NODES).count("NodeHeartbeat")
            until(lambda: said(NODES).count("NodeHeartbeat") > beats, "the agent speaks again")
            assert said(STREAMS) == ["StreamCreated"]
            assert said(ACKS) == ["MoveAccepted", "MoveCompleted"]
            assert store.copies == [move["move_id"]]
            assert executor.running
            agent.stop()
            executor.close()
            view.close()
            requester.close()
    told = [each.getMessage() for each in caplog.records if "has answered at" in each.getMessage()]
    assert len(told) == 2, "the executor and the view, once each"


def test_what_is_said_while_the_broker_is_away_arrives_in_order(tmp_path: Path) -> None:
    """Also past the time after which the client would give a record up by itself."""
    first = EmbeddedBroker(data_dir=tmp_path / "broker")
    first.start()
    at = first.bootstrap_servers
    apply_topics(at, PREFIX)
    options = {"delivery.timeout.ms": "1000"}
    with NodeAgent(
        at, PREFIX, "n1", tmp_path / "n1.json", heartbeat_interval_seconds=0.5, options=options
    ) as agent:
        first.stop()
        agent.relocate("/eu/az2")
        time.sleep(2.5)
        with EmbeddedBroker(int(at.rpartition(":")[2]), tmp_path / "broker"):
            agent.stop()
            with CommittedReader(at, PREFIX, [NODES]) as reader:
                found = reader.read_to_end()
    assert "NodeLocalityChanged" in [each.headers["ce_type"].split(".")[1] for each in found]
    told = [(each.value or {})["sequence"] for each in found]
    assert told == [*range(1, len(told) + 1)]
