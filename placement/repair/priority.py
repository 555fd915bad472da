"""Orders repair: which shard goes first, and which action supersedes an open move.

A more urgent cause goes first, within it the shard with the fewest live replicas. A more urgent
action supersedes the open move, unless that move helps the action, too. Along a chain of moves that
supersede each other causes only get more urgent, so that no two call each other off in turns.
"""

from placement.model import Cause, MoveKind
from placement.moves import OpenMove
from placement.repair.actions import ActionFinder
from placement.rules import Strength
from placement.topology import Topology

# Cause, live replicas, stream and number, which no two shards share; behind them the shard.
Priority = tuple[int, int, str, int, int]

_URGENCY = {cause: place for place, cause in enumerate(Cause)}


def urgency(cause: Cause | None) -> int:
    """The place of a cause in the order of repair."""
    return len(_URGENCY) if cause is None else _URGENCY[cause]


MISSING = urgency(Cause.UNDER_REPLICATED)


# How much of each cause a shard has; less is better.
Deficits = dict[Cause, tuple[int, ...]]


def preempts(actions: ActionFinder, shard: int, opened: OpenMove) -> bool:
    """Whether something more urgent than the open move is wanted, also once that is done. While
    there are too many replicas only lacking ones are: what goes may take a breach with it."""
    why = Cause(opened.move.cause)
    if why is Cause.UNDER_REPLICATED:
        return False
    fixed = why is Cause.REQUIRED_RULE or opened.move.kind is MoveKind.REMOVE
    if fixed or (why is not Cause.BALANCE and actions.surplus(shard)):
        return bool(actions.needy(shard))
    most = actions.cause(shard)
    return most is not None and urgency(most) < urgency(why)


def deficits_of(actions: ActionFinder, shard: int, topology: Topology) -> Deficits:
    """What the shard needs as it is planned to stand."""
    amiss = len(actions.outside(shard)) + len(actions.strays(shard))
    return {
        Cause.UNDER_REPLICATED: (len(actions.needy(shard)),),
        Cause.REQUIRED_RULE: (amiss + sum(_excess(actions, shard, topology, Strength.REQUIRED)),),
        Cause.DRAIN: (len(actions.draining(shard)),),
        Cause.PREFERRED_RULE: _excess(actions, shard, topology, Strength.PREFERRED),
        Cause.SURPLUS: (actions.surplus(shard),),
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
    own = urgency(Cause(opened.move.cause))
    return {cause for cause in done if urgency(cause) >= own or done[cause] < without[cause]}
