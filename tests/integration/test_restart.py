"""Stopping and starting again: nothing is left behind, nothing changes, damage is refused."""

import signal
from typing import Any

import orjson

from schemas.topics import CATALOGUE, full_name
from streaming.brokers import make_producer
from tests.integration.conftest import System
from tests.systems.application import PATIENT

ASSIGNED = ("within", {"strategy": "spread", "within": ["/z1"]})


def contents(system: System) -> dict[str, list[tuple[str | None, bytes | None]]]:
    """Everything on the output topics but what says who commits."""
    outputs = [topic.name for topic in CATALOGUE if topic.direction == "out"]
    return {
        topic: [(record.key, record.raw) for record in system.outputs.of(topic)]
        for topic in outputs
        if topic not in ("commits.v1", "journal.v1")
    }


def test_a_restart_changes_nothing_and_a_damaged_state_is_refused(own_system: System) -> None:
    system, outputs = own_system, own_system.outputs
    first = system.start(**PATIENT)
    for number in range(4):
        body: dict[str, Any] = {"node_id": f"n{number}", "incarnation": "a", "sequence": 1}
        body["location"] = f"/z{number % 2}"
        system.inputs.send("nodes.v1", "NodeRegistered", f"n{number}", body)
    for number in range(3):
        system.inputs.stream(f"s{number}", shards=2)
        outputs.decision(f"s{number}")
    place = system.inputs.raw("streams.v1", b"x", b"no JSON", [])
    outputs.wait_passed("streams.v1", place)

    first.send(signal.SIGTERM)
    assert first.wait_end() == 0, first.output
    outputs.check()
    before, marker = contents(system), outputs.marker

    # Another default changes no stream that is there, and is no reason to refuse.
    second = system.start(PLACER_POLICY__DEFAULT='{"strategy": "affinity"}', **PATIENT)
    outputs.wait(lambda: outputs.marker["sequence"] > marker["sequence"] + 1, "an idle marker")
    assert contents(system) == before, "nothing was said again"
    after = outputs.marker
    assert after["writer_epoch"] == marker["writer_epoch"] + 1
    assert (after["digest"], after["now"] >= marker["now"]) == (marker["digest"], True)
    for topic, positions in marker["positions"].items():
        assert after["positions"][topic].keys() == positions.keys()
        assert all(after["positions"][topic][p] >= offset for p, offset in positions.items())
    system.inputs.stream("new")
    assert outputs.decision("new")["strategy"] == "affinity"
    assert outputs.decision("s0")["strategy"] == "spread"
    outputs.check()

    # Ctrl-C in a terminal reaches the whole process group.
    second.send(signal.SIGINT, to_group=True)
    assert second.wait_end() == 0, second.output
    assert "Traceback" not in second.printed

    # The journal says from where on the other default held.
    report = system.replay()
    assert (report.differences, report.digest) == ((), outputs.marker["digest"])

    altered = outputs.latest("assignments.v1")["s0/0"]
    altered["replicas"] = altered["replicas"][::-1]
    producer = make_producer(system.bootstrap)
    producer.produce(full_name("assignments.v1", system.prefix), orjson.dumps(altered), "s0/0")
    assert producer.flush(20) == 0
    count = len(outputs.records)
    third = system.launch(**PATIENT)
    assert third.wait_end() == 3, third.output
    assert "digest" in third.printed
    assert "Traceback" not in third.printed
    assert len(outputs.records) <= count + 1, "nothing was committed in between"
    (difference,) = system.replay().differences
    assert (difference.topic, difference.key) == ("assignments.v1", "s0/0")
