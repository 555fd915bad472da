"""Scratch directories go with their owners, and with the next start where these were killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from streaming.runtime.directories import Scratch

OWNER = """
import sys, time
from pathlib import Path
from streaming.runtime.directories import Scratch
kept = Scratch("test", Path(sys.argv[1]))
(kept.path / "native.so").touch()
print(kept.path, flush=True)
time.sleep(600)
"""


def owner(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """A process that owns a scratch directory, and the directory."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(parent)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_it_goes_with_its_owner(tmp_path: Path) -> None:
    with Scratch("test", tmp_path) as scratch:
        (scratch.path / "more").mkdir()
        assert [*tmp_path.iterdir()] == [scratch.path]
    assert [*tmp_path.iterdir()] == []
    scratch.remove()


def test_what_a_killed_owner_left_goes_with_the_next_start(tmp_path: Path) -> None:
    process, left = owner(tmp_path)
    try:
        with Scratch("test", tmp_path):
            assert left.exists(), "its owner lives"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        with Scratch("other", tmp_path):
            assert left.exists(), "another kind is not asked"
        with Scratch("test", tmp_path) as scratch:
            assert [*tmp_path.iterdir()] == [scratch.path]
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_what_another_lock_holds_stays(tmp_path: Path) -> None:
    """A broker whose parent was killed is still on its way out, and holds a lock of its own."""
    import fcntl

    left = Scratch("test", tmp_path)
    left._lock.close()
    with (left.path / "broker.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with Scratch("test", tmp_path):
            assert left.path.exists()
    with Scratch("test", tmp_path):
        assert not left.path.exists()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "placer-test-mine").mkdir()
    with Scratch("test", tmp_path):
        assert (tmp_path / "placer-test-mine").exists()
