"""`placer console` as a process of its own; what it prints is read on while it runs."""

import os
import re
import signal
import subprocess
import threading

import httpx2

from tests.systems.application import PLACER
from tests.systems.waiting import until

END_TIMEOUT_SECONDS = 60.0


class ConsoleProcess:
    """The command, until it is told to end."""

    def __init__(self, *arguments: str) -> None:
        """`arguments`: of the command; a port is found where they name none."""
        port = () if "--port" in arguments else ("--port", "0")
        self._process = subprocess.Popen(
            [PLACER, "console", *port, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        line = self._output.readline()
        found = re.search(r"http://\S+", line)
        assert found, line + self._output.read()
        self.url = found[0]
        self._lines: list[str] = []
        # Nobody else empties the pipe, which holds little.
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def wait_ready(self) -> None:
        """Return when it has read the topics, or the file."""
        until(self._is_ready, "the console is ready", END_TIMEOUT_SECONDS)

    def _is_ready(self) -> bool:
        return httpx2.get(f"{self.url}/readyz").status_code == 200

    @property
    def faults(self) -> list[str]:
        """The lines that tell of errors; a browser hears of none of them."""
        return [each for each in self._lines if re.search(r"Traceback|\bERROR\b|\berror\b", each)]

    def end(self) -> tuple[int, str]:
        """Ctrl-C; returns the exit status, and what it has printed since its first line."""
        os.kill(self._process.pid, signal.SIGINT)
        status = self._process.wait(END_TIMEOUT_SECONDS)
        self._reading.join(END_TIMEOUT_SECONDS)
        self._output.close()
        return status, "".join(self._lines)

    def _read(self) -> None:
        for line in self._output:
            self._lines.append(line)
