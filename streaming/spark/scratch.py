"""Makes and tries the scratch directory, and reports its faults in one sentence.

Nothing in it is read by a later start: state comes from the topics.
"""

import os
import shutil
import tempfile
import time
from errno import EACCES, EDQUOT, EFBIG, EIO, ENOSPC, EROFS, ESTALE
from pathlib import Path

from streaming.errors import StreamingError

# How the system says that a disk does not serve, in whatever Spark makes of it.
_DISK_FAULTS = tuple(
    os.strerror(number) for number in (ENOSPC, EDQUOT, EFBIG, EIO, EROFS, EACCES, ESTALE)
)
# A page: as little as the scratch directory has to have room for, for a start to be tried.
_PROBE_BYTES = 4096


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


def find_disk_fault(checkpoint: Path | None, said: str) -> QueryFailed | None:
    """Make one sentence of what Spark says about a full or failing disk; None for anything else."""
    fault = next((fault for fault in _DISK_FAULTS if fault in said), None)
    return None if fault is None else _make_failure(checkpoint, fault)


def make_scratch(checkpoint: Path, name: str) -> Path:
    """Name an empty directory that begins with `name`; those of earlier ones go."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    for pattern in ("epoch-*", "rehearsal-*"):
        for old in checkpoint.glob(pattern):
            shutil.rmtree(old, ignore_errors=True)
    return checkpoint / f"{name}-{time.time_ns()}"


def _make_failure(checkpoint: Path | None, fault: str) -> QueryFailed:
    return QueryFailed(
        f"{checkpoint}: {fault}. No decision is lost: free space or repair the disk, or "
        "name another scratch directory with --checkpoint, and start again"
    )
