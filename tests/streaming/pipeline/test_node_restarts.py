"""Restarts of nodes on the whole way from the log to the records, with the default timers in
simulated time: what a rolling restart costs, and what a second process with a node's id does."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from placement.model import Configuration, Quotas
from streaming.codec import RawRecord
from streaming.pipeline import timers_of
from streaming.settings import Settings
from tests.builders.batches import CELL, Driver, bodies, of_topic
from tests.builders.kafka_rows import heartbeat, raw, registered, tick

NODES = tuple(f"n{number}" for number in range(30))
TIMERS = timers_of(Settings())
BATCH_MS = 5_000


@dataclass
class Process:
    """One life of a node's process: it registers, and beats each second until it ends."""

    node_id: str
    incarnation: str
    start: int
    end: int
    stops: bool = False
    registration: dict[str, Any] = field(default_factory=dict)

    def said(self) -> Iterator[tuple[int, RawRecord]]:
        life = {"node_id": self.node_id, "incarnation": self.incarnation}
        body = life | {"sequence": 1, "location": f"/z{int(self.node_id[1:]) % 3}"}
        yield self.start, raw("NodeRegistered", self.node_id, body | self.registration)
        for at in range(self.start + 400, self.end, 1_000):
            yield at, heartbeat(self.node_id, at, self.incarnation)
        if self.stops:
            last = life | {"sequence": self.end, "stopping": True}
            yield self.end, raw("NodeHeartbeat", self.node_id, last)


class Log:
    """The nodes topic from its processes, read in batches of five seconds."""

    def __init__(
        self,
        processes: list[Process],
        until: int,
        others: tuple[tuple[int, RawRecord], ...] = (),
        quotas: Quotas | None = None,
    ) -> None:
        said = [*others, *(record for process in processes for record in process.said())]
        said += [(at, tick(0, at)) for at in range(500, until, 1_000)]
        said.sort(key=lambda each: each[0])
        self.records = [
            record._replace(offset=offset, at=at)
            for offset, (at, record) in enumerate(said)
            if at < until
        ]
        configuration = Configuration(cell=CELL, quotas=quotas or Quotas())
        self.driver = Driver(timers=TIMERS, configuration=configuration)
        self.commits = [*self.driver.commits]

    def play(self, until: int) -> None:
        """All batches before `until`; streams are asked for behind the first."""
        while self.records and self.records[0].at < until:
            end = self.records[0].at // BATCH_MS * BATCH_MS + BATCH_MS
            batch = [record for record in self.records if record.at < min(end, until)]
            self.records = self.records[len(batch) :]
            streams = []
            if not of_topic(self.commits, "decisions.v1") and batch[0].at >= BATCH_MS:
                body = {"stream": "s", "sequence": 1, "shards": 40, "replication_factor": 3}
                streams = [[raw("StreamCreated", "s", body, topic="streams.v1", at=batch[0].at)]]
            self.commits += self.driver.batch(batch, *streams)

    def restart(self) -> None:
        """The reconciler is killed and goes on from what it has committed."""
        self.driver = Driver(self.commits, TIMERS, Configuration(cell=CELL))
        self.commits += self.driver.commits

    def views(self) -> dict[str, dict[str, Any]]:
        return {view["node_id"]: view for view in bodies(self.commits, "topology.v1")}


def rolling(away: int, stops: bool) -> tuple[list[Process], int]:
    """Each node is restarted a second after the one before is back."""
    processes, at = [], 20_000
    for node_id in NODES:
        processes.append(Process(node_id, f"{node_id}-old", 100, at, stops))
        processes.append(Process(node_id, f"{node_id}-new", at + away, 10_000_000))
        at += away + 1_000
    return processes, at + 80_000


@pytest.mark.parametrize(
    ("away", "stops"),
    [(500, False), (20_000, False), (50_000, False), (2_000, True)],
)
def test_a_rolling_restart_moves_nothing(away: int, stops: bool) -> None:
    processes, until = rolling(away, stops)
    log = Log(processes, until)
    log.play(until)
    views = log.views()
    assert {view["incarnation"] for view in views.values()} == {f"{n}-new" for n in NODES}
    assert all("pending_life" not in view for view in views.values())
    seen = {view["status"] for view in bodies(log.commits, "topology.v1")}
    assert seen == {"up"}, "nobody was suspect, dead or held down"
    assert bodies(log.commits, "moves.v1") == []
    assert bodies(log.commits, "alerts.v1") == []
    assert len(of_topic(log.commits, "assignments.v1")) == 40, "placed once, never touched again"
    assert [r for r in of_topic(log.commits, "violations.v1") if r.value] == []
    assert [r for commit in log.commits for r in commit if r.topic.startswith("dlq")] == []


def test_a_second_process_with_the_id_of_a_living_node_is_one_conflict() -> None:
    nodes = [Process(node_id, "a", 100, 10_000_000) for node_id in NODES]
    log = Log([*nodes, Process("n7", "b", 20_300, 10_000_000)], 400_000)
    log.play(200_000)
    log.restart()
    log.play(400_000)
    (alert,) = bodies(log.commits, "alerts.v1")
    assert (alert["kind"], alert["subject"]) == ("INCARNATION_CONFLICT", "n7")
    assert alert["detail"] == {"holder": "a", "refused": "b"}
    assert "incarnation a" in alert["reason"]["message"]
    assert "incarnation b" in alert["reason"]["message"]
    view = log.views()["n7"]
    assert (view["incarnation"], view["status"]) == ("a", "up")
    assert view["pending_life"]["incarnation"] == view["refused_life"]["incarnation"] == "b"
    assert bodies(log.commits, "moves.v1") == []
    assert [r for commit in log.commits for r in commit if r.topic.startswith("dlq")] == []


def test_a_restart_of_the_reconciler_while_a_node_waits() -> None:
    nodes = [Process(node_id, "a", 100, 10_000_000) for node_id in NODES[1:]]
    moved = {"location": "/z9", "tags": {"disk": "ssd"}, "capacity": 7, "host": "h"}
    lives = [Process("n0", "a", 100, 20_000), Process("n0", "b", 21_000, 400_000)]
    lives[1].registration = moved
    log = Log([*nodes, *lives], 90_000)
    log.play(22_000)
    assert log.views()["n0"]["pending_life"]["location"] == "/z9"
    log.restart()
    log.play(90_000)
    view = log.views()["n0"]
    assert (view["incarnation"], view["status"], view["capacity"]) == ("b", "up", 7)
    assert view["earlier_lives"] == ["a"]
    assert "pending_life" not in view
    assert (view["location"], view["tags"], view["host"]) == ("/z9", {"disk": "ssd"}, "h")
    assert bodies(log.commits, "moves.v1") == bodies(log.commits, "alerts.v1") == []


def test_what_an_operator_ordered_stays_with_the_node() -> None:
    nodes = [Process(node_id, "a", 100, 10_000_000) for node_id in NODES[1:]]
    lives = [Process("n0", "a", 100, 30_000), Process("n0", "b", 31_000, 400_000)]
    log = Log([*nodes, *lives], 60_000)
    log.play(25_000)
    ask = {"request_id": "r", "target": "n0", "ttl_seconds": 3_600}
    order = raw("Maintenance", "n0", ask, topic="operator.v1", at=25_000)
    log.commits += log.driver.batch([order])
    log.play(60_000)
    view = log.views()["n0"]
    assert (view["incarnation"], view["status"]) == ("b", "maintenance")
    assert bodies(log.commits, "moves.v1") == []


def test_strangers_are_counted_in_the_marker() -> None:
    ghosts = tuple((6_000, heartbeat("ghost", n)) for n in range(3))
    log = Log([Process(node_id, "a", 100, 10_000_000) for node_id in NODES], 12_000, ghosts)
    log.play(12_000)
    (marker,) = bodies(log.commits[-1:], "commits.v1")
    assert marker["ignored"] == {"unknown_node": {"count": 3, "last_at": 9_500}}


def test_registered_by_hand_for_a_living_node_lapses() -> None:
    """An operator's try with `placer send register` does a living node no harm."""
    by_hand = ((20_000, registered("n3", 1, "manual")),)
    log = Log([Process(node_id, "a", 100, 10_000_000) for node_id in NODES], 200_000, by_hand)
    log.play(30_000)
    assert log.views()["n3"]["pending_life"]["incarnation"] == "manual"
    log.play(200_000)
    view = log.views()["n3"]
    assert (view["incarnation"], view["status"]) == ("a", "up")
    assert "pending_life" not in view
    assert bodies(log.commits, "alerts.v1") == []


def test_a_later_life_of_a_node_that_was_not_admitted_is_not_admitted_either() -> None:
    lives = [Process("n0", "a", 100, 99_000), Process("n1", "a", 200, 9_000)]
    lives.append(Process("n1", "b", 9_100, 99_000))
    log = Log(lives, 30_000, quotas=Quotas(nodes=1))
    log.play(30_000)
    assert set(log.views()) == {"n0"}
    letters = [r for commit in log.commits for r in commit if r.topic.startswith("dlq")]
    assert len(letters) == 1, "that of the first registration"
    (marker,) = bodies(log.commits[-1:], "commits.v1")
    assert {reason: each["count"] for reason, each in marker["ignored"].items()} == {
        "quota_exceeded": 1,
        "unknown_node": 1,
    }
