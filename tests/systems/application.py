"""The application under test: `placer run` as a process of its own, with everything it starts."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.systems.waiting import until

PLACER = Path(sys.executable).with_name("placer")
# Short enough for a test, long enough that a busy machine makes no node silent by itself.
SETTINGS = {
    "PLACER_LIVENESS__SUSPECT_AFTER_SECONDS": "2.5",
    "PLACER_LIVENESS__DEAD_AFTER_SECONDS": "5",
    "PLACER_TICK__INTERVAL_SECONDS": "0.5",
    # A node that returns empty would receive its share again: another story than the tests tell.
    "PLACER_REBALANCE__MODE": "off",
}
# For stories in which nodes say nothing but their registration.
PATIENT = {
    "PLACER_LIVENESS__SUSPECT_AFTER_SECONDS": "600",
    "PLACER_LIVENESS__DEAD_AFTER_SECONDS": "900",
}
# Spark's start takes 10 s, and two minutes have been seen where five others worked on two cores.
READY_TIMEOUT_SECONDS = 300.0
# The batch under way is finished, then Spark is stopped.
END_TIMEOUT_SECONDS = 120.0


class Application:
    """One run; `processes` are all that belonged to it when it was last looked at."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        checkpoint: Path,
        settings: Mapping[str, str],
        flags: Sequence[str] = (),
    ) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PLACER_LIVENESS")}
        self.checkpoint = checkpoint
        self._process = subprocess.Popen(
            [PLACER, "run", "--bootstrap", bootstrap, "--prefix", prefix,
             "--checkpoint", settings.get("PLACER_CHECKPOINT", checkpoint), *flags],
            env=inherited | SETTINGS | dict(settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # A process group of its own, as a shell gives each command.
            start_new_session=True,
        )  # fmt: skip
        self.processes: set[psutil.Process] = {psutil.Process(self._process.pid)}
        self._lines: list[str] = []
        self._is_ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """What it has printed so far, and the end of what Spark's JVM has."""
        log = self.checkpoint / "spark.log"
        spark = log.read_text(errors="replace")[-2_000:] if log.exists() else ""
        return "".join(self._lines) + "\n--- spark.log\n" + spark

    @property
    def printed(self) -> str:
        """What it has printed so far."""
        return "".join(self._lines)

    @property
    def running(self) -> bool:
        """Whether its first process still lives."""
        return self._process.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether its line with the word ready has come."""
        return self._is_ready.is_set()

    @property
    def stands_by(self) -> bool:
        """Whether it has said that it stands by, and rehearsed."""
        return "REHEARSED" in self.printed

    def wait_standing_by(self) -> None:
        """Return when it follows the active one, warm."""
        until(lambda: self.stands_by or not self.running, "standing by", READY_TIMEOUT_SECONDS)
        assert self.running, f"ended:\n{self.output}"
        self.look()

    def wait_ready(self) -> None:
        """Return when its line with the word ready has come."""
        until(lambda: self._is_ready.is_set() or not self.running, "ready", READY_TIMEOUT_SECONDS)
        assert self.running, f"ended with {self._process.returncode}:\n{self.output}"
        self.look()

    def look(self) -> None:
        """Note the processes that belong to it now."""
        if self.running:
            self.processes.update(psutil.Process(self._process.pid).children(recursive=True))

    def named(self, *words: str) -> list[psutil.Process]:
        """Its processes below the first one whose command line has one of the words."""
        self.look()
        found = []
        for process in self.processes:
            try:
                line = " ".join(process.cmdline())
            except psutil.NoSuchProcess:
                continue
            if process.pid != self._process.pid and any(word in line for word in words):
                found.append(process)
        return found

    @property
    def jvm(self) -> psutil.Process:
        """Spark's JVM."""
        (found,) = [p for p in self.named("SparkSubmit") if p.name() == "java"]
        return found

    def send(self, number: signal.Signals, *, to_group: bool = False) -> None:
        """Send a signal to the first process, or to its group as a terminal does."""
        self.look()
        if to_group:
            os.killpg(self._process.pid, number)
        else:
            os.kill(self._process.pid, number)

    def wait_end(self) -> int:
        """Exit status, once the first process and all that it had started are gone."""
        status = self._process.wait(END_TIMEOUT_SECONDS)
        self._reader.join(END_TIMEOUT_SECONDS)
        until(lambda: not self.left(), f"no process of {self.processes}", END_TIMEOUT_SECONDS)
        return status

    def left(self) -> list[psutil.Process]:
        """Processes of it that still live."""
        return [process for process in self.processes if _lives(process)]

    def kill(self) -> None:
        """kill -9 to everything that belongs to it, and wait until it is gone."""
        self.look()
        for process in self.left():
            # A child of one that was just killed may end by itself before its turn.
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(END_TIMEOUT_SECONDS)
        psutil.wait_procs(self.processes, END_TIMEOUT_SECONDS)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.append(line)
                if "ready" in line:
                    self._is_ready.set()


def _lives(process: psutil.Process) -> bool:
    """Whether a process is there and no zombie; it may end between the two looks."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
