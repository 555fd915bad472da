"""Goal: a million shards are held in columns, and an old epoch changes nothing.

Method: assignments by hand; the size is that of the arrays.
"""

from streaming.client.shard_table import ShardTable


def test_a_shard_has_its_newest_assignment() -> None:
    table = ShardTable()
    assert table.put("orders", 0, 1, ["a", "b"])
    assert table.put("orders", 0, 3, ["b", "c", "d"])
    assert not table.put("orders", 0, 3, ["x"])
    assert not table.put("orders", 0, 2, ["x"])
    assert (table.epoch("orders", 0), table.replicas("orders", 0)) == (3, ("b", "c", "d"))
    assert table.put("orders", 0, 4, ["d"])
    assert table.replicas("orders", 0) == ("d",)


def test_what_is_not_there_is_not_known() -> None:
    table = ShardTable()
    table.put("orders", 40, 1, ["a"])
    known = [(name, shard) for name in ("orders", "none") for shard in (-1, 0, 40, 41, 999)]
    assert [place for place in known if table.replicas(*place)] == [("orders", 40)]
    assert table.epoch("orders", 41) is None
    assert (table.shards("orders"), table.shards("none"), len(table)) == ([40], [], 1)


def test_a_dropped_stream_leaves_nothing() -> None:
    table = ShardTable()
    for shard in range(3):
        table.put("orders", shard, 1, ["a"])
    assert [table.drop("orders", shard) for shard in (0, 1, 2, 2)] == [True, True, True, False]
    assert (len(table), table.size_bytes) == (0, 0)
    assert table.put("orders", 0, 1, ["b"])


def test_a_million_shards_are_small() -> None:
    table = ShardTable()
    for shard in range(0, 1_000_000, 1_000):
        table.put("orders", shard, 1, ["a", "b", "c"])
    # 8 bytes of epoch and 4 for each of three nodes, and at most twice the room.
    assert table.size_bytes <= 2 * 20 * 1_000_000
