"""Runs a program of somebody's own as the nodes of a scenario, one process each, in place of
simulated ones: nodes that keep data, and carry their moves out themselves.

A process learns who it is from its environment: `KAFKA_BOOTSTRAP`, `TOPIC_PREFIX`, `NODE_ID`,
`NODE_LOCATION`, and `NODE_DIRECTORY` for its files. A further program may use them meanwhile, and
judge: it gets the first two, and SIGTERM at the end.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Self

from streaming.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from streaming.simulator.fleet import FleetNode

# A store that is told to end closes its files; one that takes longer is killed.
STOP_TIMEOUT_SECONDS = 30.0
# A program that judges may read all that it has written before it ends.
JUDGE_TIMEOUT_SECONDS = 120.0
LINES_SHOWN = 5


class ProgramFailed(StreamingError):
    """A scenario's program cannot be started."""


class ProcessFleet:
    """Nodes that are processes of one program, between `start` and `close`. What they write goes to
    NODE.log in the directory. Raises ProgramFailed where the program is not found."""

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        nodes: Sequence[FleetNode],
        command: Sequence[str],
        directory: Path,
    ) -> None:
        self._environment = {"KAFKA_BOOTSTRAP": bootstrap, "TOPIC_PREFIX": prefix}
        self._command, self._directory = find_program(command), directory
        self._locations = {node.node_id: node.location for node in nodes}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def node_ids(self) -> list[str]:
        """All nodes, also those that do not run, in the order in which they were given."""
        return [*self._locations]

    @property
    def alive(self) -> list[str]:
        """The nodes whose process runs."""
        return [node for node, process in self._processes.items() if process.poll() is None]

    def location(self, node_id: str) -> str:
        """Where the node stands."""
        return self._locations[node_id]

    def log(self, node_id: str) -> Path:
        """The file with what the node's processes have written."""
        return self._directory / f"{node_id}.log"

    def start(self) -> None:
        """Start all nodes."""
        self._directory.mkdir(parents=True, exist_ok=True)
        for node in self.node_ids:
            self.revive(node)

    def kill(self, node_id: str) -> None:
        """kill -9 of the node's process, if it runs; its files stay."""
        self._end(node_id, signal.SIGKILL)

    def stop(self, node_id: str) -> None:
        """SIGTERM: the node's process ends to be started again."""
        self._end(node_id, signal.SIGTERM)

    def revive(self, node_id: str, *, same_incarnation: bool = False) -> None:
        """Start the node's process with the files that it had. Raises ProgramFailed where it is to
        be the `same_incarnation`: what was killed comes back as another one."""
        if same_incarnation:
            raise ProgramFailed(f"{node_id} is a process: revive it, it cannot return as it was")
        if node_id in self.alive:
            return
        own = {
            "NODE_ID": node_id,
            "NODE_LOCATION": self._locations[node_id],
            "NODE_DIRECTORY": str(self._directory / node_id),
        }
        with self.log(node_id).open("ab") as log:
            self._processes[node_id] = subprocess.Popen(
                self._command,
                env=os.environ | self._environment | own,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def relocate(self, node_id: str, location: str) -> None:
        """Start the node's process anew at another location."""
        self._locations[node_id] = location
        self.stop(node_id)
        self.revive(node_id)

    def join(self, node: FleetNode) -> None:
        """Start a node that is new, or has left."""
        self._locations[node.node_id] = node.location
        self.revive(node.node_id)

    def unregister(self, node_id: str) -> None:
        """Only the node itself can. Raises ProgramFailed."""
        raise ProgramFailed(
            f"{node_id} is a process of {self._command[0]}, which alone can unregister it; kill it"
        )

    def close(self) -> None:
        """End all nodes."""
        for process in self._processes.values():
            process.terminate()
        for node in self.node_ids:
            self.stop(node)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, node_id: str, number: signal.Signals) -> None:
        process = self._processes.get(node_id)
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class JudgingProgram:
    """Runs a program beside a scenario; `tell` receives the lines that it writes."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], tell: Callable[[str], None]
    ) -> None:
        self._command, self._tell, self._lines = [*command], tell, [""]
        self._process = subprocess.Popen(
            find_program(command),
            env=os.environ | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def end(self) -> list[str]:
        """Send SIGTERM and wait; returns what the program finds wrong: nothing where it ends with
        0."""
        self._process.terminate()
        try:
            status = self._process.wait(JUDGE_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.close()
            status = self._process.returncode
        self._reader.join()
        if status == 0:
            return []
        said = "; ".join(self._lines[-LINES_SHOWN:])
        return [f"{' '.join(self._command)} ended with {status}: {said}"]

    def close(self) -> None:
        """Kill it, if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.append(line.rstrip())
                self._tell(line.rstrip())


def find_program(command: Sequence[str]) -> list[str]:
    """Return the command as it can be run: `python` is the interpreter of this installation. Raises
    ProgramFailed."""
    name, *words = command
    found = sys.executable if name == "python" else shutil.which(name)
    if found is None:
        raise ProgramFailed(f"there is no program {name}; give its path, or put it on PATH")
    return [found, *words]
