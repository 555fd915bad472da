"""The oracle's own reading of loads: what nodes bear of each resource, and what fits into them."""

from collections import Counter
from collections.abc import Iterator, Sequence

from placement.model import Resource
from tests.oracle.policy import Value
from tests.oracle.world import Shard, World


def judge_capacity(world: World, issued: Sequence[Value]) -> Iterator[str]:
    """No move is issued to a node into which it does not fit."""
    for resource in world.resources if issued else ():
        borne = loads_of_nodes(world, resource)
        for move in issued:
            limit = limit_of(world, resource, move["add"])
            if limit is None or move["state"] not in ("issued", "accepted"):
                continue
            if borne[move["add"]] > limit and load_of(world, resource, move) > 0:
                told = f"bears {borne[move['add']]} {resource.name}, {limit} may be filled"
                yield f"move {move['move_id']} goes to {move['add']}, which {told}"


def judge_speakers(
    world: World, spoken: Sequence[Value], steps: Sequence[tuple[Value | None, Value]]
) -> Iterator[str]:
    """Nodes speak of shards that they hold; `steps` are the assignments before and after."""
    for load in spoken:
        shard = (load["stream"], load["shard"])
        lists = [world.assignments.get(shard), *(before for before, _ in steps if before)]
        mine = [a for a in lists if a and (a["stream"], a["shard"]) == shard]
        if not any(load["node_id"] in a["replicas"] for a in mine):
            yield f"the load of {shard} is the word of {load['node_id']}, which does not hold it"


def full_nodes(world: World, shard: Shard) -> set[str]:
    """Nodes that have no room for one more replica of the shard."""
    load, found = world.load(), set[str]()
    for node_id, node in world.nodes.items():
        capacity = node.get("capacity")
        if capacity is not None and load[node_id] >= capacity:
            found.add(node_id)
    for resource in world.resources:
        borne, more = loads_of_nodes(world, resource), loads_of_shards(world, resource.name)[shard]
        for node_id in world.nodes:
            limit = limit_of(world, resource, node_id)
            if limit is not None and more and borne[node_id] + more > limit:
                found.add(node_id)
    return found


def limit_of(world: World, resource: Resource, node_id: str | None) -> int | None:
    """How much of a resource the node may bear; None for any amount."""
    has = dict(world.nodes.get(node_id or "", {}).get("capacities") or ())
    if resource.capacity is None or resource.name not in has:
        return None
    return int(has[resource.name] * resource.capacity + 1e-9)


def load_of(world: World, resource: Resource, move: Value) -> int:
    """What the move's target gets of a resource; a copy that does not lead bears none if led."""
    shard = (move["stream"], move["shard"])
    follows = world.assignments[shard]["replicas"][:1] != [move["remove"]]
    return 0 if resource.led and follows else loads_of_shards(world, resource.name)[shard]


def loads_of_nodes(world: World, resource: Resource) -> Counter[str]:
    """Load by node: planned replicas, and those that moves under way have not taken away yet."""
    loads, borne = loads_of_shards(world, resource.name), Counter[str]()
    for shard, assignment in world.assignments.items():
        removing = {*assignment["removing"]}
        planned = [*assignment["replicas"]]
        move = world.all_moves.get(world.open_moves.get(shard, ""))
        if move is not None and move["add"] and move["remove"]:
            planned[planned.index(move["remove"])] = move["add"]
        leader = planned[0] if planned else None
        for node_id in {*assignment["replicas"], *assignment["adding"]}:
            if not resource.led or (node_id == leader and node_id not in removing):
                borne[node_id] += loads[shard]
    return borne


def loads_of_shards(world: World, name: str) -> dict[Shard, int]:
    """The load of every shard: reported, expected, its stream's mean, the mean of all."""
    reported = {
        shard: dict(record["amounts"])[name]
        for shard, record in world.loads.items()
        if name in dict(record["amounts"])
    }
    of_stream: dict[str, list[int]] = {}
    for (stream, _), load in reported.items():
        of_stream.setdefault(stream, []).append(load)
    mean = sum(reported.values()) // max(len(reported), 1)
    found = {}
    for shard in world.assignments:
        expected = dict(world.spec(shard[0]).get("expected_load") or ())
        others = of_stream.get(shard[0])
        guess = sum(others) // len(others) if others else mean
        found[shard] = reported.get(shard, expected.get(name, guess))
    return found
