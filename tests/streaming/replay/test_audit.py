"""The audit must find what it is there for: each case breaks one promise in sound records."""

from dataclasses import replace

import orjson
import pytest

from placement.model import Configuration, Liveness, NodeAttributes, NodeChanged, StreamCreated
from placement.reconciler import Reconciler
from placement.state import DIGEST_VERSION
from streaming.brokers import Record
from streaming.codec import log_record, ready_records
from streaming.replay.audit import audit

CELL = "main"


def sound_records():
    """Six nodes, two streams, a marker: what a quiet reconciler has published."""
    reconciler = Reconciler(Configuration())
    events = [
        NodeChanged(
            n, f"n{n}", "a", 1, Liveness.UP, NodeAttributes(location=f"/site{(n + 1) // 2}")
        )
        for n in range(1, 7)
    ]
    events.append(StreamCreated(9, "plain", 1, 2, 3))
    events.append(StreamCreated(9, "strict", 1, 1, 3, placement_policies="node=exclusive"))
    ready = reconciler.apply(events, 10)
    out = [*ready_records(ready, CELL, 10, 1)]
    marker = {
        "cell": CELL,
        "sequence": 1,
        "writer_epoch": 1,
        "now": 10,
        "digest": reconciler.digest,
        "digest_version": DIGEST_VERSION,
    }
    out.append(log_record("CommitMarker", "commits.v1", CELL, marker, 10))
    return [read_back(each, offset) for offset, each in enumerate(out)]


def read_back(out, offset):
    """An outgoing record as a reader sees it."""
    headers = {name: content.decode() for name, content in out.headers}
    value = orjson.loads(out.value)
    return Record(out.topic, 0, offset, out.key.decode(), value, headers, 10, out.value)


def altered(record, **fields):
    """The record with fields of its value replaced."""
    value = record.value | fields
    return replace(record, value=value, raw=orjson.dumps(value))


def find(records, topic, key):
    """Index of the record of a key."""
    return next(i for i, each in enumerate(records) if (each.topic, each.key) == (topic, key))


def test_sound_records_pass():
    assert audit(sound_records(), Configuration()) == []


def dead_node(records):
    place = find(records, "topology.v1", "n1")
    records[place] = altered(records[place], liveness="dead")


def missing_assignment(records):
    del records[find(records, "assignments.v1", "plain/1")]


def doubled_replica(records):
    place = find(records, "assignments.v1", "plain/0")
    first, second, _ = records[place].value["replicas"]
    records[place] = altered(records[place], replicas=[first, second, second])


def broken_policy(records):
    place = find(records, "assignments.v1", "strict/0")
    records[place] = altered(records[place], replicas=["n1", "n2", "n3"])


def skipped_epoch(records):
    again = records[find(records, "assignments.v1", "plain/0")]
    headers = again.headers | {"ce_id": "another"}
    records.append(replace(altered(again, epoch=3), headers=headers))


def same_id_other_body(records):
    again = records[find(records, "assignments.v1", "plain/0")]
    records.append(altered(again, decided_at=99))


def no_marker(records):
    del records[find(records, "commits.v1", CELL)]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (dead_node, "live of 3"),
        (missing_assignment, "plain/1: 0 live of 3"),
        (doubled_replica, "plain/0: 2 live of 3"),
        (broken_policy, "at_most 1 per location"),
        (skipped_epoch, "epoch 3 follows 1"),
        (same_id_other_body, "was written twice, with another body"),
        (no_marker, "no commit marker"),
    ],
)
def test_every_damage_is_found(damage, says):
    records = sound_records()
    damage(records)
    assert any(says in finding for finding in audit(records, Configuration()))
