"""The demo is the main job from end to end: its exit status is the audit's word on it."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

import psutil
import pytest


@pytest.fixture
def short_directory():
    """Sockets are made in the temporary directory, and may not have the long names of tmp_path."""
    with TemporaryDirectory() as directory:
        yield Path(directory)


def shown_by(address: str) -> int:
    """How many nodes the console knows; its first page is there."""
    with urlopen(f"{address}/", timeout=30) as page:
        assert "Overview" in page.read().decode()
    with urlopen(f"{address}/api/v1/nodes", timeout=30) as listed:
        return len(json.load(listed)["items"])


def test_demo_ends_with_a_clean_audit_and_no_process_or_file_left(short_directory: Path):
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    demo = subprocess.Popen(
        [sys.executable, "-m", "streaming.cli", "demo", "--console"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": str(short_directory), "PYTHONUNBUFFERED": "1"},
    )
    with demo:
        told = ""
        for line in demo.stdout:
            told += line
            if found := re.search(r"watch it in a browser: (http://\S+)", line):
                address = found[1]
            if "the story has ended" in line:
                assert shown_by(address) == 12
                demo.send_signal(signal.SIGINT)
    assert demo.returncode == 0, told
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
        assert line in told
    assert [*short_directory.iterdir()] == []
    assert not {child.pid for child in psutil.Process().children(recursive=True)} - before
