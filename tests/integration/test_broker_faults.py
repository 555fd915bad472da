"""A broker that hangs, or dies and comes back, and a full disk: what was asked is answered once.

Faults F7, F8, F12 and F13. The application may end of a fault; it is started again then, as
orchestrators do. Nodes beat all the while, and none of them may be taken for dead.
"""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from streaming.broker import EmbeddedBroker
from streaming.fleet import Fleet, FleetNode
from tests.integration.application import Application
from tests.integration.conftest import System
from tests.integration.waiting import until

pytestmark = pytest.mark.long

NODES = [FleetNode(f"n{zone}", f"/z{zone}") for zone in "abc"]
# Longer than nodes may be silent.
PAUSE_SECONDS = 6.0
ANSWER_TIMEOUT_SECONDS = 180.0
# What Spark writes for some batches; the rest of the disk is filled by the test.
DISK_BYTES = 8 * 1024 * 1024


class Supervised:
    """A system whose application is started again whenever it has ended."""

    def __init__(self, system: System, broker: EmbeddedBroker) -> None:
        self.system, self.broker = system, broker
        self.application: Application = system.launch()

    def answered(self, stream: str) -> None:
        """The stream that was asked for is placed, and nothing is wrong."""
        outputs = self.system.outputs
        until(lambda: self._placed(stream), f"{stream} placed", ANSWER_TIMEOUT_SECONDS)
        outputs.check()
        views = outputs.of("topology.v1")
        assert "dead" not in {view.value["liveness"] for view in views if view.value}

    def _placed(self, stream: str) -> bool:
        if not self.application.running:
            self.application = self.system.launch()
        return len(self.system.outputs.replicas(stream)) == 1


@pytest.fixture(scope="module")
def supervised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    """A broker of its own, as others should not have to do with what happens to it."""
    scratch = tmp_path_factory.mktemp("faults")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # A killed broker is let in again when its session has run out.
    properties = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    with EmbeddedBroker(port, scratch / "broker", properties) as broker:
        system = System(broker.bootstrap_servers, scratch)
        try:
            with Fleet(system.bootstrap, system.prefix, NODES, 0.5):
                yield Supervised(system, broker)
        finally:
            system.close()


@pytest.mark.timeout(400)
def test_a_broker_that_hangs_only_delays(supervised: Supervised) -> None:
    supervised.system.inputs.stream("before")
    supervised.answered("before")
    process = psutil.Process(supervised.broker.pid)
    process.suspend()
    threading.Event().wait(PAUSE_SECONDS)
    process.resume()
    supervised.system.inputs.stream("hung")
    supervised.answered("hung")


@pytest.mark.timeout(400)
def test_a_killed_broker_loses_nothing(supervised: Supervised) -> None:
    broker = supervised.broker
    process = psutil.Process(broker.pid)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    broker.stop()
    broker.start()
    supervised.system.inputs.stream("killed")
    supervised.answered("killed")
    assert supervised.system.outputs.replicas("before")


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


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_full_disk_ends_it_and_a_start_with_room_goes_on(
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
    system.inputs.stream("while-full")
    supervised.application = system.launch()
    supervised.answered("while-full")
