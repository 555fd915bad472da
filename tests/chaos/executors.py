"""What befalls the executors of applications on a Spark cluster, and how the cluster becomes whole
again: none of it ends an application.
"""

import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from streaming.environment_archive import make_environment_archive
from tests.systems.application import Application
from tests.systems.spark_cluster import EXECUTORS, SparkCluster
from tests.systems.waiting import until

# A paused executor is first given up, then told to end, and killed 10 s later.
WHOLE_TIMEOUT_SECONDS = 300.0
# As many as the partitions of the nodes topic: more than executors, so that each judges several.
TOPOLOGY_SHARDS = 4


class Executors:
    """The executors of the applications on one cluster; `parts`: what can be done to those of the
    application that decides."""

    def __init__(self, cluster: SparkCluster, archive: Path, shared: Path) -> None:
        """`archive`: what `placer package` makes; `shared`: is the scratch directory of all."""
        self._cluster, self._archive, self._shared = cluster, archive, shared
        self._paused: list[psutil.Process] = []
        self._down: list[int] = []
        self._decides: Application | None = None
        self.parts: Mapping[str, Callable[[], None]] = {
            "executor": self._kill_executor,
            "frozen": self._pause_executor,
            "python": self._kill_python,
            "worker": self._kill_worker,
            "alone": self._kill_worker_alone,
            "both": self._kill_workers,
        }

    def settings(self) -> dict[str, str]:
        """The environment of another application."""
        settings = self._cluster.settings(self._archive, self._shared)
        return settings | {"PLACER_SPARK__TOPOLOGY_SHARDS": str(TOPOLOGY_SHARDS)}

    def mend(self, applications: list[Application], decides: Application) -> None:
        """Bring back what was taken away; returns when each of the applications has its executors.
        The parts hit those of the one that `decides`."""
        for number in self._down:
            self._cluster.workers[number].launch()
        self._down.clear()
        for each in self._paused:
            with suppress(psutil.NoSuchProcess):
                each.resume()
        self._paused.clear()
        for application in applications:
            of_it = f"{EXECUTORS} executors of each application"
            until(lambda: self._count(application) == EXECUTORS, of_it, WHOLE_TIMEOUT_SECONDS)  # noqa: B023
        self._decides = decides

    def _count(self, application: Application) -> int:
        return len(self._cluster.executors_of(application.jvm))

    @property
    def _executor(self) -> psutil.Process:
        assert self._decides is not None
        return self._cluster.executors_of(self._decides.jvm)[0]

    def _kill_executor(self) -> None:
        self._executor.kill()

    def _pause_executor(self) -> None:
        paused = self._executor
        paused.send_signal(signal.SIGSTOP)
        self._paused.append(paused)

    def _kill_python(self) -> None:
        """The daemon of an executor, with the workers that it has forked."""
        for each in self._executor.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def _kill_worker(self) -> None:
        """With the executors of all applications on it, as when its machine is lost."""
        worker = self._take_worker()
        self._cluster.workers[worker].kill()

    def _kill_worker_alone(self) -> None:
        """Its executors find themselves without it."""
        worker = self._take_worker()
        self._cluster.workers[worker].kill_alone()

    def _take_worker(self) -> int:
        """A worker with an executor of the application that decides; it is to come back."""
        worker = self._cluster.worker_of(self._executor)
        self._down.append(worker)
        return worker

    def _kill_workers(self) -> None:
        """All machines at once, which are back at once."""
        for worker in self._cluster.workers:
            worker.kill()
        for worker in self._cluster.workers:
            worker.launch()


@contextmanager
def start_executors(scratch: Path, applications: int) -> Iterator[Executors]:
    """A cluster with room for so many applications, and the archive that executors get.

    Beside a standby one worker more than executors: those of one application may all be on one
    worker, and when that is lost those of the other take what is left of two.
    """
    archive = make_environment_archive(scratch / "environment.tar.gz").file
    workers = EXECUTORS + (applications > 1)
    with SparkCluster(scratch / "spark", workers, applications) as cluster:
        yield Executors(cluster, archive, scratch / "shared")
