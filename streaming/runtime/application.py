"""Runs the reconciler as a child process, for the demo and for reruns of recorded inputs."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from streaming.errors import StreamingError

# Spark's first batch on two busy cores has taken 30 s.
START_TIMEOUT_SECONDS = 90.0


class ApplicationFailed(StreamingError):
    """The process ended, or was not ready in time."""


class Application:
    """The reconciler as a process of its own, so that it can be killed."""

    def __init__(
        self,
        bootstrap: str,
        scratch: Path,
        flags: Sequence[str],
        environment: Mapping[str, str],
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
                # Ctrl-C is for whoever started this, who then stops it in order.
                start_new_session=True,
            )
        threading.Thread(target=self._read, args=(self._process, self._ready), daemon=True).start()

    def wait_ready(self, timeout_seconds: float = START_TIMEOUT_SECONDS) -> None:
        """Return when it says that it is ready.

        Raises ApplicationFailed with the end of its log.
        """
        deadline = time.monotonic() + timeout_seconds
        while not self._ready.wait(0.1):
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
                raise ApplicationFailed(f"the application did not become ready:\n{tail}")

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
            self._process.wait(START_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @staticmethod
    def _read(process: "subprocess.Popen[str]", ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if "ready" in line:
                ready.set()
