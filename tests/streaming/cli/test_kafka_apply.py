"""`placer kafka apply`: from an import over a saved plan to the cluster as it was planned.

The cluster is one in memory that answers as brokers do; tests/integration has one of real brokers.
"""

import fcntl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import Result

import streaming.kafka_bridge
from streaming.kafka_bridge.admin_client import LEADER_RATE
from tests.builders.kafka_apply import ApplyBench, ConnectedKafka

RACKS = {1: "east", 2: "west", 3: "east", 4: "west"}


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApplyBench:
    kafka = ConnectedKafka(RACKS)
    kafka.create("orders", [(1, 2), (2, 1), (1, 2), (2, 1)], size=1000, min_insync_replicas="1")
    monkeypatch.setattr(streaming.kafka_bridge, "KafkaAdmin", lambda *_: kafka)
    monkeypatch.setattr(streaming.kafka_bridge.apply, "ROUND_SECONDS", 0.001)
    return ApplyBench(kafka, tmp_path)


def said(result: Result) -> str:
    return " ".join(result.stderr.replace("│", "").split())


def test_a_plan_is_carried_out_and_rolled_back(bench: ApplyBench) -> None:
    before = bench.kafka.lists()
    bench.save_plan()
    result = bench.apply("--throttle", "50MB")
    assert result.exit_code == 0, result.output
    assert "is carried out" in result.stdout
    assert "4.0 kB of 4.0 kB copied" in result.stderr
    after = bench.kafka.lists()
    assert after != before
    assert {len(brokers) for brokers in after["orders"]} == {2}
    assert not any(bench.kafka.rates.values())
    back = bench.apply("--rollback", "--output", "json")
    assert back.exit_code == 0, back.output
    told = orjson.loads(back.stdout)
    assert (told["complete"], told["direction"], told["failures"]) == (True, "back", [])
    assert bench.kafka.lists() == before


def test_a_dry_run_changes_nothing(bench: ApplyBench) -> None:
    bench.save_plan()
    result = bench.apply("--dry-run", "--throttle", "1MB")
    assert result.exit_code == 0, result.output
    assert "4 copies, 4.0 kB" in result.stdout
    assert bench.kafka.altered == []
    assert not bench.journal.exists()


def relabel(kafka: ConnectedKafka) -> None:
    kafka.brokers[3] = replace(kafka.brokers[3], rack="west")


def reorder(kafka: ConnectedKafka) -> None:
    kafka.alter_reassignments({("orders", 2): (2, 1)})


def recreate(kafka: ConnectedKafka) -> None:
    kafka.delete("orders")
    kafka.create("orders", [(1, 2)] * 5, size=1000, min_insync_replicas="1")


CHANGES: list[tuple[Callable[[ConnectedKafka], Any], str]] = [
    (lambda kafka: kafka.fence(4), 'node 4: status was "up", is "suspect"'),
    (lambda kafka: kafka.brokers.pop(4), 'node 4: status was "up", is "unregistered"'),
    (relabel, 'node 3: tags was {"rack": "east"}, is {"rack": "west"}'),
    (reorder, 'shard orders/2: replicas was ["1", "2"], is ["2", "1"]'),
    (lambda kafka: kafka.delete("orders"), "stream orders is gone"),
    (recreate, "stream orders: shards was 4, is 5"),
    (
        lambda kafka: kafka.configs["orders"].update({"min.insync.replicas": "2"}),
        "stream orders: quorum was 1, is 2",
    ),
]


@pytest.mark.parametrize(("change", "says"), CHANGES)
def test_a_cluster_that_has_changed_is_refused(
    bench: ApplyBench, change: Callable[[ConnectedKafka], Any], says: str
) -> None:
    bench.save_plan()
    change(bench.kafka)
    lists = bench.kafka.lists()
    result = bench.apply()
    assert (result.exit_code, result.stdout) == (1, "")
    assert says in said(result)
    assert (bench.kafka.lists(), bench.journal.exists()) == (lists, False)


@pytest.mark.parametrize(
    ("options", "dead"),
    [
        (("--lose", "2"), None),
        (("--drain", "1"), None),
        (("--rf", "orders=3"), None),
        ((), 4),
        ((), 2),
    ],
)
def test_what_a_plan_supposed_does_not_make_it_old(
    bench: ApplyBench, options: tuple[str, ...], dead: int | None
) -> None:
    if dead is not None:
        bench.kafka.fence(dead)
    bench.save_plan(*options, dead=True)
    result = bench.apply("--throttle", "50MB")
    assert result.exit_code == 0, result.output
    bench.save_plan(*options, dead=True)
    assert orjson.loads(bench.plan.read_bytes())["moves"] == []


def test_a_broker_that_is_back_makes_the_plan_old(bench: ApplyBench) -> None:
    bench.kafka.fence(2)
    bench.save_plan(dead=True)
    bench.kafka.unfence(2)
    result = bench.apply()
    assert result.exit_code == 1
    assert 'node 2: status was "dead", is "up"' in said(result)


def test_a_rate_that_is_there_stays(bench: ApplyBench) -> None:
    bench.kafka.rates = {1: {LEADER_RATE: 7}}
    bench.save_plan()
    assert bench.apply("--throttle", "50MB").exit_code == 0
    assert {b: rates for b, rates in bench.kafka.rates.items() if rates} == {1: {LEADER_RATE: 7}}


def test_a_reassignment_of_somebody_else_is_refused(bench: ApplyBench) -> None:
    bench.save_plan()
    bench.kafka.fence(4)
    bench.kafka.alter_reassignments({("orders", 1): (2, 4)})
    result = bench.apply()
    assert result.exit_code == 1
    assert "orders-1 is moved to [2, 4] by a reassignment that is under way" in said(result)


def test_a_plan_is_carried_out_by_one_process(bench: ApplyBench) -> None:
    bench.save_plan()
    with bench.plan.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = bench.apply()
    assert result.exit_code == 2
    assert "is being carried out by another process" in said(result)


@pytest.mark.parametrize("rate", ["fast", "0", "-5MB", "50 apples"])
def test_a_rate_that_is_none_is_refused(bench: ApplyBench, rate: str) -> None:
    bench.save_plan()
    result = bench.apply("--throttle", rate)
    assert result.exit_code == 2
    assert "is no number of bytes a second" in said(result)


BROKEN: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda plan: plan.pop("waves"), "it has no waves, since an older version wrote it"),
    (lambda plan: plan["waves"].pop(), "its waves do not do what its moves do to orders/"),
    (
        lambda plan: plan["waves"][0][0].update(replicas=["2", "2"]),
        "its waves do not do what its moves do to orders/",
    ),
    (lambda plan: plan.update(waves=7), "not a plan that --save has written"),
]


@pytest.mark.parametrize(("change", "says"), BROKEN, ids=["old", "fewer", "twice", "number"])
def test_a_plan_that_was_written_to_is_refused(
    bench: ApplyBench, change: Callable[[dict[str, Any]], Any], says: str
) -> None:
    bench.save_plan()
    plan = orjson.loads(bench.plan.read_bytes())
    change(plan)
    bench.plan.write_bytes(orjson.dumps(plan))
    result = bench.apply()
    assert result.exit_code == 2
    assert says in said(result)


def test_a_journal_that_cannot_be_read_is_told(bench: ApplyBench) -> None:
    bench.save_plan()
    bench.journal.write_text('{"version": 1}')
    result = bench.apply()
    assert result.exit_code == 2
    assert "plan.json.journal is no journal of placer kafka apply" in said(result)
