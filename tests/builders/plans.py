"""Fleets and streams in words, for tests of plans."""

from placement.model import AdministrativeState, Liveness, NodeAttributes, StreamSpec
from placement.planning import Plan, StreamSnapshot
from placement.policy import Policy, compile_policy
from placement.strategies import STRATEGIES
from placement.topology import Topology

DRAINING = AdministrativeState.DRAINING


def fleet(*places: str, levels: tuple[str, ...] = ()) -> Topology:
    """`places`: a location and its nodes; `n1!` is dead, `n1~` is draining, `n1?` suspect."""
    topology = Topology(levels)
    conditions = {"!": Liveness.DEAD, "?": Liveness.SUSPECT}
    for place in places:
        location, *words = place.split()
        for word in words:
            name = word.rstrip("!~?")
            liveness = conditions.get(word[-1], Liveness.UP)
            ordered = DRAINING if word.endswith("~") else AdministrativeState.NONE
            topology.upsert(name, NodeAttributes(location), liveness, ordered)
    return topology


def stream(
    topology, lists, name="s", factor=3, moves=None, repair=None, **policy
) -> StreamSnapshot:
    """`lists`: words of node ids, a shard each; a policy of strategy `location_majority` if none
    is given."""
    asked = {"strategy": "location_majority"} | policy
    compiled = compile_policy(None, asked, asked, topology, STRATEGIES)
    assert isinstance(compiled, Policy)
    shards = [[topology.index[node] for node in words.split()] for words in lists]
    spec = StreamSpec(name, len(shards), factor, asked, repair=repair)
    return StreamSnapshot(spec, compiled, shards, moves or {})


def ways(found: Plan) -> list[str]:
    return [
        f"{move.stream}/{move.shard} {move.kind} {move.remove or '-'} {move.add or '-'}"
        for move in found.moves
    ]
