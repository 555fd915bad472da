"""The agent: what each mode may do, failures and crashes at any point, two agents, a stop."""

import re
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from streaming.brokers import LEASE_SECONDS, CallHangs, LockLost
from streaming.errors import AccessRefused, BrokerUnreachable
from streaming.kafka_bridge import agent as agent_module
from streaming.kafka_bridge.agent import BridgeRefused, Mode
from tests.builders.bridge_agents import RunningAgent
from tests.builders.bridged_cluster import BridgedCluster
from tests.builders.lock_stores import LockLog

RACKS = {1: "a", 2: "b", 3: "c", 4: "a", 5: "b", 6: "c"}
CHANGES = ("alter_reassignments", "alter_topic_entries", "alter_broker_rates", "elect_preferred")
LOOKS = ("describe_cluster", "describe_topics", "list_reassignments", "describe_topic_configs")


@pytest.fixture
def cluster() -> BridgedCluster:
    """Six brokers with two topics that the reconciler does not know yet."""
    made = BridgedCluster(RACKS)
    made.kafka.create("t", [(1, 2, 3), (2, 3, 1), (3, 1, 2), (4, 5, 6)], size=10)
    made.kafka.create("u", [(1, 5, 3), (2, 3, 4)], size=10, min_insync_replicas="2")
    return made


def check_rest(cluster: BridgedCluster) -> None:
    cluster.catch_up()
    assert cluster.assigned() == cluster.lists()
    assert len(cluster.assigned()) == 6
    assert not cluster.throttles()
    assert not cluster.open_moves
    assert not cluster.letters()


def fail_calls(
    monkeypatch: pytest.MonkeyPatch,
    cluster: BridgedCluster,
    names: tuple[str, ...],
    fails: Callable[[], Exception | None],
) -> None:
    for name in names:
        call = getattr(cluster.kafka, name)

        def run(*values: Any, call: Any = call, **options: Any) -> Any:
            error = fails()
            if error is not None:
                raise error
            return call(*values, **options)

        monkeypatch.setattr(cluster.kafka, name, run)


def step_until_lost(agent: RunningAgent) -> None:
    """Go round until the agent learns that it was replaced."""

    def go_on() -> None:
        while agent.step():
            pass

    with pytest.raises(LockLost):
        go_on()


def test_throttles_are_read_anew_before_something_is_done(
    cluster: BridgedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = RunningAgent(cluster, LockLog())
    agent.run()
    read: list[str] = []
    fail_calls(monkeypatch, cluster, ("describe_broker_rates",), lambda: read.append("rates"))
    agent.step()
    assert not read
    cluster.kafka.fence(1)
    agent.run()
    assert read
    check_rest(cluster)


def test_acting_heals_a_dead_broker_and_says_each_action(cluster: BridgedCluster) -> None:
    agent = RunningAgent(cluster, LockLog())
    agent.run()
    check_rest(cluster)
    cluster.kafka.fence(1)
    agent.run()
    check_rest(cluster)
    assert not any(1 in replicas for replicas in cluster.lists().values())
    said = "\n".join(agent.said)
    assert "said NodeLivenessReported: broker 1 is down" in said
    assert re.search(r"^reassign \d partitions?: t-0 to [456,23]+, ", said, re.MULTILINE)
    assert re.search(r"^set the throttle rates of \d brokers: ", said, re.MULTILINE)
    assert re.search(r"^take back the throttled replicas of \d topics?: t", said, re.MULTILINE)
    assert "said MoveCompleted: move" in said


def test_observing_tells_the_reconciler_and_changes_nothing_in_kafka(
    cluster: BridgedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_calls(monkeypatch, cluster, CHANGES, lambda: AssertionError("a change"))
    agent = RunningAgent(cluster, LockLog(), Mode.OBSERVE)
    for _ in range(5):
        agent.step()
    assert cluster.assigned() == cluster.lists()
    cluster.kafka.fence(1)
    for _ in range(8):
        agent.step()
    assert cluster.open_moves
    would = [each for each in agent.said if each.startswith("would ")]
    assert any("would reassign" in each for each in would)
    assert not any(each.startswith("would say") for each in would)


def test_a_dry_run_writes_nothing_and_says_everything_once(
    cluster: BridgedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunningAgent(cluster).run()
    cluster.kafka.fence(1)
    cluster.kafka.create("new", [(2, 3)])
    fail_calls(monkeypatch, cluster, CHANGES, lambda: AssertionError("a change"))
    sent = len(cluster.messages)
    agent = RunningAgent(cluster, None, Mode.DRY_RUN)
    for _ in range(6):
        agent.step()
    assert len(cluster.messages) == sent
    assert [each for each in agent.said if "broker 1" in each] == [
        "would say NodeLivenessReported: broker 1 is down"
    ]
    assert agent.said.count("would say StreamCreated: new") == 1


def test_a_dry_run_shows_the_moves_that_wait(cluster: BridgedCluster) -> None:
    RunningAgent(cluster).run()
    cluster.kafka.fence(1)
    observing = RunningAgent(cluster, LockLog(), Mode.OBSERVE)
    while not cluster.open_moves:
        observing.step()
    agent = RunningAgent(cluster, None, Mode.DRY_RUN)
    agent.step()
    assert any(each.startswith("would reassign") for each in agent.said)
    assert not cluster.kafka.altered


@pytest.mark.parametrize("call", [*CHANGES, *LOOKS, "send", "open", "follow"])
def test_a_failure_anywhere_delays_and_no_more(
    cluster: BridgedCluster, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    agent = RunningAgent(cluster, LockLog())
    agent.run()
    cluster.kafka.fence(4)
    cluster.kafka.unfence(4)
    cluster.kafka.fence(1)
    errors: list[Exception | None] = [CallHangs(f"the call to {call} has not returned"), None]
    many = iter(errors * 6)
    told = []
    fail_calls(
        monkeypatch,
        cluster,
        (call,) if hasattr(cluster.kafka, call) else (),
        lambda: next(many, None),
    )
    for number in range(24):
        # A reader that has failed is opened anew.
        agent.topics.fails = (call, "", "follow" if call == "open" else "")[number % 3]
        try:
            agent.step()
        except BrokerUnreachable as error:
            told.append(str(error))
        cluster.kafka.copy(1)
    agent.topics.fails = ""
    agent.run()
    check_rest(cluster)
    assert any(call in each for each in (*told, *agent.said))


@pytest.mark.parametrize("dies_at", [1, 2, 3, 5, 8])
def test_the_agent_may_be_killed_at_any_call(
    cluster: BridgedCluster, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    log = LockLog()
    RunningAgent(cluster, log).run()
    cluster.kafka.fence(1)
    calls = 0

    class Killed(Exception):
        """kill -9."""

    def die() -> Exception | None:
        nonlocal calls
        calls += 1
        return Killed() if calls % 10 == dies_at % 10 else None

    with monkeypatch.context() as patch:
        fail_calls(patch, cluster, (*CHANGES, "describe_cluster"), die)
        for _ in range(12):
            # Whoever dies has not let go of the lock.
            log.holder = None
            agent = RunningAgent(cluster, log)
            for _ in range(6):
                try:
                    agent.step()
                except Killed:
                    break
                cluster.kafka.copy(1)
    log.holder = None
    RunningAgent(cluster, log).run()
    check_rest(cluster)


def test_of_two_agents_one_works_and_the_other_says_which(cluster: BridgedCluster) -> None:
    log = LockLog()
    first, second = RunningAgent(cluster, log, name="one"), RunningAgent(cluster, log, name="two")
    first.run()
    for _ in range(3):
        first.step()
        assert second.step() is None
    (said,) = second.said
    assert said.startswith("one holds the lock of the bridge; waiting until it lets go")
    cluster.kafka.fence(1)
    while not cluster.kafka.altered:
        first.step()
    for _ in range(int(LEASE_SECONDS) + 1):
        second.step()
    assert "one has let go: this agent takes over" in second.said
    with pytest.raises(LockLost):
        first.step()
    second.run()
    check_rest(cluster)
    assert first.step() is None


def test_an_agent_that_was_replaced_changes_nothing(cluster: BridgedCluster) -> None:
    log = LockLog()
    first, second = RunningAgent(cluster, log, name="one"), RunningAgent(cluster, log, name="two")
    first.run()
    cluster.kafka.fence(1)
    while not cluster.open_moves:
        first.step()
    log.holder = None
    assert second.agent.look_and_act() is not None
    altered = len(cluster.kafka.altered)
    cluster.kafka.fence(2)
    step_until_lost(first)
    assert len(cluster.kafka.altered) == altered


def test_what_forbids_to_begin_is_told(cluster: BridgedCluster) -> None:
    cluster.kafka.obstacles = ["the brokers are older than Kafka 4.0"]
    with pytest.raises(BridgeRefused, match=r"older than Kafka 4\.0"):
        RunningAgent(cluster, LockLog()).agent.check()
    RunningAgent(cluster, LockLog(), Mode.OBSERVE).agent.check()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop does not wait."""
    for name in ("LOOK_SECONDS", "LOOK_SECONDS_MIN", "PAUSE_SECONDS_MIN", "PAUSE_SECONDS_MAX"):
        monkeypatch.setattr(agent_module, name, 0.0)


@pytest.mark.usefixtures("hurried")
def test_the_loop_goes_on_over_failures_and_ends_with_the_lock_free(
    cluster: BridgedCluster,
) -> None:
    log, stop = LockLog(), Event()
    running = RunningAgent(cluster, log)
    cluster.kafka.unreachable = "no broker answers"

    def hear(sentence: str) -> None:
        running.said.append(sentence)
        if sentence.count("no broker answers") and len(running.said) == 3:
            cluster.kafka.unreachable = None
        if sentence.startswith("it works again"):
            stop.set()

    running.agent._tell = hear
    running.agent.run(stop)
    failed = "no broker answers; nothing is decided, next try in 0 s"
    assert [each for each in running.said if "said" not in each] == [failed] * 3 + [
        "it works again"
    ]
    assert log.holder is not None
    assert not log.holder.held


@pytest.mark.usefixtures("hurried")
def test_a_right_that_is_refused_ends_the_first_round_alone(
    cluster: BridgedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[Exception] = [AccessRefused("not allowed")]
    fail_calls(monkeypatch, cluster, ("describe_topics",), lambda: refused[0] if refused else None)
    running = RunningAgent(cluster, LockLog())
    with pytest.raises(AccessRefused):
        running.agent.run(Event())
    error = refused.pop()
    running.step()
    refused.append(error)
    stop = Event()
    running.agent._tell = lambda _: stop.set()
    running.agent.run(stop)
