"""Whether nodes may go: the shards that would lose their quorum, or their last copy, without them.

Asked before a drain, and before a maintenance together with those that have begun
(PD serialises such operations with a lock for the same reason).
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
    """A shard with the nodes of its complete copies by slot, EMPTY where there is none."""

    spec: StreamSpec
    policy: Policy
    shard: int
    nodes: Sequence[int]


@dataclass(frozen=True, slots=True)
class AtStake:
    """A shard that would have `left` live copies instead of `live`, fewer than `quorum`."""

    stream: str
    shard: int
    live: int
    left: int
    quorum: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.shard}"


def quorum_broken(
    topology: Topology, shards: Iterable[AffectedShard], away: Collection[int]
) -> tuple[AtStake, ...]:
    """Shards whose quorum breaks when the nodes `away` (by index) are gone, or whose last copy
    goes; in natural order.

    A shard that has no quorum as it is counts only where its last copy would go. For a maintenance
    pass the nodes that are in maintenance already, too (`in_maintenance`): two that are harmless
    alone may break a quorum together.
    """
    gone = frozenset(away)
    if not gone:
        return ()
    found = []
    for each in shards:
        factor = each.spec.replication_factor
        # Copies beside the voters do not vote, but one of them may be the last.
        voters = each.nodes[:factor] if each.policy.extra_copies else each.nodes
        live, left = _counts(topology, voters, gone)
        last = live and not left and not _counts(topology, each.nodes, gone)[1]
        quorum = quorum_size(each.spec.quorum, factor)
        if last or left < quorum <= live:
            found.append(AtStake(each.spec.stream, each.shard, live, left, quorum))
    return tuple(sorted(found, key=lambda each: (natural_key(each.stream), each.shard)))


def at_stake_reason(found: Sequence[AtStake], what: str) -> Reason | None:
    """The refusal or warning for what `quorum_broken` has found, with the shards named; `what` is
    the beginning of the sentence (`without n1, n2`)."""
    if not found:
        return None
    last = [each for each in found if not each.left]
    shards = last or found
    names = ", ".join(map(str, shards[:_NAMED_MAX]))
    more = f" and {len(shards) - _NAMED_MAX} more" if len(shards) > _NAMED_MAX else ""
    if last:
        message = f"{what} no copy is left of {names}{more}"
        return Reason(Code.LAST_COPY, message, 1, 0)
    message = f"{what} there is no quorum for {names}{more}"
    worst = min(found, key=lambda each: each.left - each.quorum)
    return Reason(Code.QUORUM_BROKEN, message, worst.quorum, worst.left)


def exposed(
    topology: Topology, shards: Iterable[AffectedShard], stuck: Collection[tuple[str, int]]
) -> tuple[AtStake, ...]:
    """What is at stake once repair has done what it can: the nodes in maintenance may be away, and
    whoever drains a node takes it away, with the copies that could not leave it. `stuck` names the
    shards whose drain is unfixable; those that only have to wait are safe. A stream that allows
    nothing but giving back what is dead is never drained."""
    away, draining = in_maintenance(topology), _ordered(topology, AdministrativeState.DRAINING)
    held = [*shards]
    blocked = [
        each
        for each in held
        if (each.spec.stream, each.shard) in stuck or each.spec.repair == RepairMode.DEAD_ONLY
    ]
    found = {str(each): each for each in quorum_broken(topology, held, away)}
    found |= {str(each): each for each in quorum_broken(topology, blocked, [*away, *draining])}
    return tuple(sorted(found.values(), key=lambda each: (natural_key(each.stream), each.shard)))


def in_maintenance(topology: Topology) -> list[int]:
    """Nodes, by index, that may be away because their operator said so."""
    return _ordered(topology, AdministrativeState.MAINTENANCE)


def _ordered(topology: Topology, state: AdministrativeState) -> list[int]:
    return [node for node, each in enumerate(topology.administrative) if each is state]


def _counts(topology: Topology, nodes: Sequence[int], gone: frozenset[int]) -> tuple[int, int]:
    """Live copies, and those that stay."""
    live = {node for node in nodes if node != EMPTY and not topology.is_dead(node)}
    return len(live), len(live - gone)
