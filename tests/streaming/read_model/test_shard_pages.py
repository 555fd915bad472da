"""Goal: the health of shards from columns is that of the diagnosis; pages cut out what is asked.

Method: a fleet that loses nodes and repairs, judged both ways after each commit.
"""

import numpy as np
import pytest

from placement.diagnosis import Health
from placement.model import (
    Liveness,
    NodeChanged,
    StreamCreated,
)
from streaming.live import describe_stream
from streaming.read_model import RUNGS, ShardQuery
from tests.builders.api_service import ServedModel
from tests.builders.published_state import nodes_up


@pytest.fixture
def served() -> ServedModel:
    served = ServedModel()
    served.commit(*nodes_up(12, racks=4))
    served.commit(
        StreamCreated(2, "orders", 1, 30, 3, body_hash="0a"),
        StreamCreated(2, "pairs", 1, 20, 2, quorum="one", body_hash="0b"),
        StreamCreated(2, "single", 1, 10, 1, body_hash="0c"),
    )
    return served


def judged_both_ways(served: ServedModel) -> set[str]:
    """The rungs that were met; the two ways agree."""
    met: set[str] = set()
    for stream, steps in served.model.judge_shards().items():
        counts = np.bincount(steps, minlength=len(RUNGS))
        here = {str(rung): n for rung, n in zip(RUNGS, counts.tolist(), strict=True) if n}
        _, snapshot = served.model.take_snapshot(stream=stream)
        assert here == describe_stream(snapshot, stream)["shard_health"], stream
        met |= {*here}
    return met


def test_the_health_is_that_of_the_diagnosis(served: ServedModel) -> None:
    met = judged_both_ways(served)
    assert met == {"healthy"}
    for number, (node, liveness) in enumerate(
        [("n1", Liveness.DEAD), ("n2", Liveness.SUSPECT), ("n5", Liveness.DEAD)]
    ):
        served.commit(NodeChanged(3 + number, node, "a", 2 + number, liveness))
        met |= judged_both_ways(served)
    assert met >= {"under_replicated", "at_risk", "unavailable"}


def test_pages_of_shards(served: ServedModel) -> None:
    served.commit(NodeChanged(3, "n1", "a", 2, Liveness.DEAD))
    model = served.model
    steps = model.judge_shards()["orders"]
    everything = model.select_shards("orders", steps, ShardQuery(size=100))
    assert [row["shard"] for row in everything.rows] == [*range(30)]
    assert (everything.found, everything.total) == (30, 30)
    short = model.select_shards(
        "orders", steps, ShardQuery(health=str(Health.UNDER_REPLICATED), size=100)
    )
    assert 0 < short.found < 30
    assert {row["health"] for row in short.rows} == {"under_replicated"}
    assert all("n1" in row["replicas"] for row in short.rows)
    on_node = model.select_shards("orders", steps, ShardQuery(node="n1", size=3, start=1))
    assert on_node.found == short.found
    assert len(on_node.rows) == min(3, short.found - 1)
    newest = model.select_shards("orders", steps, ShardQuery(sort="epoch", descending=True, size=1))
    assert newest.rows[0]["epoch"] == max(row["epoch"] for row in everything.rows)
    assert model.select_shards("orders", steps, ShardQuery(shard=7)).rows[0]["shard"] == 7
    assert model.select_shards("orders", steps, ShardQuery(shard=99)).found == 0
