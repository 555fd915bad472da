"""The demo's stage: the application as a process, and what the output topics have shown."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streaming.errors import StreamingError
from streaming.records import Record

# Production waits for minutes; the story should not. Four missed beats make a suspect.
SUSPECT_AFTER_SECONDS = 2.0
DEAD_AFTER_SECONDS = 4.0
TICK_SECONDS = 0.5
STORY_FLAGS = (
    *("--suspect-after-seconds", str(SUSPECT_AFTER_SECONDS)),
    *("--dead-after-seconds", str(DEAD_AFTER_SECONDS)),
)
STORY_ENVIRONMENT = {
    "PLACER_TICK__INTERVAL_SECONDS": str(TICK_SECONDS),
    # A node that comes back empty would get its share again: another story than this one tells.
    "PLACER_REBALANCE__MODE": "off",
}
# Spark's first batch on two busy cores has taken 30 s; a scene that takes longer has failed.
SCENE_TIMEOUT_SECONDS = 90.0


class SceneFailed(StreamingError):
    """Something that should have happened did not, in time."""


@dataclass(slots=True)
class World:
    """What the output topics have shown so far; written by one thread, read by others."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    decisions: dict[str, dict[str, Any]] = field(default_factory=dict)
    assignments: dict[str, dict[str, Any]] = field(default_factory=dict)
    moves: dict[str, dict[str, Any]] = field(default_factory=dict)
    violations: dict[str, dict[str, Any]] = field(default_factory=dict)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    first_seen: dict[tuple[str, str], float] = field(default_factory=dict)

    @property
    def open_moves(self) -> list[dict[str, Any]]:
        """Moves that have not ended."""
        return [m for m in list(self.moves.values()) if m["state"] in ("issued", "accepted")]

    def holders(self, node_ids: set[str]) -> list[str]:
        """Shards that still list one of the nodes."""
        held = list(self.assignments.items())
        return [key for key, each in held if node_ids & {*each["replicas"], *each["adding"]}]

    def held(self, domain: str) -> str | None:
        """What the newest alert says of a hold of the domain."""
        told = [a for a in self.alerts if (a["kind"], a["subject"]) == ("HOLD", domain)]
        return told[-1]["reason"]["message"] if told else None

    def take(self, record: Record, seen_at: float) -> None:
        """Note a record."""
        if record.topic == "alerts.v1" and record.value is not None:
            self.alerts.append(record.value)
        tables = {
            "topology.v1": self.nodes,
            "decisions.v1": self.decisions,
            "assignments.v1": self.assignments,
            "moves.v1": self.moves,
            "violations.v1": self.violations,
        }
        table, key = tables.get(record.topic), record.key or ""
        if table is None:
            return
        if record.value is None:
            table.pop(key, None)
        else:
            table[key] = record.value
        self.first_seen.setdefault((record.topic, key), seen_at)


class Application:
    """The reconciler as a process of its own, so that it can be killed."""

    def __init__(
        self,
        bootstrap: str,
        scratch: Path,
        flags: Sequence[str] = STORY_FLAGS,
        environment: Mapping[str, str] = STORY_ENVIRONMENT,
    ) -> None:
        self._command = [
            *(sys.executable, "-m", "streaming.cli", "run"),
            *("--bootstrap", bootstrap, "--checkpoint", str(scratch / "checkpoint")),
            *flags,
        ]
        self._environment = os.environ | dict(environment)
        self._log = scratch / "application.log"
        self._process: subprocess.Popen[str] | None = None
        self._ready = threading.Event()

    def start(self) -> None:
        """Start it; `wait_ready` tells when it takes events."""
        self._ready = threading.Event()
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Ctrl-C is for the demo, which then stops this in order.
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(self._process, self._ready), daemon=True).start()

    def wait_ready(self, timeout_seconds: float = SCENE_TIMEOUT_SECONDS) -> None:
        """Return when it says that it is ready; raises SceneFailed with the end of its log."""
        deadline = time.monotonic() + timeout_seconds
        while not self._ready.wait(0.1):
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
                raise SceneFailed(f"the application did not become ready:\n{tail}")

    def kill(self) -> None:
        """kill -9: nothing of it is asked or told."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, and wait for the end."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(SCENE_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @staticmethod
    def _read(process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready" in line:
                ready.set()
