"""Makes and tries the scratch directory, and reports its faults in one sentence.

It is a directory of this machine, or, as a URI, one of any file system that Spark reaches; that one
is made and cleared by Hadoop, inside the session. Nothing in it is read by a later start: state
comes from the topics.
"""

import os
import shutil
import tempfile
import time
from errno import EACCES, EDQUOT, EFBIG, EIO, ENOSPC, EROFS, ESTALE
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming.errors import StreamingError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How the system says that a disk does not serve, in whatever Spark makes of it.
_DISK_FAULTS = tuple(
    os.strerror(number) for number in (ENOSPC, EDQUOT, EFBIG, EIO, EROFS, EACCES, ESTALE)
)
# A page: as little as the scratch directory has to have room for, for a start to be tried.
_PROBE_BYTES = 4096
# What earlier starts have left.
_LEFT = ("epoch-*", "rehearsal-*")


class QueryFailed(StreamingError):
    """The streaming query ended by itself."""


def check_scratch(checkpoint: Path) -> None:
    """Make the scratch directory and write to it. Raises QueryFailed when it does not serve, before
    anything else is begun: another writer may be at work meanwhile."""
    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=checkpoint) as probe:
            probe.write(bytes(_PROBE_BYTES))
    except OSError as error:
        raise _make_failure(checkpoint, error.strerror or str(error)) from error


def find_disk_fault(checkpoint: Path | str | None, said: str) -> QueryFailed | None:
    """Make one sentence of what Spark says about a full or failing disk; None for anything else."""
    fault = next((fault for fault in _DISK_FAULTS if fault in said), None)
    return None if fault is None else _make_failure(checkpoint, fault)


def make_scratch(spark: "SparkSession", checkpoint: Path | str, name: str) -> str:
    """Name an empty directory that begins with `name`; those of earlier ones go.

    Raises QueryFailed where the file system of a URI does not serve.
    """
    fresh = f"{name}-{time.time_ns()}"
    if isinstance(checkpoint, str):
        _clear_remote(spark, checkpoint)
        return f"{checkpoint.rstrip('/')}/{fresh}"
    clear_scratch(checkpoint)
    return str(checkpoint / fresh)


def clear_scratch(checkpoint: Path) -> None:
    """Remove what earlier starts have left in a directory of this machine."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    for pattern in _LEFT:
        for old in checkpoint.glob(pattern):
            shutil.rmtree(old, ignore_errors=True)


def remove_scratch(spark: "SparkSession", scratch: str) -> None:
    """Remove one that is needed no longer. Raises QueryFailed."""
    _ask(spark, scratch, lambda files, path, _: files.delete(path, True))


def _clear_remote(spark: "SparkSession", checkpoint: str) -> None:
    def clear(files: Any, place: Any, path: Any) -> None:
        files.mkdirs(place)
        for pattern in _LEFT:
            for old in files.globStatus(path(place, pattern)):
                files.delete(old.getPath(), True)

    _ask(spark, checkpoint, clear)


def _ask(spark: "SparkSession", place: str, ask: Any) -> None:
    """Ask Hadoop's file system of a path or URI; its faults in one sentence."""
    from py4j.protocol import Py4JJavaError

    context = spark.sparkContext
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark offers no other way
    path = jvm.org.apache.hadoop.fs.Path
    configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001
    try:
        at = path(place)
        ask(at.getFileSystem(configuration), at, path)
    except Py4JJavaError as error:
        said = str(error.java_exception.toString())
        raise _make_failure(place, said.splitlines()[0]) from error


def _make_failure(checkpoint: Path | str | None, fault: str) -> QueryFailed:
    return QueryFailed(
        f"{checkpoint}: {fault}. No decision is lost: free space or repair the disk, or "
        "name another scratch directory with --checkpoint, and start again"
    )
