"""Names a process so that another one on the same machine can tell whether it still runs.

The holder of a lock writes its `ProcessIdentity` down (`leader_lock.py`). A process id alone does
not name a process: ids are used again, and each container counts its own.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
# The fields of /proc/PID/stat behind the name in parentheses, counted from 0: proc_pid_stat(5).
_STATE_FIELD, _START_FIELD = 0, 19
# States of a process that is dead, and only waits for its parent to take note: proc_pid_stat(5).
_DEAD_STATES = frozenset("ZXx")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Names one process. `boot_id`: one run of the machine's kernel; `pid_namespace`: the container
    that `pid` is counted in; `started_at`: in clock ticks since the machine was started."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started_at: int

    def has_ended(self) -> bool:
        """Return whether it is known to run no more: False of a process elsewhere."""
        if _find_place() != (self.host, self.boot_id, self.pid_namespace):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False  # there is a process, of another user: it may be the one
        found = _read_stat(self.pid)
        return found is not None and (found[0] in _DEAD_STATES or found[1] != self.started_at)


def identify_process() -> ProcessIdentity | None:
    """Return the identity of this process; None on a system without /proc."""
    place, found = _find_place(), _read_stat(os.getpid())
    if place is None or found is None:
        return None
    return ProcessIdentity(*place, os.getpid(), found[1])


def _find_place() -> tuple[str, str, str] | None:
    """Return host, boot id and namespace; None where the system does not tell them."""
    try:
        boot_id = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return socket.gethostname(), boot_id, (_PROC / "self/ns/pid").readlink().name
    except OSError:
        return None


def _read_stat(pid: int) -> tuple[str, int] | None:
    """Return a process's state and when it was started; None where that cannot be read."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return fields[_STATE_FIELD], int(fields[_START_FIELD])
