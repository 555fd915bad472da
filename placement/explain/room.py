"""Says which resource leaves a node out, how far the chosen one is filled, what room is missing.

Figures come from the view that placed; what is advised was tried.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from placement.allocator import View
from placement.explain.trial import Additions, Advice, Trial, is_whole
from placement.model import Outcome, StreamSpec, natural_key
from placement.policy import Policy
from placement.rules import NodeLoads
from placement.state import ClusterState
from placement.streams import Answer
from placement.topology import Topology
from placement.wording import format_amount, format_share

# Of places with room to add the two that need least are told; nodes to add come besides.
_PLACES_MAX = 2
# So many places are tried: the trials of one stream are bounded.
_PLACES_TRIED_MAX = 8
# What is missing is found to a hundredth of a shard.
_PRECISION = 100


def describe_lack(view: View, node: int) -> str:
    """Describe why the node has no room for one more replica."""
    capacity, load = int(view.topology.capacity[node]), int(view.load[node])
    if 0 <= capacity <= load or view.loads is None:
        return f"its capacity of {capacity} is used up, it holds {load}"
    loads = view.loads
    for row, resource in enumerate(loads.resources):
        borne, limit, size = loads.borne[row, node], loads.limit[row, node], loads.shard[row]
        if limit >= 0 and borne + size > limit:
            name = resource.name
            used = f"{format_amount(borne, name)} of the {format_share(limit, name)} that may be"
            return f"{used} filled are used, the replica needs {format_amount(size, name)}"
    return "it has no room"


def describe_overload(loads: NodeLoads | None, node: int) -> Iterator[str]:
    """Describe each resource of which the node holds more than fits."""
    for each in () if loads is None else loads.overloads():
        if each.node == node:
            name = each.resource.name
            borne, limit = format_share(each.load, name), format_amount(each.limit, name)
            yield f"the node bears {borne}, {limit} may be filled"


def describe_fill(view: View, node: int) -> str:
    """Describe how far the node is filled with one more replica, of its fullest resource.

    Empty where it does not say what it has.
    """
    loads = view.loads
    if loads is None:
        return ""
    shares = [
        ((int(loads.borne[row, node]) + int(loads.shard[row])) / int(has), resource.name)
        for row, resource in enumerate(loads.resources)
        if (has := loads.capacity[row, node]) > 0
    ]
    if not shares:
        return ""
    share, name = max(shares, key=lambda each: each[0])
    return f"{share:.1%} of {name}"


def advise_room(
    trial: Trial, state: ClusterState, spec: StreamSpec, policy: Policy
) -> Iterator[Advice]:
    """Advise how much more of a resource the nodes of one place need, or those of all places."""
    loads, topology = state.node_loads(), state.topology
    if loads is None:
        return
    found: list[Advice] = []
    admitted = topology.eligible & policy.nodes.mask(topology)
    sizes = state.loads.of_new_shards(spec).max(axis=1).tolist()
    for row, (resource, size) in enumerate(zip(loads.resources, sizes, strict=True)):
        bounded = [n for n in topology.index.values() if loads.limit[row, n] >= 0]
        usable = [node for node in bounded if admitted[node]]
        if not size or not usable:
            continue
        excess = max(int(loads.borne[row, n] - loads.limit[row, n]) for n in usable)
        share = resource.capacity or 1.0
        most = int((size * spec.shards + max(excess, 0)) / share) + 1
        free = loads.limit[row] - loads.borne[row]
        for place, nodes in _places(topology, usable):
            emptiest = max(nodes, key=lambda node: (free[node], -topology.order()[node]))
            for some in ([emptiest], nodes) if len(nodes) > 1 and place else (nodes,):
                least = _find_least(trial, some, resource.name, most, max(size // _PRECISION, 1))
                if least is not None:
                    on = topology.ids[emptiest] if len(some) == 1 else ""
                    found.append(_room_advice(resource.name, place, on, len(some), *least))
                    break
    found.sort(key=lambda each: (each.outcome is not Outcome.PLACED, each.amount))
    yield from found[:_PLACES_MAX]


def size_nodes(
    trial: Trial, state: ClusterState, spec: StreamSpec, nodes: Additions, answer: Answer
) -> str:
    """Say what the nodes that are added must have of each resource; empty where none counts.

    `answer`: the placement with nodes that take any amount.
    """
    loads = state.node_loads()
    if loads is None or not loads.is_bounded:
        return ""
    sizes = state.loads.of_new_shards(spec).max(axis=1).tolist()
    needs = [
        (each.name, size / (each.capacity or 1.0))
        for each, size in zip(loads.resources, sizes, strict=True)
        if size and each.capacity is not None
    ]
    known = {*state.topology.index.values()}
    added = [node for shard in answer.shards for node in shard if node >= 0 and node not in known]
    held = max((added.count(node) for node in {*added}), default=0)
    replicas = 1
    while replicas < held:
        if is_whole(trial.try_adding(_with_room(nodes, needs, replicas))):
            break
        replicas = min(2 * replicas, held)
    if not needs or not held:
        return ""
    amounts = dict(_capacities(needs, replicas))
    said = " and ".join(format_share(amount, name) for name, amount in amounts.items())
    return f", with {said}" + (" each" if len(nodes) > 1 else "")


def _with_room(nodes: Additions, needs: Sequence[tuple[str, float]], replicas: int) -> Additions:
    room = _capacities(needs, replicas)
    return [(name, replace(each, capacities=room)) for name, each in nodes]


def _capacities(needs: Sequence[tuple[str, float]], replicas: int) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, int(each * replicas) + 1) for name, each in needs))


def _places(topology: Topology, nodes: Sequence[int]) -> list[tuple[str, list[int]]]:
    """List the locations of nodes, the largest first, and all of them as one under no name."""
    inside: dict[str, list[int]] = {}
    for node in nodes:
        inside.setdefault(str(topology.locations[node]), []).append(node)
    ordered = sorted(inside.items(), key=lambda each: (-len(each[1]), natural_key(each[0])))
    everywhere = [("", [*nodes])] if len(ordered) > 1 else []
    return [*ordered[:_PLACES_TRIED_MAX], *everywhere]


def _find_least(
    trial: Trial, nodes: Sequence[int], resource: str, most: int, step: int
) -> tuple[int, Answer] | None:
    """Find the least that each node needs more, up to `most`; None where that does not help."""
    best = trial.try_enlarging(nodes, resource, most)
    if best is None or not is_whole(best):
        return None
    low, high = 0, most
    while high - low > step:
        middle = (low + high) // 2
        answer = trial.try_enlarging(nodes, resource, middle)
        if answer is None:
            break
        if is_whole(answer):
            high, best = middle, answer
        else:
            low = middle
    return high, best


def _room_advice(
    resource: str, place: str, node: str, nodes: int, each: int, answer: Answer
) -> Advice:
    message = f"{format_amount(each * nodes, resource)} more of {resource}"
    message += f" in {place}" if place else "" if node else " in all"
    if node:
        message += f", on node {node}"
    else:
        message += f", {format_amount(each, resource)} on each of {nodes} nodes"
    part = (None, 0, place or None, resource, each * nodes)
    return Advice(message, 0, answer.outcome, *part)
