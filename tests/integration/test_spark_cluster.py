"""The reconciler on a Spark cluster whose workers and executors are lost and come back.

Master and two workers are processes of their own, from the PySpark package. Executors get code,
packages and Python from the application: in their working directories and their environment nothing
of this checkout can be imported, and none of their processes has a file of it open.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from schemas.topics import NODES
from streaming.administration import apply_topics
from streaming.environment_archive import make_environment_archive
from streaming.simulator import Fleet
from streaming.simulator.fleet import Executor, FleetNode
from tests.integration.conftest import System
from tests.integration.test_standby import wait_writer, writer
from tests.systems.application import PATIENT, Application
from tests.systems.spark_cluster import SparkCluster
from tests.systems.supervised import ANSWER_TIMEOUT_SECONDS, Supervised
from tests.systems.waiting import until

# A silent executor is given up after 15 s, which are looked at every 3 s; the rest is for the batch
# that is run again on a busy machine. With Spark's own settings it takes 120 s and more.
FROZEN_SECONDS_MAX = 60.0
# An executor whose worker is gone ends by itself within a second or two.
ORPHAN_SECONDS_MAX = 15.0

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

ROOT = Path(__file__).resolve().parents[2]
NODES_OF_FLEET = [FleetNode(f"n{z}{number}", f"/z{z}") for z in "abc" for number in range(4)]
SETTINGS = {
    "PLACER_SPARK__TOPOLOGY_SHARDS": "4",
    # Longer than an executor is away on a machine that does other work beside.
    "PLACER_LIVENESS__SUSPECT_AFTER_SECONDS": "4",
    "PLACER_LIVENESS__DEAD_AFTER_SECONDS": "8",
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `placer package` makes."""
    return make_environment_archive(tmp_path_factory.mktemp("package") / "environment.tar.gz").file


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path / "cluster") as running:
        yield running


@pytest.fixture
def supervised(
    own_system: System, cluster: SparkCluster, archive: Path, tmp_path: Path
) -> Supervised:
    apply_topics(own_system.bootstrap, own_system.prefix, 1, partitions={NODES: 4})
    started = Supervised(own_system, cluster.settings(archive, tmp_path / "shared") | SETTINGS)
    started.application.wait_ready()
    return started


def pair_settings(cluster: SparkCluster, archive: Path, scratch: Path, name: str) -> dict[str, str]:
    settings = SETTINGS | PATIENT | cluster.settings(archive, scratch)
    return settings | {"PLACER_STANDBY__INSTANCE": name}


def foreign_files(process: psutil.Process) -> list[str]:
    """Files of this checkout, or of its Python packages, that a process has mapped or runs."""
    used = {process.exe(), process.cwd(), *(each.path for each in process.memory_maps())}
    inside = {str(ROOT), str(Path(psutil.__file__).resolve().parents[1])}
    return [path for path in used if path.startswith(tuple(inside)) and not path.endswith(".jar")]


def test_executors_have_all_from_the_application(
    supervised: Supervised, cluster: SparkCluster
) -> None:
    system = supervised.system
    with Fleet(system.bootstrap, system.prefix, NODES_OF_FLEET, 0.5):
        supervised.ask("first", shards=4)
        cluster.wait_executors(2)
        workers = [each for jvm in cluster.executors for each in jvm.children(recursive=True)]
        assert len(workers) >= 4, "a daemon of each executor, and what it has forked"
        for each in workers:
            assert "streaming.worker_daemon" in " ".join(each.cmdline())
            assert "app-" in each.exe(), "its Python is that of the archive in its directory"
            assert foreign_files(each) == []
        supervised.rest()


def test_nothing_is_lost_or_doubled_when_parts_of_the_cluster_go(
    supervised: Supervised, cluster: SparkCluster
) -> None:
    system = supervised.system
    with (
        Fleet(system.bootstrap, system.prefix, NODES_OF_FLEET, 0.5) as fleet,
        Executor(system.bootstrap, system.prefix, 0.5),
    ):
        supervised.ask("before", shards=4)
        running = supervised.application
        cluster.wait_executors(2)
        lost = cluster.executors[0]
        lost.kill()
        supervised.ask("without-an-executor", shards=4)
        until(lambda: lost.pid not in {e.pid for e in cluster.executors}, "it is gone")
        cluster.wait_executors(2)
        supervised.ask("with-another", shards=4)

        cluster.workers[0].kill()
        supervised.ask("without-a-worker", shards=4)
        cluster.workers[0].launch()
        cluster.wait_executors(2)
        supervised.ask("with-it-again", shards=4)

        for worker in cluster.workers:
            worker.kill()
        cluster.wait_executors(0)
        system.inputs.stream("without-any", shards=4)
        for worker in cluster.workers:
            worker.launch()
        supervised.answered("without-any", shards=4)
        cluster.wait_executors(2)
        supervised.ask("behind-all", shards=4)

        # What is left judges by the state that others have written.
        cluster.workers[1].kill()
        dead = system.outputs.replicas("before")[0][0]
        fleet.kill(dead)
        system.outputs.wait(
            lambda: dead not in str(system.outputs.latest("assignments.v1").values()),
            "its replicas are elsewhere",
            ANSWER_TIMEOUT_SECONDS,
        )
        assert supervised.application is running, "no loss of executors ends the application"
        supervised.rest()


def test_executors_that_are_frozen_or_alone_hold_up_nothing_for_long(
    supervised: Supervised, cluster: SparkCluster
) -> None:
    system = supervised.system
    with Fleet(system.bootstrap, system.prefix, NODES_OF_FLEET, 0.5):
        supervised.ask("before", shards=4)
        running = supervised.application
        cluster.wait_executors(2)
        frozen = cluster.executors[0]
        frozen.suspend()
        supervised.ask("frozen", shards=4, timeout_seconds=FROZEN_SECONDS_MAX)
        psutil.wait_procs([frozen], FROZEN_SECONDS_MAX)
        cluster.wait_executors(2)
        supervised.ask("with-another", shards=4)

        orphan = cluster.workers[0].executors[0]
        cluster.workers[0].kill_alone()
        gone, alive = psutil.wait_procs([orphan], ORPHAN_SECONDS_MAX)
        assert (gone, alive) == ([orphan], [])
        supervised.ask("without-a-worker", shards=4, timeout_seconds=FROZEN_SECONDS_MAX)
        assert supervised.application is running, "no loss of executors ends the application"
        supervised.rest()


@pytest.mark.parametrize("applications", [2, 1], ids=["room for both", "room for one"])
def test_a_pair_shares_a_cluster(
    own_system: System, archive: Path, tmp_path: Path, applications: int
) -> None:
    """Each has executors of its own. Where there is room for one alone, the standby waits for
    those of the active one, and has them at the take-over."""
    system = own_system
    apply_topics(system.bootstrap, system.prefix, 1, partitions={NODES: 4})

    def launch(name: str) -> Application:
        return system.launch("--ha", **pair_settings(cluster, archive, tmp_path / "shared", name))

    with (
        SparkCluster(tmp_path / "cluster", applications=applications) as cluster,
        Fleet(system.bootstrap, system.prefix, NODES_OF_FLEET, 0.5),
    ):
        active = launch("a")
        active.wait_ready()
        standby = launch("b")
        if applications == 2:
            standby.wait_standing_by()
            assert len(cluster.executors_of(standby.jvm)) == len(cluster.workers)
            cluster.workers[0].kill()
            system.inputs.stream("without-a-worker", shards=4)
            system.outputs.decision("without-a-worker")
            cluster.workers[0].launch()
            for each in (active, standby):
                what = "executors on both workers again"
                until(lambda: len(cluster.executors_of(each.jvm)) == 2, what)  # noqa: B023
        else:
            until(lambda: "STANDING_BY" in standby.printed, "it follows", ANSWER_TIMEOUT_SECONDS)
            assert cluster.executors_of(standby.jvm) == []
        system.inputs.stream("before", shards=4)
        system.outputs.decision("before")
        assert writer(system) == (1, "a"), "executors that are lost are no reason to take over"
        active.kill()
        killed = time.monotonic()
        assert wait_writer(system, 2) == "b"
        system.inputs.stream("after", shards=4)
        system.outputs.decision("after")
        print(f"kill to decision {time.monotonic() - killed:.1f} s, room for {applications}")
        system.outputs.check()
        assert system.replay().differences == ()
