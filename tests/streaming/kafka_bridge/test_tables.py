"""The reconciler's records as tables: the last of a key, tombstones, and what cannot be read."""

from streaming.kafka_bridge.tables import Tables
from tests.builders.bridge_tables import TableBuilder


def test_the_last_record_of_a_key_stands_until_its_tombstone() -> None:
    tables = TableBuilder().nodes(1).stream().assign("12").assign("21", epoch=2).tables
    assert tables.assignments["t", 0].replicas == ("2", "1")
    for topic, key in (("topology.v1", "1"), ("decisions.v1", "t"), ("assignments.v1", "t/0")):
        tables.take(topic, key, None)
        tables.take(topic, key, None)
    assert not (tables.nodes)
    assert not (tables.decisions)
    assert not (tables.assignments)


def test_moves_are_found_by_their_partition() -> None:
    tables = (
        TableBuilder().move("m", "1>4").move("n", "1>5", shard=1).move("m", "1>4", "expired").tables
    )
    assert [each.state for each in tables.moves_of(("t", 0))] == ["expired"]
    assert [*tables.partitions_with_moves()] == [("t", 1), ("t", 0)]
    tables.take("moves.v1", "m", None)
    assert not tables.moves_of(("t", 0))
    assert [*tables.partitions_with_moves()] == [("t", 1)]


def test_streams_that_are_gone_do_not_live() -> None:
    built = (
        TableBuilder().stream("a").stream("b", outcome="dropped").stream("c", outcome="rejected")
    )
    assert [each.stream for each in built.tables.living_streams()] == ["a"]


def test_a_record_of_a_later_version_stands_in_no_table() -> None:
    tables = TableBuilder().assign("12", "m").tables
    tables.take("moves.v1", "m", b'{"state": "of a later version"}')
    assert not tables.moves
    assert [*tables.unreadable] == [("moves.v1", "m")]
    tables.take("moves.v1", "m", None)
    assert not tables.unreadable


def test_topics_that_it_does_not_know_are_left_out() -> None:
    tables = Tables()
    tables.take("alerts.v1", "HOLD", b"{}")
    assert not tables.unreadable
