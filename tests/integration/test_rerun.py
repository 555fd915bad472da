"""Recorded inputs through the whole application again: the audit finds nothing, each time.

Method: a run with placements, a death and its repair is recorded from the beginning; then its
inputs go twice through `placer replay --inputs`.
"""

import os
import signal
import subprocess
from pathlib import Path

import orjson
import pytest

from streaming.simulator import Fleet
from streaming.simulator.fleet import Executor, FleetNode
from tests.integration.conftest import System
from tests.systems.application import PLACER

pytestmark = pytest.mark.long

NODES = [FleetNode(f"n{zone}{number}", f"/z{zone}") for zone in "abc" for number in range(2)]
TIMERS = {
    "PLACER_LIVENESS__SUSPECT_AFTER_SECONDS": "3",
    "PLACER_LIVENESS__DEAD_AFTER_SECONDS": "6",
}
RERUN_TIMEOUT_SECONDS = 800


@pytest.mark.timeout(1800)
def test_the_oracle_holds_for_recorded_inputs_run_twice(own_system: System, tmp_path: Path) -> None:
    system, file = own_system, tmp_path / "run.ndjson"
    at = ("--bootstrap", system.bootstrap, "--prefix", system.prefix)
    running = system.start(**TIMERS)
    with (
        Fleet(system.bootstrap, system.prefix, NODES, 0.5) as fleet,
        Executor(system.bootstrap, system.prefix, 0.2),
    ):
        for number in range(4):
            system.inputs.stream(f"s{number}", shards=2)
            assert system.outputs.decision(f"s{number}")["outcome"] == "placed"
        fleet.kill("na0")
        system.outputs.wait(lambda: system.outputs.latest("moves.v1"), "moves are under way")
        system.outputs.wait(lambda: not system.outputs.open_moves, "and have ended")
    running.send(signal.SIGTERM)
    assert running.wait_end() == 0, running.output
    words = ("record", str(file), "--from", "beginning", "--for-seconds", "0")
    subprocess.run([PLACER, *words, *at], check=True, env=os.environ | TIMERS)

    for _ in range(2):
        done = subprocess.run(
            [PLACER, "replay", file, "--inputs", "--output", "json"],
            capture_output=True,
            text=True,
            check=False,
            timeout=RERUN_TIMEOUT_SECONDS,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found = orjson.loads(done.stdout.splitlines()[-1])
        assert found["findings"] == []
        assert found["records"] > len(NODES) + 4 * 3
