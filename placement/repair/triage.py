"""Sorts many shards at once: healthy, only under-replicated, or to be inspected one by one.

After the death of a node nearly all shards that it held are of the first two kinds. Columns of the
table and the rules' own `may_violate` tell them apart.
"""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from placement.assignments import EMPTY, exceeds_factor, group_by_size
from placement.model import Cause
from placement.repair.leadership import rank_successors
from placement.repair.needs import RepairScope
from placement.rules import Mask, Rule, RuleContext
from placement.state import ClusterState, Stream
from placement.topology import Topology

# Shards from which a look at all of them as arrays costs less than one at each.
TRIAGED_FROM = 16

Shards = NDArray[np.int64]

# The number of live replicas of a shard, and of those that it should have.
Counts = tuple[int, int]


@dataclass(slots=True)
class ShardTriage:
    """Shards sorted by how repair handles them.

    - `under_replicated`: lacks replicas and breaks no rule with those it has; by the numbers of
      its replicas.
    - `healthy`: needs nothing, with a replica on a node under a hold taken as present; by the same.
    - `successors`: slot of the next leader of a shard of either kind whose first replica is dead.
    - `leader_not_allowed`: of either kind; its first replica, or its successor, may not lead.
    - `needs_inspection`: all others; each is inspected by itself.
    """

    under_replicated: dict[Counts, set[int]] = field(default_factory=dict)
    healthy: dict[Counts, set[int]] = field(default_factory=dict)
    successors: dict[int, int] = field(default_factory=dict)
    leader_not_allowed: set[int] = field(default_factory=set)
    needs_inspection: list[int] = field(default_factory=list)

    def are_under_replicated(self, shards: Sequence[int]) -> bool:
        """Return whether the shards are all only under-replicated, by the same numbers."""
        return any(alike.issuperset(shards) for alike in self.under_replicated.values())

    def lacking(self, shard: int) -> Counts | None:
        """Return the counts of a shard that is only under-replicated; None for any other."""
        return _find_counts(self.under_replicated, shard)

    def counts(self, shard: int) -> Counts | None:
        """Return the counts of a shard that is only under-replicated, or healthy."""
        return self.lacking(shard) or _find_counts(self.healthy, shard)


def _find_counts(sorted_by_counts: dict[Counts, set[int]], shard: int) -> Counts | None:
    for counts, shards in sorted_by_counts.items():
        if shard in shards:
            return counts
    return None


def triage(
    state: ClusterState, scope: RepairScope, shards: AbstractSet[int], as_planned: bool = False
) -> ShardTriage:
    """Sort shards as they stand, or `as_planned`, their open moves done.

    A shard with a replica out of sync is inspected by itself, and one with an open move;
    `as_planned` only if the move does not give back what was lost, which leaves nothing else to
    find out.
    """
    found = ShardTriage()
    if len(shards) < TRIAGED_FROM:
        found.needs_inspection = [*shards]
        return found
    opened = state.ledger.by_shard.values()
    given_back = Cause.UNDER_REPLICATED if as_planned else None
    apart = {each.shard for each in opened if each.move.cause != given_back}
    apart.update(shard for shard, _ in scope.marks)
    apart |= state.sync.shards
    found.needs_inspection = [*shards & apart]
    left = shards - apart if apart else shards
    for stream, members in _group_streams(state, np.fromiter(left, np.int64, len(left))):
        if all(_is_judged_by_columns(rule) for rule in scope.rule_set(stream).rules):
            _triage_group(found, state, scope, stream, members)
        else:
            found.needs_inspection += members.tolist()
    return found


def shards_without_fit_leader(state: ClusterState, scope: RepairScope) -> list[int]:
    """List every shard whose first replica is dead or may not lead.

    Includes every shard of a stream whose policy names leaders.
    """
    topology, found = state.topology, []
    leads = np.append(topology.can_lead & ~topology.dead, False)
    for index, rows in state.table.streams():
        stream = state.streams.at(index)
        ordered = scope.rule_set(stream).names_leaders
        doubtful = np.arange(len(rows)) if ordered else np.flatnonzero(~leads[rows[:, 0]])
        found += np.asarray(stream.shards)[doubtful].tolist()
    return found


def _is_judged_by_columns(rule: Rule) -> bool:
    """Return whether the rule concerns one shard alone and can screen many shards at once."""
    return rule.counts_domains


def _group_streams(state: ClusterState, shards: Shards) -> Iterator[tuple[Stream, Shards]]:
    """Group shards of streams with one policy and equal numbers of slots and copies.

    Yields an example stream with its group.
    """
    indexes, same = np.unique(state.table.streams_of(shards), return_inverse=True)
    streams = [*map(state.streams.at, indexes.tolist())]
    firsts = np.fromiter((stream.shards[0] for stream in streams), np.int64, len(streams))
    factors: list[int] = state.table.factors_of(firsts).tolist()
    kinds: dict[tuple[int, int, int], int] = {}
    examples: list[Stream] = []
    kind_of: list[int] = []
    for stream, slots in zip(streams, factors, strict=True):
        key = id(stream.policy), slots, stream.spec.replication_factor
        kind_of.append(kinds.setdefault(key, len(kinds)))
        if kind_of[-1] == len(examples):
            examples.append(stream)
    each = np.asarray(kind_of, np.int64)[same]
    for kind, stream in enumerate(examples):
        yield stream, shards[each == kind]


def _triage_group(
    found: ShardTriage, state: ClusterState, scope: RepairScope, stream: Stream, shards: Shards
) -> None:
    topology, copies = state.topology, stream.copies
    assert stream.policy is not None
    # A column of each slot in sequence, which makes sums over the slots of many shards cheap.
    rows = np.asfortranarray(state.table.rows(shards))
    # The last entry is what EMPTY finds. What is dead and not lost stays, for all but leading.
    live, stays = (~np.append(each, True)[rows] for each in (topology.dead, topology.lost))
    held, count = (rows != EMPTY).sum(axis=1), live.sum(axis=1)
    admits = stream.policy.nodes
    admitted = True if admits.everything else admits.mask(topology)
    kept = np.append(topology.counts_for_rules & admitted, False)
    plain = (count > 0) & (held <= copies) & (kept[rows] | ~stays).all(axis=1)
    lacks = stays.sum(axis=1) < copies
    plain &= ~(lacks & (stays & ~live).any(axis=1))
    plain &= ~_may_violate(scope, stream, rows, stays & plain[:, None])
    found.needs_inspection += shards[~plain].tolist()
    leaders = _find_leaders(topology, rows, live, copies)
    may_lead = np.append(topology.can_lead, False)[rows[np.arange(len(rows)), leaders]]
    found.leader_not_allowed.update(shards[plain & ~may_lead].tolist())
    orphaned = plain & (leaders > 0)
    found.successors.update(zip(shards[orphaned].tolist(), leaders[orphaned].tolist(), strict=True))
    for kind, which in ((found.under_replicated, plain & lacks), (found.healthy, plain & ~lacks)):
        for live_replicas in np.flatnonzero(np.bincount(count[which])).tolist():
            alike = shards[which & (count == live_replicas)].tolist()
            kind.setdefault((live_replicas, copies), set()).update(alike)


def _find_leaders(topology: Topology, rows: Shards, live: Mask, copies: int) -> Shards:
    """Find the slot that leads each shard.

    After a dead leader the best successor; 0 where the leader lives. All copies asked for may lead,
    as rules that name leaders are not judged by columns.
    """
    slots = np.zeros(len(rows), np.int64)
    orphaned = np.flatnonzero(~live[:, 0])
    heirs, alive = rows[orphaned], live[orphaned]
    able, up = (np.append(each, False)[heirs] for each in (topology.can_lead, topology.eligible))
    asked_for = np.arange(rows.shape[1]) < copies
    slots[orphaned] = np.argmax(alive * (1 + rank_successors(asked_for, able, up)), axis=1)
    return slots


def _may_violate(scope: RepairScope, stream: Stream, rows: Shards, stays: Mask) -> Mask:
    """Mask the rows that may break a rule with the replicas that stay."""
    assert stream.policy is not None
    doubted = np.zeros(len(rows), bool)
    context = RuleContext(scope.judging, stream.copies, (), nodes=stream.policy.nodes)
    for numbers, nodes, slots in group_by_size(rows, stays):
        doubted[numbers] = exceeds_factor(slots, stream.copies)
        for rule in scope.rule_set(stream).rules:
            doubted[numbers] |= rule.may_violate(nodes, context)
    return doubted
