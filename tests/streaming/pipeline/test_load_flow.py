"""From reports of loads to published loads: order, restarts, and what is asked of bad reports."""

import threading
from typing import Any

import pytest

from placement.liveness import Timers
from placement.model import (
    Configuration,
    Liveness,
    LoadsReported,
    NodeChanged,
    ReportedLoad,
    Resource,
)
from schemas.topics import NODE_LOADS
from streaming.codec import RawRecord
from streaming.observability import Observer
from streaming.pipeline import batch as batch_module
from streaming.pipeline.load_flow import BATCHES_WAITING_MAX, LoadIntake, UnheardLoads
from tests.builders.batches import (
    BANDS,
    CELL,
    Commit,
    Driver,
    bodies,
    check_contract,
    marker,
    of_topic,
)
from tests.builders.kafka_rows import raw, registered, tick

LED = Resource("writes", 0.8, led=True)
CONFIGURED = Configuration(cell=CELL, resources=(Resource("disk", 0.9, 0.1), LED))


def stream(name: str = "s", offset: int = 0, at: int = 1_000, **asked: Any) -> RawRecord:
    body = {"stream": name, "sequence": 1, "shards": 2, "replication_factor": 2} | asked
    return raw("StreamCreated", name, body, offset, at, "streams.v1")


def report(
    node_id: str, sequence: int, amounts: dict[int, dict[str, int]], offset: int, at: int
) -> RawRecord:
    shards = [{"stream": "s", "shard": shard} | of for shard, of in amounts.items()]
    body = {"node_id": node_id, "incarnation": "a", "sequence": sequence, "shards": shards}
    return raw("NodeLoadReported", node_id, body, offset, at, NODE_LOADS)


def fleet() -> list[RawRecord]:
    return [registered(f"n{n}", 1, location=f"/z{n}", offset=n, at=1_000) for n in range(2)]


def placed() -> Driver:
    """Two nodes that hold both shards of a stream."""
    driver = Driver(configuration=CONFIGURED)
    driver.batch(fleet(), [stream()])
    return driver


def known(driver: Driver) -> dict[str, dict[str, int]]:
    """What is published of the loads of shards."""
    found = bodies(driver.commits, "load.v1")
    return {f"{each['stream']}/{each['shard']}": each["amounts"] for each in found}


def test_a_report_is_published_with_its_event_and_its_position() -> None:
    driver = placed()
    loads = driver.filter([report("n0", 1, {0: {"disk": 50}, 1: {"disk": 7}}, 0, 2_000)])
    (commit,) = driver.batch(loads=loads)
    assert known(driver) == {"s/0": {"disk": 50}, "s/1": {"disk": 7}}
    (entry,) = bodies([commit], "journal.v1")
    assert [kind for kind, _ in entry["events"]] == ["LoadsReported"]
    assert marker(commit)["positions"][NODE_LOADS] == {"0": 1}
    check_contract(driver.commits)


def test_noise_is_neither_journaled_nor_published() -> None:
    driver = placed()
    driver.batch(loads=driver.filter([report("n0", 1, {0: {"disk": 50}}, 0, 2_000)]))
    loads = driver.filter([report("n0", 2, {0: {"disk": 55}}, 1, 32_000)])
    commits = driver.batch([tick(2, 32_000)], loads=loads)
    assert bodies(commits, "load.v1") == []
    assert all(entry["events"] == [] for entry in bodies(commits, "journal.v1"))
    assert marker(commits[-1])["positions"][NODE_LOADS] == {"0": 2}


def test_metrics_say_what_reports_change_and_how_late_they_are() -> None:
    observer = Observer(CELL)
    driver = Driver(configuration=CONFIGURED, observer=observer)

    def value(name: str, **labels: str) -> float | None:
        return observer.metrics.registry.get_sample_value(f"reconciler_{name}", labels)

    driver.batch(fleet(), [stream()])
    assert value("load_lag_seconds") == 0
    loads = driver.filter([report("n0", 1, {0: {"disk": 50}, 1: {"disk": 7}}, 0, 2_000)])
    driver.batch([tick(2, 3_500)], loads=loads)
    assert (value("load_lag_seconds"), value("load_changes_total")) == (1.5, 2)
    driver.batch([tick(3, 9_500)])
    assert value("load_lag_seconds") == 1.5, "of the last report"
    again = driver.filter([report("n0", 1, {0: {"disk": 50}}, 1, 9_000)])
    driver.batch([tick(4, 10_000)], loads=again)
    assert value("ignored_records_total", reason="load_older_sequence") == 1
    assert value("records_read_total", topic="loads.v1") == 2
    assert (value("load_lag_seconds"), value("load_changes_total")) == (1.0, 2)
    observer.on_load_batch(0.5)
    assert value("load_batch_duration_seconds_sum") == 0.5


def test_several_batches_of_loads_go_into_one_that_decides() -> None:
    driver = placed()
    loads = driver.filter([report("n0", 1, {0: {"disk": 50}}, 0, 2_000)])
    loads += driver.filter([report("n0", 2, {0: {"disk": 500}}, 1, 10**7)])
    driver.batch([tick(2, 10**7)], loads=loads)
    assert known(driver) == {"s/0": {"disk": 500}}
    assert driver.applier.positions[NODE_LOADS] == {0: 2}
    assert driver.applier.records_read == 3


def test_a_restart_in_the_middle_has_no_second_opinion() -> None:
    driver = placed()
    both = {0: {"disk": 50, "writes": 9}, 1: {"disk": 70, "writes": 9}}
    records = [report("n0", 1, both, 0, 2_000), report("n1", 1, both, 1, 2_100)]
    driver.batch(loads=driver.filter(records))
    digest = marker(driver.commits[-1])["digest"]
    again = Driver(driver.commits, configuration=CONFIGURED)
    assert marker(again.commits[-1])["digest"] == digest
    assert again.positions[NODE_LOADS] == {0: 2}
    noise = {0: {"disk": 54}, 1: {"disk": 65}}
    calm = [report("n0", 2, noise, 2, 32_000), report("n1", 2, noise, 3, 32_100)]
    commits = again.batch([tick(2, 33_000)], loads=again.filter(calm))
    assert bodies(commits, "load.v1") == []
    assert marker(commits[-1])["digest"] == digest, "nor of a follower that agrees"
    loads = again.filter([report("n0", 3, {0: {"disk": 500}}, 4, 10**7)])
    again.batch([tick(3, 10**7)], loads=loads)
    assert known(again)["s/0"]["disk"] == 500


def test_a_report_that_comes_before_its_node_counts_once_the_node_is_known() -> None:
    driver = Driver(configuration=CONFIGURED)
    reports = [report(n, 1, {0: {"disk": 5}}, o, 500) for o, n in enumerate(("n0", "n1"))]
    driver.batch(loads=driver.filter(reports))
    assert known(driver) == {}
    driver.batch(fleet(), [stream()])
    driver.batch([tick(2, 3_000)])
    assert known(driver) == {"s/0": {"disk": 5}}
    entries = bodies(driver.commits, "journal.v1")
    kinds = [kind for entry in entries for kind, _ in entry["events"]]
    assert kinds.count("LoadsReported") == 4, "what was refused stands in the journal too"


def words(commits: list[Commit]) -> int:
    """How many words on loads of shards stand in the journal."""
    return sum(
        len(body["loads"])
        for entry in bodies(commits, "journal.v1")
        for kind, body in entry["events"]
        if kind == "LoadsReported"
    )


def report_for_a_turn(driver: Driver, amounts: dict[str, list[int]], first: int) -> list[Commit]:
    """Have nodes report the same for as long as it takes to repeat each word."""
    commits = []
    for number in range(first, first + BANDS.repeat_ms // 30_000 + 1):
        at = 30_000 * number
        records = [
            report(node, number, {n: {"disk": size} for n, size in enumerate(of)}, offset, at)
            for offset, (node, of) in enumerate(amounts.items(), 10 * number)
        ]
        commits += driver.batch([tick(number + 10, at)], loads=driver.filter(records))
    return commits


def test_what_was_ignored_is_learnt_later_and_nothing_else_is_journaled() -> None:
    patient = Timers(suspect_after_ms=10**8, dead_after_ms=10**9)
    driver = Driver(configuration=CONFIGURED, timers=patient)
    driver.batch([*fleet(), registered("n2", 1, location="/z2", offset=2, at=1_000)])
    amounts = {"n0": [50, 60], "n1": [52, 55], "n2": [51, 59]}
    said = report_for_a_turn(driver, amounts, 1)
    assert (words(said), known(driver)) == (6, {}), "there is no such stream yet"
    driver.batch([stream()])
    said = report_for_a_turn(driver, amounts, 100)
    leaders = {
        f"{each['stream']}/{each['shard']}": each["replicas"][0]
        for each in bodies(driver.commits, "assignments.v1")
    }
    assert {name: of["disk"] for name, of in known(driver).items()} == {
        f"s/{shard}": amounts[leaders[f"s/{shard}"]][shard] for shard in range(2)
    }
    assert 2 <= words(said) <= 4
    assert words(report_for_a_turn(driver, amounts, 200)) == 0
    again = Driver(driver.commits, configuration=CONFIGURED, timers=patient)
    assert words(report_for_a_turn(again, amounts, 300)) == 2, "a stranger's words, and ignored"
    assert words(report_for_a_turn(again, amounts, 400)) == 0


def test_of_followers_alone_the_largest_word_is_learnt_and_stays() -> None:
    patient = Timers(suspect_after_ms=10**8, dead_after_ms=10**9)
    driver = Driver(configuration=CONFIGURED, timers=patient)
    nodes = [registered(f"n{n}", 1, location=f"/z{n}", offset=n, at=1_000) for n in range(3)]
    driver.batch(nodes, [stream(shards=1, replication_factor=3)])
    (assignment,) = bodies(driver.commits, "assignments.v1")
    _, *followers = assignment["replicas"]
    amounts = dict(zip(followers, ([52], [50]), strict=True))
    assert words(report_for_a_turn(driver, amounts, 1)) == 2
    assert known(driver) == {"s/0": {"disk": 52}}
    assert words(report_for_a_turn(driver, amounts, 100)) == 0


def test_bad_reports_are_dead_letters_and_the_rest_counts() -> None:
    driver = placed()
    bad = report("n0", 2, {0: {"disk": -1}}, 1, 2_000)
    unknown = report("n0", 3, {0: {"dsk": 1}}, 2, 2_000)
    good = [
        report("n0", 1, {0: {"disk": 50}}, 0, 2_000),
        report("n1", 1, {1: {"disk": 7}}, 3, 2_100),
    ]
    commits = driver.batch(loads=driver.filter([good[0], bad, unknown, good[1]]))
    letters = of_topic(commits, "dlq.v1")
    assert len(letters) == 2
    assert known(driver)["s/0"] == {"disk": 50}


def test_a_prefix_is_cut_by_the_shards_of_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "PREFIX_SHARDS_MAX", 2)
    driver = placed()
    reports = [
        report(f"n{n % 2}", n + 1, {0: {"disk": 10**n}, 1: {"disk": 10**n}}, n, 10**6 * (n + 1))
        for n in range(3)
    ]
    assert len(driver.batch(loads=driver.filter(reports))) == 3


def test_without_resources_nothing_is_known_of_reports() -> None:
    driver = Driver()
    driver.batch(fleet(), [stream()])
    assert NODE_LOADS not in marker(driver.commits[-1])["positions"]
    assert of_topic(driver.commits, "load.v1") == []


def test_the_intake_keeps_the_order_and_lets_a_query_wait() -> None:
    intake = LoadIntake()
    for number in range(BATCHES_WAITING_MAX):
        intake.put([bytes([number])])
    waiting = threading.Thread(target=intake.put, args=([b"last"],))
    waiting.start()
    assert intake.take() == [bytes([number]) for number in range(BATCHES_WAITING_MAX)]
    waiting.join()
    assert intake.take() == [b"last"]
    intake.close()
    intake.put([b"late"])
    assert intake.take() == []


def test_what_is_kept_of_unknown_nodes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streaming.pipeline.load_flow.UNHEARD_MAX", 2)
    unheard = UnheardLoads()
    events = [LoadsReported(n, f"n{n}", (ReportedLoad("s", 0, ()),)) for n in range(3)]
    for event in events:
        unheard.keep(event)
    assert unheard.take() == []
    for n in (2, 1, 0):
        unheard.note_change(NodeChanged(9, f"n{n}", "a", 1, Liveness.UP))
    assert unheard.take() == [events[1], events[0]]
    unheard.keep(events[2])
    unheard.note_change(NodeChanged(9, "n2", "a", 1, Liveness.UP))
    assert unheard.take() == [events[2]]
