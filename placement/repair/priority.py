"""Precedence: which open move gives way to what its shard wants by now (design section 6.4).

A more urgent want supersedes the open move, unless that helps the want too. Along a chain of moves
that supersede each other causes only get more urgent, so that nothing is called off in turns.

Urgency: the order in which repair takes the shards that are in need.

A more urgent cause goes first, within it the shard with the fewest live replicas.
"""

from placement.model import Cause, MoveKind
from placement.moves import OpenMove
from placement.repair.actions import Wants
from placement.rules import Strength
from placement.topology import Topology

# Cause, live replicas, stream and number, which no two shards share; behind them the shard.
Urgency = tuple[int, int, str, int, int]

_URGENCY = {cause: place for place, cause in enumerate(Cause)}


def urgency(cause: Cause | None) -> int:
    """The place of a cause in the order of repair."""
    return len(_URGENCY) if cause is None else _URGENCY[cause]


MISSING = urgency(Cause.UNDER_REPLICATED)


# How much of each cause a shard has; less is better.
Needs = dict[Cause, tuple[int, ...]]


def hurries(wants: Wants, shard: int, opened: OpenMove) -> bool:
    """Whether something more urgent than the open move is wanted, also once that is done. While
    there are too many replicas only lacking ones are: what goes may take a breach with it."""
    why = Cause(opened.move.cause)
    if why is Cause.UNDER_REPLICATED:
        return False
    fixed = why is Cause.REQUIRED_RULE or opened.move.kind is MoveKind.REMOVE
    if fixed or (why is not Cause.BALANCE and wants.surplus(shard)):
        return bool(wants.needy(shard))
    most = wants.cause(shard)
    return most is not None and urgency(most) < urgency(why)


def needs_of(wants: Wants, shard: int, topology: Topology) -> Needs:
    """What the shard needs as it is planned to stand."""
    amiss = len(wants.outside(shard)) + len(wants.strays(shard))
    return {
        Cause.UNDER_REPLICATED: (len(wants.needy(shard)),),
        Cause.REQUIRED_RULE: (amiss + sum(_excess(wants, shard, topology, Strength.REQUIRED)),),
        Cause.DRAIN: (len(wants.draining(shard)),),
        Cause.PREFERRED_RULE: _excess(wants, shard, topology, Strength.PREFERRED),
        Cause.SURPLUS: (wants.surplus(shard),),
    }


def _excess(wants: Wants, shard: int, topology: Topology, strength: Strength) -> tuple[int, ...]:
    """By rule of this strength how far the shard is from it, 0 where it is kept."""
    case, broken = wants.case(shard), wants.broken_rules(shard)
    standing = case.standing(wants.judging, case.live(topology), None)
    return tuple(
        sum(abs(f.count - f.limit) for f in rule.violations(standing)) if rule in broken else 0
        for rule in case.rules
        if rule.strength is strength
    )


def goes_before(opened: OpenMove, without: Needs, done: Needs) -> set[Cause]:
    """Causes that the open move does not give way to: those that are no more urgent than its own,
    and those of which less is left once it is `done` than `without` it."""
    own = urgency(Cause(opened.move.cause))
    return {cause for cause in done if urgency(cause) >= own or done[cause] < without[cause]}
