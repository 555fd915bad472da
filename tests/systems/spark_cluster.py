"""A standalone Spark cluster: a master and workers as processes, which start executors.

They come from the installed PySpark package and run in directories of their own with an environment
in which nothing of this project can be imported. The master's page as JSON says who is there.
"""

import os
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import orjson
import psutil

from streaming.runtime import find_java
from streaming.spark.jvm import LAUNCHER_OPTIONS, spark_home
from tests.systems.cluster import free_ports
from tests.systems.waiting import until

HOST = "127.0.0.1"
# As small as two cores for all of it ask for.
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms32m", "-Xmx192m")
# Of a worker for each application: one executor with one core.
WORKER_CORES, WORKER_MEMORY_MIB, EXECUTOR_MEMORY = 1, 1024, "512m"
# Executors of an application: enough that one is left when another is lost.
EXECUTORS = 2
START_TIMEOUT_SECONDS = 120.0


class _Process:
    """A JVM of Spark with all that it starts."""

    def __init__(self, directory: Path, main: str, arguments: Sequence[str]) -> None:
        self._directory, self._main, self._arguments = directory, main, arguments
        self._running: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it."""
        java = find_java()
        self._directory.mkdir(parents=True, exist_ok=True)
        environment = {
            "PATH": os.defpath,
            "JAVA_HOME": str(java.home),
            # Its jars; PySpark's own package there is not importable by itself.
            "SPARK_HOME": str(spark_home()),
            # As Spark's own start script says.
            "SPARK_SCALA_VERSION": "2.13",
        }
        with (self._directory / "log").open("ab") as output:
            self._running = subprocess.Popen(
                [java.executable, "-cp", f"{spark_home()}/jars/*", *_JVM_OPTIONS,
                 "-Dspark.master.rest.enabled=false", *LAUNCHER_OPTIONS,
                 f"org.apache.spark.deploy.{self._main}", *self._arguments],
                cwd=self._directory, env=environment, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip

    @property
    def executors(self) -> list[psutil.Process]:
        """The JVMs of the executors that it has started."""
        return [each for each in self.family if "CoarseGrainedExecutorBackend" in _line(each)]

    @property
    def family(self) -> list[psutil.Process]:
        """All that it has started, however deep."""
        if self._running is None or self._running.poll() is not None:
            return []
        return _children(psutil.Process(self._running.pid))

    @property
    def output(self) -> str:
        """What it has printed."""
        return (self._directory / "log").read_text(errors="replace")

    def kill_alone(self) -> None:
        """kill -9 to it, and not to what it has started."""
        if self._running is not None:
            self._running.kill()
            self._running.wait()

    def kill(self) -> None:
        """kill -9 to it and to all that it has started, as when its machine is lost."""
        if self._running is None:
            return
        family = self.family
        self._running.kill()
        self._running.wait()
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, START_TIMEOUT_SECONDS)


class SparkCluster:
    """A master and workers with one core for each of so many `applications`; `url` is Spark's name
    of the master."""

    def __init__(self, scratch: Path, workers: int = EXECUTORS, applications: int = 1) -> None:
        port, page = free_ports(2)
        self.url, self._page = f"spark://{HOST}:{port}", f"http://{HOST}:{page}/json/"
        self._scratch, self._applications = scratch, applications
        at = ("--host", HOST, "--port", str(port), "--webui-port", str(page))
        self._master = _Process(scratch / "master", "master.Master", at)
        self.workers = [self._worker(number) for number in range(workers)]

    def _worker(self, number: int) -> _Process:
        directory = self._scratch / f"worker-{number}"
        arguments = (
            *("--host", HOST, "--webui-port", "0", "--work-dir", str(directory / "work")),
            *("--cores", str(WORKER_CORES * self._applications)),
            *("--memory", f"{WORKER_MEMORY_MIB * self._applications}m", self.url),
        )
        return _Process(directory, "worker.Worker", arguments)

    def settings(self, archive: Path, checkpoint: Path) -> dict[str, str]:
        """The environment of an application on this cluster, all of it on this machine. It takes
        cores for EXECUTORS executors, and leaves the others to the other applications."""
        options = {
            "spark.master": self.url,
            "spark.archives": f"{archive}#environment",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.cores.max": str(WORKER_CORES * EXECUTORS),
            # Without it one executor takes all free cores of a worker, those of the other
            # application too where workers come back one after the other.
            "spark.executor.cores": str(WORKER_CORES),
            "spark.executor.memory": EXECUTOR_MEMORY,
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        return {
            "PLACER_SPARK__OPTIONS": orjson.dumps(options).decode(),
            "PLACER_CHECKPOINT": checkpoint.as_uri(),
        }

    @property
    def state(self) -> dict[str, Any]:
        """What the master knows."""
        with urllib.request.urlopen(self._page, timeout=10) as page:
            return orjson.loads(page.read())

    @property
    def executors(self) -> list[psutil.Process]:
        """The JVMs of all executors."""
        return [each for worker in self.workers for each in worker.executors]

    def executors_of(self, jvm: psutil.Process) -> list[psutil.Process]:
        """The JVMs of the executors of the application whose driver has this JVM."""
        ports = {each.laddr.port for each in jvm.net_connections("tcp") if each.status == "LISTEN"}
        drivers = tuple(f"@{HOST}:{port} " for port in ports)
        return [each for each in self.executors if any(one in _line(each) for one in drivers)]

    def worker_of(self, executor: psutil.Process) -> int:
        """The position of the worker that has started an executor."""
        return next(n for n, each in enumerate(self.workers) if executor in each.executors)

    def wait_workers(self, count: int) -> None:
        """Return when so many workers are there by the master's account."""
        until(lambda: self._alive() == count, f"{count} workers", START_TIMEOUT_SECONDS)

    def wait_executors(self, count: int) -> None:
        """Return when so many executors run, and each has been given work."""
        what = f"{count} executors at work"
        until(lambda: self._working() == [True] * count, what, START_TIMEOUT_SECONDS)

    def _working(self) -> list[bool]:
        """Of each executor, whether it has a Python worker."""
        return [bool(_children(each)) for each in self.executors]

    def _alive(self) -> int | None:
        try:
            return self.state["aliveworkers"]
        except OSError:
            return None

    def __enter__(self) -> Self:
        self._master.launch()
        try:
            self.wait_workers(0)
            for worker in self.workers:
                worker.launch()
            self.wait_workers(len(self.workers))
        except BaseException as error:
            error.add_note(self._master.output[-2000:])
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all of it."""
        for each in (*self.workers, self._master):
            each.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
