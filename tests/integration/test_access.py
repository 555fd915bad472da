"""A broker that asks who is there, with the least rights of each role and no others.

Every role does with them what it is there for; a user without them, and one with a wrong password,
is told so in one line. No secret is seen on the way.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    NewTopic,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from typer.testing import CliRunner, Result

from schemas.access import PROBE_SUFFIX, ROLES, WRITERS, bridge_lock_id, executor_lock_id, grants
from schemas.acks import MoveStopped
from schemas.inputs import NodeLivenessReported, NodeUnregistered, StreamDropped
from schemas.topics import ACKS, CATALOGUE
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader, KafkaLockStore, LeaderLock
from streaming.cli.main import app
from streaming.client import Executor, Replica, ReplicaStore
from streaming.conformance.reconciler import PlayedShard, StandIn
from streaming.errors import AccessRefused, BrokerUnreachable
from streaming.kafka_bridge import KafkaAdmin, KafkaTopics, Observer
from streaming.kafka_bridge.admin_client import LEADER_ENTRIES, LEADER_RATE
from streaming.runtime import EmbeddedBroker
from streaming.settings import admin_client_options
from tests.systems.application import PATIENT, Application
from tests.systems.topics import Inputs, Outputs
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PREFIX = "guarded."
# Where a stand-in issues moves, for executors: state that no reconciler goes on from.
MOVES_PREFIX = "moves."
RESOURCES = {
    "topic": ResourceType.TOPIC,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
}


LOCKS = executor_lock_id(MOVES_PREFIX, "")
# Users that lack one right of a role: the resource that it is on, and what they may not do there.
SHORT_OF = {
    "unwritten": (PREFIX, "reconciler", "topic", f"{PREFIX}decisions.v1", "WRITE"),
    "unfenced": (PREFIX, "reconciler", "transactional-id", f"{PREFIX}main{PROBE_SUFFIX}", "WRITE"),
    "unlocked": (MOVES_PREFIX, "executors", "transactional-id", LOCKS, "WRITE"),
    "unnamed": (MOVES_PREFIX, "executors", "group", LOCKS, "READ"),
    "unheard": (MOVES_PREFIX, "executors", "topic", f"{MOVES_PREFIX}acks.v1", "WRITE"),
}


def password(user: str) -> str:
    return f"pass-of-{user}"


def options(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password(user),
    }


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    """A broker with a user for each role, each with the rights of its role alone."""
    users = "".join(
        f' user_{user}="{password(user)}"' for user in ("root", "nobody", *SHORT_OF, *ROLES)
    )
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    login = f'{module} username="root" password="{password("root")}"{users};'
    properties = {
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The controller's own listener knows no users; clients cannot reach it by that name.
        "super.users": "User:root;User:ANONYMOUS",
    }
    broker = EmbeddedBroker(
        properties=properties, protocol="SASL_PLAINTEXT", options=options("root")
    )
    with broker:
        with administering(broker) as admin:
            given = [
                acl
                for prefix in (PREFIX, MOVES_PREFIX)
                for grant in grants(prefix)
                for acl in acls(grant)
            ]
            admin.create_acls([*given, *(acl for user in SHORT_OF for acl in acls_short_of(user))])
        yield broker


@contextmanager
def administering(broker: EmbeddedBroker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap_servers, **admin_client_options(options("root"))
    )
    try:
        yield admin
    finally:
        admin.close()


def acls(grant: Any) -> list[ACL]:
    names = {operation: "".join(f"_{c}" if c.isupper() else c for c in operation)[1:].upper()
             for operation in grant.operations}  # fmt: skip
    kind = ACLResourcePatternType[grant.pattern.upper()]
    pattern = ResourcePattern(RESOURCES[grant.resource], grant.name, kind)
    return [
        ACL(f"User:{grant.role}", "*", ACLOperation[name], ACLPermissionType.ALLOW, pattern)
        for name in names.values()
    ]


def acls_short_of(user: str) -> list[ACL]:
    prefix, role, *lacking = SHORT_OF[user]
    return [
        ACL(f"User:{user}", "*", acl.operation, ACLPermissionType.ALLOW, acl.resource_pattern)
        for grant in grants(prefix)
        if grant.role == role
        for acl in acls(grant)
        if [grant.resource, grant.name, acl.operation.name] != lacking
    ]


@pytest.fixture
def placer(guarded: EmbeddedBroker, tmp_path: Path) -> Any:
    """Run a command as a user."""

    def run(user: str, *words: str, secret: str | None = None) -> Result:
        file = tmp_path / "placer.yaml"
        lines = [f"    {name}: {value}" for name, value in options(user).items()][:-1]
        lines.append("    sasl.password: env:KAFKA_PASSWORD")
        file.write_text("kafka:\n  options:\n" + "\n".join(lines) + "\n")
        at = ("--config", str(file), "--bootstrap", guarded.bootstrap_servers, "--prefix", PREFIX)
        environment = {"KAFKA_PASSWORD": secret or password(user)}
        return CliRunner().invoke(app, [*words, *at], env=environment)

    return run


def test_every_input_has_someone_who_may_write_it() -> None:
    assert {t.name for t in CATALOGUE if t.direction == "in"} <= WRITERS.keys()


def test_each_role_does_its_part(guarded: EmbeddedBroker, placer: Any, tmp_path: Path) -> None:
    made = placer("administrator", "topics", "apply")
    assert made.exit_code == 0, made.output
    for number in range(3):
        sent = placer("nodes", "send", "node", f"n{number}", "--location", f"/z{number}")
        assert sent.exit_code == 0, sent.output
    sent = placer("clients", "send", "stream", "orders", "--shards", "1", "--rf", "3")
    assert sent.exit_code == 0, sent.output
    running = launched(guarded, tmp_path)
    try:
        running.wait_ready()
        for user in ("clients", "readers", "operators"):
            words = ("watch", "--topic", "decisions", "--from", "beginning", "--count", "1")
            seen = placer(user, *words, "--for-seconds", "30", "--output", "json")
            assert '"placed"' in seen.output, seen.output
        # A process that finds another incarnation there learns of it.
        words = ("watch", "--topic", "topology", "--from", "beginning", "--count", "1")
        seen = placer("nodes", *words, "--for-seconds", "30", "--output", "json")
        assert '"incarnation":"manual"' in seen.output.replace(" ", ""), seen.output
        seen = placer("executors", "watch", "--topic", "moves", "--for-seconds", "1")
        assert seen.exit_code == 0, seen.output
        # Neither on a command line, nor in what is printed or logged.
        lines = [word for process in running.processes for word in process_line(process)]
        assert not any("pass-of" in line for line in lines)
        assert "pass-of" not in running.output
    finally:
        running.kill()
    assert "pass-of" not in (tmp_path / "checkpoint" / "spark.log").read_text(errors="replace")


def launched(broker: EmbeddedBroker, scratch: Path, *flags: str) -> Application:
    """The application as the reconciler, with a secret more; it is not ready yet."""
    told = options("reconciler") | {"sasl.password": "env:KAFKA_PASSWORD"}
    settings = {
        "PLACER_KAFKA__OPTIONS": json.dumps(told),
        "KAFKA_PASSWORD": password("reconciler"),
        "PLACER_SPARK__OPTIONS": '{"spark.hadoop.my.secret": "env:KAFKA_PASSWORD"}',
    }
    at = (broker.bootstrap_servers, PREFIX, scratch / "checkpoint")
    return Application(*at, settings | PATIENT, flags)


def process_line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize(
    ("user", "words", "message"),
    [
        ("nodes", "send stream s --shards 1 --rf 1", "may not use topic guarded.streams.v1"),
        ("nodes", "watch --topic decisions", "may not use topic guarded.decisions.v1"),
        ("readers", "send node n --location /z", "may not use topic guarded.nodes.v1"),
        ("nobody", "watch --topic decisions", "may not use topic guarded.decisions.v1"),
        ("nobody", "topics apply", "TopicAuthorizationFailed"),
        ("import", "kafka bridge --mode act", "lacks the right Alter and Alter Configs"),
        ("readers", "kafka bridge", "lacks the right Describe on the cluster"),
    ],
)
def test_what_a_role_may_not_do_is_refused_in_a_line(
    placer: Any, user: str, words: str, message: str
) -> None:
    assert placer("administrator", "topics", "apply").exit_code == 0
    result = placer(user, *words.split())
    assert (result.exit_code, message in result.output) == (3, True), result.output
    assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize(("user", "alters"), [("import", False), ("apply", True), ("bridge", True)])
def test_the_commands_of_a_kafka_cluster_need_no_more(
    guarded: EmbeddedBroker, placer: Any, user: str, alters: bool
) -> None:
    assert placer("administrator", "topics", "apply").exit_code == 0
    with KafkaAdmin(guarded.bootstrap_servers, options(user)) as admin:
        assert admin.find_obstacles(alters=alters) == []
        seen = Observer(admin).look(0)
        assert seen.sizes
        if alters:
            topic = f"{PREFIX}nodes.v1"
            for added, removed in ((["0:1"], []), ([], ["0:1"])):
                entries = {topic: {LEADER_ENTRIES: (added, removed)}}
                assert admin.alter_topic_entries(entries) == {topic: None}
            assert admin.alter_broker_rates({1: {LEADER_RATE: 10**9}}) == {1: None}
            assert admin.alter_broker_rates({1: {LEADER_RATE: None}}) == {1: None}
            assert admin.elect_preferred([(topic, 0)]) == {(topic, 0): None}
            assert admin.alter_reassignments({(topic, 0): [1]}) == {(topic, 0): None}


def test_the_bridge_tells_a_topic_that_it_may_not_see_from_one_that_is_gone(
    guarded: EmbeddedBroker,
) -> None:
    right = ("User:bridge", "*", ACLOperation.DESCRIBE, ACLPermissionType.DENY)
    with (
        administering(guarded) as root,
        KafkaAdmin(guarded.bootstrap_servers, options("bridge")) as admin,
    ):
        root.create_topics([NewTopic("secret", 1, 1)])
        names = ["secret", "never was", "nosuch"]

        def look() -> tuple[bool, frozenset[str]]:
            seen = Observer(admin).look(0, expected=names)
            return "secret" in seen.topics, seen.hidden

        until(lambda: look() == (True, frozenset()), "it is seen")
        root.create_acls([ACL(*right, ResourcePattern(ResourceType.TOPIC, "secret"))])
        until(lambda: look() == (False, frozenset({"secret"})), "it is hidden")
        where = (ResourceType.TOPIC, "secret", ACLResourcePatternType.LITERAL)
        root.delete_acls([ACLFilter(*right, ResourcePatternFilter(*where))])
        until(lambda: look() == (True, frozenset()), "it is seen again")
        root.delete_topics(["secret"])
        until(lambda: look() == (False, frozenset()), "it is gone")


def test_the_bridge_may_read_write_and_hold_its_lock(guarded: EmbeddedBroker, placer: Any) -> None:
    assert placer("administrator", "topics", "apply").exit_code == 0
    address, rights = guarded.bootstrap_servers, options("bridge")
    lock = LeaderLock(KafkaLockStore(address, PREFIX, bridge_lock_id(PREFIX, "main"), rights))

    def is_held() -> bool:
        try:
            return lock.is_held()
        except BrokerUnreachable:
            return False  # A group that is new has no coordinator for a moment.

    until(is_held, "the lock is held")
    lock.renew()
    topics = KafkaTopics(address, PREFIX, print, rights)
    topics.open()
    fields: dict[str, Any] = {"node_id": "1", "incarnation": "kafka-x", "sequence": 1}
    report = NodeLivenessReported(**fields, status="up")
    moved = MoveStopped(stream="s", shard=0, move_id="m")
    dropped = StreamDropped(stream="s", sequence=1)
    topics.send([NodeUnregistered(**fields), report, moved, dropped], 1_000)
    topics.close()
    lock.release()


class Empty(ReplicaStore):
    """Has nothing, and copies nothing."""

    def holds(self, _: Replica) -> bool:
        return False

    def copy(self, *_: Any) -> None:
        """Nothing is copied."""

    def delete(self, *_: Any) -> None:
        """Nothing is deleted."""


def executor(guarded: EmbeddedBroker, user: str, node_id: str) -> Executor:
    address = guarded.bootstrap_servers
    return Executor(address, MOVES_PREFIX, Empty(), nodes=[node_id], options=options(user))


@pytest.fixture
def moving(guarded: EmbeddedBroker) -> Callable[[str], dict[str, Any]]:
    """Issue a move to a node, as the reconciler does."""
    apply_topics(guarded.bootstrap_servers, MOVES_PREFIX, options=options("root"))
    stand_in = StandIn(guarded.bootstrap_servers, MOVES_PREFIX, options("root"))
    stand_in.start()

    def issue(node_id: str) -> dict[str, Any]:
        shard = PlayedShard(f"of-{node_id}", 0, ["a", "b"])
        stand_in.create(shard)
        return stand_in.issue(shard, remove="a", add=node_id)

    return issue


def test_executors_hold_their_locks_and_speak_with_the_rights_of_their_role(
    guarded: EmbeddedBroker, moving: Callable[[str], dict[str, Any]]
) -> None:
    move = moving("d")
    with CommittedReader(
        guarded.bootstrap_servers, MOVES_PREFIX, [ACKS], options=options("root")
    ) as acks:
        first, second = (executor(guarded, "executors", "d") for _ in range(2))
        with first:
            assert first.wait_ready(60)
            with second:
                until(lambda: second.waits_for, "the second waits")
                said: list[Any] = []

                def hear() -> bool:
                    said.extend(each.value["move_id"] for each in acks.poll(1.0))
                    return said.count(move["move_id"]) == 2

                until(hear, "the move is accepted and completed")
                first.close()
                assert second.wait_ready(60)


@pytest.mark.parametrize(
    ("user", "right"),
    [
        ("unlocked", "Write on transactional id moves.executor/unlocked"),
        ("unnamed", "Read on group moves.executor/"),
        ("unheard", "Write on topic moves.acks.v1"),
    ],
)
def test_an_executor_without_a_right_ends_and_names_it(
    guarded: EmbeddedBroker, moving: Callable[[str], dict[str, Any]], user: str, right: str
) -> None:
    moving(user)
    refused = executor(guarded, user, user)
    refused.start()
    until(lambda: not refused.running, "it has ended")
    with pytest.raises(AccessRefused, match=re.escape(right)):
        refused.close()


def test_an_executor_that_waits_is_told_at_once_that_it_could_not_take_over(
    guarded: EmbeddedBroker, moving: Callable[[str], dict[str, Any]]
) -> None:
    moving("e")
    with executor(guarded, "executors", "e") as first:
        assert first.wait_ready(60)
        refused = executor(guarded, "unlocked", "e")
        refused.start()
        until(lambda: not refused.running, "it has ended")
        with pytest.raises(AccessRefused, match=r"transactional id moves\.executor/e/probe"):
            refused.close()


@pytest.mark.parametrize("words", ["send node n --location /z", "topics diff"])
def test_a_wrong_password_is_told_without_repeating_it(placer: Any, words: str) -> None:
    result = placer("nodes", *words.split(), secret="hunter2")
    assert result.exit_code == 3
    assert "refuse to authenticate this user" in result.output
    assert "hunter2" not in result.output


def test_an_application_without_rights_ends_with_the_reason(
    guarded: EmbeddedBroker, placer: Any, tmp_path: Path
) -> None:
    assert placer("administrator", "topics", "apply").exit_code == 0
    result = placer("readers", "run", "--checkpoint", str(tmp_path / "checkpoint"))
    assert result.exit_code == 3
    assert "TopicAuthorizationFailed" in result.output, result.output


@pytest.fixture
def ends(guarded: EmbeddedBroker, placer: Any) -> Iterator[tuple[Inputs, Outputs]]:
    """Both ends of the application, with nodes there."""
    assert placer("administrator", "topics", "apply").exit_code == 0
    for number in range(3):
        sent = placer("nodes", "send", "node", f"n{number}", "--location", f"/z{number}")
        assert sent.exit_code == 0, sent.output
    outputs = Outputs(guarded.bootstrap_servers, PREFIX, options("root"))
    yield Inputs(guarded.bootstrap_servers, PREFIX, options("root")), outputs
    outputs.close()


@pytest.mark.parametrize(
    ("topic", "operation"),
    [
        ("decisions.v1", ACLOperation.WRITE),
        ("streams.v1", ACLOperation.READ),
        # Nothing is decided from it, but without ticks no silence could be judged.
        ("nodes.v1", ACLOperation.WRITE),
    ],
)
def test_f9_a_right_that_is_taken_away_ends_it_and_given_back_nothing_is_lost(
    guarded: EmbeddedBroker,
    ends: tuple[Inputs, Outputs],
    tmp_path: Path,
    topic: str,
    operation: ACLOperation,
) -> None:
    inputs, outputs = ends
    name, stream = f"{PREFIX}{topic}", f"{topic[:-3]}-{operation.name}".lower()
    right = ("User:reconciler", "*", operation, ACLPermissionType.ALLOW)
    running = launched(guarded, tmp_path)
    try:
        running.wait_ready()
        inputs.stream(f"{stream}-before")
        assert outputs.decision(f"{stream}-before")["outcome"] == "placed"
        with administering(guarded) as admin:
            where = (ResourceType.TOPIC, name, ACLResourcePatternType.LITERAL)
            admin.delete_acls([ACLFilter(*right, ResourcePatternFilter(*where))])
            inputs.stream(f"{stream}-meanwhile")
            assert running.wait_end() == 3, running.output
            said = f"{name}: {operation.name} not allowed. No decision is lost"
            assert said in running.printed, running.output
            if topic != "nodes.v1":
                assert f"{stream}-meanwhile" not in outputs.latest("decisions.v1")
            admin.create_acls([ACL(*right, ResourcePattern(*where))])
        running = launched(guarded, tmp_path)
        running.wait_ready()
        assert outputs.decision(f"{stream}-meanwhile")["outcome"] == "placed"
        outputs.check()
        answers = [r.key for r in outputs.of("decisions.v1") if (r.key or "").startswith(stream)]
        assert answers == [f"{stream}-before", f"{stream}-meanwhile"]
    finally:
        running.kill()


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ("readers", "topic guarded.acks.v1 cannot be described"),
        ("unwritten", "guarded.decisions.v1: WRITE not allowed. A standby needs the rights"),
        ("unfenced", "transactional id guarded.main.doctor: "),
    ],
)
def test_a_standby_without_rights_ends_with_the_reason_beside_the_active_one(
    guarded: EmbeddedBroker,
    placer: Any,
    ends: tuple[Inputs, Outputs],
    tmp_path: Path,
    user: str,
    message: str,
) -> None:
    """It is told at its start, not at the moment when it is needed."""
    inputs, outputs = ends
    active = launched(guarded, tmp_path)
    try:
        active.wait_ready()
        result = placer(user, "run", "--standby", "--checkpoint", str(tmp_path / "beside"))
        assert (result.exit_code, message in result.output) == (3, True), result.output
        inputs.stream(f"beside-{user}")
        assert outputs.decision(f"beside-{user}")["outcome"] == "placed"
        assert active.running
    finally:
        active.kill()


def test_a_standby_with_the_rights_that_are_listed_stands_by_and_takes_over(
    guarded: EmbeddedBroker, ends: tuple[Inputs, Outputs], tmp_path: Path
) -> None:
    """One transactional id for the role, one for trying it: no more is needed."""
    inputs, outputs = ends
    active = launched(guarded, tmp_path / "active")
    beside = None
    try:
        active.wait_ready()
        beside = launched(guarded, tmp_path / "beside", "--standby")
        beside.wait_standing_by()
        active.kill()
        beside.wait_ready()
        inputs.stream("taken-over")
        assert outputs.decision("taken-over")["outcome"] == "placed"
    finally:
        active.kill()
        if beside is not None:
            beside.kill()
