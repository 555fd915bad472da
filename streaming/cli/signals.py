"""Ctrl-C and SIGTERM for commands that run until they are stopped: once is a request."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

# Not inside the handler: a second signal could come in the middle of the import. A light
# installation is without it, and starts no process either.
try:
    import psutil  # type: ignore[import-untyped]
except ModuleNotFoundError:
    psutil = None

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# The kernel needs milliseconds; what takes longer hangs in it, and we leave all the same.
KILL_TIMEOUT_SECONDS = 5.0
EXIT_INTERRUPTED = 128 + signal.SIGINT


@contextmanager
def stop_on_signals(said: str | None = None) -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets, to be used in the main thread; `said` then goes to
    standard error.

    A second SIGINT kills all processes that this one has started and raises KeyboardInterrupt.
    """
    stop = threading.Event()
    # A worker whose parent has already gone is no longer found below this process.
    started: set[psutil.Process] = set()

    def request(number: int, _: FrameType | None) -> None:
        again = number == signal.SIGINT and stop.is_set()
        if said is not None and not stop.is_set():
            # Not through a buffer that the interrupted thread may be writing to.
            os.write(sys.stderr.fileno(), f"{said}\n".encode())
        stop.set()
        started.update(descendants())
        if again:
            silence_errors()
            kill(list(started))
            raise KeyboardInterrupt

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def descendants() -> list[psutil.Process]:
    """Every process below this one: broker, JVM and Python workers."""
    return [] if psutil is None else psutil.Process().children(recursive=True)


def kill(killed: list[psutil.Process]) -> None:
    """End them at once; one that has ended by itself, or its successor's number, is left alone."""
    if not killed:
        return
    for process in killed:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    # Only then do the directories stand still that are to be removed.
    psutil.wait_procs(killed, KILL_TIMEOUT_SECONDS)


def silence_errors() -> None:
    """From now on nothing reaches standard error: threads whose JVM is gone only complain of it."""
    sys.stderr.flush()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)
