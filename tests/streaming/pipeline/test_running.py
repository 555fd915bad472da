"""Goal: after a batch that failed nothing more is decided, whichever query it is of; what has ended
a thread ends the process.

Method: the callbacks of the queries as Spark calls them, over an applier whose outbox keeps every
transaction in memory; what they wait for is there at once.
"""

import pickle
import threading
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from streaming.codec import OffsetRange, OutRecord
from streaming.ingest import ShardOutput
from streaming.outbox import OutboxFailed
from streaming.pipeline import RunningQueries, running
from streaming.pipeline.batch import BatchRefused
from streaming.settings import Settings
from tests.builders.batches import Driver, marker, recover
from tests.builders.kafka_rows import arrow, raw, registered

FAILED = OutboxFailed("the record x has 1000001 bytes, above the limit of 1000000")


class Nothing:
    """Stands for what the callbacks tell, and for what they wait for: it is there."""

    refused = False
    fault: Exception | None = None

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: {}

    def is_caught_up(self, _: int) -> bool:
        return True


class Batch:
    """A batch of Spark, which is this when it is collected."""

    def __init__(self, collected: Any) -> None:
        self._collected = collected

    def toArrow(self) -> Any:  # noqa: N802 - as Spark calls it
        return self._collected


def requests() -> Any:
    """A stream is asked for."""
    spec = {"stream": "s", "sequence": 1, "shards": 2, "replication_factor": 2}
    request = raw("StreamCreated", "s", spec, at=2_000, topic="streams.v1")
    return Batch(pa.Table.from_batches([arrow([request])]))


def ticks() -> Any:
    """Ticks came, and so late that a marker is due."""
    said = ShardOutput(stretches=[OffsetRange("nodes.v1", 0, 3, 4, 9_000)])
    return Batch(pa.table({"payload": [pickle.dumps(said)]}))


@pytest.fixture
def driver() -> Driver:
    made = Driver()
    made.batch([registered(f"n{i}", 1, location=f"/z{i}", offset=i, at=1_000) for i in range(3)])
    return made


@pytest.fixture
def queries(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> RunningQueries:
    nothing: Any = Nothing()
    monkeypatch.setattr(running, "check_session", nothing.runs)
    monkeypatch.setattr(running, "is_session_open", nothing.runs)
    place = (Settings(), nothing, recover(driver.commits))
    made = RunningQueries(*place, driver.applier, {}, nothing, nothing)
    made._nodes = made._requests = nothing
    return made


def test_both_queries_decide(driver: Driver, queries: RunningQueries) -> None:
    queries._apply_requests(requests(), 1)
    queries._apply_nodes(ticks(), 2)
    positions = recover(driver.commits).positions
    assert (positions["streams.v1"], positions["nodes.v1"]) == ({0: 1}, {0: 4})


def test_no_query_goes_on_from_a_batch_that_failed(
    driver: Driver, queries: RunningQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [*driver.commits]
    commit = driver.outbox.commit

    def fail(records: Iterable[OutRecord]) -> None:
        assert list(records)
        # The transaction is aborted, and the outbox serves again.
        monkeypatch.setattr(driver.outbox, "commit", commit)
        raise FAILED

    monkeypatch.setattr(driver.outbox, "commit", fail)
    with pytest.raises(OutboxFailed):
        queries._apply_requests(requests(), 1)
    queries._apply_nodes(ticks(), 2)
    with pytest.raises(BatchRefused, match="a restart begins at the last commit"):
        driver.applier.apply([], True)
    queries._stop()
    assert driver.commits == before, "nothing is committed on an unproven state"
    assert queries._failure is FAILED
    assert recover(driver.commits).positions["streams.v1"] == {}, "it is read again"


def test_a_query_that_fails_before_it_decides_gives_the_role_up(
    driver: Driver, queries: RunningQueries
) -> None:
    with pytest.raises(TypeError):
        queries._apply_requests(Batch(None), 1)  # type: ignore[arg-type]
    queries._stop()
    assert marker(driver.commits[-1])["released"]


def test_a_stop_is_heard_by_a_batch_that_outlasts_it(
    queries: RunningQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_STOP_TIMEOUT_SECONDS", 0.05)
    with queries._turn:
        stopping = threading.Thread(target=queries._stop)
        stopping.start()
        stopping.join()
        assert queries._is_over()


def test_a_fault_of_the_follower_of_nodes_ends_the_process(queries: RunningQueries) -> None:
    queries._nodes.fault = ValueError("a fault of its own")
    with pytest.raises(ValueError, match="a fault of its own"):
        queries._check()
