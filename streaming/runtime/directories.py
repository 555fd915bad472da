"""Directories: the user's cache, and scratch that goes with its owner.

The cache holds files that only speed things up (the jars, the Java home made for Spark). All
checkouts share it; removing it costs one download.

Scratch holds what a JVM unpacks (native libraries), what Spark spills and what a temporary broker
writes. Its owner holds a lock in it, which the system gives up with the process; the next start
removes a directory whose locks are all free.
"""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Self

import platformdirs

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
            if _is_abandoned(left):
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

    def __exit__(self, *_: object) -> None:
        self.remove()


def _is_abandoned(directory: Path) -> bool:
    """Tell whether it had an owner and no process holds a lock in it. An owner that was killed may
    have left a broker that is still stopping."""
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


def cache_dir() -> Path:
    """Return the cache directory (not created): `PLACER_CACHE_DIR`, else the system's own place."""
    chosen = os.environ.get("PLACER_CACHE_DIR")
    if chosen:
        return Path(chosen).absolute()
    return platformdirs.user_cache_path("placement-reconciler", appauthor=False)
