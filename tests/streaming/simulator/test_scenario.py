"""Goal: scenario files are read strictly and played in order; the examples can be played."""

import threading
from pathlib import Path

import pytest

from streaming.simulator.executor import ExecutorBehaviour
from streaming.simulator.fleet import FleetNode
from streaming.simulator.scenario import ScenarioRefused, StepPlayer, read_scenario

ROOT = Path(__file__).parents[3]
PLAYED = [
    *sorted((ROOT / "deploy" / "examples" / "scenarios").glob("*.yaml")),
    ROOT / "streaming" / "demo" / "scenario.yaml",
    ROOT / "deploy" / "examples" / "store" / "kills.yaml",
]


class Recorded:
    """A fleet that only writes down what is done to it."""

    def __init__(self, nodes: list[FleetNode]) -> None:
        self.places = {node.node_id: node.location for node in nodes}
        self.done: list[str] = []

    @property
    def node_ids(self) -> list[str]:
        return list(self.places)

    def location(self, node_id: str) -> str:
        return self.places[node_id]

    def kill(self, node_id: str) -> None:
        self.done.append(f"kill {node_id}")

    def stop(self, node_id: str) -> None:
        self.done.append(f"stop {node_id}")

    def revive(self, node_id: str, *, same_incarnation: bool = False) -> None:
        self.done.append(f"{'return' if same_incarnation else 'revive'} {node_id}")

    def relocate(self, node_id: str, location: str) -> None:
        self.places[node_id] = location
        self.done.append(f"relocate {node_id} {location}")

    def unregister(self, node_id: str) -> None:
        self.done.append(f"unregister {node_id}")

    def join(self, node: FleetNode) -> None:
        self.places[node.node_id] = node.location
        self.done.append(f"join {node.node_id} {node.location}")


def silence(_line: str) -> None:
    """Nobody listens."""


def played(text: str) -> list[str]:
    scenario = read_scenario(text)
    fleet = Recorded(scenario.fleet())
    StepPlayer(fleet, silence, threading.Event()).play(scenario)  # type: ignore[arg-type]
    return fleet.done


@pytest.mark.parametrize("path", PLAYED, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    text = path.read_text("utf-8")
    scenario = read_scenario(text)
    assert scenario.steps
    fleet = Recorded(scenario.fleet())
    steps = scenario.model_copy(
        update={
            "steps": tuple(
                step.model_copy(update={"after": 0, "pause_seconds": 0}) for step in scenario.steps
            )
        }
    )
    StepPlayer(fleet, silence, threading.Event()).play(steps)  # type: ignore[arg-type]
    assert fleet.done


def test_steps_in_their_order() -> None:
    nodes = "nodes: [{id: a, location: /z1/r1}, {id: b, location: /z1/r2}, {id: c, location: /z2}]"
    assert played(f"{nodes}\nsteps:\n- {{do: kill, target: /z1}}\n- {{do: revive, target: a}}") == [
        "kill a",
        "kill b",
        "revive a",
    ]
    steps = "- {do: relocate, target: a, location: /z3}\n- {do: return, target: /z3}"
    assert played(f"{nodes}\nsteps:\n{steps}") == ["relocate a /z3", "return a"]
    steps = "- {do: flap, target: c, times: 2, pause_seconds: 0}\n- {do: unregister, target: c}"
    assert played(f"{nodes}\nsteps:\n{steps}") == [*["kill c", "return c"] * 2, "unregister c"]
    steps = "- {do: rolling_restart, target: /z1, pause_seconds: 0}"
    assert played(f"{nodes}\nsteps:\n{steps}") == ["kill a", "revive a", "kill b", "revive b"]
    steps = "- {do: restart, target: c, pause_seconds: 0, graceful: true}"
    assert played(f"{nodes}\nsteps:\n{steps}") == ["stop c", "revive c"]
    steps = "- {do: register, target: d, location: /z9}\n- {do: kill, target: /z9}"
    assert played(f"{nodes}\nsteps:\n{steps}") == ["join d /z9", "kill d"]


def test_a_stopped_player_does_nothing_more() -> None:
    scenario = read_scenario("layout: {}\nsteps: [{after: 60, do: kill, target: /zone1}]")
    fleet, stop = Recorded(scenario.fleet()), threading.Event()
    stop.set()
    StepPlayer(fleet, silence, stop).play(scenario)  # type: ignore[arg-type]
    assert fleet.done == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "not YAML"),
        ("3", "must be a mapping"),
        ("steps: []", "either layout or nodes"),
        ("layout: {}\nsteps: [{do: dance, target: a}]", "do"),
        (
            "layout: {}\nsteps: [{do: kill, target: n77}]",
            "no node has the id 'n77' or is in that domain",
        ),
        ("layout: {}\nsteps: [{do: relocate, target: /zone1}]", "relocate needs a location"),
        (
            "layout: {}\nsteps: [{do: kill, target: /zone1, graceful: true}]",
            "kill is never graceful",
        ),
        ("layout: {}\nsteps: [{do: register, target: x}]", "the new node needs a location"),
        ("layout: {}\nsteps: [{do: kill, target: /zone1, when: 3}]", "when"),
        ("layout: {}\nexecutor: {fail: 2}", "fail"),
        ("layout: {}\nstreams: [{stream: s, shards: few, replication_factor: 1}]", "shards"),
        ("layout: {}\nsettings: {liveness: {dead_after: 3}}", "settings: .*dead_after"),
        ("layout: {}\nsettings: {liveness: {suspect_after_seconds: 900}}", "dead_after_seconds"),
        ("layout: {}\nends: {moves: 3}", "moves"),
        ("layout: {}\nprograms: {node: []}", "node"),
        ("layout: {}\nexecutor: {}\nprograms: {node: [store]}", "no executor, no loads"),
        (
            "layout: {}\nprograms: {node: [store]}\nsteps: [{do: flap, target: /zone1}]",
            "killed and revived, not flap",
        ),
        ("layout: {}\nends: {moves_at_least: 3, moves_at_most: 1}", "is below moves_at_least"),
    ],
)
def test_what_cannot_be_played(text: str, said: str) -> None:
    with pytest.raises(ScenarioRefused, match=said.replace("(", r"\(")):
        read_scenario(text)


def test_behaviour_draws_the_same_again_and_by_share() -> None:
    behaviour = ExecutorBehaviour(fail=0.3, seed=5)
    drawn = [behaviour.draw(f"m{number}", "fail") for number in range(2_000)]
    assert drawn == [behaviour.draw(f"m{number}", "fail") for number in range(2_000)]
    assert 500 < sum(drawn) < 700
    assert not any(behaviour.draw(f"m{number}", "lose") for number in range(100))
