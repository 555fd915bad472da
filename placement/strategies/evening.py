"""Even load over nodes after the fact: replicas change places along chains of equal worth.

Shards planned one after the other can end with one node too full and another too empty and no
single replica that could go from the one to the other. A chain of moves over nodes in between can
do it, as in a minimum cost flow; the load of those in between stays as it was.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from placement.allocator import View
from placement.assignments import EMPTY

# Slots times nodes beyond which what was planned shard by shard is left as it is: about a second.
_WORK_MAX = 400_000

Alternatives = Callable[[int, int], Iterable[int]]
"""Nodes on which the replica of (shard, slot) would be worth as much as where it is."""

_Step = tuple[int, int, int]  # shard, slot, node


def even_out(
    shards: Sequence[list[int]], slots: Sequence[range], alternatives: Alternatives, view: View
) -> None:
    """Move replicas in `slots` of `shards` until no chain lowers the sum of load²/weight."""
    if sum(map(len, slots)) * view.topology.size > _WORK_MAX:
        return
    held: dict[int, dict[tuple[int, int], None]] = {}
    for shard, free in enumerate(slots):
        for slot in free:
            if shards[shard][slot] != EMPTY:
                held.setdefault(shards[shard][slot], {})[shard, slot] = None
    while True:
        chain = _best_chain(held, alternatives, view)
        if not chain:
            return
        for shard, slot, node in chain:
            before = shards[shard][slot]
            del held[before][shard, slot]
            held.setdefault(node, {})[shard, slot] = None
            shards[shard][slot] = node
            view.remove(before)
            view.add(node)


def _best_chain(
    held: dict[int, dict[tuple[int, int], None]], alternatives: Alternatives, view: View
) -> list[_Step]:
    """The chain from the fullest node that has one to the emptiest it reaches."""
    rank = view.topology.order().tolist()
    load, weight = view.load.tolist(), view.topology.weight.tolist()
    relief = {node: (2 * load[node] - 1) / weight[node] for node in held if held[node]}
    for source in sorted(relief, key=lambda node: (-relief[node], rank[node])):
        came: dict[int, tuple[int, _Step] | None] = {source: None}
        queue = deque([source])
        while queue:
            node = queue.popleft()
            on_the_way = {step[0] for step in _chain(came, node)}
            for shard, slot in sorted(held.get(node, ())):
                if shard in on_the_way:
                    continue
                for other in sorted(alternatives(shard, slot), key=rank.__getitem__):
                    if other not in came:
                        came[other] = node, (shard, slot, other)
                        queue.append(other)
        burden = {node: (2 * load[node] + 1) / weight[node] for node in came if node != source}
        if burden:
            best = min(burden, key=lambda node: (burden[node], rank[node]))
            if burden[best] < relief[source] - 1e-9:
                return _chain(came, best)
    return []


def _chain(came: dict[int, tuple[int, _Step] | None], node: int) -> list[_Step]:
    """The steps that lead to a node, the last one first, so that each finds its place free."""
    steps: list[_Step] = []
    before = came[node]
    while before is not None:
        steps.append(before[1])
        before = came[before[0]]
    return steps
