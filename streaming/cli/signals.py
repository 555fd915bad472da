"""Ctrl-C and SIGTERM for commands that run until they are stopped: once is a request."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

EXIT_INTERRUPTED = 128 + signal.SIGINT


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets, to be used in the main thread.

    A second SIGINT kills all processes that this one has started and raises KeyboardInterrupt.
    """
    stop = threading.Event()

    def request(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT and stop.is_set():
            kill_children()
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def kill_children() -> None:
    """End every process below this one at once: broker, JVM and Python workers."""
    import psutil  # type: ignore[import-untyped]

    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.NoSuchProcess:
            # It ended by itself, often because its parent was killed just before.
            continue
