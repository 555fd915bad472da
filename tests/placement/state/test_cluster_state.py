"""The facts and what is published of them stay one: epochs, tombstones, what is loaded."""

import numpy as np

from placement.model import (
    Configuration,
    Decision,
    Liveness,
    Memory,
    NodeAttributes,
    NodeView,
    Outcome,
    StreamSpec,
)
from placement.policy import Policy
from placement.state import ClusterState, Stream

ASKED = {"strategy": "spread"}


def node(name: str, location: str, **more: object) -> NodeView:
    return NodeView(
        node_id=name,
        incarnation="i",
        sequence=1,
        body_hash="",
        revision=1,
        attributes=NodeAttributes(location),
        liveness=Liveness.UP,
        since=0,
        **more,  # type: ignore[arg-type]
    )


def stream(state: ClusterState, name: str, shards: int) -> Stream:
    policy = state.streams.compile(None, ASKED)
    assert isinstance(policy, Policy)
    spec = StreamSpec(name, shards, 1, ASKED)
    return state.upsert_stream(
        Decision(name, 1, 1, Outcome.PLACED, spec, "", "spread", shards, 0, (), (), 0), policy
    )


def place(state: ClusterState, placed: Stream) -> None:
    shards = np.asarray(state.allocate_slots(placed), np.int64)
    state.place_replicas(shards, np.ones(len(shards), np.int64), np.zeros(len(shards), np.int64))


def test_no_epoch_of_a_shard_comes_twice() -> None:
    """Shards of a dropped stream leave their rows to others, whose epochs begin above theirs."""
    state = ClusterState(Configuration())
    state.upsert_node(node("n1", "/a"))
    place(state, stream(state, "s", 2))
    state.finish()
    for now in (1, 2, 3):
        state.begin(now)
        state.publisher.mark_changed(1)
        state.finish()
    assert [state.publisher.epoch(shard) for shard in (0, 1)] == [1, 4]
    state.begin(4)
    state.drop_shards(state.streams["s"])
    place(state, stream(state, "t", 3))
    ready = state.finish()
    assert ready.dropped == [("s", 0), ("s", 1)]
    assert [each.epoch for each in ready.assignments.values()] == [5, 5, 5]
    assert state.publisher.next_epoch(state.streams["t"].shards[0]) == 6


def test_nothing_is_left_of_what_is_forgotten() -> None:
    """The digest of a state whose records are all tombstones is that of an empty one, but for what
    is remembered of the epochs."""
    state, empty = ClusterState(Configuration()), ClusterState(Configuration())
    state.upsert_node(node("n1", "/a/r1"))
    place(state, stream(state, "s", 3))
    state.memory.remember("fleet", "x", {"at": 1})
    state.finish()
    state.begin(1)
    state.drop_shards(state.streams["s"])
    state.forget_stream("s")
    state.memory.remember("fleet", "x", None)
    state.memory.remember("epochs", "highest", None)
    state.forget_node("n1")
    assert str(state.publisher.current_digest()) == str(empty.publisher.current_digest())
    assert (dict(state.streams), dict(state.memory), state.nodes) == ({}, {}, {})
    assert not state.domain_paths


def test_domains_are_known_by_the_nodes_whose_location_is_trusted() -> None:
    state = ClusterState(Configuration())
    state.upsert_node(node("n1", "/a/r1"))
    state.upsert_node(node("n2", "/a/r2"))
    assert state.domain_paths == {"/a": 2, "/a/r1": 1, "/a/r2": 1}
    state.upsert_node(node("n2", "/b/r2"))
    state.forget_node("n1")
    assert state.domain_paths == {"/b": 1, "/b/r2": 1}


def test_what_is_loaded_again_is_published_no_second_time() -> None:
    """What is remembered unchanged is no record of the batch."""
    state = ClusterState(Configuration())
    state.memory.load(Memory("fleet", "x", {"at": 1}, 7))
    before = str(state.publisher.current_digest())
    state.begin(9)
    state.memory.remember("fleet", "x", {"at": 1})
    assert state.finish().empty
    assert str(state.publisher.current_digest()) == before
    assert state.memory["fleet", "x"].at == 7
