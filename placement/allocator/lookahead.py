"""Looking ahead: lawful arrangements where choosing one node after the other runs into a dead end.

Rules that each leave a candidate may leave none together later on. The search tries one node of
every kind (location, tags, may lead) and gives up after a bounded number of steps, so that no
policy can hold up a plan.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from placement.allocator.choose import choose
from placement.allocator.view import ReplicaRequest, View
from placement.model import Reason
from placement.rules import ANY_ROOM, Mask, Rule, RuleSet, Strength
from placement.topology import Topology, classify_nodes

# Steps of one plan; a step costs about 0.1 ms, so that a plan spends two seconds at most.
_STEPS = 20_000

_SPENT = "steps of the search"


def choose_ahead(
    rules: Sequence[Rule], mask: Mask, need: ReplicaRequest, view: View
) -> int | Reason:
    """Choose as `choose` does, but avoid dead ends (see `pick_ahead`)."""
    return pick_ahead(lambda need, mask: choose(rules, mask, need, view), rules, mask, need, view)


def pick_ahead(
    pick: Callable[[ReplicaRequest, Mask], int | Reason],
    rules: Sequence[Rule],
    mask: Mask,
    need: ReplicaRequest,
    view: View,
) -> int | Reason:
    """Pick as `pick` does, but avoid nodes after which the shard cannot be completed.

    Such a node is taken only if all candidates are like that.
    """
    first = pick(need, mask)
    left = need.replication_factor - len(need.kept) - 1
    node, kinds, open_nodes = first, node_kinds(view.topology), mask
    while left > 0 and not isinstance(node, Reason):
        after = need._replace(
            kept=[*need.kept, node],
            slots=[*(need.slots or range(len(need.kept))), need.slot],
            slot=need.slot + 1,
            replaces=-1,
        )
        if next(arrangements(rules, mask, after, view), None) is not None:
            return node
        open_nodes = open_nodes & (kinds != kinds[node])
        node = pick(need, open_nodes)
    return first if isinstance(node, Reason) else node


def arrangements(
    rules: Sequence[Rule], mask: Mask, need: ReplicaRequest, view: View
) -> Iterator[list[int]]:
    """Generate nodes for all replicas that the shard lacks, so that no required rule is broken.

    Of equal nodes only the least loaded. Ends early when the plan's steps are used up.
    """
    required = [rule for rule in rules if rule.strength is Strength.REQUIRED]
    taken = frozenset((*need.kept, *need.excluded))
    # Sets are tried once, in the order of kinds, unless a rule tells one slot from another.
    ordered = bool(RuleSet(required).roles)
    yield from _extend(
        required, _relax_for_incomplete(required), mask, taken, need, view, None if ordered else 0
    )


def _extend(
    required: Sequence[Rule],
    prunes: Sequence[Rule],
    mask: Mask,
    taken: frozenset[int],
    need: ReplicaRequest,
    view: View,
    least: int | None,
) -> Iterator[list[int]]:
    standing = need.rule_context(view.topology)
    if len(need.kept) >= need.replication_factor:
        if not any(rule.violations(standing) for rule in required):
            yield []
        return
    spent = view.memory.get(_SPENT, 0)
    if spent >= _STEPS:
        return
    view.memory[_SPENT] = spent + 1
    free = mask.copy()
    free[np.asarray(list(taken), np.int64)] = False
    for rule in prunes:
        free &= rule.penalty(standing) == 0
    kinds = node_kinds(view.topology)
    if least is not None:
        free &= kinds >= least
    for node in _pick_one_of_each(np.flatnonzero(free), view):
        more = need._replace(
            kept=[*need.kept, node],
            slots=[*(need.slots or range(len(need.kept))), need.slot],
            slot=need.slot + 1,
        )
        kind = None if least is None else int(kinds[node])
        for rest in _extend(required, prunes, mask, taken | {node}, more, view, kind):
            yield [node, *rest]


def _relax_for_incomplete(required: Sequence[Rule]) -> list[Rule]:
    """List the rules as they apply to shards that still lack replicas."""
    return [rule.rule_while_incomplete() for rule in required]


def _pick_one_of_each(found: NDArray[np.int64], view: View) -> list[int]:
    """Pick the first node of every kind, ordered by room, load and id."""
    topology = view.topology
    kinds = node_kinds(topology)
    if not len(found):
        return []
    room = np.where(topology.capacity < 0, ANY_ROOM, topology.capacity - view.load)
    load = view.load / topology.weight
    order = np.lexsort((topology.order()[found], load[found], -room[found]))
    ranked = found[order]
    _, first = np.unique(kinds[ranked], return_index=True)
    chosen: list[int] = ranked[np.sort(first)].tolist()
    return chosen


def node_kinds(topology: Topology) -> NDArray[np.int64]:
    """Number the classes of nodes that are equal to every rule, whichever it is."""
    return classify_nodes(topology, by_attributes=True)


def arrange_stream(
    rules: Sequence[Rule], mask: Callable[[View], Mask], needs: Sequence[ReplicaRequest], view: View
) -> list[list[int]] | None:
    """Find lawful nodes for every shard at once, for small streams.

    Needed where one shard takes what another needs: exclusive nodes, capacity, balance. None if the
    plan's steps are used up.
    """
    if not needs:
        return []
    need, rest = needs[0], needs[1:]
    view.turn_to(need.shard)
    for nodes in arrangements(rules, mask(view), need, view):
        after = view.fork()
        after.memory = view.memory
        for node in nodes:
            after.add(node)
        others = [each._replace(stream_nodes=[*each.stream_nodes, *nodes]) for each in rest]
        found = arrange_stream(rules, mask, others, after)
        if found is not None:
            return [nodes, *found]
    return None
