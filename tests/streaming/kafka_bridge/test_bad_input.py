"""What goes wrong around the bridge is told by name, and nothing is moved on doubt.

Each case is an agent on a cluster in memory with the real reconciler: what it asks of Kafka, what
it says to people, and that both sides agree again once the cause is gone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from streaming.brokers import CallHangs
from streaming.errors import AccessRefused, BrokerUnreachable
from streaming.kafka_bridge.admin_client import PartitionId
from streaming.kafka_bridge.agent import BridgeRefused, Mode
from streaming.kafka_bridge.memory import LOOK_GAP_MAX_MS
from tests.builders.bridge_agents import RunningAgent
from tests.builders.bridged_cluster import BridgedCluster
from tests.builders.lock_stores import LockLog

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
DENIED = AccessRefused("the brokers do not allow this user to alter reassignments")
HANGS = CallHangs("the call to alter reassignments has not returned for 20 s")


@pytest.fixture
def cluster() -> BridgedCluster:
    """Six brokers with two topics that the reconciler does not know yet."""
    made = BridgedCluster(RACKS)
    made.kafka.create("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (4, 5, 6)], size=10)
    made.kafka.create("u", [(1, 5, 3), (2, 3, 4)], size=10, min_insync_replicas="2")
    return made


@pytest.fixture
def agent(cluster: BridgedCluster) -> RunningAgent:
    """An agent that acts, on the cluster at rest."""
    running = RunningAgent(cluster, LockLog())
    running.run()
    running.said.clear()
    return running


def check_rest(cluster: BridgedCluster) -> None:
    cluster.catch_up()
    assert cluster.assigned() == cluster.lists()
    assert not cluster.throttles()
    assert not cluster.open_moves
    assert not cluster.letters()


def step_over_failures(agent: RunningAgent, steps: int) -> Iterator[str]:
    """Let time pass; yield what ended a round."""
    for _ in range(steps):
        try:
            agent.step()
        except BrokerUnreachable as error:
            yield str(error)


@pytest.mark.parametrize("error", [DENIED, HANGS], ids=["no right", "hangs"])
def test_a_change_that_is_not_carried_out_is_told_and_tried_again(
    cluster: BridgedCluster,
    agent: RunningAgent,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    before = cluster.lists()

    def fail(_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(cluster.kafka, "alter_reassignments", fail)
        cluster.kafka.fence(1)
        for _ in range(10):
            agent.step()
        assert cluster.lists() == before
    assert f"failed: {error}" in agent.said
    agent.run()
    check_rest(cluster)
    assert not any(1 in each for each in cluster.lists().values())


def test_no_right_to_throttle_is_told_and_nothing_is_copied_without_one(
    cluster: BridgedCluster, agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = cluster.lists()

    def refuse(changes: Mapping[str, object]) -> dict[str, str]:
        return dict.fromkeys(changes, "TopicAuthorizationFailed")

    with monkeypatch.context() as patch:
        patch.setattr(cluster.kafka, "alter_topic_entries", refuse)
        cluster.kafka.fence(1)
        for _ in range(10):
            agent.step()
        assert cluster.lists() == before
    said = "failed: throttle was not changed, topic t: TopicAuthorizationFailed"
    assert said in agent.said
    agent.run()
    check_rest(cluster)


def test_brokers_that_are_too_old_and_rights_that_lack_are_refused_at_the_start(
    cluster: BridgedCluster,
) -> None:
    old, right = "the brokers are older than Kafka 4.0", "this user lacks the right Alter"
    cluster.kafka.obstacles = [old, right]
    with pytest.raises(BridgeRefused, match=f"{old}\n{right}"):
        RunningAgent(cluster, LockLog()).agent.check()
    assert not cluster.messages
    assert not cluster.kafka.altered


def test_a_target_that_is_fenced_is_named_and_never_asked_for(
    cluster: BridgedCluster, agent: RunningAgent
) -> None:
    cluster.kafka.fence(1)
    while not cluster.open_moves:
        agent.step()
    targets = {int(m.add or 0) for m in cluster.tables.moves.values() if m.state == "issued"}
    cluster.kafka.altered.clear()
    for target in targets:
        cluster.kafka.fence(target)
    agent.step()
    asked = [to for _, to in cluster.kafka.altered if to is not None]
    assert not any(targets & {*to} for to in asked)
    told = [each for each in agent.said if "wait" in each]
    assert any("is fenced: t-" in each for each in told), told
    for broker in (1, *targets):
        cluster.kafka.unfence(broker)
    agent.run()
    check_rest(cluster)


def test_a_topic_that_may_not_be_described_is_left_alone_and_named(
    cluster: BridgedCluster, agent: RunningAgent
) -> None:
    before = cluster.lists()
    cluster.kafka.hidden = {"u"}
    cluster.kafka.fence(1)
    for _ in range(40):
        agent.step()
        cluster.kafka.copy()
    assert "u" in {each.stream for each in cluster.tables.living_streams()}
    assert {key: at for key, at in cluster.lists().items() if key[0] == "u"} == {
        key: at for key, at in before.items() if key[0] == "u"
    }
    assert not any(1 in at for key, at in cluster.lists().items() if key[0] == "t")
    (named,) = [line for line in agent.said if "Describe" in line]
    assert named.startswith("topic u is left alone: this user lacks the right Describe on it")
    count = agent.monitoring.registry.get_sample_value("kafka_bridge_hidden_topics")
    assert count == 1
    cluster.kafka.hidden = set()
    agent.run()
    check_rest(cluster)
    assert not any(1 in each for each in cluster.lists().values())
    # One that is deleted as well is dropped once it may be asked for.
    cluster.kafka.hidden = {"u"}
    cluster.kafka.delete("u")
    for _ in range(20):
        agent.step()
    assert "u" in {each.stream for each in cluster.tables.living_streams()}
    cluster.kafka.hidden = set()
    agent.run()
    check_rest(cluster)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made anew"])
def test_a_topic_that_is_deleted_between_look_and_change(
    cluster: BridgedCluster,
    agent: RunningAgent,
    monkeypatch: pytest.MonkeyPatch,
    again: bool,
) -> None:
    alter = cluster.kafka.alter_reassignments

    def delete_first(
        targets: Mapping[PartitionId, Sequence[int] | None],
    ) -> dict[PartitionId, str | None]:
        if "t" in cluster.kafka.topics:
            cluster.kafka.delete("t")
        return alter(targets)

    with monkeypatch.context() as patch:
        patch.setattr(cluster.kafka, "alter_reassignments", delete_first)
        cluster.kafka.fence(1)
        while "t" in cluster.kafka.topics:
            agent.step()
    assert any("UnknownTopicOrPartition" in each for each in agent.said)
    if again:
        cluster.kafka.create("t", [(4, 5, 6)])
    agent.run()
    check_rest(cluster)
    said = "said StreamCreated: t" if again else "said StreamDropped: t"
    assert said in agent.said
    assert {name for name, _ in cluster.assigned()} == ({"t", "u"} if again else {"u"})


def test_brokers_without_a_rack_among_others_are_named_and_copied_to_last(
    cluster: BridgedCluster,
) -> None:
    cluster.kafka.join(7, None)
    agent = RunningAgent(cluster, LockLog())
    agent.run()
    check_rest(cluster)
    (said,) = [each for each in agent.said if "without a rack" in each]
    assert said.startswith("1 broker (7) is without a rack (broker.rack): rules on racks count")
    cluster.kafka.fence(1)
    agent.run()
    check_rest(cluster)
    assert not any(7 in each for each in cluster.lists().values())


def test_of_two_bridges_of_two_clusters_the_second_touches_nothing(
    cluster: BridgedCluster, agent: RunningAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = cluster.kafka.describe_cluster

    def describe_other() -> Any:
        found = described()
        return type(found)("another", found.controller, found.brokers)

    agent.said.clear()
    cluster.kafka.fence(1)
    altered, said = len(cluster.kafka.altered), len(cluster.messages)
    with monkeypatch.context() as patch:
        patch.setattr(cluster.kafka, "describe_cluster", describe_other)
        other = RunningAgent(cluster, LockLog(), name="other")
        for _ in range(10):
            other.step()
    assert len(cluster.kafka.altered) == altered
    assert not [each for each in cluster.messages[said:] if "Node" in type(each).__name__]
    assert any("node 1 is a broker of the Kafka cluster simulated" in each for each in other.said)


@pytest.mark.parametrize("jump_ms", [3_600_000, -1_000], ids=["forward", "back"])
def test_a_clock_that_jumps_declares_nobody_dead_and_no_topic_gone(
    cluster: BridgedCluster, agent: RunningAgent, jump_ms: int
) -> None:
    messages = len(cluster.messages)
    cluster.kafka.fence(1)
    topic = cluster.kafka.topics.pop("u")
    agent.step()
    cluster.now += jump_ms
    agent.step()
    assert len(cluster.messages) == messages
    # What has come back by the next look was never gone.
    cluster.kafka.topics["u"] = topic
    cluster.kafka.unfence(1)
    agent.run()
    assert len(cluster.messages) == messages
    check_rest(cluster)


def test_time_in_which_no_look_succeeds_does_not_count(
    cluster: BridgedCluster, agent: RunningAgent
) -> None:
    messages = len(cluster.messages)
    topic = cluster.kafka.topics.pop("u")
    cluster.kafka.fence(1)
    agent.step()
    cluster.kafka.unreachable = "no broker answers"
    failed = [*step_over_failures(agent, LOOK_GAP_MAX_MS // 1_000)]
    assert failed == ["no broker answers"] * (LOOK_GAP_MAX_MS // 1_000)
    cluster.kafka.unreachable = None
    agent.step()
    cluster.kafka.unfence(1)
    cluster.kafka.topics["u"] = topic
    agent.run()
    assert len(cluster.messages) == messages
    check_rest(cluster)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.DRY_RUN])
def test_who_may_not_act_changes_nothing_on_any_of_these(
    cluster: BridgedCluster, agent: RunningAgent, mode: Mode
) -> None:
    changes: list[Callable[[], object]] = [
        lambda: cluster.kafka.fence(1),
        lambda: cluster.kafka.delete("u"),
        lambda: cluster.kafka.join(7, None),
        lambda: cluster.kafka.extend("t", [(1, 4, 2)]),
    ]
    log = None if mode is Mode.DRY_RUN else LockLog()
    watching = RunningAgent(cluster, log, mode)
    altered = len(cluster.kafka.altered)
    for change in changes:
        change()
        for _ in range(4):
            watching.step()
    assert len(cluster.kafka.altered) == altered
    assert agent.cluster is cluster
