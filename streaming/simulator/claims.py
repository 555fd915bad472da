"""Judges the claims of a scenario about its end, from the output topics.

`placer fleet` and `placer demo --scenario` play a scenario (`playing`) and end with the
judgement: each claim that does not hold is a sentence that names what was seen instead.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from schemas.base import Id, Location
from streaming.simulator.world import World

Target = Annotated[str, Field(min_length=1, max_length=1024)]
Seconds = Annotated[float, Field(ge=0, le=86_400)]
Many = Annotated[int, Field(ge=0)]

# Outcomes of streams that have all their replicas.
_PLACED = ("placed", "degraded")


class Claims(BaseModel):
    """Conditions at the end of a run.

    They are judged `settle_seconds` after the last step, so that what should not happen had the
    time to, and again until all of them hold or `within_seconds` more are over.

    `healed`: every stream has all its replicas on nodes that live, no required rule is broken and
    no move is open; `unchanged`: every shard stands on the nodes where it stood before the first
    step; `moves`, `moves_per_shard`: how many were issued since then; `dead`: these nodes and
    domains, and no others; `locations`: where nodes stand; `used`: nodes and domains of which every
    node holds replicas; `alerts`: kinds that were raised; `no_alerts`: kinds that were not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    settle_seconds: Seconds = 0.0
    within_seconds: Seconds = 60.0
    healed: bool = True
    unchanged: bool = False
    moves_at_least: Many = 0
    moves_at_most: Many | None = None
    moves_per_shard_at_most: Many | None = None
    dead: tuple[Target, ...] = ()
    locations: Mapping[Id, Location] = Field(default_factory=dict)
    used: tuple[Target, ...] = ()
    alerts: tuple[str, ...] = ()
    no_alerts: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_moves(self) -> Self:
        if self.moves_at_most is not None and self.moves_at_most < self.moves_at_least:
            raise ValueError("moves_at_most is below moves_at_least")
        return self


@dataclass(frozen=True, slots=True)
class Baseline:
    """Holds the state before the first step: moves so far, alerts and replicas."""

    moves: frozenset[str]
    alerts: int
    replicas: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, world: World) -> "Baseline":
        """As the world shows it now."""
        replicas = {key: each["replicas"] for key, each in [*world.assignments.items()]}
        return cls(frozenset(world.moves), len(world.alerts), replicas)


def find_broken_claims(
    claims: Claims, world: World, before: Baseline, within: Callable[[str], Sequence[str]]
) -> list[str]:
    """The claims that do not hold, a sentence each; `within` gives the nodes of a target."""
    return [
        *(_check_healed(world) if claims.healed else ()),
        *(_check_unchanged(world, before) if claims.unchanged else ()),
        *_check_moves(claims, world, before),
        *_nodes(claims, world, within),
        *_check_alerts(claims, world, before),
    ]


def _check_healed(world: World) -> Iterator[str]:
    for move in world.open_moves:
        yield f"move {move['move_id']} of {move['stream']}/{move['shard']} is {move['state']}"
    alive = {n for n, view in [*world.nodes.items()] if view["liveness"] in ("up", "suspect")}
    for name, decision in [*world.decisions.items()]:
        if decision["outcome"] not in _PLACED:
            why = "; ".join(reason["message"] for reason in decision["reasons"])
            yield f"stream {name} is {decision['outcome']}: {why}"
            continue
        factor = decision["spec"]["replication_factor"]
        for shard in range(decision["spec"]["shards"]):
            replicas = (world.assignments.get(f"{name}/{shard}") or {"replicas": []})["replicas"]
            if len(alive.intersection(replicas)) < factor:
                where = ", ".join(replicas) or "nowhere"
                yield f"{name}/{shard} needs {factor} replicas that live and stands on {where}"
    for key, record in [*world.violations.items()]:
        for violation in record["violations"]:
            if violation["strength"] == "required":
                yield f"{key} breaks '{violation['rule']}': {violation['reason']['message']}"


def _check_unchanged(world: World, before: Baseline) -> Iterator[str]:
    for key, replicas in before.replicas.items():
        now = (world.assignments.get(key) or {"replicas": []})["replicas"]
        if sorted(now) != sorted(replicas):
            yield f"{key} stood on {', '.join(replicas)} and stands on {', '.join(now)}"


def _check_moves(claims: Claims, world: World, before: Baseline) -> Iterator[str]:
    moves = [m for key, m in [*world.moves.items()] if key not in before.moves]
    most = claims.moves_at_most
    if most is not None and len(moves) > most:
        yield f"moves that were issued: {len(moves)}, claimed at most: {most}"
    if len(moves) < claims.moves_at_least:
        yield f"moves that were issued: {len(moves)}, claimed at least: {claims.moves_at_least}"
    if claims.moves_per_shard_at_most is not None:
        counts = Counter(f"{move['stream']}/{move['shard']}" for move in moves)
        for key, count in sorted(counts.items()):
            if count > claims.moves_per_shard_at_most:
                most = claims.moves_per_shard_at_most
                yield f"moves of {key}: {count}, claimed at most: {most}"


def _nodes(claims: Claims, world: World, within: Callable[[str], Sequence[str]]) -> Iterator[str]:
    views = dict([*world.nodes.items()])
    dead = {node for node, view in views.items() if view["liveness"] == "dead"}
    claimed = {node for target in claims.dead for node in within(target)}
    yield from (f"{node} is dead" for node in sorted(dead - claimed))
    yield from (f"{node} is not dead" for node in sorted(claimed - dead))
    for node, location in claims.locations.items():
        stands = views.get(node, {}).get("location")
        if stands != location:
            yield f"{node} stands in {stands}, not in {location}"
    replicas = {node for each in [*world.assignments.values()] for node in each["replicas"]}
    for target in claims.used:
        yield from (f"{node} holds no replica" for node in within(target) if node not in replicas)


def _check_alerts(claims: Claims, world: World, before: Baseline) -> Iterator[str]:
    raised: dict[str, Any] = {}
    for alert in world.alerts[before.alerts :]:
        raised[alert["kind"]] = alert
    yield from (f"no alert {kind} was raised" for kind in claims.alerts if kind not in raised)
    for kind in claims.no_alerts:
        if kind in raised:
            said = raised[kind]
            yield f"alert {kind} of {said['subject']} was raised: {said['reason']['message']}"
