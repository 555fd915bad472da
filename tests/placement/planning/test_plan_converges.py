"""Random fleets, damaged, and planned until nothing is left, for every strategy.

Goal: plans end, take one move a shard, aim at nodes that may receive replicas, never lower the
number of live copies, and never break a required rule that was kept. Method: a stream is placed on
a healthy fleet of random shape; then nodes die, drain, move or come, and plan follows plan.
"""

import random
from typing import Any

import pytest

from placement.allocator import View
from placement.assignments import EMPTY, AssignmentTable
from placement.model import (
    AdministrativeState,
    Liveness,
    MoveKind,
    NodeAttributes,
    Reason,
    StreamSpec,
)
from placement.planning import PlanPhase, StreamSnapshot, plan
from placement.policy import Policy, compile_policy
from placement.repair.shard_case import ShardCase, score
from placement.strategies import STRATEGIES
from placement.topology import Topology
from tests.builders.drawn import share
from tests.oracle.policy import KINDS

PLACES = ("/s1/r1", "/s1/r2", "/s2/r1", "/s2/r2", "/s3/r1", "/s4/r1/c1")
SEEDS = 12
# Each plan gives a shard one move; no shard here has more than five replicas to put right, and what
# a neighbour gives up may let it move once more.
ROUNDS_MAX = 12

_CHOSEN: tuple[dict[str, Any], ...] = (
    {"strategy": "spread"},
    {"strategy": "spread", "rules": [{"at_most": "share", "per": "site"}]},
    {"strategy": "spread", "rules": [{"even": "tag:disk", "strength": "preferred"}]},
    {"strategy": "spread", "within": ["/s1", "/s2"]},
    {"strategy": "affinity"},
    {"strategy": "affinity", "node": "exclusive", "shard": "balanced"},
    {"strategy": "affinity", "node": "colocated", "shard": "exclusive"},
    {"strategy": "ring"},
    {"strategy": "network_topology", "replication": {"s1": 1, "s2": 2}},
    {"strategy": "location_majority"},
    {"strategy": "awareness", "attributes": ["disk"]},
    {"strategy": "client_tags", "rack_aware_tags": ["disk"]},
    {"strategy": "multi_level"},
    {"strategy": "striped"},
    {"strategy": "striped", "level": "1"},
    {"strategy": "simple"},
    {"strategy": "hdfs"},
    {"strategy": "copysets"},
    {"strategy": "cost", "on_infeasible": "degrade"},
)
# What none of these names is asked for as it comes; kinds of rules by their examples.
POLICIES = (
    *_CHOSEN,
    *(
        {"strategy": name}
        for name in sorted({strategy.name for strategy in STRATEGIES.values()})
        if name not in {policy["strategy"] for policy in _CHOSEN}
    ),
    *({"strategy": "spread", "rules": [example]} for example, *_ in KINDS.values()),
)


def attributes(rng: random.Random) -> NodeAttributes:
    disk = rng.choice(("ssd", "hdd"))
    weight = rng.choice((1.0, 1.0, 2.0))
    return NodeAttributes(rng.choice(PLACES), (("disk", disk),), weight=weight)


def placed(rng: random.Random, asked: dict[str, Any]) -> tuple[Topology, StreamSnapshot] | None:
    """A fleet with one stream on it; None where the stream does not fit the fleet."""
    topology = Topology(("site",))
    for number in range(rng.randint(6, 14)):
        topology.upsert(f"n{number}", attributes(rng), Liveness.UP)
    factor = 3 if "replication" in asked else rng.randint(1, 5)
    policy = compile_policy(None, asked, asked, topology, STRATEGIES)
    assert isinstance(policy, Policy)
    spec = StreamSpec("s", rng.randint(1, 6), factor, asked)
    view = View(topology, AssignmentTable(), lambda _: policy, lambda _: spec)
    found = STRATEGIES[policy.strategy].place(spec, policy, view)
    if isinstance(found, Reason) or any(EMPTY in nodes for nodes in found.shards):
        return None
    return topology, StreamSnapshot(spec, policy, [[*nodes] for nodes in found.shards])


def damage(rng: random.Random, topology: Topology) -> None:
    """Some nodes die, drain, come back from nowhere, or turn out to stand elsewhere."""
    for node_id in rng.sample(topology.ids, rng.randint(1, 4)):
        node = topology.index[node_id]
        known = topology.attributes[node]
        match rng.choice(("dead", "drain", "move", "suspect")):
            case "dead":
                topology.upsert(node_id, known, Liveness.DEAD)
            case "drain":
                topology.upsert(node_id, known, Liveness.UP, AdministrativeState.DRAINING)
            case "move":
                topology.upsert(node_id, attributes(rng), Liveness.UP)
            case _:
                topology.upsert(node_id, known, Liveness.SUSPECT)
    for number in range(rng.randint(0, 2)):
        topology.upsert(f"new{number}", attributes(rng), Liveness.UP)


def live(topology: Topology, nodes: list[int]) -> int:
    return sum(not topology.is_dead(node) for node in nodes)


def required(topology: Topology, stream: StreamSnapshot, shard: int) -> tuple[int, ...]:
    """How far the shard is from each required rule that looks at it alone."""
    judging = topology.for_diagnosis()
    rules = STRATEGIES[stream.policy.strategy].rules(stream.policy, judging)
    own = tuple(rule for rule in rules if not rule.spans_stream)
    case = ShardCase(stream.spec, stream.policy, own, shard, stream.shards[shard])
    return score(case, judging).required


@pytest.mark.parametrize("asked", POLICIES, ids=lambda asked: "-".join(map(str, asked.values())))
def test_plans_end(asked: dict[str, Any]) -> None:
    tried = 0
    for seed in range(SEEDS):
        if tried == share(SEEDS):
            break
        rng = random.Random(f"{seed} {asked}")
        fleet = placed(rng, asked)
        if fleet is None:
            continue
        tried += 1
        topology, stream = fleet
        damage(rng, topology)
        try:
            settle(topology, stream)
        except AssertionError as error:
            error.add_note(f"seed {seed} of {asked}")
            raise
    assert tried


def settle(topology: Topology, stream: StreamSnapshot) -> None:
    """Carry out plan after plan."""
    for _ in range(ROUNDS_MAX):
        found = plan(topology, [stream], PlanPhase.REPAIR)
        if not found.moves:
            return
        shards = [move.shard for move in found.moves]
        assert len(shards) == len(set(shards)), "two moves for one shard"
        after = StreamSnapshot(
            stream.spec,
            stream.policy,
            [[topology.index[node] for node in nodes] for nodes in found.final["s"]],
        )
        for move in found.moves:
            before, now = stream.shards[move.shard], after.shards[move.shard]
            assert len(set(now)) == len(now)
            if move.add is not None:
                node = topology.index[move.add]
                assert topology.eligible[node] or topology.fenced[node]
            if move.kind is not MoveKind.REMOVE:
                assert live(topology, now) >= live(topology, before)
            # On the way out of several nodes at once a rule may have to wait for the last of them.
            leaving = sum(not topology.counts_for_rules[node] for node in before) > 1
            same = live(topology, now) == live(topology, before)
            if same and not leaving and move.kind is MoveKind.REPLACE:
                pairs = zip(
                    required(topology, after, move.shard),
                    required(topology, stream, move.shard),
                    strict=True,
                )
                assert all(mine <= theirs for mine, theirs in pairs), f"{move} breaks a rule"
        stream = after
    raise AssertionError(f"still moving: {found.moves}")
