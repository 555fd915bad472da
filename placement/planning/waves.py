"""Plans wave by wave under limits, each carried out before the next, until nothing is left.

A wave takes what the one before it left for a limit, and the further moves of a shard. A plan
without moves is the fixpoint and the end. There is an end, as every wave has to leave an
arrangement that no wave before it has left.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from placement.assignments import EMPTY
from placement.hashing import stable_id
from placement.model import Cause, Code, MoveKind, Reason, Resource
from placement.planning.plan import Plan, PlannedMove, PlanPhase, StreamSnapshot, plan
from placement.topology import Topology

# A person carries out tens of waves; a plan that needs more than this has limits that are too
# small for it, and says so instead of planning for hours.
WAVES_MAX = 10_000

_GOES = (Cause.UNDER_REPLICATED, Cause.DRAIN)


@dataclass(frozen=True, slots=True)
class Waves:
    """Holds the plans that have moves, in order, and `last`, the plan after them.

    `lower_bound`: the fewest copies by which any way reaches the same end. `stopped`: the reason
    why something is left, None where all is done.
    """

    plans: tuple[Plan, ...]
    last: Plan
    lower_bound: int
    stopped: Reason | None = None

    @property
    def whole(self) -> Plan:
        """Join all waves into one plan, in which a shard may have several moves."""
        every = (*self.plans, self.last)
        balanced = [each for each in every if each.before]
        return replace(
            self.last,
            moves=tuple(move for each in self.plans for move in each.moves),
            lower_bound=self.lower_bound,
            crossing=sum(each.crossing for each in self.plans),
            warnings=(*self.last.warnings, *([self.stopped] if self.stopped else [])),
            before=balanced[0].before if balanced else (),
            after=balanced[-1].after if balanced else (),
            bytes_lower_bound=_first_known([each.bytes_lower_bound for each in every]),
        )


def plan_waves(
    topology: Topology,
    streams: Sequence[StreamSnapshot],
    phase: PlanPhase = PlanPhase.ALL,
    max_moves: int | None = None,
    max_moves_per_node: int | None = None,
    resources: Sequence[Resource] = (),
) -> Waves:
    """Plan wave by wave, each under the limits; the topology stays unchanged.

    The arguments are those of `plan`; the limits hold for each wave.
    """
    plans: list[Plan] = []
    standing, seen = [*streams], {_arrangement_id(streams, topology)}
    stopped: Reason | None = None
    while True:
        found = plan(topology, standing, phase, max_moves, max_moves_per_node, resources)
        if not found.moves:
            stopped = _why_stopped(found)
            break
        standing = [_carry_out(each, found, topology) for each in standing]
        after = _arrangement_id(standing, topology)
        if after in seen:
            message = f"wave {len(plans) + 1} would restore the arrangement of an earlier wave"
            stopped = Reason(Code.PLANS_REPEAT, message)
            break
        if len(plans) == WAVES_MAX:
            message = f"{WAVES_MAX} waves are not enough: raise the limits on moves"
            stopped = Reason(Code.LIMIT_REACHED, message)
            break
        seen.add(after)
        plans.append(found)
    if found.moves:
        # The wave that is not made: what stands is what the one before it has left.
        nothing = replace(found, moves=(), lower_bound=0, crossing=0)
        found = replace(
            nothing, final=plans[-1].final if plans else _final_lists(streams, topology)
        )
    bound = plans[0].lower_bound if len(plans) == 1 else _lower_bound(plans)
    return Waves(tuple(plans), found, bound, stopped)


def _first_known(bounds: Sequence[int | None]) -> int | None:
    """Return the bound of the first plan that has one: it holds for all that follow, too."""
    return next((each for each in bounds if each is not None), None)


def _why_stopped(found: Plan) -> Reason | None:
    """Return why a plan has no moves though some are needed; None if none are."""
    if found.throttled or found.limited:
        message = "the limits allow none of the moves that are left: raise the limits on moves"
        return Reason(Code.LIMIT_REACHED, message)
    return next((each for each in found.warnings if each.code is Code.REPAIR_FIRST), None)


def _carry_out(each: StreamSnapshot, found: Plan, topology: Topology) -> StreamSnapshot:
    """Return the stream after the plan's moves and those under way.

    A requested replacement that was not made stays requested.
    """
    lists = found.final[each.spec.stream]
    shards = [[topology.index[node] for node in nodes] for nodes in lists]
    wanted = {
        shard: move
        for shard, move in each.moves.items()
        if move.kind is MoveKind.REPLACE and move.add is None and move.remove in lists[shard]
    }
    return replace(each, shards=shards, moves=wanted)


def _final_lists(
    streams: Sequence[StreamSnapshot], topology: Topology
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """List node ids by stream and shard."""
    ids = topology.ids
    return {
        each.spec.stream: tuple(tuple(ids[n] for n in nodes if n != EMPTY) for nodes in each.shards)
        for each in streams
    }


def _arrangement_id(streams: Sequence[StreamSnapshot], topology: Topology) -> str:
    """Hash where every replica stands and what is marked for replacement."""
    marks = [sorted(each.moves) for each in streams]
    return stable_id(repr((_final_lists(streams, topology), marks)))


def _lower_bound(plans: Sequence[Plan]) -> int:
    """Compute the fewest copies by which these plans' end can be reached.

    The larger of two:
    - the replicas by which the nodes' loads of each stream grow;
    - the copies for replicas that are dead, missing, leaving or against a rule.
    """
    moves = [move for each in plans for move in each.moves]
    grown: Counter[tuple[str, str]] = Counter()
    for move in moves:
        grown.update({(move.stream, move.add): 1} if move.add else ())
        grown.subtract({(move.stream, move.remove): 1} if move.remove else ())
    return max((+grown).total(), _count_replaced(moves))


def _count_replaced(moves: Sequence[PlannedMove]) -> int:
    """Count the copies that the shards need at least.

    One for each replica that has to go or is missing; one for a shard that only breaks rules.
    """
    goes: Counter[tuple[str, int]] = Counter()
    for move in moves:
        if move.add is not None and move.cause in _GOES:
            goes[move.stream, move.shard] += 1
    ruled = (Cause.REQUIRED_RULE, Cause.PREFERRED_RULE)
    broken = {(m.stream, m.shard) for m in moves if m.add is not None and m.cause in ruled}
    return goes.total() + len(broken - goes.keys())
