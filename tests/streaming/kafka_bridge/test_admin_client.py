"""The admin client: what forbids to drive a cluster, calls that hang, errors of Kafka as ours."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
from kafka.errors import ClusterAuthorizationFailedError, NodeNotReadyError
from kafka.protocol.api_key import ApiKey

from streaming.brokers import CallHangs
from streaming.errors import AccessRefused, BrokerUnreachable
from streaming.kafka_bridge import admin_client
from streaming.kafka_bridge.admin_client import FOLLOWER_RATE, KafkaAdmin


class Client:
    """Answers as kafka-python's admin client does; `fail` is called before each answer."""

    def __init__(self) -> None:
        self.versions: dict[ApiKey, tuple[int, int]] = {ApiKey.DescribeCluster: (0, 2)}
        self.allowed: list[str] | None = ["DESCRIBE", "ALTER", "ALTER_CONFIGS"]
        self.fail: Callable[[], None] = lambda: None
        self.asked: list[str] = []

    def api_versions(self) -> Any:
        return self._answer("api_versions", self.versions)

    def describe_cluster(self) -> Any:
        found = {"cluster_id": "c", "controller_id": 1, "brokers": []}
        return self._answer("describe_cluster", found | {"authorized_operations": self.allowed})

    def list_partition_reassignments(self) -> Any:
        return self._answer("list_partition_reassignments", {})

    def describe_topics(self, names: list[str]) -> Any:
        codes = {"there": 0, "unknown": 3, "no name": 17, "denied": 29}
        found = [{"name": name, "error_code": codes[name]} for name in names]
        return self._answer("describe_topics", found)

    def alter_configs(self, resources: Any, **_: Any) -> Any:
        names = [each.name for each in resources]
        return self._answer("alter_configs", {"broker": dict.fromkeys(names, "OK")})

    def _answer(self, call: str, answer: Any) -> Any:
        self.asked.append(call)
        self.fail()
        return answer


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def connections() -> list[str]:
    return []


@pytest.fixture
def admin(client: Client, connections: list[str], monkeypatch: pytest.MonkeyPatch) -> KafkaAdmin:
    @contextmanager
    def connect(bootstrap: str, *_: object) -> Iterator[Client]:
        connections.append(bootstrap)
        yield client

    monkeypatch.setattr(admin_client, "connect_admin", connect)
    return KafkaAdmin("kafka:9092")


def raise_(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("versions", "allowed", "alters", "says"),
    [
        ((0, 2), None, True, None),
        ((0, 2), ["DESCRIBE", "ALTER", "ALTER_CONFIGS"], True, None),
        ((0, 2), ["DESCRIBE"], False, None),
        ((0, 1), None, False, "the brokers at kafka:9092 are older than Kafka 4.0"),
        (None, None, False, "the brokers at kafka:9092 are older than Kafka 4.0"),
        ((0, 2), ["DESCRIBE"], True, "lacks the right Alter and Alter Configs on the cluster"),
        ((0, 2), ["DESCRIBE", "ALTER"], True, "lacks the right Alter Configs on the cluster"),
        ((0, 2), ["ALTER", "ALTER_CONFIGS"], False, "lacks the right Describe on the cluster"),
    ],
)
def test_what_forbids_to_drive_a_cluster_is_named(
    client: Client,
    admin: KafkaAdmin,
    versions: tuple[int, int] | None,
    allowed: list[str] | None,
    alters: bool,
    says: str | None,
) -> None:
    client.versions = {} if versions is None else {ApiKey.DescribeCluster: versions}
    client.allowed = allowed
    found = admin.find_obstacles(alters=alters)
    assert (says in found[0]) if says else found == []


def test_a_call_that_hangs_is_left_behind_and_the_next_one_connects_anew(
    client: Client, admin: KafkaAdmin, connections: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "CALL_TIMEOUT_SECONDS", 0.05)
    hangs = Event()
    client.fail = hangs.wait
    with pytest.raises(CallHangs, match="the call to list reassignments has not returned"):
        admin.list_reassignments()
    client.fail = lambda: None
    assert admin.list_reassignments() == {}
    assert connections == ["kafka:9092"] * 2
    hangs.set()


def test_a_call_that_hangs_is_not_waited_for_once_for_each_broker(
    client: Client, admin: KafkaAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_client, "CALL_TIMEOUT_SECONDS", 0.05)
    hangs = Event()
    client.fail = hangs.wait
    with pytest.raises(CallHangs, match="alter configurations"):
        admin.alter_broker_rates({broker: {FOLLOWER_RATE: 5} for broker in range(50)})
    assert client.asked == ["alter_configs"]
    hangs.set()


def test_a_topic_that_may_not_be_described_is_told_from_one_that_is_gone(
    admin: KafkaAdmin, client: Client
) -> None:
    assert admin.find_hidden(["there", "unknown", "no name", "denied"]) == {"denied"}
    assert admin.find_hidden([]) == set()
    assert client.asked == ["describe_topics"]


def test_a_broker_that_dies_does_not_undo_the_answers_of_the_others(
    client: Client, admin: KafkaAdmin
) -> None:
    def fail() -> None:
        if len(client.asked) == 2:
            raise NodeNotReadyError("broker 2")

    client.fail = fail
    found = admin.alter_broker_rates({broker: {FOLLOWER_RATE: 5} for broker in (1, 2, 3)})
    assert [each for each, said in found.items() if said is None] == [1, 3]
    assert "the brokers did not alter configurations" in (found[2] or "")


@pytest.mark.parametrize(
    ("error", "ours", "says"),
    [
        (ClusterAuthorizationFailedError("no"), AccessRefused, "do not allow this user to list"),
        (NodeNotReadyError("gone"), BrokerUnreachable, "the brokers did not list reassignments"),
        (OSError("cut"), BrokerUnreachable, "the brokers did not list reassignments: cut"),
        (KeyError("a bug"), KeyError, "a bug"),
    ],
)
def test_errors_name_what_was_asked(
    client: Client,
    admin: KafkaAdmin,
    connections: list[str],
    error: Exception,
    ours: type[Exception],
    says: str,
) -> None:
    client.fail = raise_(error)
    with pytest.raises(ours, match=says):
        admin.list_reassignments()
    client.fail = lambda: None
    assert admin.list_reassignments() == {}
    assert len(connections) == 2
