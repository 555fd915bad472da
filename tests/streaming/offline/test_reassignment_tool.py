"""Kafka's own `kafka-reassign-partitions` reads what `placer plan --output kafka` writes.

Goal: its files and ours are the same bytes, in both directions, and it takes a plan and a rollback
for what was meant. Method: the tool of the broker's version, run as its script does, against the
embedded broker. There is one broker, so that a plan is asked about (`--verify`), and the way back,
which leads to where everything is, is carried out (`--execute`).
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import orjson
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.offline.reassignment import parse_reassignment, reassignment_json
from streaming.runtime import EmbeddedBroker
from tests.builders.offline_clusters import run
from tests.systems.kafka_tools import REASSIGN, printed_reassignments, run_tool

pytestmark = pytest.mark.long

# Brokers of the plan that there are not, for the replicas to go to.
OTHERS = ("201", "202")

Tool = Callable[..., str]


@pytest.fixture
def tool(broker: EmbeddedBroker) -> Tool:
    """Runs the tool with some words; its output."""
    return partial(run_tool, REASSIGN, broker.bootstrap_servers)


@pytest.fixture
def topics(broker: EmbeddedBroker, prefix: str) -> list[str]:
    """Two topics, one of eleven partitions: 10 comes after 2."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    made = [NewTopic(f"{prefix}foo", 11, 1), NewTopic(f"{prefix}Bar", 1, 1)]
    for future in admin.create_topics(made).values():
        future.result(30)
    return sorted(topic.topic for topic in made)


def test_the_tool_reads_and_prints_what_we_write_and_read(
    tool: Tool, topics: list[str], tmp_path: Path
) -> None:
    wanted = {"topics": [{"topic": topic} for topic in topics], "version": 1}
    (tmp_path / "topics.json").write_bytes(orjson.dumps(wanted))
    broker_id = "1"
    asked = ("--topics-to-move-json-file", str(tmp_path / "topics.json"))
    current, proposed = printed_reassignments(
        tool(*asked, "--broker-list", broker_id, "--generate")
    )
    assert {nodes.nodes for nodes in parse_reassignment(current).values()} == {(broker_id,)}
    for text in (current, proposed):
        assert reassignment_json(parse_reassignment(text)) == text

    # Everything leaves the broker; the way back is what the tool has printed.
    now, plan, back = (tmp_path / name for name in ("now.json", "plan.json", "back.json"))
    now.write_text(current)
    document = {"nodes": [{"id": each} for each in (broker_id, *OTHERS)], "streams": []}
    files = ("--assignments", str(now), "--rollback", str(back))
    result = run(document, *files, "--drain", broker_id, "--output", "kafka")
    assert result.exit_code == 0, result.output
    assert back.read_text() == f"{current}\n"
    plan.write_text(result.stdout)
    planned = parse_reassignment(result.stdout)
    assert len(planned) == 12

    # The tool understands every line of it as it was meant.
    verified = tool("--reassignment-json-file", str(plan), "--verify", "--preserve-throttles")
    for (topic, partition), listed in planned.items():
        meant = f"{topic}-{partition}, but replica set is {broker_id} rather than "
        assert f"{meant}{','.join(listed.nodes)}." in verified
        assert set(listed.nodes) <= set(OTHERS)

    # It carries out the way back, and prints what there was before: the same bytes.
    executed = tool("--reassignment-json-file", str(back), "--execute")
    assert printed_reassignments(executed) == [current]
    started = ",".join(f"{topic}-{partition}" for topic, partition in sorted(planned))
    assert f"Successfully started partition reassignments for {started}" in executed
    done = tool("--reassignment-json-file", str(back), "--verify")
    assert done.count("is completed.") == 12
