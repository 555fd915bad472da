"""Goal: the model holds what was published, always at one whole commit, and says what changed.

Method: the core decides, its records go to the model as a reader would hand them over; no broker.
Answers are held against the state as `placer` reads it.
"""

import gc
import tracemalloc
from typing import Any

import orjson
import pytest

from placement.model import Configuration, Resource, StreamCreated, StreamDropped
from schemas.cluster import ClusterClient
from schemas.topics import ALERTS, ASSIGNMENTS, COMMITS, SHARD_LOADS, TOPOLOGY
from streaming.brokers import RecordBytes
from streaming.live import StateRecords, describe_node, describe_shard, describe_stream
from streaming.live.listings import locations, nodes
from streaming.read_model import Change, NotReady, ReadModel, StateSnapshot
from streaming.read_model.changes import CHANGES_KEPT, KEYS_PER_KIND_MAX, ChangeLog, Marker
from streaming.read_model.fold import Fold, RecordUnreadable, parse_records
from streaming.read_model.load_columns import LoadColumns
from streaming.read_model.shard_columns import ShardColumns
from tests.builders.published_state import CELL, Committer, as_read, nodes_up

PREFIX = "placement."


class Scene:
    """A reconciler, the model of it, and the state as `placer` reads it."""

    def __init__(self) -> None:
        self.seconds = 100.0
        self.model = ReadModel(CELL, PREFIX, clock=lambda: self.seconds)
        self.model.begin(Fold(), self.seconds)
        self.read = StateRecords(CELL, PREFIX)
        self.committer = Committer()
        self.heard: list[Change] = []
        self.model.listen(self.heard.append)

    def commit(self, *events: Any) -> list[RecordBytes]:
        records = as_read(self.committer.apply(events, 1_000 + self.committer.sequence))
        self.model.commit(records)
        for each in records:
            if each.topic in self.read.latest:
                self.read.take(each.topic, each.key.decode(), each.value)
        return records


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.commit(*nodes_up(4))
    made.commit(StreamCreated(2, "orders", 1, 3, 2), StreamCreated(2, "logs", 1, 2, 3))
    return made


def test_a_shard_is_that_of_its_record(scene: Scene) -> None:
    for key, value in scene.read.latest[ASSIGNMENTS].items():
        stream, _, shard = key.rpartition("/")
        marker, found = scene.model.find_shard(stream, int(shard))
        assert found.assignment == orjson.loads(value)
        assert marker == Marker(CELL, 2, 1, 1_001)
    assert scene.model.count_shards() == 5
    assert found.shards == 3


def test_descriptions_and_listings_are_those_of_the_command_line(scene: Scene) -> None:
    _, whole = scene.model.take_snapshot()
    assert nodes(whole) == nodes(scene.read)
    assert locations(whole) == locations(scene.read)
    _, orders = scene.model.take_snapshot(stream="orders")
    assert describe_stream(orders, "orders") == describe_stream(scene.read, "orders")
    assert describe_shard(orders, "orders", 2) == describe_shard(scene.read, "orders", 2)
    _, on_n1 = scene.model.take_snapshot(node="n1")
    assert describe_node(on_n1, "n1") == describe_node(scene.read, "n1")


def test_a_move_is_beside_the_shard_while_it_is_open() -> None:
    body = {
        "stream": "orders", "shard": 0, "epoch": 9, "replicas": ["n1", "n2"], "adding": ["n3"],
        "removing": ["n1"], "move_id": "m1", "decided_at": 5, "roles": ["replica", "witness"],
    }  # fmt: skip
    columns = ShardColumns()
    columns.take({"orders": {0: body}})
    assert columns.body("orders", 0) == body
    columns.take({"orders": {0: body | {"epoch": 10, "adding": []}}})
    assert columns.body("orders", 0) == body | {"epoch": 10, "adding": []}


def test_nothing_is_kept_of_a_move_that_has_ended() -> None:
    rest = {
        "stream": "orders", "shard": 0, "epoch": 1, "replicas": ["n1", "n2"], "adding": [],
        "removing": [], "decided_at": 5, "uid": "u1",
    }  # fmt: skip
    columns = ShardColumns()
    columns.take({"orders": {0: rest, 1: rest | {"shard": 1}}})

    def move(number: int) -> None:
        moving = {"adding": ["n3"], "removing": ["n1"], "move_id": f"move-{number}"}
        columns.take({"orders": {0: rest | moving}})
        columns.take({"orders": {0: rest}})

    move(0)
    tracemalloc.start()
    try:
        for number in range(1, 1_001):
            move(number)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 20_000
    assert columns.body("orders", 0) == rest


def test_a_dropped_stream_is_gone(scene: Scene) -> None:
    scene.commit(StreamDropped(3, "orders", 2))
    _, found = scene.model.find_shard("orders", 0)
    assert found.assignment is None
    assert scene.model.count_shards() == 2
    assert scene.model.find_epoch("orders", 0) is None
    _, left = scene.model.take_snapshot(node="n1")
    assert {name.partition("/")[0] for name in left.latest[ASSIGNMENTS]} <= {"logs"}
    held, led = left.count_replicas()
    assert (held.total(), led.total()) == (6, 2)


def test_a_dropped_stream_that_comes_again_goes_on(scene: Scene) -> None:
    before = scene.model.find_epoch("orders", 0)
    scene.commit(StreamDropped(3, "orders", 2))
    scene.commit(StreamCreated(4, "orders", 3, 1, 3))
    _, found = scene.model.find_shard("orders", 0)
    assert len(found.assignment["replicas"]) == 3
    assert found.assignment["epoch"] > before
    assert scene.model.count_shards() == 3


def test_what_changed_is_told(scene: Scene) -> None:
    scene.heard.clear()
    scene.commit(StreamDropped(3, "logs", 2))
    (change,) = scene.heard
    assert change.marker.sequence == 3
    assert change.keys["shards"] == ("logs/0", "logs/1")
    assert change.counts["streams"] == 1
    assert "nodes" not in change.counts


def test_a_commit_that_changes_nothing_moves_the_marker_alone(scene: Scene) -> None:
    scene.heard.clear()
    scene.commit()
    assert scene.model.marker.sequence == 3
    assert [dict(each.counts) for each in scene.heard] == [{}]
    assert scene.model.changes_after(2) == []


def test_records_that_cannot_be_read_change_nothing(scene: Scene) -> None:
    good = as_read(scene.committer.apply([StreamDropped(3, "orders", 2)], 5_000))
    bad = [RecordBytes(TOPOLOGY, 0, 77, b"n1", b'{"node_id": "n1"}')]
    with pytest.raises(RecordUnreadable, match=r"placement\.topology\.v1-0 offset 77"):
        scene.model.commit([*bad, *good])
    assert scene.model.marker.sequence == 2
    assert scene.model.find_epoch("orders", 0) is not None


@pytest.mark.parametrize(
    ("topic", "change"),
    [
        (ASSIGNMENTS, {"epoch": "7"}),
        (ASSIGNMENTS, {"shard": -1}),
        (ASSIGNMENTS, {"replicas": 5}),
        (ASSIGNMENTS, {"decided_at": None}),
        (ASSIGNMENTS, {"epoch": True}),
        (SHARD_LOADS, {"amounts": {"disk": 1.5}}),
        (SHARD_LOADS, {"at": None}),
    ],
)
def test_what_would_not_fit_a_column_is_refused_before(
    scene: Scene, topic: str, change: dict[str, Any]
) -> None:
    body = {
        "stream": "s", "shard": 0, "epoch": 1, "replicas": ["n1"], "adding": [], "removing": [],
        "decided_at": 1, "amounts": {"disk": 7}, "node_id": "n1", "at": 5,
    }  # fmt: skip
    record = RecordBytes(topic, 0, 5, b"s/0", orjson.dumps(body))
    assert parse_records([record], PREFIX).by_shard == {topic: {"s": {0: body}}}
    broken = record._replace(value=orjson.dumps(body | change))
    with pytest.raises(RecordUnreadable):
        scene.model.commit([broken])
    assert scene.model.count_shards() == 5


def test_before_the_first_commit_it_says_what_is_missing() -> None:
    model = ReadModel(CELL, PREFIX)
    with pytest.raises(NotReady, match="are being read"):
        model.find_shards([("orders", 0)])
    model.note_fault("no broker answers at b:9092")
    with pytest.raises(NotReady, match="no broker answers at b:9092"):
        model.take_snapshot()
    model.begin(Fold(), 0.0)
    with pytest.raises(NotReady, match="start one with: placer run"):
        model.find_shards([("orders", 0)])


def test_it_says_how_stale_it_is(scene: Scene) -> None:
    assert ReadModel(CELL, PREFIX).stale_seconds is None
    scene.seconds += 20
    scene.model.note_fault("no broker answers")
    assert (scene.model.stale_seconds, scene.model.fault) == (20.0, "no broker answers")
    scene.model.confirm(scene.seconds)
    assert (scene.model.stale_seconds, scene.model.fault) == (0.0, None)


def test_beginning_anew_forgets_the_rest(scene: Scene) -> None:
    fold = Fold()
    fold.apply(parse_records(as_read(Committer().apply(nodes_up(1), 9)), PREFIX))
    scene.model.begin(fold, 3.0)
    assert scene.model.marker.sequence == 1
    assert scene.model.count_shards() == 0
    assert scene.model.changes_after(0) is None


def test_the_nearest_replica_is_chosen_as_the_command_does(scene: Scene) -> None:
    _, found = scene.model.find_shard("logs", 0)
    own = found.assignment["replicas"][-1]
    client = ClusterClient(id=own)
    _, _, node, reason = scene.model.choose(client, "logs", 0, exact=False)
    assert (node, "own node" in reason) == (own, True)
    _, nothing, node, reason = scene.model.choose(client, "nope", 0, exact=False)
    assert (nothing.shards, node, reason) == (None, None, "nope/0 is not placed")


def test_a_forgotten_node_is_no_candidate(scene: Scene) -> None:
    gone = RecordBytes(TOPOLOGY, 0, 0, b"n1", None)
    scene.model.commit([gone])
    _, snapshot = scene.model.take_snapshot()
    assert [view.node_id for view in snapshot.nodes] == ["n2", "n3", "n4"]
    assert isinstance(snapshot, StateSnapshot)


def test_alerts_are_the_latest_ones(scene: Scene) -> None:
    alert = {"kind": "QUOTA", "severity": "warning", "subject": "nodes", "at": 1}
    marker = scene.commit()[-1]
    assert marker.topic == COMMITS
    bodies = [orjson.dumps(alert | {"at": at}) for at in range(250)]
    scene.model.commit([*(RecordBytes(ALERTS, 0, 0, b"QUOTA", each) for each in bodies), marker])
    _, snapshot = scene.model.take_snapshot()
    assert [each["at"] for each in snapshot.alerts] == list(range(50, 250))
    assert len(scene.heard[-1].alerts) == 250


def test_loads_are_kept_by_shard() -> None:
    loads = LoadColumns()
    body = {"stream": "s", "shard": 3, "amounts": {"disk": 7}, "node_id": "n1", "at": 5}
    other = body | {"shard": 9, "amounts": {"cpu": 0, "disk": 2}}
    loads.take({"s": {3: body, 9: other}})
    assert loads.bodies("s") == [body, other]
    assert loads.body("s", 4) is None
    loads.take({"s": {3: None}})
    assert loads.bodies("s") == [other]
    loads.take({"s": {9: None}})
    assert loads.bodies("s") == []


def test_loads_reach_the_description_of_a_stream() -> None:
    configuration = Configuration(resources=(Resource("disk", 1.0, 0.1),))
    records = as_read(Committer(configuration).apply(nodes_up(2), 1))
    load = {"stream": "s", "shard": 0, "amounts": {"disk": 7}, "node_id": "n1", "at": 5}
    records.append(RecordBytes(SHARD_LOADS, 0, 99, b"s/0", orjson.dumps(load)))
    model = ReadModel(CELL, PREFIX)
    model.begin(Fold(), 0.0)
    model.commit(records)
    _, snapshot = model.take_snapshot(stream="s")
    assert snapshot.latest[SHARD_LOADS] == {"s/0": load}
    assert model.find_shard("s", 0)[1].load == load


def test_a_tombstone_of_a_shard_that_was_never_there_is_nothing() -> None:
    columns = ShardColumns()
    columns.take({"s": {0: None}})
    assert columns.count_shards() == 0
    assert columns.shards_on("n1") == {}
    assert columns.count_replicas()[0].total() == 0


def test_changes_are_kept_for_a_while() -> None:
    log = ChangeLog(5)
    for sequence in range(6, 6 + CHANGES_KEPT + 3):
        log.append(Change.of(Marker(CELL, sequence, 1, 0), {"nodes": ["n1"]}))
    last = 5 + CHANGES_KEPT + 3
    assert log.changes_after(5, last) is None
    assert [c.marker.sequence for c in log.changes_after(last - 2, last)] == [last - 1, last]
    assert log.changes_after(last, last) == []
    assert log.changes_after(last + 1, last) is None


def test_of_a_large_commit_the_first_keys_are_named() -> None:
    keys = [f"s/{n}" for n in range(KEYS_PER_KIND_MAX + 1)]
    change = Change.of(Marker(CELL, 1, 1, 0), {"shards": keys})
    body = change.body()["changed"]["shards"]
    assert (body["count"], len(body["keys"])) == (KEYS_PER_KIND_MAX + 1, KEYS_PER_KIND_MAX)
