"""`placer plan`: the moves that repair or rebalancing would make of a cluster file.

It looks at the file as `placer check` does, and lets the running reconciler's own repair loose on
it. What has been found is in the form of design section 10.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from placement.diagnosis import UNKNOWN, Diagnosed, Examined
from placement.examine import examine
from placement.hold import Hold, find_hold
from placement.model import MoveKind, Violation, ViolationClass
from placement.plan import InFlight, Phase, Plan, PlannedMove, Standing, plan
from placement.reasons import Code, Reason
from placement.topology import Topology
from schemas.cluster import (
    Cluster,
    ClusterMove,
    ClusterNode,
    ClusterNodeStatus,
    ClusterStream,
)
from streaming import codec
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
    """A cluster, the plan for it, and what no plan mends."""

    document: Document
    judged: Checked
    plan: Plan
    unfixable: tuple[dict[str, Any], ...]
    hold: Hold | None

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
        body["warnings"] = [codec.reason_body(reason) for reason in self._warnings()]
        hold = self.hold
        body["hold"] = None if hold is None else {"domain": hold.domain, "reason": hold.reason}
        body["lower_bound"] = self.plan.lower_bound
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
        return [*self.plan.warnings, *reached]


def planned(document: Document, wanted: Wanted) -> Planned:
    """Plan for a document. Raises NothingThere where `lose` or `drain` names nothing."""
    cluster = _changed(document.cluster, wanted)
    judged = checked(replace(document, cluster=replace(cluster, moves=())), Asked())
    topology = judged.topology
    streams = [_standing(each, cluster.moves) for each in judged.examined]
    found = plan(topology, streams, wanted.phase, wanted.max_moves, wanted.max_moves_per_node)
    unfixable = _unfixable(topology, judged.examined, found)
    return Planned(document, judged, found, tuple(unfixable), find_hold(topology))


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
    asked = [stream for stream in cluster.streams if isinstance(stream, ClusterStream)]
    named = [n for stream in asked for nodes in stream.replicas or () for n in nodes]
    unknown = [n for n in dict.fromkeys(named) if n not in joined]
    gone = [ClusterNode(id=node_id, status=_GONE) for node_id in unknown]
    return replace(cluster, nodes=(*nodes, *gone))


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


def _unfixable(
    topology: Topology, examined: Sequence[Examined], found: Plan
) -> list[dict[str, Any]]:
    """What is still broken when the plan has been carried out, and no further plan mends."""
    after = []
    for each in examined:
        lists = found.final[each.spec.stream]
        nodes = [[topology.index.get(n, UNKNOWN) for n in held] for held in lists]
        after.append(replace(each, shards=nodes, complete=nodes, moving=frozenset()))
    left = {(v.stream, v.shard, v.rule, v.domain): v for v in found.left}
    bodies = []
    for broken in examine(topology, after).violations:
        key = (broken.stream, broken.shard, broken.rule, broken.domain)
        if broken.violation_class is ViolationClass.UNFIXABLE:
            bodies.append(violation_body(broken))
        elif key in left:
            bodies.append(violation_body(_without_move(broken, left[key])))
    return bodies


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
        "reason": codec.reason_body(move.reason),
    }
    return body if move.leader is None else body | {"leader": move.leader}
