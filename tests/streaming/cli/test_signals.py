"""Goal: what runs until it is stopped stops as asked, and leaves no process and no file behind.

Method: processes in a group of their own get the signals a terminal sends. For `placer run` the
application is replaced: here only the shell around it is meant.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from typer.testing import Result

from streaming.brokers import make_producer

WAIT_SECONDS = 60.0

# `streaming.app` as far as the command line knows it; STOPS says whether it heeds its event.
STUB_APPLICATION = """
import sys, threading, types, streaming
def run(settings, session, *, on_ready, stop, accept_gap, standby, on_standby):
    print("checkpoint", settings.checkpoint, settings.checkpoint.is_dir(), flush=True)
    on_ready()
    (stop if STOPS else threading.Event()).wait()
    print("stopped between batches", flush=True)
    return 0
streaming.app = sys.modules["streaming.app"] = types.ModuleType("streaming.app")
streaming.app.run = run
from streaming.cli.main import main
main()
"""


@contextmanager
def process(*command: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A command in a process group of its own, as a terminal would run it."""
    running = subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate()


def line_with(running: subprocess.Popen[str], word: str) -> str:
    """The next line of output that contains `word`."""
    assert running.stdout is not None
    for line in running.stdout:
        if word in line:
            return line
    raise AssertionError(f"ended without {word!r}: {running.communicate()}")


def family(running: subprocess.Popen[str]) -> list[psutil.Process]:
    found = psutil.Process(running.pid).children(recursive=True)
    assert found, "the broker runs as a child"
    return found


def all_gone(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=WAIT_SECONDS)[1]


PLACER = (sys.executable, "-c", "from streaming.cli.main import main; main()")
HEEDS_STOP = (sys.executable, "-c", f"STOPS = True{STUB_APPLICATION}")
HEEDS_NOTHING = (sys.executable, "-c", f"STOPS = False{STUB_APPLICATION}")


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_the_broker_prints_its_address_and_stops_cleanly(
        self, tmp_path: Path, number: signal.Signals
    ) -> None:
        with process(*PLACER, "broker", "--data-dir", str(tmp_path / "kafka")) as running:
            address = line_with(running, "ready").split()[-1]
            make_producer(address).flush(1)
            children = family(running)
            os.killpg(running.pid, number)
            assert running.wait(WAIT_SECONDS) == 0
            assert all_gone(children)
        assert (tmp_path / "kafka").is_dir()

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_run_embedded_says_how_to_try_it_and_stops_when_asked(
        self, placer: Callable[..., Result], number: signal.Signals
    ) -> None:
        with process(*HEEDS_STOP, "run", "--embedded", "--prefix", "try.") as running:
            scratch = line_with(running, "checkpoint").split()
            ready = line_with(running, "ready")
            address = ready.partition(" on ")[2].partition(",")[0]
            assert f"placer send node n1 --location /z1/r1 --bootstrap {address}" in ready
            assert "--prefix try." in ready
            assert placer("topics", "diff", at=(address, "try.")).exit_code == 0
            children = family(running)
            os.killpg(running.pid, number)
            assert line_with(running, "stopped between batches")
            assert running.wait(WAIT_SECONDS) == 0
            assert all_gone(children)
            assert running.stderr is not None
            assert running.stderr.read().splitlines() == [
                "placer: starting the reconciler, which takes 5 to 10 s",
                "placer: starting the broker",
                "placer: stopping after the current batch; Ctrl-C again stops at once",
            ]
        assert scratch[2] == "True"
        assert not Path(scratch[1]).exists(), "a temporary checkpoint is removed"

    def test_a_log_for_programs_has_no_sentences_for_people(self, tmp_path: Path) -> None:
        command = ("run", "--bootstrap", "127.0.0.1:1", "--checkpoint", str(tmp_path))
        environment = os.environ | {"PLACER_LOG__FORMAT": "json"}
        with process(*HEEDS_STOP, *command, env=environment) as running:
            line_with(running, "ready")
            os.killpg(running.pid, signal.SIGINT)
            assert running.wait(WAIT_SECONDS) == 0
            assert running.stderr is not None
            assert running.stderr.read() == ""

    def test_a_second_ctrl_c_ends_at_once_and_leaves_nothing_behind(self) -> None:
        with process(*HEEDS_NOTHING, "run", "--embedded") as running:
            line_with(running, "ready")
            children = family(running)
            os.killpg(running.pid, signal.SIGINT)
            with pytest.raises(subprocess.TimeoutExpired):
                running.wait(1)
            os.killpg(running.pid, signal.SIGINT)
            assert running.wait(WAIT_SECONDS) == 128 + signal.SIGINT
            assert all_gone(children)
