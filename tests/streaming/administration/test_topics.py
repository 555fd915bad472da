"""Topic administration against a real broker: creating, mending, refusing, and not connecting."""

import socket
import threading
import time

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from schemas.topics import BY_NAME, CATALOGUE, full_name
from streaming.administration.topics import (
    AdministrationFailed,
    TopicChange,
    apply_topics,
    count_partitions,
    diff_topics,
)
from streaming.errors import BrokerUnreachable, SettingsInvalid


@pytest.fixture
def client(broker):
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield admin
    admin.close()


def changed(changes):
    """Topics that are not as they should be, by short form of what is done about it."""
    return [(change.topic, change.action) for change in changes if change.action != "ok"]


def settings(client, name):
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    entries = client.describe_configs([resource], config_filter="modified")["topic"][name]
    return {key: entry["value"] for key, entry in entries.items()}


def set_config(client, name, wanted):
    """Change settings as an operator would, and wait until the broker shows them."""
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, dict(wanted))])
    deadline = time.monotonic() + 10
    while not settings(client, name).items() >= wanted.items():
        assert time.monotonic() < deadline, f"{name} does not show {wanted}"


def test_everything_is_created_as_the_catalogue_says(broker, prefix, client):
    servers = broker.bootstrap_servers
    names = [full_name(topic, prefix) for topic in CATALOGUE]
    assert changed(diff_topics(servers, prefix)) == [(name, "create") for name in names]
    assert count_partitions(servers, prefix) == {}

    assert changed(apply_topics(servers, prefix)) == [(name, "create") for name in names]

    assert count_partitions(servers, prefix) == {t.name: t.partitions for t in CATALOGUE}
    for topic, name in zip(CATALOGUE, names, strict=True):
        assert settings(client, name).items() >= topic.configs.items()


def test_a_second_apply_finds_nothing_to_do(broker, prefix):
    servers = broker.bootstrap_servers
    apply_topics(servers, prefix, 1)
    names = [full_name(topic, prefix) for topic in CATALOGUE]
    assert apply_topics(servers, prefix, 1) == [TopicChange(name, "ok", "") for name in names]
    assert diff_topics(servers, prefix) == [TopicChange(name, "ok", "") for name in names]


def test_settings_that_differ_are_named_and_mended(broker, prefix, client):
    servers = broker.bootstrap_servers
    apply_topics(servers, prefix)
    nodes = full_name("nodes.v1", prefix)
    set_config(
        client, nodes, {"message.timestamp.type": "CreateTime", "max.message.bytes": "2000000"}
    )

    wanted = BY_NAME["nodes.v1"].configs["max.message.bytes"]
    expected = TopicChange(
        nodes,
        "configure",
        f"max.message.bytes: 2000000 -> {wanted}, "
        "message.timestamp.type: CreateTime -> LogAppendTime",
    )
    assert [c for c in diff_topics(servers, prefix) if c.action != "ok"] == [expected]
    assert [c for c in apply_topics(servers, prefix) if c.action != "ok"] == [expected]
    assert changed(diff_topics(servers, prefix)) == []


def test_a_setting_of_the_operators_own_is_left_alone(broker, prefix, client):
    servers = broker.bootstrap_servers
    apply_topics(servers, prefix)
    journal = full_name("journal.v1", prefix)
    set_config(client, journal, {"retention.bytes": "1073741824", "retention.ms": "1"})
    apply_topics(servers, prefix)
    mended = settings(client, journal)
    assert mended["retention.bytes"] == "1073741824"
    assert mended["retention.ms"] == BY_NAME["journal.v1"].configs["retention.ms"]


def test_partitions_of_a_log_are_raised_and_never_lowered(broker, prefix):
    servers = broker.bootstrap_servers
    apply_topics(servers, prefix, partitions={"nodes.v1": 2, "acks.v1": 3})
    nodes, acks = full_name("nodes.v1", prefix), full_name("acks.v1", prefix)

    changes = apply_topics(servers, prefix, partitions={"nodes.v1": 4, "acks.v1": 1})
    assert changed(changes) == [(nodes, "partitions"), (acks, "refused")]
    assert TopicChange(nodes, "partitions", "2 -> 4") in changes

    counts = count_partitions(servers, prefix)
    assert (counts["nodes.v1"], counts["acks.v1"]) == (4, 3)


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_partitions_of_a_compacted_topic_are_never_changed(broker, prefix, before, after):
    servers = broker.bootstrap_servers
    apply_topics(servers, prefix, partitions={"moves.v1": before})
    moves = full_name("moves.v1", prefix)

    (refused,) = [
        change
        for change in apply_topics(servers, prefix, partitions={"moves.v1": after})
        if change.action != "ok"
    ]
    assert (refused.topic, refused.action) == (moves, "refused")
    assert f"partitions {before} -> {after}" in refused.detail
    assert count_partitions(servers, prefix)["moves.v1"] == before


def test_another_replication_factor_is_reported(broker, prefix):
    servers = broker.bootstrap_servers
    apply_topics(servers, prefix, 1)
    changes = diff_topics(servers, prefix, 3)
    refused = [change for change in changes if change.action == "refused"]
    assert len(refused) == len(CATALOGUE)
    assert "replication factor 1 -> 3" in refused[0].detail
    # Two copies in sync are wanted where there are to be three.
    assert all("min.insync.replicas: 1 -> 2" in c.detail for c in changes if c not in refused)


def test_the_brokers_refusal_is_passed_on(broker, prefix):
    with pytest.raises(AdministrationFailed, match=r"nodes\.v1 cannot be created: .*only 1 broker"):
        apply_topics(broker.bootstrap_servers, prefix, 3)


def test_two_at_once_agree(broker, prefix):
    servers = broker.bootstrap_servers
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(apply_topics(servers, prefix)))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert changed(diff_topics(servers, prefix)) == []


def test_an_unknown_topic_in_the_overrides_is_named(prefix):
    with pytest.raises(SettingsInvalid, match=r"node\.v1; known are nodes\.v1"):
        apply_topics("127.0.0.1:1", prefix, partitions={"node.v1": 2})


@pytest.mark.parametrize("servers", ["127.0.0.1:{port}", "no-such-host.invalid:9092"])
def test_no_broker_is_said_at_once(servers):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = servers.format(port=unused.getsockname()[1])
        with pytest.raises(BrokerUnreachable, match="no broker answers at") as caught:
            diff_topics(address)
    assert address in str(caught.value)


def test_the_second_address_is_tried(broker, prefix):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{unused.getsockname()[1]},{broker.bootstrap_servers}"
        assert count_partitions(servers, prefix) == {}


def test_something_else_that_listens_is_no_broker(monkeypatch):
    monkeypatch.setattr("streaming.administration.topics.CONNECT_TIMEOUT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(BrokerUnreachable, match="no broker answers at"):
            diff_topics(address)
