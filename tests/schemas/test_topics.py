"""The topic catalogue is consistent in itself and with the messages."""

import re

import pytest

from schemas.inputs import INPUTS
from schemas.outputs import OUTPUTS
from schemas.topics import BY_NAME, CATALOGUE, Topic, configs_for, full_name

HOUR_MS = 3_600_000
COMPACTED = [topic for topic in CATALOGUE if topic.cleanup == "compact"]
LOGS = [topic for topic in CATALOGUE if topic.cleanup == "delete"]


def name_of(topic: Topic) -> str:
    return topic.name


def test_the_topics_of_this_release():
    assert list(BY_NAME) == [
        "nodes.v1",
        "detector.v1",
        "inventory.v1",
        "streams.v1",
        "acks.v1",
        "operator.v1",
        "loads.v1",
        "decisions.v1",
        "assignments.v1",
        "moves.v1",
        "topology.v1",
        "violations.v1",
        "state.v1",
        "load.v1",
        "alerts.v1",
        "answers.v1",
        "journal.v1",
        "commits.v1",
        "dlq.v1",
    ]
    assert len(BY_NAME) == len(CATALOGUE)


def test_every_message_is_on_exactly_one_topic():
    inputs = [m for t in CATALOGUE if t.direction == "in" for m in t.messages]
    outputs = [m for t in CATALOGUE if t.direction == "out" for m in t.messages]
    assert sorted(inputs) == sorted(INPUTS)
    assert sorted(outputs) == sorted(OUTPUTS)


@pytest.mark.parametrize("topic", CATALOGUE, ids=name_of)
def test_settings_fit_the_cleanup_policy(topic):
    assert topic.configs["cleanup.policy"] == topic.cleanup
    assert topic.partitions >= 1
    # Integers, ratios and words only: what a broker reports is compared as text.
    for value in topic.configs.values():
        assert re.fullmatch(r"[0-9]+|0\.[0-9]*[1-9]|[A-Za-z]+", value)


@pytest.mark.parametrize("topic", COMPACTED, ids=name_of)
def test_compacted_topics_are_read_quickly_and_miss_no_tombstone(topic):
    assert topic.partitions == 1
    assert len(topic.messages) == 1
    assert int(topic.configs["delete.retention.ms"]) >= HOUR_MS
    assert int(topic.configs["segment.ms"]) <= int(topic.configs["max.compaction.lag.ms"])
    assert float(topic.configs["min.cleanable.dirty.ratio"]) < 0.5
    assert "segment.bytes" in topic.configs
    assert "retention.ms" not in topic.configs


@pytest.mark.parametrize("topic", LOGS, ids=name_of)
def test_logs_are_kept_longer_than_a_segment(topic):
    assert int(topic.configs["retention.ms"]) > int(topic.configs["segment.ms"])


@pytest.mark.parametrize("topic", CATALOGUE, ids=name_of)
def test_inputs_and_only_inputs_carry_the_brokers_time(topic):
    stamped = topic.configs.get("message.timestamp.type") == "LogAppendTime"
    assert stamped == (topic.direction == "in")


@pytest.mark.parametrize("topic", CATALOGUE, ids=name_of)
def test_names_are_legal_and_do_not_collide_in_metrics(topic):
    name = full_name(topic)
    assert re.fullmatch(r"[a-z0-9.-]+", name)
    assert name.endswith(".v1")


def test_full_names():
    assert full_name(BY_NAME["nodes.v1"]) == "placement.nodes.v1"
    assert full_name("nodes.v1", "t1.") == "t1.nodes.v1"
    assert full_name("dlq.v1") == "dlq.placement.v1"
    assert full_name("dlq.v1", "a.b-c.") == "dlq.a.b-c.v1"
    assert full_name("nodes.v1", "") == "nodes.v1"
    names = [full_name(topic, "x.") for topic in CATALOGUE]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("prefix", ["placement", "a_b.", "a b.", ".", "a..", "a.\n", "é."])
def test_a_prefix_that_kafka_or_its_metrics_would_mangle_is_refused(prefix):
    with pytest.raises(ValueError, match="prefix"):
        full_name("nodes.v1", prefix)


def test_a_name_too_long_for_kafka_is_refused():
    with pytest.raises(ValueError, match="249"):
        full_name("nodes.v1", "x" * 250 + ".")


@pytest.mark.parametrize(("copies", "in_sync"), [(None, None), (1, "1"), (2, "1"), (3, "2")])
def test_two_copies_are_written_where_there_are_three(copies, in_sync):
    configs = configs_for(BY_NAME["moves.v1"], copies)
    assert configs.get("min.insync.replicas") == in_sync
    assert configs.items() >= BY_NAME["moves.v1"].configs.items()
