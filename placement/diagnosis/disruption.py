"""Finds the shards that would lose their quorum, or their last copy, without given nodes.

Asked before a drain, and before a maintenance together with those that have begun (PD serialises
such operations with a lock for the same reason).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from placement.assignments import EMPTY
from placement.diagnosis.health import quorum_size
from placement.model import AdministrativeState, Code, Reason, RepairMode, StreamSpec, natural_key
from placement.policy import Policy
from placement.topology import Topology
from placement.wording import format_count

# Of a long list a sentence names the first.
_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class AffectedShard:
    """Holds a shard that has copies on nodes that are to go.

    `nodes`: indexes of the nodes with copies, by slot; EMPTY where there is none. `out_of_sync`:
    those of them whose copy is not complete, which counts for no quorum.
    """

    spec: StreamSpec
    policy: Policy
    shard: int
    nodes: Sequence[int]
    out_of_sync: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ExposedShard:
    """Names a shard that would lose its quorum or its last copy.

    `left` of its `live` copies would stay; it needs `quorum`. `out_of_sync`: ids of the live nodes
    whose copies are not among these, as they are not complete.
    """

    stream: str
    shard: int
    live: int
    left: int
    quorum: int
    out_of_sync: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.stream}/{self.shard}"


def exposed_shards(
    topology: Topology, shards: Iterable[AffectedShard], away: Collection[int]
) -> tuple[ExposedShard, ...]:
    """Find the shards that lose their quorum or their last copy without the nodes `away`.

    `away`: node indexes. The result is in natural order of stream names, then by shard. A shard
    that has no quorum now is in it only where its last copy would go. Before a maintenance, pass
    the nodes in maintenance too (`nodes_in_maintenance`): two absences that are harmless alone may
    break a quorum together.
    """
    gone = frozenset(away)
    if not gone:
        return ()
    found = []
    for each in shards:
        factor = each.spec.replication_factor
        # Copies beside the voters do not vote, but one of them may be the last.
        voters = each.nodes[:factor] if each.policy.extra_copies else each.nodes
        behind = each.out_of_sync
        live, left = _count_copies(topology, voters, gone, behind)
        last = live and not left and not _count_copies(topology, each.nodes, gone, behind)[1]
        quorum = quorum_size(each.spec.quorum, factor)
        if last or left < quorum <= live:
            there = (node for node in behind if not topology.is_dead(node))
            names = tuple(sorted((topology.ids[node] for node in there), key=natural_key))
            counts = (live, left, quorum)
            found.append(ExposedShard(each.spec.stream, each.shard, *counts, names))
    return tuple(sorted(found, key=lambda each: (natural_key(each.stream), each.shard)))


def exposure_reason(found: Sequence[ExposedShard], what: str) -> Reason | None:
    """Make the refusal, or warning, that names the exposed shards; None where there are none.

    `what` begins the sentence, for instance `without n1, n2`.
    """
    if not found:
        return None
    last = [each for each in found if not each.left]
    shards = last or found
    names = ", ".join(map(str, shards[:_NAMED_MAX]))
    more = f" and {len(shards) - _NAMED_MAX} more" if len(shards) > _NAMED_MAX else ""
    if last:
        kind = "copy in sync" if any(each.out_of_sync for each in last) else "copy"
        message = f"{what}, no {kind} would be left of {names}{more}{_lag_text(last)}"
        return Reason(Code.LAST_COPY, message, 1, 0)
    message = f"{what}, there would be no quorum for {names}{more}{_lag_text(found)}"
    worst = min(found, key=lambda each: each.left - each.quorum)
    return Reason(Code.QUORUM_BROKEN, message, worst.quorum, worst.left)


def _lag_text(found: Sequence[ExposedShard]) -> str:
    """Say the numbers of the first shard that has copies out of sync; empty where none has."""
    each = next((each for each in found if each.out_of_sync), None)
    if each is None:
        return ""
    copies = format_count(each.live, "copy", "copies")
    behind = ", ".join(each.out_of_sync)
    numbers = f"{each} has {copies} in sync, {each.left} would be left, its quorum is {each.quorum}"
    return f"; {numbers}; not in sync: {behind}"


def exposed_after_repair(
    topology: Topology, shards: Iterable[AffectedShard], stuck: Collection[tuple[str, int]]
) -> tuple[ExposedShard, ...]:
    """Find the shards that stay exposed after repair has done what it can.

    - Nodes in maintenance may be away.
    - A drained node goes with the copies that could not leave it: those of the shards in `stuck`
      (stream and number), whose drain is unfixable, and those of streams that only replace dead
      replicas (`repair: dead_only`), which no drain moves.
    - A shard that only waits for a limit is safe.
    """
    away, draining = nodes_in_maintenance(topology), draining_nodes(topology)
    affected = [*shards]
    blocked = [
        each
        for each in affected
        if (each.spec.stream, each.shard) in stuck or each.spec.repair == RepairMode.DEAD_ONLY
    ]
    found = {str(each): each for each in exposed_shards(topology, affected, away)}
    found |= {str(each): each for each in exposed_shards(topology, blocked, [*away, *draining])}
    return tuple(sorted(found.values(), key=lambda each: (natural_key(each.stream), each.shard)))


def nodes_in_maintenance(topology: Topology) -> list[int]:
    """List the nodes, by index, that an operator has put into maintenance."""
    return _nodes_in_state(topology, AdministrativeState.MAINTENANCE)


def draining_nodes(topology: Topology) -> list[int]:
    """List the nodes, by index, that an operator drains."""
    return _nodes_in_state(topology, AdministrativeState.DRAINING)


def _nodes_in_state(topology: Topology, state: AdministrativeState) -> list[int]:
    return [node for node, each in enumerate(topology.administrative) if each is state]


def _count_copies(
    topology: Topology, nodes: Sequence[int], gone: frozenset[int], behind: frozenset[int]
) -> tuple[int, int]:
    """Count the live copies of a shard, and those of them that stay when the nodes `gone` go.

    Copies that are `behind` are none.
    """
    live = {node for node in nodes if node != EMPTY and not topology.is_dead(node)} - behind
    return len(live), len(live - gone)
