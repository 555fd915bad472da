"""Orders repair: which shard goes first, and which action supersedes an open move.

The planner sorts shards by `Priority`. A more urgent cause goes first, within it the shard with the
fewest live replicas. A more urgent action supersedes the open move, unless that move helps the
action, too: the shard is compared with the move done and with the move never issued. Along a chain
of moves that supersede each other causes only get more urgent, so that no two call each other off
in turns.
"""

from collections.abc import Mapping
from typing import NamedTuple

from placement.model import Cause, MoveKind
from placement.moves import OpenMove
from placement.repair.needs import ShardNeeds
from placement.rules import Strength

# Every cause of a move, in the order of `Cause`, and when a shard has it. The README of this part
# quotes the table. Nothing else orders causes; only `ActionFinder.actions_of` tries the removal
# of a surplus replica earlier, as that needs no other node.
CAUSES: Mapping[Cause, str] = {
    Cause.UNDER_REPLICATED: "a replica is missing, or its node is dead and in no repair hold",
    Cause.LEADER: "the leader is dead, or may not lead; the list changes and nothing is copied",
    Cause.REQUIRED_RULE: "a required rule is broken, or the policy does not admit a node",
    Cause.DRAIN: "a replica is on a draining node, or is marked for replacement",
    Cause.PREFERRED_RULE: "a preferred rule is broken",
    Cause.SURPLUS: "the shard has more replicas than its stream needs",
    Cause.BALANCE: "loads or leaders are uneven; only a rebalance issues such moves",
}
_RANKS = {cause: rank for rank, cause in enumerate(Cause)}


class Priority(NamedTuple):
    """Sort key of a shard among those to repair, the most urgent first.

    Rank of its cause, live replicas, stream and number (which no two shards share), then the shard
    itself.
    """

    cause_rank: int
    live: int
    stream: str
    number: int
    shard: int


def rank_of(cause: Cause | None) -> int:
    """Return the place of a cause in the order of repair, the last place for none."""
    return len(_RANKS) if cause is None else _RANKS[cause]


UNDER_REPLICATED = rank_of(Cause.UNDER_REPLICATED)

# How much of each cause a shard has; less is better.
Deficits = dict[Cause, tuple[int, ...]]


def preempts(needs: ShardNeeds, opened: OpenMove) -> bool:
    """Return whether the shard has a more urgent need than its open move, once that is done.

    While there are too many replicas only missing ones count: what goes may take a breach with it.
    """
    why = Cause(opened.move.cause)
    if why is Cause.UNDER_REPLICATED:
        return False
    fixed = why is Cause.REQUIRED_RULE or opened.move.kind is MoveKind.REMOVE
    if fixed or (why is not Cause.BALANCE and needs.surplus_count):
        return bool(needs.missing_slots)
    most = needs.top_cause
    return most is not None and rank_of(most) < rank_of(why)


def non_preempting_causes(opened: OpenMove, without: ShardNeeds, done: ShardNeeds) -> set[Cause]:
    """Return the causes that do not supersede the open move.

    Those that are no more urgent than its own, and those of which the shard has less once the move
    is `done` than `without` it.
    """
    own, before, after = rank_of(Cause(opened.move.cause)), _deficits(without), _deficits(done)
    return {cause for cause in after if rank_of(cause) >= own or after[cause] < before[cause]}


def _deficits(needs: ShardNeeds) -> Deficits:
    misplaced = len(needs.inadmissible_slots) + len(needs.stray_slots)
    return {
        Cause.UNDER_REPLICATED: (len(needs.missing_slots),),
        Cause.REQUIRED_RULE: (misplaced + sum(_excess(needs, Strength.REQUIRED)),),
        Cause.DRAIN: (len(needs.draining_slots),),
        Cause.PREFERRED_RULE: _excess(needs, Strength.PREFERRED),
        Cause.SURPLUS: (needs.surplus_count,),
    }


def _excess(needs: ShardNeeds, strength: Strength) -> tuple[int, ...]:
    """Measure by rule of this strength how far the shard is from it; 0 if it is kept."""
    return tuple(
        sum(abs(each.count - each.limit) for each in needs.findings(rule))
        for rule in needs.case.rules
        if rule.strength is strength
    )
