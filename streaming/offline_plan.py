"""`placer plan`: the moves that repair or rebalancing would make of a cluster file.

It looks at the file as `placer check` does, and lets the running reconciler's own repair loose on
it. What has been found is in the form of design section 10.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from placement.diagnosis import UNKNOWN, Diagnosed, Examined
from placement.examine import examine
from placement.hold import Hold, find_hold
from placement.impact import Impact, ShardState, impact
from placement.model import MoveKind, Violation, ViolationClass
from placement.plan import InFlight, Phase, Plan, PlannedMove, Standing, plan
from placement.reasons import Code, Reason
from placement.safety import HeldShard, at_stake_reason, exposed
from placement.topology import Topology
from schemas.cluster import (
    Cluster,
    ClusterMove,
    ClusterNode,
    ClusterNodeStatus,
    ClusterStream,
)
from streaming import record_codec
from streaming.offline import Document, DocumentFault, clusters
from streaming.offline_check import Asked, Checked, checked, lost_nodes, violation_body

_GONE = ClusterNodeStatus.UNREGISTERED


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be planned: the phase, its bounds, and what is to become of the fleet before."""

    phase: Phase = Phase.ALL
    max_moves: int | None = None
    max_moves_per_node: int | None = None
    lose: tuple[str, ...] = ()
    drain: tuple[str, ...] = ()
    add: tuple[ClusterNode, ...] = ()


@dataclass(frozen=True, slots=True)
class Planned:
    """A cluster, the plan for it, what it does, and what no plan mends; `stakes` warns of nodes
    that are to go and take too much with them."""

    document: Document
    judged: Checked
    plan: Plan
    impact: Impact
    unfixable: tuple[dict[str, Any], ...]
    hold: Hold | None
    stakes: Reason | None = None

    @property
    def nodes(self) -> tuple[ClusterNode, ...]:
        """The fleet that was planned for."""
        return self.judged.document.cluster.nodes

    @property
    def stuck(self) -> bool:
        """Whether a required rule stays broken."""
        return any(each["strength"] == "required" for each in self.unfixable)

    def loads(self, after: bool) -> dict[str, int]:
        """Replicas on each node, as they are or as they will be."""
        if not after:
            return self.judged.loads
        lists = (nodes for shards in self.plan.final.values() for nodes in shards)
        held: dict[str, int] = {}
        for node in (node for nodes in lists for node in nodes):
            held[node] = held.get(node, 0) + 1
        return held

    def body(self) -> dict[str, Any]:
        """The answer of `plan`."""
        name = self.document.cluster.name
        body: dict[str, Any] = {} if name is None else {"name": name}
        body["moves"] = [_move_body(move) for move in self.plan.moves]
        body["unfixable"] = list(self.unfixable)
        body["warnings"] = [record_codec.reason_body(reason) for reason in self._warnings()]
        hold = self.hold
        body["hold"] = None if hold is None else {"domain": hold.domain, "reason": hold.reason}
        body["lower_bound"] = self.plan.lower_bound
        body["impact"] = impact_body(self.impact)
        body["final"] = {"replicas": self.plan.final}
        if self.plan.before:
            body["final"]["skew"] = [
                {"level": now.level, "stream": now.stream, "total": now.total}
                | {"leaders": now.leaders}
                for now in self.plan.after
            ]
        if self.judged.refused:
            body["decisions"] = list(self.judged.refused)
        return body

    def _warnings(self) -> list[Reason]:
        waiting = self.plan.throttled
        limits = f"{waiting} shards wait for a limit of this plan: plan again for them"
        reached = [Reason(Code.LIMIT_REACHED, limits, waiting, 0)] if waiting else []
        return [*self.plan.warnings, *reached, *([self.stakes] if self.stakes else [])]


def planned(document: Document, wanted: Wanted) -> Planned:
    """Plan for a document. Raises NothingThere where `lose` or `drain` names nothing."""
    cluster = _changed(document.cluster, wanted)
    judged = checked(replace(document, cluster=replace(cluster, moves=())), Asked())
    topology = judged.topology
    streams = [_standing(each, cluster.moves) for each in judged.examined]
    found = plan(topology, streams, wanted.phase, wanted.max_moves, wanted.max_moves_per_node)
    after = _after(topology, judged.examined, found)
    left = examine(topology, after).violations
    return Planned(
        document,
        judged,
        found,
        _impact(judged, cluster, found, left),
        tuple(_unfixable(left, found)),
        find_hold(topology),
        _stakes(topology, after, found),
    )


def nodes_of(file: str) -> tuple[ClusterNode, ...] | DocumentFault:
    """The nodes of another cluster file, which are to join."""
    text = Path(file).read_bytes().decode("utf-8", "surrogateescape")
    nodes: list[ClusterNode] = []
    for document in clusters(text):
        if isinstance(document, DocumentFault):
            return document
        nodes.extend(document.cluster.nodes)
    return tuple(nodes)


def _changed(cluster: Cluster, wanted: Wanted) -> Cluster:
    """The cluster with nodes added, drained and lost, and with those that lists and moves name
    and nobody knows, which are gone."""
    joined = {node.id: node for node in (*cluster.nodes, *wanted.add)}
    cluster = replace(cluster, nodes=tuple(joined.values()))
    drained = lost_nodes(cluster, wanted.drain)
    lost = lost_nodes(cluster, wanted.lose)
    status = dict.fromkeys(drained, ClusterNodeStatus.DRAINING)
    status |= dict.fromkeys(lost, ClusterNodeStatus.DEAD)
    nodes = [
        node.model_copy(update={"status": status[node.id]}) if node.id in status else node
        for node in cluster.nodes
    ]
    named = [n for each in _asked(cluster) for nodes in each.replicas or () for n in nodes]
    unknown = [n for n in dict.fromkeys(named) if n not in joined]
    gone = [ClusterNode(id=node_id, status=_GONE) for node_id in unknown]
    return replace(cluster, nodes=(*nodes, *gone))


def _asked(cluster: Cluster) -> list[ClusterStream]:
    """The streams that were understood."""
    return [stream for stream in cluster.streams if isinstance(stream, ClusterStream)]


def _standing(each: Examined, moves: Sequence[ClusterMove]) -> Standing:
    """A stream with its moves under way; of several for a shard the last counts."""
    own = [move for move in moves if move.stream == each.spec.stream]
    under_way = {
        move.shard: InFlight(MoveKind(move.kind), move.remove, move.add, move.leader)
        for move in own
        if move.shard < each.spec.shards
    }
    shards = [[int(node) for node in nodes] for nodes in each.shards]
    return Standing(each.spec, each.policy, shards, under_way)


def _after(topology: Topology, examined: Sequence[Examined], found: Plan) -> list[Examined]:
    """The streams when the plan has been carried out."""
    after = []
    for each in examined:
        lists = found.final[each.spec.stream]
        nodes = [[topology.index.get(n, UNKNOWN) for n in held] for held in lists]
        after.append(replace(each, shards=nodes, complete=nodes, moving=frozenset()))
    return after


def _unfixable(violations: Sequence[Diagnosed], found: Plan) -> list[dict[str, Any]]:
    """Of what is broken when the plan has been carried out what no further plan mends."""
    left = {(v.stream, v.shard, v.rule, v.domain): v for v in found.left}
    bodies = []
    for broken in violations:
        key = (broken.stream, broken.shard, broken.rule, broken.domain)
        if broken.violation_class is ViolationClass.UNFIXABLE:
            bodies.append(violation_body(broken))
        elif key in left:
            bodies.append(violation_body(_without_move(broken, left[key])))
    return bodies


def _impact(judged: Checked, cluster: Cluster, found: Plan, left: Sequence[Diagnosed]) -> Impact:
    """What the plan does to the streams as the document lists them."""
    listed = {each.stream: each.replicas or () for each in _asked(cluster)}
    specs = {each.spec.stream: each.spec for each in judged.examined}
    moves = {(move.stream, move.shard): move for move in cluster.moves}

    def shard_of(stream: str, shard: int) -> ShardState:
        lists, move = listed[stream], moves.get((stream, shard))
        nodes = lists[shard] if shard < len(lists) else ()
        return ShardState(tuple(nodes), under_way=None if move is None else _words(move))

    ids, loads = judged.topology.ids, judged.loads
    return impact(
        found.moves,
        judged.topology,
        specs.__getitem__,
        shard_of,
        load=[loads[node] for node in ids],
        before=judged.diagnosis.violations,
        after=left,
    )


def _words(move: ClusterMove) -> str:
    return f"{move.kind} {move.remove or '-'} {move.add or '-'} {move.leader or '-'}"


def _stakes(topology: Topology, after: Sequence[Examined], found: Plan) -> Reason | None:
    """The warning of what nodes in maintenance, and those that cannot be emptied, take away."""
    stuck = {(v.stream, v.shard) for v in found.left if v.rule == "drain"}
    held = [
        HeldShard(each.spec, each.policy, shard, nodes)
        for each in after
        for shard, nodes in enumerate(each.shards)
    ]
    return at_stake_reason(exposed(topology, held, stuck), "without the nodes that are to go")


def _without_move(broken: Diagnosed, why: Violation) -> Diagnosed:
    """A violation for which the fleet has an arrangement and repair has no lawful next move."""
    return replace(broken, violation_class=ViolationClass.UNFIXABLE, reason=why.reason)


def _move_body(move: PlannedMove) -> dict[str, Any]:
    body: dict[str, Any] = {
        "stream": move.stream,
        "shard": move.shard,
        "kind": move.kind,
        "remove": move.remove,
        "add": move.add,
        "cause": move.cause,
        "reason": record_codec.reason_body(move.reason),
    }
    return body if move.leader is None else body | {"leader": move.leader}


def impact_body(found: Impact) -> dict[str, Any]:
    """An impact in the form of the plan's answer."""
    return {
        "hash": found.hash,
        "moves": found.moves,
        "copies": found.copies,
        "shards": len(found.shards),
        "streams": list(found.streams),
        "violations_made": [asdict(each) for each in found.violations_made],
        "violations_healed": [asdict(each) for each in found.violations_healed],
    }
