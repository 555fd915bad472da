"""Needs N1 and N2 on the whole way from the log to the records, without Spark and Kafka: what a
node that comes and goes costs its fleet."""

from collections.abc import Iterator
from typing import Any

import orjson

from placement.liveness import Timers
from placement.model import Configuration, FlapPolicy, Rebalance
from streaming.codec import RawRecord
from tests.builders.batches import CELL, Driver, bodies
from tests.builders.kafka_rows import heartbeat, raw, registered, tick

NODES = tuple(f"n{number}" for number in range(1, 6))
# A day is 86,400 of these seconds: time is compressed by configuration.
TIMERS = Timers(2_000, 4_000, FlapPolicy(5, 600_000, 600_000))

# A node that returns empty would get its share again, which is another story.
STILL = Configuration(cell=CELL, rebalance=Rebalance.OFF)


class Fleet:
    """Five nodes with a stream of two copies on them; each second of theirs is a batch."""

    def __init__(self) -> None:
        self.driver = Driver(configuration=STILL, timers=TIMERS)
        self.at, self.offset = 0, 0
        start = [self.log(registered(node_id, 1, location=f"/{node_id}")) for node_id in NODES]
        self.driver.batch(start)
        body = {"stream": "s", "sequence": 1, "shards": 10, "replication_factor": 2}
        self.driver.batch([raw("StreamCreated", "s", body, topic="streams.v1")])
        self.acks = self.asked = 0

    def log(self, record: RawRecord) -> RawRecord:
        self.offset += 1
        return record._replace(offset=self.offset, at=self.at)

    def second(self, silent: tuple[str, ...] = ()) -> None:
        """A second passes; executors finish what they were told to do."""
        self.at += 1_000
        said = [heartbeat(node, self.at) for node in NODES if node not in silent]
        self.driver.batch([self.log(each) for each in (*said, tick(0, 0))], [*self.done()])

    def done(self) -> Iterator[RawRecord]:
        for move in bodies(self.driver.commits[-1:], "moves.v1"):
            if move["state"] == "issued":
                body = {name: move[name] for name in ("stream", "shard", "move_id")}
                key = f"{move['stream']}/{move['shard']}"
                yield raw("MoveCompleted", key, body, self.acks, self.at, "acks.v1")
                self.acks += 1

    def issued(self) -> list[dict[str, Any]]:
        moves = bodies(self.driver.commits, "moves.v1")
        return [move for move in moves if move["state"] == "issued"]

    def views(self, node_id: str) -> list[dict[str, Any]]:
        return [
            view
            for view in bodies(self.driver.commits, "topology.v1")
            if view["node_id"] == node_id
        ]


def test_a_return_in_time_costs_nothing_and_a_later_one_a_repair() -> None:
    fleet = Fleet()
    for _ in range(3):
        fleet.second(silent=("n1",))
    fleet.second()
    assert [view["liveness"] for view in fleet.views("n1")] == ["up", "suspect", "up"]
    assert fleet.issued() == []
    for _ in range(5):
        fleet.second(silent=("n1",))
    moves = fleet.issued()
    assert fleet.views("n1")[-1]["liveness"] == "dead"
    assert {move["remove"] for move in moves} == {"n1"}
    assert len(moves) == 4, "as many as it held: 20 copies on 5 nodes"


def test_twenty_flaps_in_ten_minutes_cost_one_set_of_moves() -> None:
    fleet = Fleet()
    for _ in range(20):
        for second in range(30):
            fleet.second(silent=("n1",) if second < 10 else ())
    moves = fleet.issued()
    assert len(moves) == 4, "one set, for what the node held at first"
    assert {move["remove"] for move in moves} == {"n1"}
    last = fleet.views("n1")[-1]
    assert (last["liveness"], last["status"], last["guard"]) == ("up", "held_down", "held_down")
    assert len(last["transitions"]) == 5
    # Sixty transitions: held at each fifth, longer each time.
    assert last["hold_down"]["until"] - last["hold_down"]["since"] > 600_000
    alerts = bodies(fleet.driver.commits, "alerts.v1")
    assert [(alert["kind"], alert["subject"]) for alert in alerts] == [("HELD_DOWN", "n1")]


def test_a_restart_forgets_no_hold_down() -> None:
    fleet = Fleet()
    for second in range(60):
        fleet.second(silent=("n1",) if second % 30 < 10 else ())
    before = fleet.views("n1")[-1]
    assert before["hold_down"]["active"]
    again = Driver(fleet.driver.commits, configuration=STILL, timers=TIMERS)
    late = before["hold_down"]["until"] + 1
    beats = [heartbeat(node, late, offset=10_000 + n, at=late) for n, node in enumerate(NODES)]
    again.batch([*beats, tick(10_010, late)])
    (view,) = bodies(again.commits, "topology.v1")
    assert (view["node_id"], view["status"]) == ("n1", "up")
    assert view["hold_down"] == before["hold_down"] | {"active": False}
    assert orjson.dumps(view["transitions"]) == orjson.dumps(before["transitions"])


def ask(fleet: Fleet, action: str, target: str) -> dict[str, Any]:
    """An operator's request, and the answer."""
    fleet.asked += 1
    body = {"target": target, "request_id": f"r{fleet.asked}"}
    request = raw(action, target, body, fleet.asked, fleet.at, "operator.v1")
    commits = fleet.driver.batch([request])
    (answer,) = bodies(commits, "answers.v1")
    return dict(answer["reason"])


def test_a_hold_down_that_an_operator_ended_stays_ended() -> None:
    fleet = Fleet()
    for second in range(60):
        fleet.second(silent=("n1",) if second % 30 < 10 else ())
    held = fleet.views("n1")[-1]
    assert held["status"] == "held_down"
    assert ask(fleet, "ReleaseNode", "n1")["code"] == "REQUEST_ACCEPTED"
    released = fleet.views("n1")[-1]
    assert (released["status"], released["guard"]) == ("up", "none")
    assert ask(fleet, "ReleaseNode", "n1")["code"] == "NOTHING_TO_DO"
    # The liveness table still counts the hold-down, and tells of it at the next changes.
    for second in range(20):
        fleet.second(silent=("n1",) if second < 3 else ())
    assert [view["status"] for view in fleet.views("n1")[-2:]] == ["suspect", "up"]
    assert fleet.views("n1")[-1]["hold_down"] == released["hold_down"]
    # Who goes on flapping is held down anew, for longer.
    for second in range(90):
        fleet.second(silent=("n1",) if second % 30 < 10 else ())
    again = fleet.views("n1")[-1]
    assert again["status"] == "held_down"
    assert again["hold_down"]["since"] > released["hold_down"]["until"] - 600_000


def test_a_forgotten_node_is_a_stranger_until_it_registers() -> None:
    fleet = Fleet()
    for _ in range(8):
        fleet.second(silent=("n1",))
    assert fleet.views("n1")[-1]["liveness"] == "dead"
    fleet.second(silent=("n1",))
    assert ask(fleet, "ForgetNode", "n1")["code"] == "REQUEST_ACCEPTED"
    last = fleet.driver.commits[-1]
    assert [r.value for r in last if r.topic == "topology.v1" and r.key == b"n1"] == [None]
    known = len(fleet.views("n1"))
    fleet.second()
    assert len(fleet.views("n1")) == known, "a heartbeat alone makes nobody known"
    assert fleet.driver.applier.ignored.counts["unknown_node"] == 1
    fleet.driver.batch([fleet.log(registered("n1", fleet.at + 1, location="/n9"))])
    assert fleet.views("n1")[-1]["location"] == "/n9"
