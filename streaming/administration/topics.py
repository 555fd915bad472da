"""Compares a cluster's topics with the catalogue and makes them agree.

`placer topics diff` and `apply` call it, the embedded broker's users and the tests create their
topics with it, and a start asks it for partition counts. Nothing is ever deleted or shrunk.
"""

from __future__ import annotations

import logging
import socket
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.net.inet import KafkaNetSocket

from placement.wording import format_count
from schemas.topics import BY_NAME, CATALOGUE, DEFAULT_PREFIX, Topic, configs_for, full_name
from streaming.brokers import connect
from streaming.errors import BrokerUnreachable, SettingsInvalid, StreamingError
from streaming.settings import admin_client_options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# As the clients for records: a broker that is only slow answers within a second or two.
CONNECT_TIMEOUT_SECONDS = 10.0
# Creating eleven topics takes the embedded broker half a second; a loaded cluster may need more.
SETTLE_TIMEOUT_SECONDS = 30.0
# Between two looks at the cluster while a change spreads to the brokers.
LOOK_INTERVAL_SECONDS = 0.05

# The broker's word for "as default.replication.factor says".
_BROKERS_DEFAULT = -1

# kafka-python logs what it also raises; without a handler Python would print that to the terminal.
logging.getLogger("kafka").addHandler(logging.NullHandler())

Action = Literal["create", "configure", "partitions", "refused", "ok"]


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Describes the change that a topic (full name) needs or got. `refused` is a difference that
    `apply_topics` does not correct; `detail` says why, or names settings and counts."""

    topic: str
    action: Action
    detail: str


class AdministrationFailed(StreamingError):
    """The brokers answered, and refused a request of ours."""


class _AdminClient(KafkaAdminClient):
    """Closes itself when it cannot connect: kafka-python 3.0 leaves a thread and sockets behind."""

    def __init__(self, **configs: Any) -> None:
        try:
            super().__init__(**configs)
        except KafkaError:
            self._closed = False  # `close` takes an object that never connected for a closed one
            self.close()
            raise

    def ask_only(self, broker: int) -> None:
        """Ask this broker whatever any can answer, instead of the one that is least loaded."""
        self._manager.least_loaded_node = lambda: broker


_connect_socket = KafkaNetSocket.sock_connect


async def _connect_or_close(
    self: KafkaNetSocket, net: Any, sock: Any, *at: Any, **until: Any
) -> Any:
    """Connect a socket, or close it: kafka-python 3.0 drops one that was refused as it is."""
    try:
        return await _connect_socket(self, net, sock, *at, **until)
    except BaseException:
        sock.close()
        raise


KafkaNetSocket.sock_connect = _connect_or_close


@dataclass(frozen=True, slots=True)
class _WantedTopic:
    """A topic as it should be. `replication_factor` None leaves it to the broker."""

    topic: Topic
    name: str
    partitions: int
    replication_factor: int | None
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class _ExistingTopic:
    """A topic as it is."""

    partitions: int
    replication_factor: int
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class _PlannedChange:
    """A change together with what carrying it out needs."""

    change: TopicChange
    wanted: _WantedTopic
    configs: dict[str, str]


def diff_topics(
    bootstrap: str,
    prefix: str = DEFAULT_PREFIX,
    replication_factor: int | None = None,
    *,
    partitions: Mapping[str, int] | None = None,
    options: Mapping[str, str] | None = None,
) -> list[TopicChange]:
    """List the changes that `apply_topics` would make, in the catalogue's order; change nothing.

    `partitions` overrides the catalogue's counts by short name (`nodes.v1`). `options` are client
    settings in librdkafka's names, secrets resolved. Raises BrokerUnreachable,
    AdministrationFailed, SettingsInvalid.
    """
    wanted = _wanted_topics(prefix, replication_factor, partitions)
    with connect_admin(bootstrap, options) as admin:
        return [step.change for step in _plan(admin, wanted)]


def apply_topics(
    bootstrap: str,
    prefix: str = DEFAULT_PREFIX,
    replication_factor: int | None = None,
    *,
    partitions: Mapping[str, int] | None = None,
    options: Mapping[str, str] | None = None,
) -> list[TopicChange]:
    """Create missing topics, alter settings that differ, raise partitions of logs; say what was
    done.

    Returns when the brokers show it all. A second call finds only `ok` and `refused`. The
    partitions of a compacted topic are never changed: its keys would live on in two partitions.
    Arguments and errors as in `diff_topics`.
    """
    wanted = _wanted_topics(prefix, replication_factor, partitions)
    with connect_admin(bootstrap, options) as admin:
        steps = _plan(admin, wanted)
        _create(admin, [step.wanted for step in steps if step.change.action == "create"])
        _raise_partitions(admin, [s.wanted for s in steps if s.change.action == "partitions"])
        _configure(admin, [step for step in steps if step.change.action == "configure"])
        _await_change(admin, wanted)
        return [step.change for step in steps]


def count_partitions(
    bootstrap: str,
    prefix: str = DEFAULT_PREFIX,
    *,
    options: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Partitions by short name (`nodes.v1`) of the catalogue's topics; missing ones are left out.

    Raises as `diff_topics`.
    """
    names = {full_name(topic, prefix): topic.name for topic in CATALOGUE}
    with connect_admin(bootstrap, options) as admin:
        present = _find_existing(admin, names)
        return {names[name]: len(topic["partitions"]) for name, topic in present.items()}


def _wanted_topics(
    prefix: str, replication_factor: int | None, partitions: Mapping[str, int] | None
) -> list[_WantedTopic]:
    counts = partitions or {}
    unknown = sorted(counts.keys() - BY_NAME.keys())
    if unknown:
        known = ", ".join(BY_NAME)
        raise SettingsInvalid([f"no topic is called {', '.join(unknown)}; known are {known}"])
    return [
        _WantedTopic(
            topic,
            full_name(topic, prefix),
            counts.get(topic.name, topic.partitions),
            replication_factor,
            configs_for(topic, replication_factor),
        )
        for topic in CATALOGUE
    ]


def _plan(admin: KafkaAdminClient, wanted: Sequence[_WantedTopic]) -> list[_PlannedChange]:
    found = _describe(admin, wanted)
    return [step for each in wanted for step in _steps(each, found.get(each.name))]


def _steps(wanted: _WantedTopic, found: _ExistingTopic | None) -> list[_PlannedChange]:
    """The differences of one topic, or one step `ok`."""
    if found is None:
        detail = f"{format_count(wanted.partitions, 'partition')}, {wanted.topic.cleanup}"
        return [_PlannedChange(TopicChange(wanted.name, "create", detail), wanted, wanted.configs)]
    steps = []
    for action, detail in _differences(wanted, found):
        steps.append(_PlannedChange(TopicChange(wanted.name, action, detail), wanted, {}))
    differing = {k: v for k, v in wanted.configs.items() if found.configs.get(k) != v}
    if differing:
        detail = ", ".join(f"{k}: {found.configs.get(k)} -> {v}" for k, v in differing.items())
        steps.append(
            _PlannedChange(TopicChange(wanted.name, "configure", detail), wanted, differing)
        )
    return steps or [_PlannedChange(TopicChange(wanted.name, "ok", ""), wanted, {})]


def _differences(wanted: _WantedTopic, found: _ExistingTopic) -> Iterator[tuple[Action, str]]:
    counts = f"{found.partitions} -> {wanted.partitions}"
    if wanted.topic.cleanup == "compact" and found.partitions != wanted.partitions:
        why = "records of one key would be in two partitions of a compacted topic"
        yield "refused", f"partitions {counts}: {why}; keep the count, or use another prefix"
    elif found.partitions < wanted.partitions:
        yield "partitions", counts
    elif found.partitions > wanted.partitions:
        yield "refused", f"partitions {counts}: Kafka cannot lower the number of partitions"
    if wanted.replication_factor not in (None, found.replication_factor):
        counts = f"{found.replication_factor} -> {wanted.replication_factor}"
        yield "refused", f"replication factor {counts}: reassign the topic's partitions"


def _describe(admin: KafkaAdminClient, wanted: Sequence[_WantedTopic]) -> dict[str, _ExistingTopic]:
    present = _find_existing(admin, [each.name for each in wanted])
    if not present:
        return {}
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, each.name, list(each.configs))
        for each in wanted
        if each.name in present
    ]
    settings = admin.describe_configs(resources, config_filter="all")["topic"]
    return {
        name: _ExistingTopic(
            partitions=len(topic["partitions"]),
            replication_factor=min(len(p["replica_nodes"]) for p in topic["partitions"]),
            configs={key: entry["value"] for key, entry in settings[name].items()},
        )
        for name, topic in present.items()
    }


def _find_existing(admin: KafkaAdminClient, names: Any) -> dict[str, Any]:
    """The topics that exist, by name, as kafka-python describes them."""
    present = {}
    for topic in admin.describe_topics(list(names)):
        error = for_code(topic["error_code"])
        if error is NoError:
            present[topic["name"]] = topic
        elif error is not UnknownTopicOrPartitionError:
            raise AdministrationFailed(f"topic {topic['name']} cannot be described: {error()}")
    return present


def _create(admin: KafkaAdminClient, wanted: Sequence[_WantedTopic]) -> None:
    if not wanted:
        return
    requests = {
        each.name: {
            "num_partitions": each.partitions,
            "replication_factor": each.replication_factor or _BROKERS_DEFAULT,
            "configs": each.configs,
        }
        for each in wanted
    }
    answer = admin.create_topics(requests, raise_errors=False)
    for topic in answer["topics"]:
        # Another process may apply the same catalogue at the same time.
        if for_code(topic["error_code"]) not in (NoError, TopicAlreadyExistsError):
            raise _refusal(topic["name"], "created", topic)
    admin.wait_for_topics(list(requests), timeout_ms=int(SETTLE_TIMEOUT_SECONDS * 1000))


def _raise_partitions(admin: KafkaAdminClient, wanted: Sequence[_WantedTopic]) -> None:
    if not wanted:
        return
    counts = {each.name: each.partitions for each in wanted}
    answer = admin.create_partitions(counts, raise_errors=False)
    for topic in answer.to_dict()["results"]:
        if for_code(topic["error_code"]) is not NoError:
            raise _refusal(topic["name"], "given more partitions", topic)


def _configure(admin: KafkaAdminClient, steps: Sequence[_PlannedChange]) -> None:
    if not steps:
        return
    resources = [
        ConfigResource(ConfigResourceType.TOPIC, step.wanted.name, dict(step.configs))
        for step in steps
    ]
    for name, result in admin.alter_configs(resources)["topic"].items():
        if result != "OK":
            raise AdministrationFailed(f"topic {name} cannot be configured: {result}")


def _await_change(admin: KafkaAdminClient, wanted: Sequence[_WantedTopic]) -> None:
    """Wait until the broker shows what was changed: it answers a change before it has spread."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_SECONDS
    while True:
        pending = [
            step.change.topic
            for step in _plan(admin, wanted)
            if step.change.action not in ("ok", "refused")
        ]
        if not pending:
            return
        if time.monotonic() > deadline:
            raise AdministrationFailed(
                "the brokers accepted the changes but do not show them after "
                f"{SETTLE_TIMEOUT_SECONDS:.0f} s: {', '.join(pending)}"
            )
        time.sleep(LOOK_INTERVAL_SECONDS)


def _refusal(name: str, what: str, answer: Mapping[str, Any]) -> AdministrationFailed:
    reason = answer["error_message"] or str(for_code(answer["error_code"])())
    return AdministrationFailed(f"topic {name} cannot be {what}: {reason}")


@contextmanager
def connect_admin(
    bootstrap: str, options: Mapping[str, str] | None, broker: int | None = None
) -> Iterator[KafkaAdminClient]:
    """kafka-python's client for administration, its errors turned into ours.

    `broker` answers what any of them can; None leaves it to the client.
    """
    translated = admin_client_options(options or {})
    address = _first_reachable(bootstrap)
    if translated:
        # kafka-python takes a refused password for a lost connection and tries it again and again.
        connect(AdminClient, bootstrap, {}, options)
    try:
        admin = _AdminClient(
            bootstrap_servers=address,
            bootstrap_timeout_ms=int(CONNECT_TIMEOUT_SECONDS * 1000),
            **translated,
        )
    except KafkaError as error:
        raise BrokerUnreachable(f"no broker answers at {bootstrap}: {error}") from error
    if broker is not None:
        admin.ask_only(broker)
    try:
        yield admin
    except (KafkaTimeoutError, KafkaConnectionError, NodeNotReadyError) as error:
        raise BrokerUnreachable(f"the brokers at {bootstrap} stopped answering: {error}") from error
    except KafkaError as error:
        raise AdministrationFailed(
            f"the brokers at {bootstrap} refuse the request: {error}"
        ) from error
    finally:
        admin.close()


def _first_reachable(bootstrap: str) -> str:
    """The first address at which something listens.

    kafka-python would go on trying refused addresses until its timeout, and leaves a socket
    unclosed each time; the other brokers it learns from this one.
    """
    faults = []
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_SECONDS):
                return address.strip()
        except (OSError, ValueError) as error:
            faults.append(f"{address}: {error}")
    raise BrokerUnreachable(f"no broker answers at {bootstrap} ({'; '.join(faults)})")
