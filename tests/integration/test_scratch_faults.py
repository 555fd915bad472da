"""A scratch directory that is full, fails, is slow, or is no directory (F12, F13).

Each ends the application with a word about it, or only delays; a start with a sound one goes on.
Nodes beat all the while, and none of them may be taken for dead.
"""

import os
import resource
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.simulator import Fleet
from streaming.simulator.fleet import FleetNode
from tests.integration.conftest import System
from tests.systems.application import Application
from tests.systems.supervised import ANSWER_TIMEOUT_SECONDS, Supervised
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

NODES = [FleetNode(f"n{zone}", f"/z{zone}") for zone in "abc"]
# What Spark writes for some batches; the rest of the disk is filled by the test.
DISK_BYTES = 8 * 1024 * 1024
# Spark's JVM stands still so often and so long, as when a disk takes its time.
STALLS, STALL_SECONDS = 5, 0.7


@pytest.fixture(scope="module")
def supervised(system: System) -> Iterator[Supervised]:
    with Fleet(system.bootstrap, system.prefix, NODES, 0.5):
        yield Supervised(system)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with little room."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_f13_a_slow_disk_only_delays(supervised: Supervised) -> None:
    supervised.ask("first")
    running = supervised.application
    jvm = running.jvm
    supervised.system.inputs.stream("slow", shards=20)
    for _ in range(STALLS):
        jvm.suspend()
        threading.Event().wait(STALL_SECONDS)
        jvm.resume()
        threading.Event().wait(STALL_SECONDS / 5)
    supervised.answered("slow", 20)
    assert supervised.application is running


def test_f13_a_disk_that_fails_ends_it_and_the_next_start_goes_on(supervised: Supervised) -> None:
    running = supervised.application
    # No file of Spark's JVM may grow from now on: every write fails as on a broken disk.
    resource.prlimit(running.jvm.pid, resource.RLIMIT_FSIZE, (0, 0))
    supervised.system.inputs.stream("while-failing")
    assert running.wait_end() == 3, running.output
    assert "File too large" in running.printed, running.output
    supervised.answered("while-failing")


def test_f12_a_full_disk_ends_it_and_a_start_with_room_goes_on(
    supervised: Supervised, small_disk: Path
) -> None:
    system = supervised.system
    supervised.application.kill()
    running = Application(system.bootstrap, system.prefix, small_disk / "checkpoint", {})
    try:
        until(lambda: running.is_ready, "ready", ANSWER_TIMEOUT_SECONDS)
        ballast = small_disk / "ballast"
        subprocess.run(["dd", "if=/dev/zero", f"of={ballast}"], capture_output=True, check=False)
        assert running.wait_end() == 3, running.output
        assert "No space left on device" in running.printed, running.output
    finally:
        running.kill()
    supervised.ask("while-full")
