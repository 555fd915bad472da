"""The reconciler on a Spark cluster whose workers and executors are lost and come back.

Master and two workers are processes of their own, from the PySpark package. Executors get code,
packages and Python from the application: in their working directories and their environment nothing
of this checkout can be imported, and none of their processes has a file of it open.
"""

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
from tests.systems.spark_cluster import SparkCluster
from tests.systems.supervised import ANSWER_TIMEOUT_SECONDS, Supervised
from tests.systems.waiting import until

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
