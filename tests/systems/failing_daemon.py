"""Spark's daemon of Python workers, in which a task fails when a test asks for it (F33).

Run by Spark in the place of `streaming.worker_daemon`. A task fails at the end of its work, when
the state has been put and the rows have been given, which is the worst moment. A file in the
directory `FAILURES` asks for one failure: its name says where, its content how.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.daemon import manager

from streaming.ingest import NodeLifecycle, source

FAILURES = "FAILURES"
RAISE, DIE = "raise", "die"


def fail_if_asked(where: str) -> None:
    """One task meets the file; others do not."""
    wish = Path(os.environ[FAILURES], where)
    try:
        how = wish.read_text()
        wish.unlink()
    except FileNotFoundError:
        return
    if how == DIE:
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError(f"{where} fails as it was asked to")


_pack, _handle = source.pack, NodeLifecycle.handleInputRows


def _pack_and_fail(*given: Any) -> Iterator[Any]:
    yield from _pack(*given)
    fail_if_asked("pack")


def _handle_and_fail(*given: Any) -> Iterator[Any]:
    yield from _handle(*given)
    fail_if_asked("operator")


if __name__ == "__main__":
    source.pack = _pack_and_fail
    NodeLifecycle.handleInputRows = _handle_and_fail
    manager()
