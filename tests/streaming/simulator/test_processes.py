"""Nodes that are processes of a program: they learn who they are, and are killed and started."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming.simulator import JudgingProgram, ProcessFleet, ProgramFailed
from streaming.simulator.fleet import FleetNode
from tests.systems.waiting import until

# A node that writes down who it is and which process, and goes on until it is told to end.
NODE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("ended", flush=True)))
told = os.environ
print(told["NODE_ID"], told["NODE_LOCATION"], told["KAFKA_BOOTSTRAP"], told["TOPIC_PREFIX"],
      os.path.basename(told["NODE_DIRECTORY"]), os.getpid(), flush=True)
time.sleep(600)
"""
JUDGE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(int(os.environ["FOUND"])))
print("judges", flush=True)
time.sleep(600)
"""


def lines(fleet: ProcessFleet, node_id: str) -> list[list[str]]:
    return [line.split() for line in fleet.log(node_id).read_text().splitlines()]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ProcessFleet]:
    nodes = [FleetNode("a", "/z1"), FleetNode("b", "/z2")]
    with ProcessFleet("broker:1", "t.", nodes, ("python", "-c", NODE), tmp_path) as made:
        for node in made.node_ids:
            until(lambda n=node: lines(made, n), f"{node} has started")
        yield made


def test_a_node_learns_who_it_is(fleet: ProcessFleet) -> None:
    assert lines(fleet, "b")[0][:-1] == ["b", "/z2", "broker:1", "t.", "b"]
    assert (fleet.alive, fleet.location("a")) == (["a", "b"], "/z1")


def test_a_killed_node_ends_at_once_and_a_stopped_one_by_itself(fleet: ProcessFleet) -> None:
    (first,) = lines(fleet, "a")
    fleet.kill("a")
    assert fleet.alive == ["b"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(first[-1]), 0)
    fleet.revive("a")
    until(lambda: len(lines(fleet, "a")) == 2, "it has started again")
    fleet.stop("a")
    assert lines(fleet, "a")[-1] == ["ended"]
    fleet.relocate("b", "/z3")
    until(lambda: lines(fleet, "b")[-1][:2] == ["b", "/z3"], "it stands elsewhere")


def test_what_only_simulated_nodes_can_do_is_refused(fleet: ProcessFleet, tmp_path: Path) -> None:
    with pytest.raises(ProgramFailed, match="alone can unregister"):
        fleet.unregister("a")
    with pytest.raises(ProgramFailed, match="cannot return as it was"):
        fleet.revive("a", same_incarnation=True)
    with pytest.raises(ProgramFailed, match="there is no program no-such-store"):
        ProcessFleet("broker:1", "t.", [], ("no-such-store",), tmp_path)


@pytest.mark.parametrize("found", ["0", "3"])
def test_a_program_judges_by_its_exit_code(found: str) -> None:
    told: list[str] = []
    with JudgingProgram(("python", "-c", JUDGE), {"FOUND": found}, told.append) as program:
        until(lambda: told, "it has begun")
        findings = program.end()
    assert told == ["judges"]
    assert [each.endswith("ended with 3: ; judges") for each in findings] == [True] * (found != "0")
