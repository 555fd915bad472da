"""`explain --live`: why a shard's replicas are where they are now, and why none of them moves.

The pure planner is asked again on the published state (need N14): what the funnel would leave for
each replica if it had to be placed today, beside the others as they stand.
"""

from dataclasses import asdict, dataclass
from typing import Any

from placement.assignments import EMPTY
from placement.events import StreamCreated
from placement.explain import Absent, Explainer, Held
from placement.model import Assignment, Decision, Move, Outcome, Violation
from placement.reasons import Reason
from placement.strategies.base import View
from placement.topology import Topology
from schemas.cluster import Cluster, ClusterStream
from streaming import codec, record_codec
from streaming.errors import StreamingError
from streaming.live import Live
from streaming.offline import decided, fleet


class NotThere(StreamingError):
    """The stream, shard or node that was asked about is not in the live state."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class LiveShard:
    """A shard as it stands: why each replica, why not the node, what is open, what is broken."""

    assignment: Assignment
    held: tuple[Held, ...]
    absent: Absent | None
    move: Move | None
    violations: tuple[Violation, ...]

    def body(self) -> dict[str, Any]:
        """The shard's part of the answer."""
        a = self.assignment
        return {
            "shard": a.shard,
            "epoch": a.epoch,
            "replicas": list(a.replicas),
            "adding": list(a.adding),
            "removing": list(a.removing),
            "held": [asdict(each) for each in self.held],
            "absent": None if self.absent is None else asdict(self.absent),
            "move": self._move_body(),
            "violations": [
                {
                    "rule": each.rule,
                    "strength": each.strength,
                    "domain": each.domain,
                    "class": each.violation_class,
                    "reason": record_codec.reason_body(each.reason),
                }
                for each in self.violations
            ],
            "still": self.still,
        }

    def _move_body(self) -> dict[str, Any] | None:
        move = self.move
        if move is None:
            return None
        return {
            "move_id": move.move_id,
            "state": move.state,
            "cause": move.cause,
            "kind": move.kind,
            "remove": move.remove,
            "add": move.add,
            "reason": record_codec.reason_body(move.reason),
        }

    @property
    def still(self) -> str | None:
        """Why nothing moves; None while something does."""
        if self.move is not None:
            return None
        if not self.violations:
            return "no rule is broken, nothing is to be moved"
        worst = self.violations[0]
        return f"{worst.violation_class}: {worst.reason.message}"


@dataclass(frozen=True, slots=True)
class LiveExplanation:
    """A stream's last decision, and its shards that were asked about."""

    decision: Decision
    shards: tuple[LiveShard, ...]

    def body(self) -> dict[str, Any]:
        """The answer of `explain --live`."""
        decision = self.decision
        policies = decision.spec.placement_policies
        return {
            "stream": decision.stream,
            "outcome": decision.outcome,
            "strategy": decision.strategy,
            "policy": decision.spec.policy if policies is None else policies,
            "decided_at": decision.decided_at,
            "reasons": [record_codec.reason_body(each) for each in decision.reasons],
            "warnings": [record_codec.reason_body(each) for each in decision.warnings],
            "shards": [shard.body() for shard in self.shards],
        }


def explained_live(
    live: Live, stream: str, shard: int | None = None, node: str | None = None
) -> LiveExplanation:
    """Explain a stream, or one shard of it. Raises NotThere."""
    decision = next((each for each in live.decisions if each.stream == stream), None)
    if decision is None:
        raise NotThere(f"there is no stream '{stream}'; see: placer streams")
    assignments = [each for each in live.assignments if each.stream == stream]
    if shard is not None and not 0 <= shard < max(len(assignments), decision.spec.shards):
        raise NotThere(f"stream '{stream}' has {decision.spec.shards} shards, counted from 0")
    if decision.outcome is Outcome.REJECTED or not assignments:
        return LiveExplanation(decision, ())
    explainer, topology = _explainer(live.cluster(), decision)
    if node is not None and node not in topology.index:
        raise NotThere(f"there is no node '{node}'; see: placer nodes")
    moves = {(move.stream, move.shard): move for move in live.open_moves}
    broken: dict[int, list[Violation]] = {}
    for violation in live.violations:
        if violation.stream == stream:
            broken.setdefault(violation.shard, []).append(violation)
    why = decision.reasons[0] if decision.reasons else None
    shards = []
    for each in sorted(assignments, key=lambda one: one.shard):
        if shard not in (None, each.shard):
            continue
        held = tuple(explainer.held(each.shard))
        index = None if node is None else topology.index[node]
        shards.append(
            LiveShard(
                each,
                held if node is None else tuple(one for one in held if one.node == node),
                None if index is None else explainer.absent(each.shard, index, why),
                moves.get((stream, each.shard)),
                tuple(broken.get(each.shard, ())),
            )
        )
    return LiveExplanation(decision, tuple(shards))


def _explainer(cluster: Cluster, decision: Decision) -> tuple[Explainer, Topology]:
    """The explainer of one stream, all others being there already."""
    state = fleet(cluster)
    _, events = codec.cluster_events(cluster)
    for event in events:
        if isinstance(event, StreamCreated) and event.stream != decision.stream:
            decided(state, event)
    spec, topology = decision.spec, state.topology
    policies = spec.placement_policies
    policy = state.compile(policies, spec.policy if policies is None else None)
    if isinstance(policy, Reason):
        raise NotThere(f"the policy of '{spec.stream}' is not understood here: {policy.message}")
    mine = next(each for each in cluster.streams if each.stream == spec.stream)
    assert isinstance(mine, ClusterStream)
    copies = policy.copies(spec.replication_factor)
    shards = [
        [topology.index.get(node, EMPTY) for node in nodes] + [EMPTY] * (copies - len(nodes))
        for nodes in mine.replicas or ()
    ]
    return Explainer(spec, policy, shards, View(topology, state.table)), topology
