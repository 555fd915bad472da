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

# Of a long list a sentence names the first.
_NAMED_MAX = 10


@dataclass(frozen=True, slots=True)
class AffectedShard:
    """Holds a shard that has copies on nodes that are to go.

    `nodes`: indexes of the nodes with complete copies, by slot; EMPTY where there is none.
    """

    spec: StreamSpec
    policy: Policy
    shard: int
    nodes: Sequence[int]


@dataclass(frozen=True, slots=True)
class ExposedShard:
    """Names a shard that would lose its quorum or its last copy.

    `left` of its `live` copies would stay; it needs `quorum`.
    """

    stream: str
    shard: int
    live: int
    left: int
    quorum: int

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
        live, left = _count_copies(topology, voters, gone)
        last = live and not left and not _count_copies(topology, each.nodes, gone)[1]
        quorum = quorum_size(each.spec.quorum, factor)
        if last or left < quorum <= live:
            found.append(ExposedShard(each.spec.stream, each.shard, live, left, quorum))
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
        message = f"{what}, no copy would be left of {names}{more}"
        return Reason(Code.LAST_COPY, message, 1, 0)
    message = f"{what}, there would be no quorum for {names}{more}"
    worst = min(found, key=lambda each: each.left - each.quorum)
    return Reason(Code.QUORUM_BROKEN, message, worst.quorum, worst.left)


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
    away, draining = (
        nodes_in_maintenance(topology),
        _nodes_in_state(topology, AdministrativeState.DRAINING),
    )
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


def _nodes_in_state(topology: Topology, state: AdministrativeState) -> list[int]:
    return [node for node, each in enumerate(topology.administrative) if each is state]


def _count_copies(
    topology: Topology, nodes: Sequence[int], gone: frozenset[int]
) -> tuple[int, int]:
    """Count the live copies of a shard, and those of them that stay when the nodes `gone` go."""
    live = {node for node in nodes if node != EMPTY and not topology.is_dead(node)}
    return len(live), len(live - gone)
