"""Sizes of replicas reach the reconciler as loads, where both count disks."""

from dataclasses import replace
from typing import Any

from schemas.inputs import NodeLoadReported, NodeRegistered
from streaming.kafka_bridge.controller import BridgeOptions, Step, find_step
from streaming.kafka_bridge.disk_loads import INTERVAL_MS, SHARDS_MAX, find_load_reports
from streaming.kafka_bridge.membership import MembershipOptions
from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.snapshot import Disk, Snapshot
from tests.builders.bridge_tables import NOW, TableBuilder, look, partition

COUNTS = BridgeOptions(membership=MembershipOptions(counts_disks=True))
TERABYTE = 10**12


def sized(at: int = NOW, sized_at: int | None = NOW, **more: Any) -> Snapshot:
    """A topic of one partition on brokers 1 to 3; broker 4 has a leftover of it."""
    kafka = look(partition((1, 2, 3)), at=at, brokers=(1, 2, 3, 4), **more)
    sizes = {("t", 0): {1: 500, 2: 490, 3: 500, 4: 7}, ("unknown", 0): {1: 9}}
    disks = {1: Disk(TERABYTE, TERABYTE // 2), 2: Disk(None, None)}
    return replace(kafka, sizes=sizes, disks=disks, sized_at=sized_at)


def built() -> TableBuilder:
    return TableBuilder().nodes(1, 2, 3, 4).stream(uid="u1").assign("123", uid="u1")


def reports(step: Step) -> list[NodeLoadReported]:
    return [each for each in step.messages if isinstance(each, NodeLoadReported)]


def test_brokers_report_the_replicas_that_the_reconciler_knows_there() -> None:
    found = {each.node_id: each for each in find_load_reports(sized(), built().tables)}
    assert sorted(found) == ["1", "2", "3"]
    assert [(e.stream, e.shard, e.uid, e.amounts) for e in found["2"].shards] == [
        ("t", 0, "u1", {"disk_bytes": 490})
    ]
    assert (found["1"].capacities, found["2"].capacities) == ({"disk_bytes": TERABYTE}, None)


def test_a_broker_that_is_fenced_or_unknown_reports_nothing() -> None:
    found = find_load_reports(sized(fenced=(1,)), TableBuilder().nodes(1, 2).assign("123").tables)
    assert [each.node_id for each in found] == ["2"]


def test_sizes_are_reported_once_and_again_after_a_pause() -> None:
    step = find_step(sized(), built().tables, Memory(), COUNTS)
    assert len(reports(step)) == 3
    assert step.memory.sizes_interval_ms == INTERVAL_MS
    later = sized(at=NOW + INTERVAL_MS, sized_at=NOW)
    assert reports(find_step(later, built().tables, step.memory, COUNTS)) == []
    fresh = sized(at=NOW + INTERVAL_MS, sized_at=NOW + INTERVAL_MS)
    again = reports(find_step(fresh, built().tables, step.memory, COUNTS))
    assert [each.sequence for each in again] == [NOW + INTERVAL_MS] * 3


def test_nothing_is_reported_where_disks_are_not_counted_or_not_read() -> None:
    assert reports(find_step(sized(), built().tables, Memory(), BridgeOptions())) == []
    assert reports(find_step(sized(sized_at=None), built().tables, Memory(), COUNTS)) == []


def test_many_replicas_take_several_records_with_rising_sequences() -> None:
    parts = [partition((1,), number=number) for number in range(SHARDS_MAX + 1)]
    kafka = look(*parts, sizes=dict.fromkeys(range(SHARDS_MAX + 1), 5))
    tables = TableBuilder().nodes(1).stream(uid="u1", shards=SHARDS_MAX + 1)
    for number in range(SHARDS_MAX + 1):
        tables.assign("1", shard=number)
    found = [*find_load_reports(kafka, tables.tables)]
    assert [len(each.shards) for each in found] == [SHARDS_MAX, 1]
    assert [each.sequence for each in found] == [NOW, NOW + 1]


def test_brokers_register_what_their_disks_have() -> None:
    step = find_step(sized(), TableBuilder().tables, Memory(), COUNTS)
    brokers = {each.node_id: each for each in step.messages if isinstance(each, NodeRegistered)}
    assert brokers["1"].capacities == {"disk_bytes": TERABYTE}
    assert brokers["2"].capacities is None
    known = built().node("1", capacities={"disk_bytes": TERABYTE})
    registered = {
        each.record_key()
        for each in find_step(sized(), known.tables, Memory(), COUNTS).messages
        if isinstance(each, NodeRegistered)
    }
    assert "1" not in registered


def test_capacities_stay_until_the_disks_have_been_read() -> None:
    known = built().node("1", capacities={"disk_bytes": TERABYTE})
    unread = replace(sized(), disks={}, sized_at=None)
    step = find_step(unread, known.tables, Memory(), COUNTS)
    assert [each for each in step.messages if isinstance(each, NodeRegistered)] == []
