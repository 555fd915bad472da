"""A broker that asks who is there, with the least rights of each role and no others.

Every role does with them what it is there for; a user without them, and one with a wrong password,
is told so in one line. No secret is seen on the way.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
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

from schemas.access import PROBE_SUFFIX, WRITERS, bridge_lock_id
from schemas.acks import MoveStopped
from schemas.inputs import NodeLivenessReported, NodeUnregistered, StreamDropped
from schemas.topics import CATALOGUE
from streaming.brokers import KafkaLockStore, LeaderLock
from streaming.cli.main import app
from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge import KafkaAdmin, KafkaTopics, Observer
from streaming.kafka_bridge.admin_client import LEADER_ENTRIES, LEADER_RATE
from streaming.runtime import EmbeddedBroker
from tests.systems.application import PATIENT, Application
from tests.systems.guarded_broker import Right, administering, guarded_broker, options, password
from tests.systems.topics import Inputs, Outputs
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PREFIX = "guarded."
# Users that lack one right of a role: the resource that it is on, and what they may not do there.
SHORT_OF: dict[str, Right] = {
    "unwritten": ("reconciler", "topic", f"{PREFIX}decisions.v1", "WRITE"),
    "unfenced": ("reconciler", "transactional-id", f"{PREFIX}main{PROBE_SUFFIX}", "WRITE"),
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    """A broker with a user for each role, each with the rights of its role alone."""
    with guarded_broker(PREFIX, SHORT_OF) as broker:
        yield broker


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
