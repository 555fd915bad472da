"""Processes under measurement: started until they say ready, weighed, and ended without a trace."""

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import psutil

# Spark on a busy machine: session 6 s, first batch 5 s.
READY_TIMEOUT_SECONDS = 120.0
# The application finishes its batch and stops Spark.
STOP_TIMEOUT_SECONDS = 45.0
TAIL_LINES = 15


class BenchmarkFailed(Exception):
    """A process under measurement did not do its part; the figures would be wrong."""


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator[psutil.Process]:
    """A process from its line with the word ready to the end of the block.

    It has a session of its own, so that Ctrl-C reaches this process alone, which then ends it.
    """
    process = subprocess.Popen(
        [str(part) for part in command],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    ready, tail = threading.Event(), deque[str](maxlen=TAIL_LINES)
    reader = threading.Thread(target=_follow, args=(process, ready, tail), daemon=True)
    reader.start()
    try:
        if not ready.wait(READY_TIMEOUT_SECONDS) or process.poll() is not None:
            raise BenchmarkFailed(f"{command[0]} did not get ready:\n{''.join(tail)}")
        yield psutil.Process(process.pid)
        if process.poll() is not None:
            raise BenchmarkFailed(f"{command[0]} ended by itself:\n{''.join(tail)}")
    finally:
        _end(process)
        reader.join()


def module(name: str) -> list[str]:
    """The command that runs a module of this folder with the interpreter in use."""
    return [sys.executable, "-m", f"tests.benchmarks.{name}"]


def resident_bytes(process: psutil.Process) -> dict[str, int]:
    """RSS by role of a Spark application: its driver, JVM, worker daemon and workers."""
    weights = {"driver": process.memory_info().rss}
    for child in process.children(recursive=True):
        try:
            role = _role(child, process)
            if role:
                weights[role] = weights.get(role, 0) + child.memory_info().rss
        except psutil.NoSuchProcess:
            # A fork of the JVM that lived for a moment.
            continue
    return weights


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time that an application has used so far, with what it started and waited for."""
    spent = 0.0
    for each in (process, *process.children(recursive=True)):
        try:
            spent += sum(each.cpu_times()[:4])
        except psutil.NoSuchProcess:
            # Its parent has it in its own account by now.
            continue
    return spent


def _role(child: psutil.Process, driver: psutil.Process) -> str | None:
    """None for a fork of the JVM that is about to become some command."""
    parent = child.parent()
    if parent is None:
        return None
    if "pyspark.daemon" in child.cmdline():
        return "workers" if "pyspark.daemon" in parent.cmdline() else "worker daemon"
    return "JVM" if child.name() == "java" and parent == driver else None


def _follow(process: subprocess.Popen[str], ready: threading.Event, tail: deque[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        tail.append(line)
        if "ready" in line:
            ready.set()
    process.wait()
    ready.set()


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for child in psutil.wait_procs(children, timeout=STOP_TIMEOUT_SECONDS / 10)[1]:
            child.kill()
