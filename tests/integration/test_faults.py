"""What surroundings do to a running application: poison, refusing topics, kills, lost input.

The numbers are those of the fault matrix. The tests go on from each other, which saves starts of
Spark: each leaves the application that the next one kills or finds ended.
"""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer
from confluent_kafka import TopicPartition as KafkaPlace
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from schemas.topics import CATALOGUE, DEAD_LETTERS, full_name
from streaming.recovery import open_transactions
from tests.integration.conftest import System
from tests.systems.application import PATIENT, Application
from tests.systems.damaged_scratch import HELD, KINDS, WAYS, damage
from tests.systems.poison import NEARLY_A_MIB, POISON
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

OUTPUTS = [topic.name for topic in CATALOGUE if topic.direction == "out"]
# Enough assignments that a batch and its transaction can be met under way.
LARGE = 10_000
# Half a second of a transaction is easily met; more misses than these are no chance.
CATCHES_MAX = 5


@pytest.fixture(scope="module")
def client(system: System) -> Iterator[KafkaAdminClient]:
    made = KafkaAdminClient(bootstrap_servers=system.bootstrap)
    yield made
    made.close()


@pytest.fixture(scope="module")
def running(system: System) -> list[Application]:
    """The application that runs, or ran last."""
    first = system.start(**PATIENT)
    for number in range(6):
        body = {"node_id": f"n{number}", "incarnation": "a", "sequence": 1}
        body["location"] = f"/z{number % 3}"
        system.inputs.send("nodes.v1", "NodeRegistered", f"n{number}", body)
    system.inputs.stream("first")
    system.outputs.decision("first")
    return [first]


def restarted(system: System, running: list[Application]) -> Application:
    """The next one, with the same scratch directory."""
    running.append(system.start(**PATIENT))
    return running[-1]


def placed_once(system: System, stream: str, shards: int) -> None:
    assert system.outputs.decision(stream)["outcome"] == "placed"
    records = [r.key for r in system.outputs.of("assignments.v1") if r.value["stream"] == stream]
    assert (len(records), len(set(records))) == (shards, shards)
    answers = [r for r in system.outputs.of("decisions.v1") if r.key == stream]
    assert len(answers) == 1


def resize(client: KafkaAdminClient, system: System, topic: str, size: str) -> None:
    change = {"max.message.bytes": size}
    name = full_name(topic, system.prefix)
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, change)])


def test_f27_poison_is_dead_lettered_and_all_else_applied(
    system: System, running: list[Application]
) -> None:
    expected = {}
    for number, (key, value, headers, code) in enumerate(POISON.values()):
        system.inputs.stream(f"good{number}", replication_factor=2)
        partition, offset = system.inputs.raw("streams.v1", key, value, headers)
        expected["streams.v1", str(partition), str(offset)] = code
    last = system.inputs.stream("good")
    system.outputs.wait_passed("streams.v1", last)
    system.outputs.wait(lambda: len(system.outputs.letters()) == len(POISON), "all letters")
    letters = system.outputs.letters()
    said = {place: r.headers["__placement.errors.reason"] for place, r in letters.items()}
    assert said == expected
    for number in range(len(POISON)):
        assert system.outputs.decision(f"good{number}")["outcome"] == "placed"
    assert "x" * 50 not in running[-1].output, f"{NEARLY_A_MIB} bytes are echoed nowhere"


def test_f11_f15_scratch_that_is_damaged_in_every_way_makes_no_difference(
    system: System, running: list[Application]
) -> None:
    checkpoint, outputs = running[-1].checkpoint, system.outputs
    running[-1].kill()
    said, digest = len(outputs.of("decisions.v1")), outputs.marker["digest"]
    assert damage(checkpoint) > len(KINDS) * len(WAYS)
    # As many state stores as an older setting asked for would be another difference.
    shards = {"PLACER_SPARK__TOPOLOGY_SHARDS": "2"}
    running.append(system.start(**PATIENT, **shards))
    assert len([*checkpoint.glob(f"{HELD}/nodes/state")]) == 1
    assert (len(outputs.of("decisions.v1")), outputs.marker["digest"]) == (said, digest)
    system.inputs.stream("undamaged")
    placed_once(system, "undamaged", 1)


def test_f9_f30_a_topic_that_refuses_ends_the_process_and_nothing_is_lost(
    system: System, running: list[Application], client: KafkaAdminClient
) -> None:
    letters = len(system.outputs.letters())
    resize(client, system, DEAD_LETTERS, "100")
    place = system.inputs.raw("streams.v1", b"x", b"no JSON", [])
    system.inputs.stream("meanwhile")
    assert running[-1].wait_end() == 3, running[-1].output
    assert f"{full_name(DEAD_LETTERS, system.prefix)} was refused" in running[-1].printed
    assert "Traceback" not in running[-1].printed
    assert len(system.outputs.letters()) == letters
    assert "meanwhile" not in system.outputs.latest("decisions.v1")
    resize(client, system, DEAD_LETTERS, "1048588")
    restarted(system, running)
    placed_once(system, "meanwhile", 1)
    system.outputs.wait_passed("streams.v1", place)
    system.outputs.wait(lambda: len(system.outputs.letters()) == letters + 1, "the letter")


def test_f3_killed_while_planning(system: System, running: list[Application]) -> None:
    partition, offset = system.inputs.stream("planned", shards=LARGE)
    running[-1].kill()
    assert system.outputs.marker["positions"]["streams.v1"][str(partition)] <= offset
    restarted(system, running)
    placed_once(system, "planned", LARGE)


def caught(system: System, application: Application) -> tuple[str, int]:
    """A stream whose transaction is under way while the application stands still, and the offset
    of its request. What is not committed yet shows to a reader of everything."""
    name = full_name("assignments.v1", system.prefix)
    reader = Consumer(
        {
            "bootstrap.servers": system.bootstrap,
            "group.id": "test",
            "isolation.level": "read_uncommitted",
        }
    )
    reader.assign([KafkaPlace(name, 0, OFFSET_END)])
    reader.poll(1.0)
    try:
        for number in range(CATCHES_MAX):
            stream = f"halfway-{number}"
            _, offset = system.inputs.stream(stream, shards=LARGE)
            until(lambda: reader.poll(0.02), f"the first records of {stream}")
            application.send(signal.SIGSTOP)
            if (name, 0) in open_transactions(system.bootstrap, system.prefix, OUTPUTS, {}):
                return stream, offset
            application.send(signal.SIGCONT)
            system.outputs.decision(stream)
            while reader.consume(10_000, timeout=0.5):
                pass
    finally:
        reader.close()
    raise AssertionError(f"none of {CATCHES_MAX} transactions was met under way")


def test_f2_killed_inside_the_transaction(system: System, running: list[Application]) -> None:
    stream, offset = caught(system, running[-1])
    running[-1].kill()
    assert system.outputs.marker["positions"]["streams.v1"]["0"] <= offset
    assert stream not in system.outputs.latest("decisions.v1")
    assert not any(r.value["stream"] == stream for r in system.outputs.of("assignments.v1"))
    restarted(system, running)
    placed_once(system, stream, LARGE)


def test_f1_f10_f14_killed_behind_the_commit_with_older_scratch_and_input_deleted(
    system: System, running: list[Application], client: KafkaAdminClient, tmp_path: Path
) -> None:
    checkpoint = running[-1].checkpoint
    older = tmp_path / "older"
    shutil.copytree(checkpoint, older, ignore_dangling_symlinks=True)
    system.inputs.stream("committed")
    system.outputs.wait(lambda: "committed" in system.outputs.latest("decisions.v1"), "committed")
    running[-1].kill()

    _, offset = system.inputs.stream("gone")
    name = full_name("streams.v1", system.prefix)
    client.delete_records({TopicPartition(name, 0): offset + 1})
    refused = system.launch(**PATIENT)
    assert refused.wait_end() == 3, refused.output
    assert f"{name}-0 has offsets {offset + 1} to" in refused.printed
    assert "placer run --accept-gap" in refused.printed

    shutil.rmtree(checkpoint)
    shutil.copytree(older, checkpoint)
    running.append(system.start("--accept-gap", **PATIENT))
    assert "GAP_ACCEPTED" in running[-1].printed
    system.inputs.stream("after")
    placed_once(system, "after", 1)
    placed_once(system, "committed", 1)
    assert "gone" not in system.outputs.latest("decisions.v1")
    running[-1].send(signal.SIGTERM)
    assert running[-1].wait_end() == 0, running[-1].output
    system.outputs.check()
    report = system.replay()
    assert report.differences == ()
    assert report.compared == report.records
