"""What an agent shows of itself: its metrics through a failure, and its probes over time."""

import random
from pathlib import Path

import pytest

from streaming.errors import AccessRefused, BrokerUnreachable
from streaming.kafka_bridge.admin_client import FOLLOWER_RATE, ClusterAdmin
from streaming.kafka_bridge.agent import Mode
from streaming.kafka_bridge.monitoring import (
    CALLS,
    CHANGES,
    QUIET_SECONDS_MAX,
    ROUND_SECONDS_MAX,
    SPOKEN,
    Monitoring,
    descriptions,
)
from tests.builders.bridge_agents import RunningAgent
from tests.builders.bridged_cluster import BridgedCluster, FaultyKafka
from tests.builders.kafka_cluster import SimulatedKafka
from tests.builders.lock_stores import LockLog

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
GUIDE = Path(__file__).parents[3] / "deploy" / "kafka.md"
SIZE = 1_000


@pytest.fixture
def cluster() -> BridgedCluster:
    """Six brokers with a topic of four partitions that the reconciler does not know yet."""
    made = BridgedCluster(RACKS)
    made.kafka.create("t", [(1, 2, 3), (1, 3, 2), (3, 1, 2), (4, 5, 6)], size=SIZE)
    return made


def value(shown: RunningAgent | Monitoring, name: str, **labels: str) -> float:
    monitoring = shown if isinstance(shown, Monitoring) else shown.monitoring
    found = monitoring.registry.get_sample_value(f"kafka_bridge_{name}", labels)
    assert found is not None, (name, labels)
    return found


def reassignments(agent: RunningAgent) -> dict[str, float]:
    states = ("running", "queued", "waiting", "foreign")
    return {each: value(agent, "reassignments", state=each) for each in states}


def test_a_failure_is_seen_from_its_begin_to_its_end(cluster: BridgedCluster) -> None:
    agent = RunningAgent(cluster, LockLog())
    agent.run()
    assert value(agent, "active") == 1
    assert value(agent, "brokers", state="live") == 6
    assert value(agent, "last_look_timestamp_seconds") > 0
    assert value(agent, "look_duration_seconds_count") > 1
    assert value(agent, "messages_sent_total", type="StreamCreated") == 1
    cluster.kafka.fence(1)
    while not reassignments(agent)["running"]:
        agent.step()
    agent.step()
    assert value(agent, "brokers", state="fenced") == 1
    assert reassignments(agent) == {"running": 3, "queued": 0, "waiting": 0, "foreign": 0}
    assert value(agent, "bytes_to_copy") == 3 * SIZE
    assert value(agent, "throttled_replicas", owner="bridge") > 0
    assert value(agent, "throttle_rates", owner="bridge") > 0
    assert value(agent, "in_flight_max") > 0
    agent.run()
    assert sum(reassignments(agent).values()) == value(agent, "bytes_to_copy") == 0
    assert value(agent, "throttled_replicas", owner="bridge") == 0
    assert value(agent, "throttle_rates", owner="bridge") == 0
    assert value(agent, "messages_sent_total", type="MoveCompleted") == 3
    assert {type(each) for each in cluster.messages} <= {*SPOKEN}


def test_what_is_not_ours_is_told_apart(cluster: BridgedCluster) -> None:
    agent = RunningAgent(cluster, LockLog())
    agent.run()
    cluster.kafka.alter_reassignments({("t", 3): (4, 2, 6)})
    cluster.kafka.alter_broker_rates({2: {FOLLOWER_RATE: 7}})
    # Throttles are read once a minute at rest, and in each look while something is copied.
    agent.step()
    agent.step()
    assert reassignments(agent) == {"running": 0, "queued": 0, "waiting": 0, "foreign": 1}
    assert value(agent, "throttle_rates", owner="other") == 1
    cluster.kafka.unregister(5)
    agent.step()
    assert value(agent, "brokers", state="unregistered") == 1


def test_who_only_observes_shows_what_it_would_do(cluster: BridgedCluster) -> None:
    agent = RunningAgent(cluster, LockLog(), Mode.OBSERVE)
    for _ in range(5):
        agent.step()
    cluster.kafka.fence(1)
    while not cluster.open_moves:
        agent.step()
    agent.step()
    assert reassignments(agent) == {"running": 0, "queued": 3, "waiting": 0, "foreign": 0}
    assert value(agent, "throttled_replicas", owner="bridge") == 0


def test_one_agent_of_two_shows_the_cluster(cluster: BridgedCluster) -> None:
    log = LockLog()
    first, second = RunningAgent(cluster, log, name="a"), RunningAgent(cluster, log, name="b")
    first.step()
    second.step()
    assert (value(first, "active"), value(second, "active")) == (1, 0)
    assert value(first, "brokers", state="live") == 6
    assert value(second, "brokers", state="live") == 0
    assert second.monitoring.check_ready() == (
        True,
        "another agent works; the lock of the bridge was read 0.0 s ago",
    )


def counted(kafka: SimulatedKafka) -> tuple[Monitoring, ClusterAdmin]:
    monitoring = Monitoring("act")
    return monitoring, monitoring.count_calls(kafka)


def test_calls_are_counted_by_how_they_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = SimulatedKafka(RACKS)
    kafka.create("t", [(1, 2, 3)])
    monitoring, admin = counted(kafka)
    admin.describe_topics()
    admin.alter_reassignments({("t", 0): (9, 2, 3), ("t", 1): (1, 2), ("u", 0): None})
    kafka.unreachable = "gone"
    with pytest.raises(BrokerUnreachable):
        admin.describe_cluster()

    def refuse(_: object) -> None:
        raise AccessRefused("no right")

    monkeypatch.setattr(kafka, "elect_preferred", refuse)
    with pytest.raises(AccessRefused):
        admin.elect_preferred([("t", 0)])
    assert value(monitoring, "calls_total", call="describe_topics", outcome="ok") == 1
    assert value(monitoring, "calls_total", call="describe_cluster", outcome="failed") == 1
    assert value(monitoring, "calls_total", call="elect_preferred", outcome="denied") == 1
    assert value(monitoring, "refusals_total", call="alter_reassignments") == 3


def test_every_call_of_the_admin_client_is_counted() -> None:
    calls = {each for each in vars(ClusterAdmin) if not each.startswith("_")}
    assert calls == {*CALLS}
    assert {*CHANGES} == {each for each in calls if each.startswith(("alter_", "elect_"))}


def test_rounds_that_fail_are_counted_and_end_readiness(cluster: BridgedCluster) -> None:
    agent = RunningAgent(cluster, LockLog())
    monitoring = agent.monitoring
    assert monitoring.check_ready() == (False, "starting: the cluster has not been seen yet")
    agent.step()
    assert monitoring.check_ready()[0]
    cluster.kafka.unreachable = "no broker answers"
    with pytest.raises(BrokerUnreachable):
        agent.step()
    monitoring.on_failed()
    assert value(agent, "rounds_failed_total") == 1
    assert monitoring.check_ready()[0]
    cluster.now += int(QUIET_SECONDS_MAX * 1000)
    ready, why = monitoring.check_ready()
    assert (ready, "the last look was 61 s ago" in why) == (False, True)
    assert monitoring.check_live()[0]


def test_a_round_that_hangs_ends_liveness() -> None:
    now = 0.0
    monitoring = Monitoring("act", clock=lambda: now)
    monitoring.on_round_began()
    now = ROUND_SECONDS_MAX
    assert monitoring.check_live() == (True, "ok")
    now += 1
    assert monitoring.check_live() == (False, "a round has been running for 121 s")
    assert monitoring.check_ready() == monitoring.check_live()
    monitoring.on_failed()
    assert monitoring.check_live()[0]


def test_the_guide_has_every_metric() -> None:
    table = GUIDE.read_text("utf-8")
    missing = [f"`{k}` | {v}" for k, v in descriptions().items() if f"| `{k}` | {v} |" not in table]
    assert missing == []


def test_counting_changes_no_answer() -> None:
    kafka = FaultyKafka(RACKS, random.Random(1))
    kafka.create("t", [(1, 2, 3)])
    _, admin = counted(kafka)
    assert admin.describe_cluster() == kafka.describe_cluster()
    assert admin.alter_reassignments({("t", 0): (4, 2, 3)}) == {("t", 0): None}
    assert kafka.altered == [(("t", 0), (4, 2, 3))]
