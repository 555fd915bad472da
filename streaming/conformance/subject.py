"""Runs the executor that is examined, as a process: starts it, kills it, starts it again.

It also asks the probe, if there is one, what a node holds. Both get the address of the brokers, the
prefix, and how copies are to behave, in their environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streaming.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

BOOTSTRAP, PREFIX = "KAFKA_BOOTSTRAP", "TOPIC_PREFIX"
COPY_SECONDS, COPY_FAILS = "COPY_SECONDS", "COPY_FAILS"
# A probe looks at a directory or asks a server; one that takes longer hangs.
PROBE_TIMEOUT_SECONDS = 30.0
STOP_TIMEOUT_SECONDS = 30.0
LOG_LINES_SHOWN = 15


class SubjectFailed(StreamingError):
    """The executor's command, or the probe's, cannot be run."""


@dataclass(slots=True)
class Subject:
    """The executor as a process group of its own. `probe`: the words of a command that gets stream,
    shard and node behind them, and ends with 0 where the node holds a complete replica, else 1."""

    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    probe: Sequence[str] = ()
    _process: subprocess.Popen[bytes] | None = None
    _behaviour: dict[str, str] = field(default_factory=dict)

    def start(self, behaviour: Mapping[str, str] | None = None) -> None:
        """Start it; `behaviour` are variables that say how copies are to go, by default those of
        the last start. Raises SubjectFailed."""
        self._behaviour = self._behaviour if behaviour is None else dict(behaviour)
        with self.log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    [*self.command],
                    env=os.environ | dict(self.environment) | self._behaviour,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError as error:
                raise SubjectFailed(
                    f"the command {self.command[0]} cannot be run: {error}; give the executor's "
                    "command behind --"
                ) from error

    def check(self) -> None:
        """Raise SubjectFailed with the end of its log where it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise SubjectFailed(
                f"the executor has ended by itself with {self._process.returncode}; the last lines "
                f"it wrote:\n{self.last_lines()}"
            )

    def last_lines(self) -> str:
        """Return the end of its log, without what a terminal would not show as text."""
        lines = self.log.read_text("utf-8", "replace").splitlines()[-LOG_LINES_SHOWN:]
        shown = ["".join(sign for sign in line if sign.isprintable()) for line in lines]
        return "\n".join(shown) or "(none)"

    def kill(self) -> None:
        """kill -9 of it and all that it has started."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM, and after a while kill -9."""
        self._signal(signal.SIGTERM)

    def holds(self, stream: str, shard: int, node_id: str) -> bool | None:
        """Ask the probe; None where there is none. Raises SubjectFailed."""
        if not self.probe:
            return None
        words = [*self.probe, stream, str(shard), node_id]
        try:
            ended = subprocess.run(
                words,
                env=os.environ | dict(self.environment),
                capture_output=True,
                timeout=PROBE_TIMEOUT_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SubjectFailed(f"the probe {self.probe[0]} cannot be run: {error}") from error
        if ended.returncode not in (0, 1):
            said = ended.stderr.decode("utf-8", "replace").strip()
            raise SubjectFailed(
                f"the probe ended with {ended.returncode}, not with 0 (it holds the replica) or 1 "
                f"(it does not): {said}"
            )
        return ended.returncode == 0

    def _signal(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, number)
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
