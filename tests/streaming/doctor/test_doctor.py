"""Goal: `placer doctor` finds what is wrong, names it, and says what to do.

Method: each fault is made on the embedded broker or in the environment; the command runs in this
process. What is well must be called so, too.
"""

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from typer.testing import Result

from schemas.topics import full_name
from streaming.doctor import machine_checks
from streaming.settings import Settings
from tests.builders.histories import eventful
from tests.streaming.cli.test_replay import send, send_altered
from tests.systems.waiting import until

Placer = Callable[..., Result]
Findings = dict[str, dict[str, str]]


def examined(placer: Placer, at: tuple[str, str], *words: str) -> tuple[int, Findings]:
    """Exit code, and the findings by check."""
    result = placer("doctor", "--output", "json", *words, at=at)
    body = orjson.loads(result.stdout.splitlines()[-1])
    return result.exit_code, {each["check"]: each for each in body["findings"]}


@pytest.fixture(autouse=True)
def _room(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLACER_CHECKPOINT", str(tmp_path / "not" / "yet"))
    monkeypatch.setattr(machine_checks, "SPACE_LOW_BYTES", 0)
    monkeypatch.setattr(machine_checks, "SPACE_LEAST_BYTES", 0)


def test_a_sound_system_is_called_so(placer: Placer, bootstrap: str, prefix: str) -> None:
    code, fresh = examined(placer, (bootstrap, prefix))
    assert {each["health"] for each in fresh.values()} == {"ok"}, fresh
    assert (code, len(fresh)) == (0, 12)
    assert "no commit marker yet" in fresh["rebuild"]["said"]
    send((bootstrap, prefix), eventful())
    code, used = examined(placer, (bootstrap, prefix))
    assert "digest" in used["rebuild"]["said"]
    # The story's inputs were never on the topics.
    assert (code, used["input retention"]["health"]) == (3, "fail")
    assert "placer run --accept-gap" in used["input retention"]["action"]
    table = placer("doctor", at=(bootstrap, prefix))
    assert table.exit_code == 3
    assert "has offsets 0 to 0, but the commit marker continues at" in table.stdout


def test_an_absent_broker_ends_the_looking(placer: Placer) -> None:
    code, found = examined(placer, ("127.0.0.1:1", "p."))
    assert code == 3
    assert (found["java"]["health"], found["broker"]["health"]) == ("ok", "fail")
    assert "start the broker" in found["broker"]["action"]
    assert {found[name]["health"] for name in ("topics", "rebuild", "clock")} == {"skipped"}


def test_fix_makes_the_topics(placer: Placer, broker: object, prefix: str) -> None:
    at = (broker.bootstrap_servers, prefix)  # type: ignore[attr-defined]
    code, found = examined(placer, at)
    assert (code, found["topics"]["health"]) == (3, "fail")
    assert "placer doctor --fix" in found["topics"]["action"]
    code, found = examined(placer, at, "--fix")
    assert (code, found["topics"]["health"]) == (0, "ok")


def test_a_changed_setting_is_named_and_mended(placer: Placer, bootstrap: str, prefix: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    name = full_name("nodes.v1", prefix)
    change = {"message.timestamp.type": "CreateTime"}
    client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, change)])
    client.close()
    # A busy broker shows a changed setting a moment after it has answered.
    _, found = until(
        lambda: (seen := examined(placer, (bootstrap, prefix)))[0] == 3 and seen,
        "the doctor finds the changed setting",
    )
    assert "message.timestamp.type: CreateTime -> LogAppendTime" in found["topics"]["said"]
    assert examined(placer, (bootstrap, prefix), "--fix")[0] == 0


def test_an_open_transaction_is_named_with_the_command_that_ends_it(
    placer: Placer, bootstrap: str, prefix: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{prefix}stranger"})
    producer.init_transactions(20)
    producer.begin_transaction()
    name = full_name("moves.v1", prefix)
    producer.produce(name, b"x", b"k")
    assert producer.flush(20) == 0
    try:
        code, found = examined(placer, (bootstrap, prefix))
    finally:
        producer.abort_transaction(20)
    assert (code, found["hanging transactions"]["health"]) == (1, "warn")
    assert f"{name}-0 at 0" in found["hanging transactions"]["said"]
    assert (
        f"abort --topic {name} --partition 0 --start-offset 0"
        in (found["hanging transactions"]["action"])
    )


def test_an_altered_state_is_found(placer: Placer, bootstrap: str, prefix: str) -> None:
    commits = eventful()
    send((bootstrap, prefix), commits)
    send_altered((bootstrap, prefix), commits)
    code, found = examined(placer, (bootstrap, prefix))
    assert (code, found["rebuild"]["health"]) == (3, "fail")
    assert "placer replay --from-topic --verify" in found["rebuild"]["action"]


def test_what_is_wrong_with_the_machine_is_named(
    placer: Placer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PLACER_JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PLACER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machine_checks, "SPACE_LEAST_BYTES", 1 << 62)
    monkeypatch.setattr(machine_checks, "PACKAGES", ("placement", "json"))
    _, found = examined(placer, ("127.0.0.1:1", "p."))
    health = {name: found[name]["health"] for name in ("java", "jars", "checkpoint", "packages")}
    assert health == {"java": "fail", "jars": "warn", "checkpoint": "fail", "packages": "fail"}
    assert all(found[name]["action"] for name in health)


def test_a_machine_without_the_embedded_broker_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "has_jars", lambda name: name != "broker")
    assert machine_checks.check_jars(Settings()) == (
        "the set connector is in the cache; the set broker, for --embedded alone, is not"
    )
