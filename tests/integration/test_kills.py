"""kill -9 in the middle of the work, again and again: nothing is lost, nothing is done twice.

Method: requests and heartbeats go on without a pause, a node has died so that moves are under
way, and at random moments a part of the application is killed. Every death must end the whole of
it; a new start must go on. In the end every request has one answer and the fleet is whole.
"""

import os
import random
import signal
import threading
from collections.abc import Iterator

import pytest

from streaming.simulator import Fleet
from streaming.simulator.fleet import Executor, FleetNode
from tests.integration.conftest import System
from tests.systems.application import Application
from tests.systems.topics import Requests
from tests.systems.waiting import until

# `make test` kills once; a longer run may set KILLS to hundreds, and another SEED.
KILLS = int(os.environ.get("KILLS", "1"))
SEED = int(os.environ.get("SEED", "1"))
# The work of a batch, so that kills meet batches with something in them.
REQUESTS_PER_SECOND = 40
UNDER_LOAD_SECONDS_MAX = 2.0
NODES = [FleetNode(f"n{zone}{number}", f"/z{zone}") for zone in "abc" for number in range(4)]
# One start of Spark on a busy machine, and the catching up behind it.
SECONDS_PER_KILL = 120


@pytest.fixture
def requests(own_system: System) -> Iterator[Requests]:
    made = Requests(own_system.inputs, REQUESTS_PER_SECOND)
    yield made
    made.close()


def whole(application: Application) -> None:
    """All its processes at once, as when a machine loses its power."""
    application.kill()


def driver(application: Application) -> None:
    application.send(signal.SIGKILL)


def jvm(application: Application) -> None:
    application.jvm.kill()


def workers(application: Application) -> None:
    for process in application.named("pyspark.daemon"):
        process.kill()


PARTS = (driver, jvm, whole, workers)


@pytest.mark.timeout((KILLS + 1) * SECONDS_PER_KILL)
def test_no_decision_is_lost_or_doubled(own_system: System, requests: Requests) -> None:
    system, outputs, choice = own_system, own_system.outputs, random.Random(SEED)
    with (
        Fleet(system.bootstrap, system.prefix, NODES, 0.5) as fleet,
        Executor(system.bootstrap, system.prefix, 0.5),
    ):
        application = system.start()
        for number in range(KILLS):
            decided = len(outputs.latest("decisions.v1"))
            outputs.wait(lambda: len(outputs.latest("decisions.v1")) > decided, "goes on")  # noqa: B023
            if number == 0:
                fleet.kill("na0")
                outputs.wait(lambda: outputs.open_moves, "moves are under way")
            moment = choice.uniform(0, UNDER_LOAD_SECONDS_MAX)
            threading.Event().wait(moment)
            kill = PARTS[number % len(PARTS)]
            kill(application)
            assert application.wait_end() != 0
            application = system.start()
        requests.close()
        outputs.wait(
            lambda: len(outputs.latest("decisions.v1")) == requests.asked, "all are answered"
        )
        outputs.wait(lambda: not outputs.latest("violations.v1"), "the dead node is replaced")
        outputs.wait(lambda: not outputs.open_moves, "nothing is open")
        until(lambda: not outputs.log().final_violations(), "at rest", 5)
        application.send(signal.SIGTERM)
        assert application.wait_end() == 0, application.output
    outputs.check()
    # An answer is revised when nodes come back in the same stretch of log; each revision once.
    said = [(record.key, record.value["revision"]) for record in outputs.of("decisions.v1")]
    assert len(set(said)) == len(said)
    final = outputs.latest("decisions.v1")
    assert final.keys() == {f"s{number}" for number in range(requests.asked)}
    assert {answer["outcome"] for answer in final.values()} == {"placed"}
    assert len({record.value["writer_epoch"] for record in outputs.of("commits.v1")}) == KILLS + 1
    report = system.replay()
    assert report.differences == ()
    assert report.compared == report.records
