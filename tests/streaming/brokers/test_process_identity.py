"""A process is told from another that has its id, and from one that is dead and not yet buried."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from streaming.brokers import process_identity
from streaming.brokers.process_identity import identify_process
from tests.systems.waiting import until

OWN = identify_process()


def test_this_process_runs() -> None:
    assert OWN is not None
    assert not OWN.has_ended()


def test_another_start_under_the_same_id_is_another_process() -> None:
    assert OWN is not None
    assert replace(OWN, started_at=OWN.started_at - 1).has_ended()


def test_nothing_is_known_of_a_process_elsewhere() -> None:
    assert OWN is not None
    gone = replace(OWN, started_at=0)
    for place in ({"host": "x"}, {"boot_id": "x"}, {"pid_namespace": "pid:[0]"}):
        assert not replace(gone, **place).has_ended()


def test_a_killed_process_has_ended_before_and_after_its_parent_takes_note() -> None:
    assert OWN is not None
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        found = process_identity._read_stat(process.pid)
        assert found is not None
        other = replace(OWN, pid=process.pid, started_at=found[1])
        assert not other.has_ended()
        process.kill()
        until(other.has_ended, "it is dead")
    assert other.has_ended()


def test_without_a_proc_file_system_a_process_has_no_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert OWN is not None
    monkeypatch.setattr(process_identity, "_PROC", tmp_path)
    assert identify_process() is None
    assert not replace(OWN, started_at=0).has_ended()
