"""A standby that does not belong, clocks that are wrong, and networks that break on either side.

Who does not belong is refused with the reason, and the active one goes on. Nobody takes over
without need, and nobody commits behind a newer writer.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.state import DIGEST_VERSION
from streaming.runtime import EmbeddedBroker
from tests.integration.conftest import System
from tests.integration.test_standby import (
    PAIR,
    PATIENCE_SECONDS,
    ask,
    check,
    register,
    start,
    wait_writer,
    writer,
)
from tests.systems.application import Application
from tests.systems.cluster import Cluster
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
HOURS = 3
# Python runs a module of this name at its start, before any of ours.
WRONG_CLOCK = """
import time

_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {seconds}
time.time_ns = lambda: _time_ns() + {seconds} * 1_000_000_000
"""
# A take-over takes a second or two behind the patience; the rest is for a busy machine.
TAKEOVER_SECONDS_MAX = 30.0


def active_and_fleet(system: System) -> Application:
    active = start(system, "active", "--ha")
    active.wait_ready()
    register(system)
    ask(system, "before")
    return active


def is_refused(standby: Application, *words: str) -> None:
    assert standby.wait_end() == 3, standby.output
    for word in words:
        assert word in standby.printed, standby.printed
    assert "Traceback" not in standby.printed


def test_who_does_not_belong_is_refused_and_the_active_one_goes_on(
    own_system: System, tmp_path: Path
) -> None:
    system = own_system
    active = active_and_fleet(system)
    equal = start(system, "other-settings", "--ha", PLACER_MOVES__MAX_OPEN="7")
    is_refused(equal, "decides by other settings", "max_open", "--accept-settings")
    cell = start(system, "other-cell", "--standby", PLACER_CELL="elsewhere")
    is_refused(cell, "no reconciler of cell 'elsewhere' has run", system.prefix)
    prefix = Application(system.bootstrap, "nobody.", tmp_path / "nobody", PAIR, ("--standby",))
    try:
        is_refused(prefix, "nobody.", "placer topics apply")
    finally:
        prefix.kill()
    ask(system, "after")
    assert active.running
    assert writer(system) == (1, "active")
    check(system)


def make_newer_program(root: Path) -> Path:
    """This program, but for the number of its state's format."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("placement", "schemas", "streaming"):
        shutil.copytree(ROOT / name, root / name, ignore=ignored)
    digest = root / "placement" / "state" / "digest.py"
    before = f"\nDIGEST_VERSION = {DIGEST_VERSION}\n"
    text = digest.read_text()
    assert before in text
    digest.write_text(text.replace(before, f"\nDIGEST_VERSION = {DIGEST_VERSION + 1}\n"))
    return root


def test_a_standby_that_is_too_old_for_the_state_is_refused(
    own_system: System, tmp_path: Path
) -> None:
    system = own_system
    newer = make_newer_program(tmp_path / "newer")
    active = start(system, "newer", "--ha", PYTHONPATH=str(newer))
    active.wait_ready()
    register(system)
    ask(system, "before")
    assert system.outputs.marker["digest_version"] == DIGEST_VERSION + 1
    older = start(system, "older", "--standby")
    is_refused(older, "a newer version of placer wrote the state")
    ask(system, "after")
    assert active.running
    assert writer(system) == (1, "newer")
    system.outputs.check()


def test_clocks_that_are_wrong_by_hours_change_nothing(own_system: System, tmp_path: Path) -> None:
    """Of the standbys one is ahead and one behind; both take over in their turn, in time."""
    system = own_system
    active = active_and_fleet(system)
    running = {"active": active}
    for name, hours in (("ahead", HOURS), ("behind", -HOURS)):
        module = tmp_path / name / "sitecustomize.py"
        module.parent.mkdir()
        module.write_text(WRONG_CLOCK.format(seconds=hours * 3600))
        running[name] = start(system, name, "--standby", PYTHONPATH=str(module.parent))
        running[name].wait_standing_by()
    deadline = time.monotonic() + 3 * PATIENCE_SECONDS
    number = 0
    while time.monotonic() < deadline:
        ask(system, f"beside{number}")
        number += 1
    assert writer(system) == (1, "active"), "no need to take over"
    for epoch in (2, 3):
        running.pop(writer(system)[1]).kill()
        killed = time.monotonic()
        assert wait_writer(system, epoch) in running
        assert time.monotonic() - killed < TAKEOVER_SECONDS_MAX
        ask(system, f"epoch{epoch}")
        off_seconds = system.outputs.marker["now"] / 1000 - time.time()
        assert abs(off_seconds) < 60, "decisions have the time of the log"
    check(system)


def test_an_active_one_that_flaps_and_two_that_stand_by(own_system: System) -> None:
    """It is paused again and again, each time for less than the patience; then it dies, and the
    two that stood by do not hand the role to and fro."""
    system = own_system
    active = active_and_fleet(system)
    others = {name: start(system, name, "--ha") for name in ("b", "c")}
    for each in others.values():
        each.wait_standing_by()
    for number in range(6):
        active.send(signal.SIGSTOP)
        time.sleep(PATIENCE_SECONDS / 2)
        active.send(signal.SIGCONT)
        ask(system, f"between{number}")
        assert writer(system) == (1, "active"), "no need to take over"
    active.kill()
    name = wait_writer(system, 2)
    deadline = time.monotonic() + 4 * PATIENCE_SECONDS
    number = 0
    while time.monotonic() < deadline:
        ask(system, f"behind{number}")
        number += 1
    assert writer(system) == (2, name)
    assert all(each.running for each in others.values())
    check(system)


def test_a_broker_that_hangs_makes_nobody_take_over(own_system: System, broker_pid: int) -> None:
    """For longer than the patience nobody can tell anything: that is no silence of the active
    one."""
    system = own_system
    active_and_fleet(system)
    standby = start(system, "standby", "--standby")
    standby.wait_standing_by()
    for number in range(3):
        os.kill(broker_pid, signal.SIGSTOP)
        try:
            time.sleep(2 * PATIENCE_SECONDS)
        finally:
            os.kill(broker_pid, signal.SIGCONT)
        ask(system, f"behind{number}")
    assert writer(system) == (1, "active")
    assert standby.running
    check(system)


@pytest.fixture
def broker_pid(broker: EmbeddedBroker) -> Iterator[int]:
    """Of the broker, which goes on afterwards whatever becomes of the test."""
    assert broker.pid is not None
    yield broker.pid
    os.kill(broker.pid, signal.SIGCONT)


def test_an_active_one_behind_a_broken_network_is_replaced(tmp_path: Path) -> None:
    """A network that is late changes nothing; when it is cut, the standby takes over, and whoever
    was cut off commits nothing any more."""
    with Cluster(tmp_path / "cluster", ("r1",), proxied=True) as cluster:
        (proxy,) = cluster.proxies
        system = System(cluster.bootstrap, tmp_path)
        settings = PAIR | {"PLACER_STANDBY__INSTANCE": "far"}
        far = Application(cluster.proxied, system.prefix, tmp_path / "far", settings, ("--ha",))
        try:
            far.wait_ready()
            register(system)
            ask(system, "before")
            near = start(system, "near", "--standby")
            near.wait_standing_by()
            proxy.delay(0.5)
            for number in range(5):
                ask(system, f"late{number}")
            assert writer(system) == (1, "far"), "no need to take over"
            proxy.delay(0)
            proxy.cut()
            assert wait_writer(system, 2) == "near"
            ask(system, "cut")
            proxy.mend()
            until(lambda: not far.running, "who was cut off ends", 120)
            assert far.wait_end() != 0, far.output
            ask(system, "mended")
            assert writer(system) == (2, "near")
            check(system)
        finally:
            far.kill()
            system.close()
