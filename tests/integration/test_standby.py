"""A pair of reconcilers: the standby follows, takes over in time, and never without need."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from streaming.administration import apply_topics
from streaming.presence import ProcessSeen, read_processes
from streaming.requests import hand_over
from streaming.runtime import EmbeddedBroker
from streaming.settings import Settings
from streaming.settings.sections import KafkaSettings, TopicSettings
from tests.integration.conftest import System
from tests.systems.application import PATIENT, Application
from tests.systems.cluster import Cluster
from tests.systems.waiting import until

PATIENCE_SECONDS = 3.0
PAIR = {**PATIENT, "PLACER_STANDBY__TAKEOVER_AFTER_SECONDS": str(PATIENCE_SECONDS)}
NODES = 4


def start(system: System, name: str, *flags: str, **settings: str) -> Application:
    return system.launch(*flags, PLACER_STANDBY__INSTANCE=name, **PAIR | settings)


def register(system: System) -> None:
    for number in range(NODES):
        body: dict[str, Any] = {"node_id": f"n{number}", "incarnation": "a", "sequence": 1}
        body["location"] = f"/z{number}"
        system.inputs.send("nodes.v1", "NodeRegistered", f"n{number}", body)


def ask(system: System, name: str) -> None:
    system.inputs.stream(name, shards=3, replication_factor=2)
    assert system.outputs.decision(name)["outcome"] == "placed"


def writer(system: System) -> tuple[int, str]:
    marker = system.outputs.marker
    return marker["writer_epoch"], marker["instance"]


def wait_writer(system: System, epoch: int) -> str:
    system.outputs.wait(lambda: writer(system)[0] == epoch, f"writer epoch {epoch}")
    return writer(system)[1]


def processes(system: System) -> list[ProcessSeen]:
    epoch, _ = writer(system)
    now_ms = time.time_ns() // 1_000_000
    return read_processes(system.bootstrap, system.prefix, {}, epoch, now_ms)


def check(system: System) -> None:
    """No commit twice or lost, and the journal gives all of it again."""
    system.outputs.check()
    epochs = [record.value["writer_epoch"] for record in system.outputs.of("commits.v1")]
    assert epochs == sorted(epochs), "nobody commits behind a newer writer"
    assert system.replay().differences == ()


def test_a_role_is_handed_over_and_taken_over(own_system: System) -> None:
    system = own_system
    first = start(system, "a", "--ha")
    first.wait_ready()
    second = start(system, "b", "--standby")
    register(system)
    ask(system, "before")
    second.wait_standing_by()
    assert writer(system) == (1, "a")
    found = {each.instance: each for each in processes(system)}
    assert {name: each.role for name, each in found.items()} == {"a": "active", "b": "standby"}
    assert found["b"].proven is not None

    kafka = KafkaSettings(bootstrap_servers=system.bootstrap)
    settings = Settings(kafka=kafka, topics=TopicSettings(prefix=system.prefix))
    done = hand_over(settings, "an upgrade", 60)
    assert (done.before, done.after, done.instance) == (1, 2, "b")
    ask(system, "handed")
    until(lambda: "STANDING_BY" in first.printed.partition("HANDED_OVER")[2], "it stands by")

    second.kill()
    assert wait_writer(system, 3) == "a"
    ask(system, "after")
    assert first.printed.count("followed=true") == 1, first.output
    check(system)
    first.send(signal.SIGTERM)
    assert first.wait_end() == 0, first.output
    assert system.outputs.marker["released"]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_whoever_was_paused_never_commits_again(own_system: System) -> None:
    """SIGSTOP of the active one longer than the patience, and shorter than it."""
    system = own_system
    active = start(system, "p0", "--ha")
    active.wait_ready()
    register(system)
    for number in range(1, 4):
        other = start(system, f"p{number}", "--standby")
        other.wait_standing_by()
        active.send(signal.SIGSTOP)
        time.sleep(PATIENCE_SECONDS / 3)
        active.send(signal.SIGCONT)
        ask(system, f"short{number}")
        assert writer(system)[0] == number, "no need to take over"
        active.send(signal.SIGSTOP)
        assert wait_writer(system, number + 1) == f"p{number}"
        ask(system, f"long{number}")
        active.send(signal.SIGCONT)
        assert active.wait_end() == 3, active.output
        assert "another writer" in active.printed
        assert "Traceback" not in active.printed
        active = other
    check(system)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_of_two_standbys_one_takes_over_and_the_other_goes_on_waiting(own_system: System) -> None:
    system = own_system
    running = {name: start(system, name, "--ha") for name in "abc"}
    system.outputs.wait(lambda: bool(system.outputs.of("commits.v1")), "somebody is active")
    _, name = writer(system)
    register(system)
    ask(system, "first")
    for each in running.keys() - {name}:
        running[each].wait_standing_by()
    for epoch in (2, 3):
        running.pop(name).kill()
        name = wait_writer(system, epoch)
        ask(system, f"epoch{epoch}")
        assert all(each.running for each in running.values())
    assert [each.role for each in processes(system)] == ["active"]
    check(system)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_standby_that_may_not_stand_by_says_why(own_system: System, tmp_path: Path) -> None:
    system = own_system
    lonely = start(system, "x", "--standby")
    assert lonely.wait_end() == 3
    assert "no reconciler of cell 'main' has run under the prefix" in lonely.printed
    active = start(system, "a", "--ha")
    active.wait_ready()
    register(system)
    ask(system, "before")
    other = start(system, "b", "--standby", PLACER_MOVES__MAX_OPEN="7")
    assert other.wait_end() == 3
    assert "decides by other settings" in other.printed
    assert "max_open" in other.printed
    assert "Traceback" not in other.printed
    ask(system, "after")
    assert writer(system) == (1, "a")

    accepted = start(system, "c", "--standby", "--accept-settings", PLACER_MOVES__MAX_OPEN="7")
    accepted.wait_standing_by()
    active.send(signal.SIGTERM)
    assert wait_writer(system, 2) == "c"
    ask(system, "with-other-settings")
    assert system.outputs.marker["configuration"]["limits"]["max_open"] == 7
    check(system)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_standby_behind_a_broken_network_takes_nothing_over(tmp_path: Path) -> None:
    """It cannot reach Kafka, or only late: what it does not read is no silence."""
    with Cluster(tmp_path / "cluster", ("r1",), proxied=True) as cluster:
        (proxy,) = cluster.proxies
        system = System(cluster.bootstrap, tmp_path)
        far = None
        try:
            active = start(system, "near", "--ha")
            active.wait_ready()
            register(system)
            settings = PAIR | {"PLACER_STANDBY__INSTANCE": "far"}
            place = tmp_path / "far"
            far = Application(cluster.proxied, system.prefix, place, settings, ("--standby",))
            far.wait_standing_by()
            proxy.delay(0.5)
            for number in range(5):
                ask(system, f"late{number}")
            proxy.delay(0)
            proxy.cut()
            time.sleep(3 * PATIENCE_SECONDS)
            ask(system, "cut")
            proxy.mend()
            time.sleep(PATIENCE_SECONDS)
            ask(system, "mended")
            assert writer(system) == (1, "near")
            if far.running:
                active.kill()
                assert wait_writer(system, 2) == "far"
                ask(system, "far")
            check(system)
        finally:
            if far is not None:
                far.kill()
            system.close()


def test_nobody_is_seen_where_nobody_runs(broker: EmbeddedBroker, prefix: str) -> None:
    apply_topics(broker.bootstrap_servers, prefix)
    now_ms = time.time_ns() // 1_000_000
    assert read_processes(broker.bootstrap_servers, prefix, {}, 0, now_ms) == []
