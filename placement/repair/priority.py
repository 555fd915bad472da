"""Orders repair: which shard goes first, and which action supersedes an open move.

A more urgent cause goes first, within it the shard with the fewest live replicas. A more urgent
action supersedes the open move, unless that move helps the action, too. Along a chain of moves that
supersede each other causes only get more urgent, so that no two call each other off in turns.
"""

from typing import NamedTuple

from placement.model import Cause, MoveKind
from placement.moves import OpenMove
from placement.repair.actions import ActionFinder
from placement.rules import Strength
from placement.topology import Topology

_RANKS = {cause: rank for rank, cause in enumerate(Cause)}


class Priority(NamedTuple):
    """Sort key of a shard among those to repair, the most urgent first: rank of its cause, live
    replicas, stream and number (which no two shards share), then the shard itself."""

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


def preempts(actions: ActionFinder, shard: int, opened: OpenMove) -> bool:
    """Whether something more urgent than the open move is wanted, also once that is done. While
    there are too many replicas only lacking ones are: what goes may take a breach with it."""
    why = Cause(opened.move.cause)
    if why is Cause.UNDER_REPLICATED:
        return False
    fixed = why is Cause.REQUIRED_RULE or opened.move.kind is MoveKind.REMOVE
    if fixed or (why is not Cause.BALANCE and actions.surplus_count(shard)):
        return bool(actions.missing_slots(shard))
    most = actions.top_cause(shard)
    return most is not None and rank_of(most) < rank_of(why)


def deficits_of(actions: ActionFinder, shard: int, topology: Topology) -> Deficits:
    """What the shard needs as it is planned to stand."""
    amiss = len(actions.inadmissible_slots(shard)) + len(actions.stray_slots(shard))
    return {
        Cause.UNDER_REPLICATED: (len(actions.missing_slots(shard)),),
        Cause.REQUIRED_RULE: (amiss + sum(_excess(actions, shard, topology, Strength.REQUIRED)),),
        Cause.DRAIN: (len(actions.draining_slots(shard)),),
        Cause.PREFERRED_RULE: _excess(actions, shard, topology, Strength.PREFERRED),
        Cause.SURPLUS: (actions.surplus_count(shard),),
    }


def _excess(
    actions: ActionFinder, shard: int, topology: Topology, strength: Strength
) -> tuple[int, ...]:
    """By rule of this strength how far the shard is from it, 0 where it is kept."""
    case, broken = actions.case(shard), actions.broken_rules(shard)
    standing = case.standing(actions.judging, case.live(topology), None)
    return tuple(
        sum(abs(f.count - f.limit) for f in rule.violations(standing)) if rule in broken else 0
        for rule in case.rules
        if rule.strength is strength
    )


def non_preempting_causes(opened: OpenMove, without: Deficits, done: Deficits) -> set[Cause]:
    """Causes that the open move does not give way to: those that are no more urgent than its own,
    and those of which less is left once it is `done` than `without` it."""
    own = rank_of(Cause(opened.move.cause))
    return {cause for cause in done if rank_of(cause) >= own or done[cause] < without[cause]}
