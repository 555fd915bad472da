"""Starts the Spark session; every setting that latency or guarantees rest on has its reason.

The figures are measurements of this pipeline on two cores (milliseconds of one micro-batch).
"""

import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming.runtime import Scratch, ensure_jars, find_java
from streaming.settings import SECRET_KEY, Settings
from streaming.spark.cluster import (
    check_place,
    cluster_options,
    find_executor_python,
    is_cluster,
    make_working_directory,
    resolve_paths,
)
from streaming.spark.jvm import SparkJvm, class_archive, make_class_path, use_archive
from streaming.spark.scratch import QueryFailed, check_scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = "placement-reconciler"
_STATE_STORE = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LOCAL_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

# Hadoop's local file system without a process for every chmod: it asks Java's own file API.
_LOCAL_FILE_SYSTEM = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
_LOCAL_FILE_SYSTEM_JAR = "hadoop-bare-naked-local-fs"

# SerialGC and C1 only: on two cores the optimising compiler's threads starve the first hundred
# batches (176 -> 102). A young generation of a third of the heap, the default, is written to from
# end to end before its first collection; 64 MB of it, and an old one that starts small and grows by
# need, keep an idle JVM small (tests/benchmarks/README.md has the figures). A fifth of it each for
# what survives: beside 20,000 heartbeats a second 5 MB of a batch live at each collection, and with
# the default of a tenth of 48 MB they grew old with it and filled the old one every 4 s, for whose
# collection everything waits 120 ms. With less left free, or with the default first bound of 21 MB
# for classes, a start and 75 decisions have 14 full collections instead of 3.
_JVM_OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m -Xms128m -XX:MaxNewSize=64m "
    "-XX:SurvivorRatio=3 -XX:TargetSurvivorRatio=90 -XX:MetaspaceSize=192m "
    "-XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40"
)
# glibc gives each of the JVM's threads a pool of native memory; two for all save 30 MiB.
_MALLOC_POOLS = "2"

# By process id of the JVM; what is here when this process is killed goes with the next start.
_TEMPORARY: dict[int, Scratch] = {}

# Nobody reads this history: as few as leave what runs now alone.
_SHOWN_MAX = "20"

# Tasks at once in this process's machine. The query of loads has a task at a time: with a place of
# its own no decision waits for it (beside 33,000 reports a second: 95 % within 1.18 times what they
# take alone, instead of 1.56).
_TASKS, _TASKS_WITH_LOADS = 2, 3
# As on a cluster. A task asks the leader of its partition where it ends, and fails where there is
# none for `socket.timeout.ms`: a broker that dies is fenced after 9 s by default. Spark's default
# of one failure on a single machine would end the application with it.
_TASK_FAILURES_MAX = 4
# The name of a socket takes 104 bytes where least is allowed; Spark's own part of it takes 42.
_SOCKET_DIR_CHARS = 60
_SECRETS = r"(?i)secret|password|token|access.?key|jaas|keystore"


def spark_options(topology_shards: int, driver_memory: str, temporary: Path) -> dict[str, str]:
    """The settings of any session; user settings may override them. The driver's JVM unpacks
    native libraries and spills into `temporary`."""
    return {
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": f'{_JVM_OPTIONS} "-Djava.io.tmpdir={temporary}"',
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Spark remembers what its user interface would show even without one: by default 1,000
        # queries with their plans, 1,000 jobs and stages and 100,000 tasks.
        "spark.ui.retainedJobs": _SHOWN_MAX,
        "spark.ui.retainedStages": _SHOWN_MAX,
        "spark.ui.retainedTasks": _SHOWN_MAX,
        "spark.sql.ui.retainedExecutions": _SHOWN_MAX,
        # One state store per topology shard; two instead of one cost 25.
        "spark.sql.shuffle.partitions": str(topology_shards),
        # transformWithState runs on this provider only.
        "spark.sql.streaming.stateStore.providerClass": _STATE_STORE,
        # A delta per batch instead of a snapshot: state commit 79 -> 10.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        # Nagle's algorithm on the TCP socket to Python workers: -45 per Python stage.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Only some runners set it in their workers' environment; workers of unlike environments
        # are forked from daemons of their own, each with all imports: 150 MiB, 1 s of the start.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        # Workers are forked with their imports done.
        "spark.python.daemon.module": "streaming.worker_daemon",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.locality.wait": "0s",
        # How soon an idle query looks for new records.
        "spark.sql.streaming.pollingDelay": "10ms",
        # No watermark, no timers: a batch without data has nothing to do.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "100",
        # The checkpoint is scratch: one start never reads what another wrote.
        "spark.sql.streaming.minBatchesToRetain": "2",
        # One Kafka partition is one task is one Arrow stream; a batch's records come in few pieces.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.session.timeZone": "UTC",
        # Spark's own words, and ours for what it takes on: passwords and keys of Kafka's clients.
        "spark.redaction.regex": _SECRETS,
        "spark.sql.redaction.options.regex": f"(?i)url|{_SECRETS}",
    }


def local_options(tasks: int, jar_paths: list[Path], temporary: Path) -> dict[str, str]:
    """The settings of a session in this process's machine, with `tasks` at once."""
    return {
        "spark.master": f"local[{tasks},{_TASK_FAILURES_MAX}]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(temporary),
        "spark.python.unix.domain.socket.dir": _socket_dir(temporary),
        # The default writer forks ten processes per log file; atomic on a local disk: -40 to -95.
        "spark.sql.streaming.checkpointFileManagerClass": _LOCAL_FILES,
        # The forks that are left, in the log and in the state store: -25. It has to be there
        # before Spark adds jars of its own accord.
        "spark.hadoop.fs.file.impl": _LOCAL_FILE_SYSTEM,
        "spark.driver.extraClassPath": next(str(path) for path in jar_paths if _is_local(path)),
    }


def _is_local(jar: Path) -> bool:
    return jar.name.startswith(_LOCAL_FILE_SYSTEM_JAR)


def _socket_dir(temporary: Path) -> str:
    """Where sockets may have their names, which the system keeps short; at last where Java would
    put them."""
    places = (str(temporary), tempfile.gettempdir())
    return next((place for place in places if len(place) <= _SOCKET_DIR_CHARS), "/tmp")


class StartingSession:
    """A Spark session whose JVM is on its way; `finish` waits for it."""

    def __init__(
        self,
        topology_shards: int,
        driver_memory: str,
        options: Mapping[str, str],
        scratch: Path | str,
        *,
        reads_loads: bool = False,
        archive_options: Sequence[str] | None = None,
    ) -> None:
        """Start Spark, by default in this process's machine on two cores, and do not wait.

        `options` come last and win, among them `spark.master` for a cluster. `reads_loads`: whether
        there will be the query of loads beside the one that decides. What the JVM prints goes to
        `spark.log` in `scratch`, or, where that is a URI, beside other temporary files.
        `archive_options`: what Java is to do with a class archive instead of using the one that is
        there. Raises JarsUnavailable, JavaUnavailable, or SettingsInvalid for a cluster whose
        executors would lack something.
        """
        paths, java = ensure_jars("connector"), find_java()
        os.environ.setdefault("MALLOC_ARENA_MAX", _MALLOC_POOLS)
        # Workers would take whatever `python3` is first on the PATH.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        # Workers here import the three packages from this installation, beside what was on the
        # path.
        root = str(Path(__file__).parents[2])
        before = os.environ.get("PYTHONPATH", "")
        if root not in before.split(os.pathsep):
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, before)))
        tasks = _TASKS_WITH_LOADS if reads_loads else _TASKS
        on_cluster = is_cluster(options.get("spark.master", "local"))
        if on_cluster:
            check_place(options["spark.master"], scratch)
            python = find_executor_python(options)
            paths = [path for path in paths if not _is_local(path)]
        self._temporary = Scratch("jvm")
        temporary, directory = self._temporary.path, None
        chosen = spark_options(topology_shards, driver_memory, temporary)
        chosen |= {"spark.app.name": _NAME, "spark.jars": ",".join(map(str, paths))}
        if on_cluster:
            os.environ["PYSPARK_PYTHON"] = python
            directory = make_working_directory(temporary, python)
            chosen = resolve_paths(chosen | cluster_options(_MALLOC_POOLS) | dict(options))
        else:
            chosen |= local_options(tasks, paths, temporary) | dict(options)
        self._chosen = chosen
        # The JVM gets these on its command line, which everyone on the machine can read; secrets
        # follow through the gateway.
        plain = {name: value for name, value in chosen.items() if not SECRET_KEY.search(name)}
        logs = scratch if isinstance(scratch, Path) else temporary
        logs.mkdir(parents=True, exist_ok=True)
        self.archive = class_archive(java, make_class_path(plain))
        about_archive = use_archive(self.archive) if archive_options is None else archive_options
        self._jvm = SparkJvm(java, plain, logs / "spark.log", about_archive, directory)

    def finish(self) -> "SparkSession":
        """Wait for the JVM and make the session. Raises JvmFailed."""
        logging.getLogger("py4j").setLevel(logging.ERROR)
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        gateway = self._jvm.connect()
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(self._chosen.items()))
        context = SparkContext(conf=conf, gateway=gateway)
        context.setLogLevel("ERROR")
        _TEMPORARY[gateway.proc.pid] = self._temporary
        return SparkSession(context)

    def abandon(self) -> None:
        """End the JVM, where nobody has finished the session."""
        if self._jvm.process.pid not in _TEMPORARY:
            self._jvm.kill()
            self._temporary.remove()


def start_session(
    settings: Settings, archive_options: Sequence[str] | None = None
) -> StartingSession:
    """Start the session that the settings ask for. Raises QueryFailed where the scratch directory
    does not serve, and as StartingSession does."""
    assert settings.checkpoint is not None, "the command line asks for it"
    if isinstance(settings.checkpoint, Path):
        check_scratch(settings.checkpoint)
    return StartingSession(
        settings.spark.topology_shards,
        settings.spark.driver_memory,
        settings.resolved_spark_options(),
        settings.checkpoint,
        reads_loads=bool(settings.resources),
        archive_options=archive_options,
    )


@contextmanager
def session_options(session: "SparkSession", options: Mapping[str, str]) -> Iterator[None]:
    """Set options of the session within the block; a query keeps what they are at its start."""
    before = {name: str(session.conf.get(name)) for name in options}
    try:
        for name, value in options.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            session.conf.set(name, value)


def _gateway_of(session: "SparkSession") -> Any:
    return session.sparkContext._gateway  # noqa: SLF001 - PySpark offers no other way


def is_session_open(session: "SparkSession") -> bool:
    """Return whether the session's JVM runs."""
    gateway = _gateway_of(session)
    return gateway is not None and gateway.proc.poll() is None


def check_session(session: "SparkSession") -> None:
    """Raise QueryFailed where the session's JVM has ended."""
    if is_session_open(session):
        return
    gateway = _gateway_of(session)
    code = None if gateway is None else gateway.proc.returncode
    killed = code == -signal.SIGKILL
    why = ": it was killed, as the system does where memory is short" if killed else ""
    raise QueryFailed(f"the JVM of Spark has ended with exit code {code}{why}; see spark.log")


def close_session(session: "SparkSession") -> None:
    """Stop Spark and end its JVM; it would otherwise live as long as this process."""
    from py4j.protocol import Py4JError

    gateway = _gateway_of(session)
    # A JVM that has ended by itself does not answer any more.
    with suppress(Py4JError, OSError):
        session.stop()
    if gateway is not None:
        with suppress(Py4JError, OSError):
            gateway.shutdown()
        with suppress(OSError):
            gateway.proc.stdin.close()
        gateway.proc.wait()
        _TEMPORARY.pop(gateway.proc.pid).remove()
