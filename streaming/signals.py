"""Ctrl-C and SIGTERM for what runs until it is stopped: once is a request."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
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
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# How long a request may go unheard, see StopEvent; two looks a second cost no CPU time to speak of.
LOOK_SECONDS = 0.5


class StopEvent(threading.Event):
    """An event that a handler of signals may set, and for which the main thread may wait.

    threading.Event serves for neither: its lock is held for moments of a wait, in which a handler
    in the same thread would wait for it for ever; the queue here has none. And a signal that comes
    when the main thread is about to sleep does not wake it, so no sleep is longer than
    LOOK_SECONDS: Python runs handlers only between two steps of that thread.
    """

    def __init__(self) -> None:
        """Not set yet; once it is, it stays so."""
        super().__init__()
        self._is_set = False
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """As that of threading.Event."""
        self._is_set = True
        self._wakes.put(None)

    def is_set(self) -> bool:
        """As that of threading.Event."""
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        """As that of threading.Event."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while not self._is_set and (left := until - time.monotonic()) > 0.0:
            with suppress(Empty):
                self._wakes.get(timeout=min(left, LOOK_SECONDS))
                # For the next who waits.
                self._wakes.put(None)
        return self._is_set

    def set_on_signals(self) -> None:
        """Let SIGINT and SIGTERM set it from now on. To be called in the main thread."""
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: self.set())


def join_heeding_signals(thread: threading.Thread) -> None:
    """Wait in the main thread until another one ends; for the limit of a sleep see StopEvent."""
    while thread.is_alive():
        thread.join(LOOK_SECONDS)


@contextmanager
def stop_on_signals(said: str | None = None) -> Iterator[StopEvent]:
    """An event that SIGINT or SIGTERM sets, to be used in the main thread; `said` then goes to
    standard error.

    A second SIGINT kills all processes that this one has started and raises KeyboardInterrupt.
    """
    stop = StopEvent()
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

    before = {number: signal.signal(number, request) for number in STOP_SIGNALS}
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
