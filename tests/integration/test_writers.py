"""One writer per cell: whoever starts last is it, and an older one can commit nothing more.

The tests go on from each other: the winner of one is the loser of the next, which saves starts of
Spark. Nodes say nothing here, so the timers are long.
"""

import signal
from collections.abc import Iterator

import pytest

from tests.integration.conftest import System
from tests.systems.application import PATIENT, Application


@pytest.fixture(scope="module")
def first(system: System) -> Application:
    """The application whose place others will take."""
    running = system.start(**PATIENT)
    for number in range(3):
        body = {"node_id": f"n{number}", "incarnation": "a", "sequence": 1, "location": "/z1"}
        system.inputs.send("nodes.v1", "NodeRegistered", f"n{number}", body)
    system.inputs.stream("before")
    assert system.outputs.decision("before")["outcome"] == "placed"
    return running


@pytest.fixture(scope="module")
def second(system: System, first: Application) -> Application:
    """The application that took over while the first ran."""
    return system.start(**PATIENT)


@pytest.fixture(autouse=True)
def _nothing_is_wrong(system: System) -> Iterator[None]:
    yield
    system.outputs.check()


def epochs(system: System) -> list[int]:
    """Writer epochs of all markers in the order of their commits."""
    return [record.value["writer_epoch"] for record in system.outputs.of("commits.v1")]


def test_a_second_writer_takes_over_and_the_first_ends(
    system: System, first: Application, second: Application
) -> None:
    assert first.wait_end() == 3
    assert "another writer" in first.printed, first.output
    assert "Traceback" not in first.printed
    system.inputs.stream("after")
    assert system.outputs.decision("after")["outcome"] == "placed"
    assert second.running
    assert epochs(system) == sorted(epochs(system))
    assert set(epochs(system)) == {1, 2}


def test_a_writer_that_was_frozen_commits_nothing_when_it_wakes(
    system: System, second: Application
) -> None:
    second.look()
    frozen = sorted(second.left(), key=lambda process: process.pid)
    for process in frozen:
        process.send_signal(signal.SIGSTOP)
    system.inputs.stream("while-frozen")
    third = system.start(**PATIENT)
    assert system.outputs.decision("while-frozen")["outcome"] == "placed"
    for process in frozen:
        process.send_signal(signal.SIGCONT)
    system.inputs.stream("after-waking")
    assert second.wait_end() == 3, second.output
    assert "another writer" in second.printed, second.output
    assert system.outputs.decision("after-waking")["outcome"] == "placed"
    assert epochs(system) == sorted(epochs(system))
    assert max(epochs(system)) == 3
    third.send(signal.SIGTERM)
    assert third.wait_end() == 0, third.output
