"""Reads scenarios, which say what happens to a simulated fleet and when, and plays their steps.

`placer demo --scenario FILE` plays one on a broker and a reconciler of its own, with the settings
that the file names; `placer fleet FILE` against a reconciler that runs. Rolling restarts, a rack or
zone that is lost and returns, flapping, relabelling, executors that are slow, fail or lie. A
scenario brings its streams, and claims (`streaming.simulator.claims`) that its end is judged by.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from schemas.base import Id, Location, Tags, Weight, describe
from schemas.inputs import StreamCreated
from streaming.errors import SettingsInvalid, StreamingError
from streaming.settings import load_settings
from streaming.simulator.claims import Claims, Seconds, Target
from streaming.simulator.executor import ExecutorBehaviour
from streaming.simulator.fleet import Fleet, FleetNode
from streaming.simulator.loads import LoadsBehaviour
from streaming.simulator.processes import ProcessFleet


def _set_first_sequence(body: Any) -> Any:
    """A stream as it is first created."""
    return {"sequence": 1} | body if isinstance(body, dict) else body


ScenarioStream = Annotated[StreamCreated, BeforeValidator(_set_first_sequence)]


class ScenarioRefused(StreamingError):
    """The file cannot be played; the message says where."""

    exit_code = 2


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FleetLayout(_Part):
    """A regular fleet: zones of racks of nodes, called node-<zone><rack><number>."""

    zones: Annotated[int, Field(ge=1, le=99)] = 3
    racks: Annotated[int, Field(ge=1, le=99)] = 2
    nodes: Annotated[int, Field(ge=1, le=999)] = 2

    def fleet_nodes(self) -> list[FleetNode]:
        """The nodes."""
        digits = [len(str(each)) for each in (self.zones, self.racks, self.nodes)]
        return [
            FleetNode(
                f"node-{zone:0{digits[0]}}{rack:0{digits[1]}}{number:0{digits[2]}}",
                f"/zone{zone}/rack{rack}",
            )
            for zone in range(1, self.zones + 1)
            for rack in range(1, self.racks + 1)
            for number in range(1, self.nodes + 1)
        ]


class Programs(_Part):
    """Programs in place of the simulation. `node` runs once for each node, and carries its moves
    out; `judge` runs beside them from before the first step, and ends with 0 at the end's SIGTERM
    unless it has something to complain of. `python` is the interpreter of this installation."""

    node: Annotated[tuple[str, ...], Field(min_length=1)]
    judge: Annotated[tuple[str, ...], Field(min_length=1)] | None = None


class ScenarioNode(_Part):
    """A node as it registers."""

    id: Id
    location: Location
    tags: Tags = Field(default_factory=dict)
    weight: Weight = 1.0

    def to_fleet_node(self) -> FleetNode:
        """As the fleet takes it."""
        return FleetNode(self.id, self.location, tags=self.tags, weight=self.weight)


class ScenarioStep(_Part):
    """One thing that happens `after` so many seconds since the step before.

    `do` with its `target`, a node or a domain: `kill` (silence), `revive` (a new process),
    `return` (the same process: a network fault is over), `restart` (kill, or stop with a last
    heartbeat that says so where it is `graceful`, wait `pause_seconds`, revive), `rolling_restart`
    (one node after the other), `flap` (kill and return `times` times, `pause_seconds` apart),
    `relocate` (to `location`), `unregister`, `register` (again, or for the first time, at
    `location`).
    """

    do: Literal[
        "kill",
        "revive",
        "return",
        "restart",
        "rolling_restart",
        "flap",
        "relocate",
        "unregister",
        "register",
    ]
    target: Target
    after: Seconds = 0.0
    location: Location | None = None
    pause_seconds: Seconds = 1.0
    graceful: bool = False
    times: Annotated[int, Field(ge=1, le=1_000)] = 5

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.do == "relocate" and self.location is None:
            raise ValueError("relocate needs a location")
        if self.graceful and self.do not in ("restart", "rolling_restart"):
            raise ValueError(f"{self.do} is never graceful, only restart and rolling_restart are")
        return self


# What only simulated nodes can do: be silent and come back as the same process, unregister at once.
SIMULATED_ONLY = frozenset({"return", "flap", "unregister"})

Setting = float | int | str | bool | None


class Scenario(_Part):
    """Holds a scenario file. It has the fleet and its streams, the settings that the reconciler
    needs (by section), the executor's behaviour and what shards weigh, or the programs in their
    place, the steps in their order, and the claims about the end."""

    name: str = "scenario"
    settings: Mapping[str, Mapping[str, Setting | Mapping[str, Setting]]] = Field(
        default_factory=dict
    )
    layout: FleetLayout | None = None
    nodes: tuple[ScenarioNode, ...] = ()
    heartbeat_seconds: Annotated[float, Field(gt=0, le=60)] = 1.0
    streams: tuple[ScenarioStream, ...] = ()
    executor: ExecutorBehaviour = Field(default_factory=ExecutorBehaviour)
    loads: LoadsBehaviour | None = None
    programs: Programs | None = None
    steps: tuple[ScenarioStep, ...] = ()
    ends: Claims | None = None

    @model_validator(mode="after")
    def _check_nodes(self) -> Self:
        if (self.layout is None) == (not self.nodes):
            raise ValueError("give either layout or nodes")
        if self.programs is not None and self.model_fields_set & {"executor", "loads"}:
            raise ValueError("programs carry out and report themselves: no executor, no loads")
        beyond = {step.do for step in self.steps} & SIMULATED_ONLY
        if self.programs is not None and beyond:
            raise ValueError(f"programs can be killed and revived, not {', '.join(sorted(beyond))}")
        return self

    @property
    def flags(self) -> dict[str, Any]:
        """The settings by dotted name, as `load_settings` takes flags; resources together."""
        return {
            section if section == "resources" else f"{section}.{name}": (
                dict(values) if section == "resources" else value
            )
            for section, values in self.settings.items()
            for name, value in values.items()
        }

    def fleet(self) -> list[FleetNode]:
        """The nodes it begins with."""
        nodes = (
            self.layout.fleet_nodes()
            if self.layout
            else [node.to_fleet_node() for node in self.nodes]
        )
        return [replace(node, capacities=self.capacities) for node in nodes]

    @property
    def capacities(self) -> dict[str, int] | None:
        """What every node states to have of resources."""
        return None if self.loads is None else {self.loads.resource: self.loads.capacity}


def read_scenario(text: str) -> Scenario:
    """Read a scenario in YAML. Raises ScenarioRefused."""
    try:
        document: Any = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ScenarioRefused(f"not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ScenarioRefused("the scenario must be a mapping: layout or nodes, streams, steps")
    try:
        scenario = Scenario.model_validate(document)
    except ValidationError as error:
        _, sentence = describe(error, document)
        raise ScenarioRefused(sentence) from error
    try:
        load_settings(None, scenario.flags)
    except SettingsInvalid as error:
        raise ScenarioRefused(f"settings: {error}") from error
    known = {node.node_id for node in scenario.fleet()}
    places = {node.location for node in scenario.fleet()}
    for number, step in enumerate(scenario.steps):
        if step.do == "register":
            if step.target not in known and step.location is None:
                raise ScenarioRefused(f"steps[{number}]: the new node needs a location")
            known.add(step.target)
            places |= {step.location} if step.location else set()
            continue
        places |= {step.location} if step.location else set()
        if step.target not in known and not any(_is_within(place, step.target) for place in places):
            raise ScenarioRefused(
                f"steps[{number}]: no node has the id '{step.target}' or is in that domain"
            )
    return scenario


def _is_within(location: str, domain: str) -> bool:
    return f"{location}/".startswith(f"{domain.rstrip('/')}/")


class StepPlayer:
    """Plays the steps on a fleet; `stop` ends it between two looks at the clock."""

    def __init__(
        self, fleet: Fleet | ProcessFleet, tell: Callable[[str], None], stop: threading.Event
    ) -> None:
        self._fleet, self._tell, self._stop = fleet, tell, stop
        self._capacities: dict[str, int] | None = None

    def play(self, scenario: Scenario) -> None:
        """All steps, each at its time."""
        self._capacities = scenario.capacities
        for step in scenario.steps:
            if self._stop.wait(step.after):
                return
            self._tell(f"{time.strftime('%H:%M:%S')} {self._sentence(step)}")
            self.act(step)

    def act(self, step: ScenarioStep) -> None:
        """Take one step, now."""
        fleet, nodes = self._fleet, self.targets(step.target)
        to_each: dict[str, Callable[[str], object]] = {
            "kill": fleet.kill,
            "revive": fleet.revive,
            "return": lambda node: fleet.revive(node, same_incarnation=True),
            "unregister": fleet.unregister,
            "relocate": lambda node: fleet.relocate(node, step.location or ""),
        }
        if step.do in to_each:
            self._for_each(nodes, to_each[step.do])
        elif step.do == "restart":
            self._restart(nodes, step)
        elif step.do == "rolling_restart":
            for node in nodes:
                self._restart([node], step)
                self._stop.wait(step.pause_seconds)
        elif step.do == "flap":
            self._flap(nodes, step)
        else:
            location = step.location or fleet.location(step.target)
            fleet.join(FleetNode(step.target, location, capacities=self._capacities))

    def _restart(self, nodes: list[str], step: ScenarioStep) -> None:
        self._for_each(nodes, self._fleet.stop if step.graceful else self._fleet.kill)
        self._stop.wait(step.pause_seconds)
        self._for_each(nodes, self._fleet.revive)

    def _flap(self, nodes: list[str], step: ScenarioStep) -> None:
        for _ in range(step.times):
            if self._stop.is_set():
                return
            self._for_each(nodes, self._fleet.kill)
            self._stop.wait(step.pause_seconds)
            self._for_each(nodes, lambda node: self._fleet.revive(node, same_incarnation=True))
            self._stop.wait(step.pause_seconds)

    def _for_each(self, nodes: list[str], act: Callable[[str], object]) -> None:
        for node in nodes:
            act(node)

    def targets(self, target: str) -> list[str]:
        """The nodes that a step's target stands for now."""
        nodes = self._fleet.node_ids
        return [n for n in nodes if n == target or _is_within(self._fleet.location(n), target)]

    def _sentence(self, step: ScenarioStep) -> str:
        count = len(self.targets(step.target))
        where = f" -> {step.location}" if step.location else ""
        of = f" ({count} nodes)" if count > 1 else ""
        times = f", {step.times} times" if step.do == "flap" else ""
        return f"{step.do} {step.target}{where}{of}{times}"
