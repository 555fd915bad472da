"""`placer check`: judges assignments of a cluster file by the rules that would place them.

Given lists are judged as they stand: nothing is completed, replaced or moved.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from placement.assignments import Risk, parse_failures, risk
from placement.diagnosis import (
    UNKNOWN,
    Diagnosis,
    Health,
    StreamToDiagnose,
    diagnose_cluster,
)
from placement.model import (
    AdministrativeState,
    Code,
    Configuration,
    Guard,
    Liveness,
    Location,
    NodeChanged,
    Outcome,
    Reason,
    StreamCreated,
    StreamSpec,
    Violation,
    ViolationClass,
    natural_key,
    parse_location,
)
from placement.policy import Policy, find_contradiction
from placement.rules import NodeLoads
from placement.state import ClusterState
from placement.strategies import STRATEGIES
from placement.streams import check_counts, check_repair_mode
from placement.topology import Topology
from schemas.acks import MoveKind
from schemas.cluster import Cluster, ClusterMove, ClusterNode, ClusterStream, RefusedStream
from streaming import codec
from streaming.offline.documents import Document
from streaming.offline.loads import count_nodes, count_shards, utilisation_body

_UNLOCATED = "(unlocated)"


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """Selects further parts of a check: domains or tags to lose, the number of failing nodes, a
    report. `resized`: streams with another replication factor asked for, which their policy may
    contradict."""

    lose: tuple[str, ...] = ()
    fail: str | None = None
    report: bool = False
    resized: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A cluster, what is wrong with it, and its streams that were refused.

    `node_loads`: what is counted beside replicas; None for a file without resources.
    """

    document: Document
    asked: CheckOptions
    topology: Topology
    diagnosis: Diagnosis
    examined: tuple[StreamToDiagnose, ...]
    refused: tuple[dict[str, Any], ...]
    lost: tuple[str, ...]
    node_loads: NodeLoads | None = None

    @property
    def fixable(self) -> bool:
        """Return whether a violation can be mended."""
        kinds = (each.violation_class for each in self.diagnosis.violations)
        return ViolationClass.FIXABLE in kinds

    @property
    def loads(self) -> Counter[str]:
        """Replicas on each node."""
        ids = self.topology.ids
        lists = (nodes for each in self.examined for nodes in each.shards)
        return Counter(ids[node] for nodes in lists for node in set(nodes) if node != UNKNOWN)

    def summary(self) -> dict[str, Any]:
        """Totals: violations by class, streams by health, those that are refused, nodes by
        status."""
        found, topology = self.diagnosis, self.topology
        classes = Counter(str(each.violation_class) for each in found.violations)
        statuses = Counter(topology.status(node) for node in range(topology.size))
        return {
            "violations": {"total": len(found.violations), **dict(sorted(classes.items()))},
            "streams": {
                str(word): count
                for word in reversed(Health)
                if (count := [*found.streams.values()].count(word))
            },
            "refused": len(self.refused),
            "nodes": dict(sorted(statuses.items())),
        }

    @property
    def missing(self) -> dict[str, int]:
        """Count the complete copies on live nodes that each stream lacks."""
        lacking = {}
        for each, copies in zip(self.examined, self.diagnosis.copies, strict=True):
            factor = each.policy.copies(each.spec.replication_factor)
            lacking[copies.stream] = int(np.maximum(factor - copies.live, 0).sum())
        return lacking

    def risk(self) -> Risk | None:
        """Compute the risk of the asked number of nodes failing at once; None where it was not
        asked."""
        if self.asked.fail is None:
            return None
        alive = [n for n in range(self.topology.size) if not self.topology.is_dead(n)]
        failed = parse_failures(self.asked.fail, len(alive))
        assert failed is not None, "the command line has looked at it"
        given = {each.spec.stream: each.complete for each in self.examined}
        lists = [
            nodes
            for copies in self.diagnosis.copies
            for nodes, listed in zip(copies.to_lists(), given[copies.stream], strict=True)
            if listed
        ]
        return risk(lists, len(alive), failed)

    def body(self) -> dict[str, Any]:
        """The answer of `check`."""
        cluster, found = self.document.cluster, self.diagnosis
        body: dict[str, Any] = {} if cluster.name is None else {"name": cluster.name}
        body["summary"] = self.summary()
        body["violations"] = [violation_body(each) for each in found.violations]
        body["health"] = health_body(found)
        if self.node_loads is not None:
            body["utilisation"] = utilisation_body(self.topology, self.node_loads)
        if self.refused:
            body["decisions"] = list(self.refused)
        if self.asked.lose:
            below = [
                {
                    "stream": each.stream,
                    "shard": shard,
                    "live": int(each.live[shard]),
                    "quorum": each.quorum,
                }
                for each in found.copies
                for shard in each.below_quorum
            ]
            body["lost"] = {
                "domains": list(self.asked.lose),
                "nodes": list(self.lost),
                "below_quorum": below,
            }
        figures = self.risk()
        if figures is not None:
            width = figures.scatter_width
            body["risk"] = {
                "failed": figures.failed,
                "copysets": figures.copysets,
                "scatter_width": {"min": width.min, "mean": width.mean, "max": width.max},
                "loss_probability": figures.loss_probability,
            }
        return body


class NoMatchingNode(Exception):
    """A domain or tag that was named stands for no node of the document."""


def check_cluster(document: Document, asked: CheckOptions) -> CheckResult:
    """Judge a cluster. Raises NoMatchingNode."""
    cluster = document.cluster
    nodes, streams = codec.events_of_cluster(cluster)
    state = ClusterState(Configuration(levels=cluster.levels))
    lost = lost_nodes(cluster, asked.lose)
    for event in nodes:
        assert isinstance(event, NodeChanged)
        assert event.attributes is not None
        liveness = Liveness.DEAD if event.node_id in lost else event.liveness
        state.topology.upsert(
            event.node_id,
            event.attributes,
            liveness,
            event.administrative or AdministrativeState.NONE,
            event.guard or Guard.NONE,
        )
    events = {each.stream: each for each in streams if isinstance(each, StreamCreated)}
    moves = {(move.stream, move.shard): move for move in cluster.moves}
    examined: list[StreamToDiagnose] = []
    refused: list[dict[str, Any]] = []
    for stream in cluster.streams:
        if isinstance(stream, RefusedStream):
            reason = codec.reason_body(Reason(Code.STREAM_MALFORMED, stream.message))
            refused.append(_refusal(stream.stream, reason | {"field": stream.field}))
            continue
        event = events[stream.stream]
        policy = _policy(state, event)
        if event.stream in asked.resized and not isinstance(policy, Reason):
            policy = _contradiction(state, event, policy) or policy
        if isinstance(policy, Reason):
            refused.append(_refusal(stream.stream, codec.reason_body(policy), stream))
        else:
            prepared = _prepare_stream(event, policy, moves, state.topology)
            unknown = frozenset(n for n in stream.unobserved or () if n < stream.shards)
            behind = _out_of_sync(stream, state.topology)
            examined.append(replace(prepared, out_of_sync=behind, unobserved=unknown))
    counted = count_shards(cluster, examined)
    loads = count_nodes(cluster, state.topology, counted)
    found = diagnose_cluster(state.topology, counted, loads)
    named = tuple(sorted(lost, key=natural_key))
    parts = (tuple(counted), tuple(refused), named, loads)
    return CheckResult(document, asked, state.topology, found, *parts)


def lost_nodes(cluster: Cluster, names: Iterable[str]) -> frozenset[str]:
    """Nodes in any of the domains: a path, `key=value`, or a node's id. Raises NoMatchingNode."""
    lost: set[str] = set()
    for name in names:
        found = {node.id for node in cluster.nodes if _is_within(node, name)}
        if not found:
            raise NoMatchingNode(f"no node stands in '{name}': a path, key=value or a node's id")
        lost |= found
    return frozenset(lost)


def _is_within(node: ClusterNode, name: str) -> bool:
    key, equals, value = name.partition("=")
    if node.id == name or (equals and node.tags.get(key) == value):
        return True
    here = parse_location(node.location or "")
    domain = Location() if name == _UNLOCATED else parse_location(name)
    if isinstance(domain, Reason) or isinstance(here, Reason):
        return False
    return here.is_within(domain) if domain.depth else name == _UNLOCATED and not here.depth


def _policy(state: ClusterState, event: StreamCreated) -> Policy | Reason:
    """The compiled policy, or what is wrong with the stream's own fields."""
    given = len(event.replicas or ())
    if given > event.shards:
        message = f"replicas lists {given} shards, the stream has {event.shards}"
        return Reason(Code.SHARDS_OUT_OF_RANGE, message, event.shards, given)
    wrong = check_counts(event.shards, event.replication_factor, event.quorum)
    wrong = wrong or check_repair_mode(event.repair)
    return wrong or state.streams.compile(event.placement_policies, event.policy)


def _contradiction(state: ClusterState, event: StreamCreated, policy: Policy) -> Reason | None:
    """Explain why the fleet, or any, cannot have that many copies under the policy."""
    strategy, topology = STRATEGIES[policy.strategy], state.topology
    rules = strategy.rules(policy, topology)
    wrong = find_contradiction(policy, rules, policy.copies(event.replication_factor))
    return wrong or strategy.find_fault(spec_of(event), policy, topology)


def _refusal(
    name: str | None, reason: dict[str, Any], asked: ClusterStream | None = None
) -> dict[str, Any]:
    """A rejected stream in the form of `place`."""
    policy: Any = None
    if asked is not None:
        policy = asked.policy if asked.placement_policies is None else asked.placement_policies
    return {
        "stream": name,
        "outcome": Outcome.REJECTED,
        "replicas": [list(nodes) for nodes in asked.replicas or ()] if asked else [],
        "policy": policy,
        "reasons": [reason],
        "warnings": [],
    }


def _prepare_stream(
    event: StreamCreated,
    policy: Policy,
    moves: Mapping[tuple[str, int], ClusterMove],
    topology: Topology,
) -> StreamToDiagnose:
    """A stream as it stands, and as it will when its moves are done."""
    given = [list(nodes) for nodes in event.replicas or ()]
    given += [[] for _ in range(event.shards - len(given))]
    underway = {}
    if moves:
        numbered = ((shard, moves.get((event.stream, shard))) for shard in range(event.shards))
        underway = {shard: move for shard, move in numbered if move}
    shards = [_indexes(nodes, topology) for nodes in given]
    planned = whole = shards
    if underway:
        planned, whole = list(shards), list(shards)
    for shard, move in underway.items():
        planned[shard] = _indexes(_nodes_after(given[shard], move), topology)
        whole[shard] = _indexes(_nodes_before(given[shard], move), topology)
    return StreamToDiagnose(spec_of(event), policy, planned, whole, frozenset(underway))


def _out_of_sync(stream: ClusterStream, topology: Topology) -> dict[int, frozenset[int]]:
    """Find the replicas that are listed and not in sync, by shard."""
    found = {}
    for shard, lists in enumerate(zip(stream.replicas or (), stream.in_sync or (), strict=False)):
        listed, in_sync = map(set, lists)
        nodes = [topology.index[each] for each in listed - in_sync if each in topology.index]
        if nodes:
            found[shard] = frozenset(nodes)
    return found


def spec_of(event: StreamCreated) -> StreamSpec:
    """Return the stream's spec as it is written."""
    return StreamSpec(
        stream=event.stream,
        shards=event.shards,
        replication_factor=event.replication_factor,
        policy=dict(event.policy or {}),
        placement_policies=event.placement_policies,
        quorum="majority" if event.quorum is None else event.quorum,
        shard_tokens=event.shard_tokens,
        dimension=event.dimension,
        ranges=event.ranges,
        repair=event.repair,
        expected_load=event.expected_load,
    )


def _indexes(nodes: Iterable[str], topology: Topology) -> list[int]:
    return [topology.index.get(node_id, UNKNOWN) for node_id in nodes]


def _nodes_after(nodes: Sequence[str], move: ClusterMove) -> list[str]:
    """The list once its move is done."""
    if move.kind is MoveKind.LEADER:
        leads = [node for node in nodes if node == (move.leader or move.add)]
        return [*leads, *(node for node in nodes if node not in leads)]
    add = [move.add] if move.add is not None and move.add not in nodes else []
    if move.remove not in nodes:
        return [*nodes, *add]
    place = nodes.index(move.remove)
    return [*nodes[:place], *add, *nodes[place + 1 :]]


def _nodes_before(nodes: Sequence[str], move: ClusterMove) -> list[str]:
    """Return the complete copies: a list with both source and target has a copy on its way."""
    if move.add is None or move.kind is MoveKind.LEADER:
        return list(nodes)
    return [node for node in nodes if node != move.add]


def violation_body(each: Violation) -> dict[str, Any]:
    """Write a violation as it stands in the JSON output of `placer check` and `placer plan`."""
    return {
        "stream": each.stream,
        "shard": each.shard,
        "rule": each.rule,
        "strength": each.strength,
        "level": each.level,
        "domain": each.domain,
        "count": each.count,
        "limit": each.limit,
        "class": each.violation_class,
        "reason": codec.reason_body(each.reason),
    }


def health_body(found: Diagnosis) -> dict[str, Any]:
    """Words for the cluster, its streams and their shards, and what must not be lost."""
    return {
        "worst": found.worst,
        "streams": found.streams,
        "shards": found.shards,
        "critical": [
            {
                "level": each.level,
                "domain": each.domain,
                "shards": each.shards,
                "streams": each.streams,
            }
            for each in found.critical
        ],
        "under_diversified": [
            {
                "stream": each.stream,
                "level": each.level,
                "shards": each.shards,
                "domains": each.domains,
                "possible": each.possible,
            }
            for each in found.under_diversified
        ],
    }
