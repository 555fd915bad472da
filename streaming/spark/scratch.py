"""Makes and tries the scratch directory, and reports its faults in one sentence.

It is a directory of this machine, or, as a URI, one of any file system that Spark reaches; that one
is made and cleared by Hadoop, inside the session. Nothing in it is read by a later start: state
comes from the topics. The active process and its standby may share it.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EDQUOT, EFBIG, EIO, ENOSPC, EROFS, ESTALE
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streaming.errors import StreamingError
from streaming.runtime import Scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How the system says that a disk does not serve, in whatever Spark makes of it.
_DISK_FAULTS = tuple(
    os.strerror(number) for number in (ENOSPC, EDQUOT, EFBIG, EIO, EROFS, EACCES, ESTALE)
)
# A page: as little as the scratch directory has to have room for, for a start to be tried.
_PROBE_BYTES = 4096
_KIND = "query"
# A rehearsal takes a minute at most; machines' clocks are not apart by an hour.
_REHEARSAL_NS_MAX = 3_600 * 10**9


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


@contextmanager
def hold_scratch(
    spark: "SparkSession", checkpoint: Path | str, cell: str, writer_epoch: int | None
) -> Iterator[str]:
    """Name an empty directory for the checkpoints of queries, held within the block: another
    process with the same scratch directory leaves it alone.

    What killed processes have left goes first. `cell`: with the topics' prefix, so that cells may
    share a file system; `writer_epoch`: None for a rehearsal. Raises QueryFailed where the
    directory, or the file system of a URI, does not serve.
    """
    if isinstance(checkpoint, str):
        with _hold_remote(spark, checkpoint, cell, writer_epoch) as held:
            yield held
        return
    try:
        scratch = Scratch(_KIND, checkpoint)
    except OSError as error:
        raise _make_failure(checkpoint, error.strerror or str(error)) from error
    with scratch:
        yield str(scratch.path)


@contextmanager
def _hold_remote(
    spark: "SparkSession", checkpoint: str, cell: str, writer_epoch: int | None
) -> Iterator[str]:
    """No lock is there on a file system that Hadoop reaches. A writer's is left to the next writer,
    behind which it can commit nothing any more; a rehearsal removes its own."""
    place, made_at = checkpoint.rstrip("/"), time.time_ns()
    if writer_epoch is None:
        held = f"{place}/{cell}-rehearsal-{made_at}"
        yield held
        _ask(spark, held, lambda files, path, _: files.delete(path, True))
        return
    oldest = made_at - _REHEARSAL_NS_MAX

    def clear(files: Any, place: Any, path: Any) -> None:
        files.mkdirs(place)
        for kind, bound in (("epoch", writer_epoch), ("rehearsal", oldest)):
            for status in files.globStatus(path(place, f"{cell}-{kind}-*")):
                found = status.getPath()
                number = found.getName().removeprefix(f"{cell}-{kind}-").partition("-")[0]
                if number.isdecimal() and int(number) < bound:
                    files.delete(found, True)

    _ask(spark, checkpoint, clear)
    yield f"{place}/{cell}-epoch-{writer_epoch}-{made_at}"


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
