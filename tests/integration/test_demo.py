"""The demo is the main job from end to end: its exit status is the audit's word on it."""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest


@pytest.fixture
def short_directory():
    """Sockets are made in the temporary directory, and may not have the long names of tmp_path."""
    with TemporaryDirectory() as directory:
        yield Path(directory)


def test_demo_ends_with_a_clean_audit_and_no_process_or_file_left(short_directory: Path):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    result = subprocess.run(
        [sys.executable, "-m", "streaming.cli", "demo"],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(short_directory)},
        timeout=280,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    for line in (
        "stream default 2 × 3 (Timeplus defaults) → placed",
        "'node=exclusive' → rejected",
        "alert HOLD /zone3: all 4 nodes of /zone3",
        "all nodes of /zone3 are dead and nothing moves",
        "placer hold override /zone3 --hash",
        "/zone3 is replaced everywhere",
        "kill -9 of the application",
        "stream after-the-crash 4 × 3 → placed",
        "Audit of the topics: every shard has its replicas on live nodes",
    ):
        assert line in result.stdout
    assert [*short_directory.iterdir()] == []
    assert not {child.pid for child in psutil.Process().children(recursive=True)} - before
