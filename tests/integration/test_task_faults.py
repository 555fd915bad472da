"""A Spark task that fails is run again, and nothing is applied twice (F33).

On one machine Spark runs a task once by default; clusters run it up to four times, as the master
`local[2,4]` does. The tasks fail behind their work: state was put, rows were given. Speculative
copies of a task, which only a cluster of several machines starts, are such a second run as well.
"""

from pathlib import Path

import orjson
import pytest

from streaming.simulator import Fleet
from streaming.simulator.fleet import Executor, FleetNode
from tests.integration.conftest import System
from tests.systems import failing_daemon
from tests.systems.failing_daemon import DIE, FAILURES, RAISE
from tests.systems.supervised import Supervised
from tests.systems.waiting import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

NODES = [FleetNode(f"n{zone}{number}", f"/z{zone}") for zone in "abc" for number in range(2)]
OPTIONS = {
    "spark.master": "local[2,4]",
    "spark.python.daemon.module": failing_daemon.__name__,
}


@pytest.fixture
def wishes(tmp_path: Path) -> Path:
    """The directory in which failures are asked for."""
    made = tmp_path / "failures"
    made.mkdir()
    return made


@pytest.fixture
def supervised(own_system: System, wishes: Path) -> Supervised:
    settings = {
        "PLACER_SPARK__OPTIONS": orjson.dumps(OPTIONS).decode(),
        # So that a state that was applied twice, or not at all, would be judged by.
        "PLACER_LIVENESS__SUSPECT_AFTER_SECONDS": "4",
        "PLACER_LIVENESS__DEAD_AFTER_SECONDS": "8",
        FAILURES: str(wishes),
    }
    return Supervised(own_system, settings)


def test_f33_a_task_that_is_run_again_applies_nothing_twice(
    supervised: Supervised, wishes: Path
) -> None:
    system = supervised.system
    with (
        Fleet(system.bootstrap, system.prefix, NODES, 0.5) as fleet,
        Executor(system.bootstrap, system.prefix, 0.5),
    ):
        supervised.ask("before")
        running = supervised.application
        for number, (where, how) in enumerate(
            [("operator", RAISE), ("pack", RAISE), ("operator", DIE), ("pack", DIE)]
        ):
            wish = wishes / where
            ready = wishes / "ready"
            ready.write_text(how)
            ready.rename(wish)
            supervised.ask(f"{where}-{how}-{number}")
            until(lambda: not wish.exists(), f"{where} fails")  # noqa: B023
            supervised.ask(f"behind-{number}")
        assert supervised.application is running, "a task's failure is not the application's"
        dead = system.outputs.replicas("before")[0][0]
        fleet.kill(dead)
        system.outputs.wait(
            lambda: dead not in str(system.outputs.latest("assignments.v1").values()),
            "its replicas are elsewhere",
        )
        supervised.rest()
