"""Goal: a request to stop is heard whatever the main thread does when the signal comes.

Method: the two moments that chance finds seldom are made. A signal that reaches another thread than
the main one leaves it asleep, as one does that comes just before the sleep; a trace function is the
handler that runs after each line of a wait.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from streaming.signals import (
    LOOK_SECONDS,
    STOP_SIGNALS,
    StopEvent,
    join_heeding_signals,
    stop_on_signals,
)

WAIT_SECONDS = 30.0


@contextmanager
def unwoken_by(number: signal.Signals, stop: threading.Event) -> Iterator[None]:
    """The signal comes while the main thread sleeps, and does not wake it."""
    is_over = threading.Event()
    late = []

    def send() -> None:
        # Long enough for the thread to sleep, short beside its first look.
        is_over.wait(LOOK_SECONDS / 5)
        os.kill(os.getpid(), number)
        if not is_over.wait(WAIT_SECONDS):
            late.append(number)
            stop.set()

    sender = threading.Thread(target=send)
    sender.start()
    # The sender has begun without it, so it is the one that hears the signal.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        is_over.set()
        sender.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert not late


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_wait_without_limit_ends(number: signal.Signals) -> None:
    with stop_on_signals() as stop, unwoken_by(number, stop):
        assert stop.wait()
    assert stop.is_set()


def test_waiting_for_a_thread_ends() -> None:
    with stop_on_signals() as stop:
        thread = threading.Thread(target=stop.wait, args=(WAIT_SECONDS,))
        thread.start()
        with unwoken_by(signal.SIGTERM, stop):
            join_heeding_signals(thread)
        assert stop.is_set()


def test_a_handler_may_set_it_in_the_middle_of_a_wait() -> None:
    lines = []

    def wait(at: int) -> None:
        stop, seen = StopEvent(), 0

        def handle(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal seen
            if event == "line":
                seen += 1
                if seen == at:
                    lines.append(frame.f_lineno)
                    stop.set()
            return handle

        sys.settrace(handle)
        stop.wait(WAIT_SECONDS)
        sys.settrace(None)

    for at in range(1, 5):
        waiting = threading.Thread(target=wait, args=(at,), daemon=True)
        waiting.start()
        waiting.join(WAIT_SECONDS / 2)
        assert not waiting.is_alive(), f"after {at} lines"
    assert len(set(lines)) == 4


def test_all_who_wait_are_woken() -> None:
    stop = StopEvent()
    woken: list[bool] = []
    waiting = [threading.Thread(target=lambda: woken.append(stop.wait())) for _ in range(3)]
    for thread in waiting:
        thread.start()
    stop.set()
    for thread in waiting:
        thread.join(WAIT_SECONDS)
    assert woken == [True] * 3


def test_a_limit_holds() -> None:
    stop = StopEvent()
    assert not stop.wait(0.0)
    assert not stop.wait(-1.0)
    assert not stop.wait(0.01)
    stop.set()
    assert stop.wait(0.0)


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_it_can_be_set_by_signals_alone(number: signal.Signals) -> None:
    before = {each: signal.getsignal(each) for each in STOP_SIGNALS}
    stop = StopEvent()
    stop.set_on_signals()
    try:
        with unwoken_by(number, stop):
            assert stop.wait()
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
