"""`placer plan`: computes the moves that repair or rebalancing would make of a cluster file.

It looks at the file as `placer check` does, and lets the running reconciler's own repair loose on
it. Violations are written as `placer check` writes them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placement.assignments import resize_slots
from placement.diagnosis import (
    DRAIN_RULE,
    UNKNOWN,
    AffectedShard,
    StreamToDiagnose,
    diagnose_cluster,
    exposed_after_repair,
    exposure_reason,
)
from placement.model import Code, MoveKind, Reason, Violation, ViolationClass
from placement.nodes import HoldTrigger, find_hold
from placement.planning import (
    Impact,
    InFlight,
    Plan,
    PlannedMove,
    PlanPhase,
    ShardState,
    StreamSnapshot,
    Waves,
    compute_impact,
    identity_body,
    plan,
    plan_waves,
    top_level,
)
from placement.rules import NodeLoads
from placement.state import role_rules
from placement.topology import Topology
from placement.wording import format_count
from schemas.cluster import Cluster, ClusterMove, ClusterNode
from streaming import codec
from streaming.offline.check import CheckOptions, CheckResult, check_cluster, violation_body
from streaming.offline.documents import Document
from streaming.offline.loads import count_nodes, known_loads, peak_body, utilisation_body
from streaming.offline.reassignment import Assignments, Listed, reassignment_json
from streaming.offline.traffic import PlanTraffic, count_traffic, counts_bytes
from streaming.offline.what_if import WhatIf, accepted_streams, apply_what_if


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Selects a plan: its phase, its limits, one plan or all waves, and hypothetical changes of the
    cluster before it. `rate`: bytes a second that each node sends and receives, for estimates."""

    phase: PlanPhase = PlanPhase.ALL
    max_moves: int | None = None
    max_moves_per_node: int | None = None
    until_balanced: bool = False
    what_if: WhatIf = field(default_factory=WhatIf)
    rate: int | None = None


@dataclass(frozen=True, slots=True)
class PlanResult:
    """Holds a cluster, its plan, the plan's impact, and the violations that no plan repairs. Where
    `waves` are asked for the plan is all of them in one; `stakes` warns of nodes that leave and
    take too much. `loads_after`, `traffic`: what nodes bear in the end, and what is copied; None
    for a file without resources."""

    document: Document
    check: CheckResult
    plan: Plan
    impact: Impact
    unfixable: tuple[dict[str, Any], ...]
    hold: HoldTrigger | None
    stakes: Reason | None = None
    waves: Waves | None = None
    assignments: Assignments = field(default_factory=dict)
    loads_after: NodeLoads | None = None
    traffic: PlanTraffic | None = None
    rate: int | None = None

    @property
    def nodes(self) -> tuple[ClusterNode, ...]:
        """The fleet that was planned for."""
        return self.check.document.cluster.nodes

    @property
    def has_broken_rule(self) -> bool:
        """Return whether a required rule stays broken."""
        return any(each["strength"] == "required" for each in self.unfixable)

    def loads(self, after: bool) -> dict[str, int]:
        """Replicas on each node, as they are or as they will be."""
        if not after:
            return self.check.loads
        lists = (nodes for shards in self.plan.final.values() for nodes in shards)
        counts: dict[str, int] = {}
        for node in (node for nodes in lists for node in nodes):
            counts[node] = counts.get(node, 0) + 1
        return counts

    def present_reassignment(self) -> str:
        """Write the present assignment of the moved shards for `kafka-reassign-partitions`: the way
        back, into the given directories. Raises ReassignmentInvalid."""
        touched = self.impact.touched.shards
        found = {}
        for stream, shard in self.impact.shards:
            nodes = tuple(touched[f"{stream}/{shard}"]["replicas"])
            given = self.assignments.get((stream, shard))
            found[stream, shard] = given if given and given.nodes == nodes else Listed(nodes)
        return reassignment_json(found)

    def wave_lists(self) -> list[dict[tuple[str, int], Sequence[str]]]:
        """The lists that each wave leaves, by stream and shard, of the shards that it changes."""
        plans = [self.plan] if self.waves is None else self.waves.plans
        return [
            {(m.stream, m.shard): each.final[m.stream][m.shard] for m in each.moves}
            for each in plans
        ]

    def net_changes(self) -> dict[tuple[str, int], tuple[tuple[str, ...], tuple[str, ...]]]:
        """The lists before and after of every shard that the moves together change."""
        touched, final = self.impact.touched.shards, self.plan.final
        lists = {
            (stream, shard): (
                tuple(touched[f"{stream}/{shard}"]["replicas"]),
                tuple(final[stream][shard]),
            )
            for stream, shard in self.impact.shards
        }
        return {key: (before, after) for key, (before, after) in lists.items() if before != after}

    def reassignments(self) -> list[str]:
        """Each wave for `kafka-reassign-partitions`; one without moves where no waves were asked
        for. Raises ReassignmentInvalid."""
        return [
            reassignment_json({key: Listed(tuple(nodes)) for key, nodes in each.items()})
            for each in self.wave_lists()
        ]

    def body(self) -> dict[str, Any]:
        """The answer of `plan`."""
        name = self.document.cluster.name
        body: dict[str, Any] = {} if name is None else {"name": name}
        body["moves"] = [move_body(move) for move in self.plan.moves]
        if self.waves is not None:
            body |= _waves_body(self.waves)
            for each, traffic in zip(body["waves"], self._waves_traffic, strict=False):
                each.update(traffic)
        body["unfixable"] = list(self.unfixable)
        body["warnings"] = [codec.reason_body(reason) for reason in self._warnings()]
        hold = self.hold
        body["hold"] = None if hold is None else {"domain": hold.domain, "reason": hold.reason}
        body["lower_bound"] = self.plan.lower_bound
        body["traffic"] = {
            "copies": self.impact.copies,
            "crossing": self.plan.crossing,
            "level": top_level(self.check.topology),
        }
        body["impact"] = impact_body(self.impact)
        body["final"] = {"replicas": dict(self.plan.final)}
        if self.plan.before:
            body["final"]["skew"] = [
                {"level": now.level, "stream": now.stream, "total": now.total}
                | {"leaders": now.leaders}
                for now in self.plan.after
            ]
        self._add_loads(body)
        if self.check.refused:
            body["decisions"] = list(self.check.refused)
        return body

    @property
    def counts_bytes(self) -> bool:
        """Return whether the bytes of copies are known."""
        return counts_bytes(self.check.node_loads)

    @property
    def _waves_traffic(self) -> list[dict[str, int]]:
        """Write what each wave copies, and in how many seconds."""
        if self.traffic is None or not self.counts_bytes:
            return []
        rate = self.rate
        return [
            {"bytes": each.bytes} | ({} if rate is None else {"seconds": each.seconds(rate)})
            for each in self.traffic.waves
        ]

    def _add_loads(self, body: dict[str, Any]) -> None:
        """Add what is copied, and what nodes and domains bear before, on the way and after."""
        before, after, traffic = self.check.node_loads, self.loads_after, self.traffic
        if before is None or after is None or traffic is None:
            return
        topology = self.check.topology
        if self.counts_bytes:
            body["traffic"] |= traffic.body(self.rate)
        if self.plan.bytes_lower_bound is not None:
            body["bytes_lower_bound"] = self.plan.bytes_lower_bound
        body["utilisation"] = utilisation_body(topology, before)
        body["peak"] = peak_body(topology, before, traffic.peak)
        body["final"]["utilisation"] = utilisation_body(topology, after)

    def _warnings(self) -> list[Reason]:
        waiting = self.plan.throttled
        many = format_count(waiting, "shard waits", "shards wait")
        limits = f"{many} for a limit of this plan: plan again"
        reached = [Reason(Code.LIMIT_REACHED, limits, waiting, 0)] if waiting else []
        return [*self.plan.warnings, *reached, *([self.stakes] if self.stakes else [])]


def plan_moves(document: Document, wanted: PlanOptions) -> PlanResult:
    """Plan for a document. Raises NoMatchingNode where a name of `what_if` stands for nothing."""
    cluster, check = check_what_if(document, wanted.what_if)
    topology = check.topology
    before = {each.stream: each.replication_factor for each in accepted_streams(document.cluster)}
    known = known_loads(cluster)
    streams = [
        replace(_snapshot(topology, each, cluster.moves, before), loads=known.get(name, ()))
        for name, each in ((each.spec.stream, each) for each in check.examined)
    ]
    resources = codec.resources_of_cluster(cluster)
    bounds = (wanted.phase, wanted.max_moves, wanted.max_moves_per_node, resources)
    waves = plan_waves(topology, streams, *bounds) if wanted.until_balanced else None
    found = plan(topology, streams, *bounds) if waves is None else waves.whole
    after = _streams_after(topology, check.examined, found)
    loads = count_nodes(cluster, topology, after)
    left = diagnose_cluster(topology, after, loads).violations
    return PlanResult(
        document,
        check,
        found,
        impact_of(check, cluster, found.moves, left),
        tuple(_unfixable_bodies(left, found)),
        find_hold(topology),
        _stake_reason(topology, after, found),
        waves,
        wanted.what_if.assignments,
        loads,
        _traffic(check, streams, [found] if waves is None else waves.plans),
        wanted.rate,
    )


def _traffic(
    check: CheckResult, streams: Sequence[StreamSnapshot], plans: Sequence[Plan]
) -> PlanTraffic | None:
    """Count what plans copy; None for a file without resources."""
    if check.node_loads is None:
        return None
    under_way = {
        (each.spec.stream, shard): move
        for each in streams
        for shard, move in each.moves.items()
        if move.add is not None
    }
    return count_traffic(plans, check.topology, check.examined, under_way, check.node_loads)


def check_what_if(document: Document, what_if: WhatIf) -> tuple[Cluster, CheckResult]:
    """The cluster as it is to be planned for, and what is wrong with it. Raises NoMatchingNode."""
    cluster = apply_what_if(document.cluster, what_if)
    before = {each.stream: each.replication_factor for each in accepted_streams(document.cluster)}
    anew = frozenset(
        each.stream
        for each in accepted_streams(cluster)
        if before.get(each.stream, each.replication_factor) != each.replication_factor
    )
    without_moves = replace(document, cluster=replace(cluster, moves=()))
    return cluster, check_cluster(without_moves, CheckOptions(resized=anew))


def _snapshot(
    topology: Topology,
    each: StreamToDiagnose,
    moves: Sequence[ClusterMove],
    before: Mapping[str, int],
) -> StreamSnapshot:
    """A stream with its moves under way; of several for a shard the last counts. `before`: the
    replication factor that the document gives each stream."""
    spec, policy = each.spec, each.policy
    own = [move for move in moves if move.stream == spec.stream]
    under_way = {
        move.shard: InFlight(MoveKind(move.kind), move.remove, move.add, move.leader)
        for move in own
        if move.shard < spec.shards
    }
    shards = [[int(node) for node in nodes] for nodes in each.shards]
    factor = spec.replication_factor
    copies = policy.copies(before.get(spec.stream, factor)), policy.copies(factor)
    if copies[0] < copies[1]:
        roles = sum(rule.count for rule in role_rules(policy, topology))
        shards = [resize_slots(nodes, *copies, roles) for nodes in shards]
    return StreamSnapshot(spec, policy, shards, under_way, each.unobserved)


def _streams_after(
    topology: Topology, examined: Sequence[StreamToDiagnose], found: Plan
) -> list[StreamToDiagnose]:
    """The streams when the plan has been carried out."""
    after = []
    for each in examined:
        lists = found.final[each.spec.stream]
        nodes = [[topology.index.get(n, UNKNOWN) for n in ids] for ids in lists]
        after.append(replace(each, shards=nodes, complete=nodes, moving=frozenset()))
    return after


def _unfixable_bodies(violations: Sequence[Violation], found: Plan) -> list[dict[str, Any]]:
    """List the violations that are left after the plan and that no further plan removes."""
    left = {(v.stream, v.shard, v.rule, v.domain): v for v in found.left}
    bodies = []
    for broken in violations:
        key = (broken.stream, broken.shard, broken.rule, broken.domain)
        if broken.violation_class is ViolationClass.UNFIXABLE:
            bodies.append(violation_body(broken))
        elif key in left:
            bodies.append(violation_body(_mark_unfixable(broken, left[key])))
    return bodies


def impact_of(
    check: CheckResult,
    cluster: Cluster,
    moves: Sequence[PlannedMove],
    left: Sequence[Violation] = (),
) -> Impact:
    """Compute the impact of moves on the streams as the cluster lists them; `left` is broken
    afterwards."""
    listed = {each.stream: each.replicas or () for each in accepted_streams(cluster)}
    specs = {each.spec.stream: each.spec for each in check.examined}
    under_way = {(move.stream, move.shard): move for move in cluster.moves}

    def shard_of(stream: str, shard: int) -> ShardState:
        lists, move = listed.get(stream, ()), under_way.get((stream, shard))
        nodes = lists[shard] if shard < len(lists) else ()
        return ShardState(tuple(nodes), under_way=None if move is None else _move_words(move))

    loads = check.loads
    return compute_impact(
        moves,
        check.topology,
        specs.get,
        shard_of,
        load=[loads[node] for node in check.topology.ids],
        before=check.diagnosis.violations,
        after=left,
    )


def _move_words(move: ClusterMove) -> str:
    return f"{move.kind} {move.remove or '-'} {move.add or '-'} {move.leader or '-'}"


def _stake_reason(
    topology: Topology, after: Sequence[StreamToDiagnose], found: Plan
) -> Reason | None:
    """The warning of what nodes in maintenance, and those that cannot be emptied, take away."""
    stuck = {v.key for v in found.left if v.rule == DRAIN_RULE}
    affected = [
        AffectedShard(
            each.spec, each.policy, shard, nodes, each.out_of_sync.get(shard, frozenset())
        )
        for each in after
        for shard, nodes in enumerate(each.shards)
    ]
    return exposure_reason(
        exposed_after_repair(topology, affected, stuck), "without the nodes that are to go"
    )


def _mark_unfixable(broken: Violation, why: Violation) -> Violation:
    """A violation for which the fleet has an arrangement and repair has no lawful next move."""
    return broken._replace(violation_class=ViolationClass.UNFIXABLE, reason=why.reason)


def move_body(move: PlannedMove) -> dict[str, Any]:
    """A move in the form of the plan's answer."""
    body: dict[str, Any] = {
        "stream": move.stream,
        "shard": move.shard,
        "kind": move.kind,
        "remove": move.remove,
        "add": move.add,
        "cause": move.cause,
        "reason": codec.reason_body(move.reason),
    }
    body |= {} if move.leader is None else {"leader": move.leader}
    return body if move.bytes is None else body | {"bytes": move.bytes}


def impact_body(found: Impact) -> dict[str, Any]:
    """An impact in the form of the plan's answer."""
    return {
        "hash": found.hash,
        "moves": found.moves,
        "copies": found.copies,
        "shards": len(found.shards),
        "streams": list(found.streams),
        "violations_made": [identity_body(each) for each in found.violations_made],
        "violations_healed": [identity_body(each) for each in found.violations_healed],
    }


def _waves_body(waves: Waves) -> dict[str, Any]:
    """The moves with their wave, what each wave does, and whether nothing is left."""
    numbered = [(n, move) for n, each in enumerate(waves.plans, 1) for move in each.moves]
    stopped = waves.stopped
    return {
        "moves": [move_body(move) | {"wave": number} for number, move in numbered],
        "waves": [
            {
                "wave": number,
                "moves": len(each.moves),
                "copies": sum(move.add is not None for move in each.moves),
                "crossing": each.crossing,
                "waiting": each.throttled,
            }
            for number, each in enumerate(waves.plans, 1)
        ],
        "fixpoint": {
            "reached": stopped is None,
            "plans": len(waves.plans) + 1,
            "reason": None if stopped is None else codec.reason_body(stopped),
        },
    }
