"""A fleet at rest: everything is as was asked, or the reason is known and nothing would help."""

from collections.abc import Iterator

from placement.model import Resource
from tests.oracle.loads import full_nodes, limit_of, loads_of_nodes, loads_of_shards
from tests.oracle.moves import broken_with, can_be_led, more_broken
from tests.oracle.policy import can_judge, moves_together
from tests.oracle.world import Shard, Value, World


def judge_whole(world: World, reported_is_enough: bool, whole: bool) -> Iterator[str]:
    """Every placed stream has all its replicas on live nodes within its required policy, and
    nothing is open. `reported_is_enough`: a broken rule passes if an open violation speaks of it;
    `whole`: the fleet has all its nodes, so that no replica may be missing."""
    yield from (f"move {move_id} of {shard} is open" for shard, move_id in world.open_moves.items())
    for stream, decision in world.decisions.items():
        shards, lists = decision["spec"]["shards"], world.lists(stream)
        if decision["outcome"] in ("rejected", "waiting", "dropped"):
            if lists:
                yield f"{stream} is {decision['outcome']} and has assignments"
            continue
        if sorted(lists) != list(range(shards)):
            # Those of a stream that is being adopted come one after the other.
            if decision["spec"].get("adopt") != "observed":
                yield f"{stream} has shards {sorted(lists)} of {shards}"
            continue
        for number, replicas in lists.items():
            yield from _judge_shard(world, (stream, number), replicas, whole)
        spoken = {number for number in lists if world.speaks((stream, number))}
        kept = [world.kept(replicas) for replicas in lists.values()]
        for breach in world.judge(stream, accounted=True).breaches(kept):
            told = breach.shard in spoken if breach.shard is not None else bool(spoken)
            if not (reported_is_enough and told):
                yield f"{stream}/{breach.shard}: {breach.words}"


def _judge_shard(world: World, shard: Shard, replicas: list[str], whole: bool) -> Iterator[str]:
    (stream, number), live = shard, world.live(replicas)
    decision, factor = world.decisions[stream], world.copies(stream)
    waits = decision["outcome"] == "partial" and len(live) == len(replicas)
    away = any(map(world.is_away, replicas))
    if len(replicas) > factor and not away and decision["spec"].get("repair") != "dead_only":
        yield f"{stream}/{number} has too many replicas: {replicas}"
    emptied = [node for node in live if world.is_draining(node)]
    if emptied and not world.speaks(shard):
        yield f"{stream}/{number} is still on {emptied}"
    if whole and len(live) < factor and not waits:
        yield f"{stream}/{number} has live replicas {live} only"


def judge_missed(world: World) -> Iterator[str]:
    """Single moves that would mend something and that nobody made; nothing says that it could be
    mended and is not."""
    for shard, violations in world.open_violations.items():
        for violation in violations:
            if violation["class"] == "fixable":
                yield f"{shard} is at rest with a violation that could be mended: {violation}"
            yield from _judge_reported(world, shard, violation)
    yield from _judge_full(world)
    for shard, assignment in world.assignments.items():
        spec = world.spec(shard[0])
        if can_judge(spec) and not moves_together(spec):
            yield from _judge_missed_in(world, shard, assignment, spec)


def _judge_full(world: World) -> Iterator[str]:
    """A node that bears more than fits, though one move of a healthy shard would relieve it."""
    for resource in world.resources:
        borne = loads_of_nodes(world, resource)
        for node_id in world.nodes:
            limit = limit_of(world, resource, node_id)
            if limit is None or borne[node_id] <= limit or not world.may_receive(node_id):
                continue
            for shard, assignment in world.assignments.items():
                if node_id in assignment["replicas"] and not world.open_violations.get(shard):
                    yield from _judge_relief(world, resource, shard, node_id)


def _judge_relief(world: World, resource: Resource, shard: Shard, node_id: str) -> Iterator[str]:
    """A replica that could leave a full node for another that has room for it."""
    spec, replicas = world.spec(shard[0]), world.assignments[shard]["replicas"]
    plain = spec["policy"].get("strategy") in ("spread", "simple") and can_judge(spec)
    bears = not resource.led or replicas[0] == node_id
    if not plain or moves_together(spec) or spec.get("repair") == "dead_only" or not bears:
        return
    if not loads_of_shards(world, resource.name)[shard] or any(map(world.is_leaving, replicas)):
        return
    for node in _open_targets(world, shard):
        after = [node if each == node_id else each for each in replicas]
        lawful = node not in replicas and not more_broken(world, shard, replicas, after)
        if lawful and can_be_led(world, after) == can_be_led(world, replicas):
            yield f"{node_id} bears too much, though {node} has room for its replica of {shard}"


def _judge_reported(world: World, shard: Shard, violation: Value) -> Iterator[str]:
    """A rule that is said to be broken and that, counted anew, is not."""
    kept = world.kept(world.assignments[shard]["replicas"])
    judge = world.judge(shard[0], accounted=True)
    if judge.keeps(violation["rule"], kept):
        yield f"{shard} with {kept} is said to break what it keeps: {violation}"


def _judge_missed_in(world: World, shard: Shard, assignment: Value, spec: Value) -> Iterator[str]:
    kept = world.kept(assignment["replicas"])
    targets = [node for node in _open_targets(world, shard) if node not in assignment["replicas"]]
    if len(kept) < world.copies(shard[0]):
        for node in targets:
            if not more_broken(world, shard, kept, [*kept, node]):
                yield f"{shard} has {kept} only, though {node} could take a replica"
        return
    yield from _judge_uneven(world, shard, kept, targets)
    broken = broken_with(world, shard, kept)
    if not broken or spec.get("repair") == "dead_only" or len(kept) > world.copies(shard[0]):
        return
    for old in filter(world.alive, kept):
        for node in targets:
            after = [node if each == old else each for each in kept]
            # A shard that can be led is not mended by a node that leaves nobody to lead it.
            leaderless = can_be_led(world, kept) and not can_be_led(world, after)
            better = more_broken(world, shard, after, kept)
            if better and not leaderless and not more_broken(world, shard, kept, after):
                yield f"{shard} with {kept} breaks {broken}, though {after} would be better"


def _judge_uneven(world: World, shard: Shard, kept: list[str], targets: list[str]) -> Iterator[str]:
    """Of a stream that asks for nothing but to be even at every level: a move that makes it so."""
    spec = world.spec(shard[0])
    if spec["policy"] != {"strategy": "spread"} or spec.get("repair") == "dead_only":
        return
    judge = world.judge(shard[0], accounted=True)
    depths = range(1, 1 + max(node["location"].count("/") for node in world.nodes.values()))
    tiers = [f"even per {tier}" for tier in (*depths, "location")]
    if len(kept) > world.copies(shard[0]) or all(judge.keeps(tier, kept) for tier in tiers):
        return
    for old in filter(world.alive, kept):
        for node in targets:
            if world.nodes[old]["location"] and not world.nodes[node]["location"]:
                continue  # nodes without a location come last
            after = [node if each == old else each for each in kept]
            if all(judge.keeps(tier, after) for tier in tiers):
                yield f"{shard} with {kept} is uneven, though {after} would not be"


def _open_targets(world: World, shard: Shard) -> Iterator[str]:
    """Nodes that may take a replica of the shard and have room for it."""
    judge, full = world.judge(shard[0]), full_nodes(world, shard)
    for node_id in world.nodes:
        if node_id not in full and world.may_receive(node_id) and judge.admits(node_id):
            yield node_id
