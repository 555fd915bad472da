"""A look at a cluster: whole, never a union for a factor, no call more than is due."""

from collections import Counter
from typing import Any

import pytest

from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge.admin_client import LEADER_ENTRIES, LEADER_RATE, Reassignment
from streaming.kafka_bridge.observer import CONFIGS_INTERVAL_MS, SIZES_INTERVAL_MS, Observer
from tests.builders.kafka_cluster import SimulatedKafka

RACKS = {1: "a", 2: "b", 3: "c", 4: "a"}


class CountingKafka(SimulatedKafka):
    """Counts the calls by name; `between` is done after topics were described."""

    def __init__(self) -> None:
        super().__init__(RACKS)
        self.calls: Counter[str] = Counter()
        self.between: dict[str, Any] = {}

    def __getattribute__(self, name: str) -> Any:
        if name.startswith(("describe_", "list_", "alter_")):
            self.calls[name] += 1
            self.between.pop(name, lambda: None)()
        return super().__getattribute__(name)


@pytest.fixture
def kafka() -> CountingKafka:
    kafka = CountingKafka()
    kafka.create("t", [(1, 2, 3), (2, 3, 1)], size=7, min_insync_replicas="2")
    return kafka


def test_a_look_tells_brokers_topics_quorum_and_sizes(kafka: CountingKafka) -> None:
    kafka.fence(3)
    found = Observer(kafka).look(5)
    assert (found.at, found.sized_at, found.live()) == (5, 5, frozenset((1, 2, 4)))
    assert (found.topics["t"].min_in_sync, found.topics["t"].uid) == (2, "uid-1")
    assert found.topics["t"].partitions[0].is_under_replicated
    assert found.sizes == {("t", 0): {1: 7, 2: 7}, ("t", 1): {1: 7, 2: 7}}


def test_a_running_reassignment_does_not_raise_the_replication_factor(kafka: CountingKafka) -> None:
    kafka.alter_reassignments({("t", 0): (4, 2, 3)})
    moved = Observer(kafka).look(0).topics["t"].partitions[0]
    assert (moved.listed, moved.replicas, moved.target) == ((4, 2, 3, 1), (2, 3, 1), (4, 2, 3))


@pytest.mark.parametrize("when", ["describe_topics", "describe_cluster"])
def test_neither_does_one_that_starts_while_the_cluster_is_looked_at(
    kafka: CountingKafka, when: str
) -> None:
    kafka.between[when] = lambda: kafka.alter_reassignments({("t", 0): (4, 2, 3)})
    assert len(Observer(kafka).look(0).topics["t"].partitions[0].replicas) == 3


@pytest.mark.parametrize("when", ["describe_topics", "describe_cluster"])
def test_nor_one_that_ends_meanwhile(kafka: CountingKafka, when: str) -> None:
    kafka.alter_reassignments({("t", 0): (4, 2, 3)})
    kafka.between[when] = kafka.copy
    found = Observer(kafka).look(0).topics["t"].partitions[0]
    assert len(found.replicas) == 3
    assert {*found.target} == {2, 3, 4}


def test_a_reassignment_that_the_list_does_not_show_yet_is_left_for_the_next_look(
    kafka: CountingKafka,
) -> None:
    observer = Observer(kafka)
    kafka.list_reassignments = lambda: {("t", 0): Reassignment((4, 2, 3, 1), (4,), (1,))}  # type: ignore[method-assign]
    assert not observer.look(0).topics["t"].partitions[0].is_reassigned


def test_sizes_and_configurations_are_read_as_seldom_as_they_change(kafka: CountingKafka) -> None:
    observer = Observer(kafka)
    observer.look(0, throttles=False)
    kafka.calls.clear()
    observer.look(1_000, throttles=False)
    assert "describe_logs" not in kafka.calls
    observer.look(CONFIGS_INTERVAL_MS, throttles=False)
    observer.look(SIZES_INTERVAL_MS, throttles=False)
    assert kafka.calls["describe_logs"] == 1


def test_a_look_that_need_not_be_fresh_asks_four_times_and_keeps_the_throttles(
    kafka: CountingKafka,
) -> None:
    kafka.alter_broker_rates({1: {LEADER_RATE: 100}})
    observer = Observer(kafka)
    seen = observer.look(0)
    kafka.alter_broker_rates({2: {LEADER_RATE: 200}})
    kafka.calls.clear()
    assert observer.look(1_000, fresh=False).throttles == seen.throttles
    rest = {"list_reassignments": 2, "describe_topics": 1, "describe_cluster": 1}
    assert {name: n for name, n in kafka.calls.items() if name != "describe_topic_configs"} == rest
    assert observer.look(CONFIGS_INTERVAL_MS, fresh=False).throttles.leader_rates == {
        1: 100,
        2: 200,
    }
    assert observer.look(CONFIGS_INTERVAL_MS + 1).throttles.leader_rates == {1: 100, 2: 200}


def test_of_a_topic_that_is_made_anew_the_configuration_is_read_at_once(
    kafka: CountingKafka,
) -> None:
    observer = Observer(kafka)
    assert observer.look(0, throttles=False).topics["t"].min_in_sync == 2
    kafka.delete("t")
    kafka.create("t", [(1,)])
    assert observer.look(1, throttles=False).topics["t"].min_in_sync == 1


def test_throttles_are_read_of_live_brokers_and_all_topics(kafka: CountingKafka) -> None:
    kafka.alter_broker_rates({1: {LEADER_RATE: 100}})
    kafka.alter_topic_entries({"t": {LEADER_ENTRIES: (["0:1", "1:2"], [])}})
    found = Observer(kafka).look(0).throttles
    assert found.leader_rates == {1: 100}
    assert found.leader_entries == {"t": {"0:1", "1:2"}}
    assert not found.follower_rates
    assert not found.follower_entries


def test_a_look_of_which_a_call_fails_is_none(kafka: CountingKafka) -> None:
    observer = Observer(kafka)

    def fail() -> None:
        kafka.unreachable = "controller changes"

    kafka.between["describe_cluster"] = fail
    with pytest.raises(BrokerUnreachable, match="controller changes"):
        observer.look(0)


def test_a_broker_that_dies_keeps_the_rates_that_it_has_told(
    kafka: CountingKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.alter_broker_rates({1: {LEADER_RATE: 5}})
    observer, describe = Observer(kafka), kafka.describe_broker_rates
    monkeypatch.setattr(kafka, "describe_broker_rates", lambda found: describe({*found} - {1}))
    with pytest.raises(BrokerUnreachable, match=r"brokers \[1\] did not tell their throttle rates"):
        observer.look(0)
    monkeypatch.setattr(kafka, "describe_broker_rates", describe)
    assert observer.look(1).throttles.leader_rates == {1: 5}
    monkeypatch.setattr(kafka, "describe_broker_rates", lambda found: describe({*found} - {1}))
    assert observer.look(2).throttles.leader_rates == {1: 5}
