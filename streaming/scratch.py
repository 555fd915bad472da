"""Scratch directories: gone when their owner ends, or, if it was killed, when the next one starts.

What a JVM unpacks (native libraries), what Spark spills and what a temporary broker writes is of no
use to anybody afterwards. Whoever owns such a directory holds a lock in it, which the system gives
up with the process; a directory whose locks are all free belongs to nobody.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

_OWNER = "owner.lock"
_LOCKS = "*.lock"


class Scratch:
    """A directory `placer-<kind>-…` of one's own, in the system's temporary directory or in
    `parent`, from the constructor on until `remove`. Those of the same kind that nobody owns any
    more are removed first. Raises OSError."""

    def __init__(self, kind: str, parent: Path | None = None) -> None:
        place = Path(tempfile.gettempdir()) if parent is None else parent
        place.mkdir(parents=True, exist_ok=True)
        prefix = f"placer-{kind}-"
        for left in place.glob(f"{prefix}*"):
            if _is_nobodys(left):
                shutil.rmtree(left, ignore_errors=True)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place)).absolute()
        # Under its name only once it is locked: nobody sees it free before.
        unlocked = self.path / "owner.new"
        self._lock = unlocked.open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unlocked.rename(self.path / _OWNER)

    def remove(self) -> None:
        """Remove it with all that is in it; again does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def _is_nobodys(directory: Path) -> bool:
    """Whether it had an owner, and no process holds a lock in it: an owner that was killed may have
    left a broker that is still on its way out."""
    if not (directory / _OWNER).exists():
        return False
    return all(_is_free(lock) for lock in directory.glob(_LOCKS))


def _is_free(lock: Path) -> bool:
    try:
        file = os.open(lock, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True
