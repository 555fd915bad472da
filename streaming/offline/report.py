"""The report of `placer check --report`: values of Kudu's `rebalance --report_only` and `ksck`, and
more. It adds every violation with its location and the number of replicas there, and how many moves
a plan would make.

Figures count moves under way as done, and only nodes that are not dead take part in skews and
averages (apache/kudu, src/kudu/tools/rebalancer_tool.cc).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from placement.diagnosis import UNKNOWN, StreamToDiagnose
from placement.model import Cause, Violation, natural_key
from placement.planning import PlannedMove
from placement.topology import LEAF, Topology
from streaming.offline.check import CheckResult
from streaming.offline.loads import utilisation_body
from streaming.offline.plan import PlanOptions, plan_moves
from streaming.offline.what_if import WhatIf


def check_body(answer: CheckResult) -> dict[str, Any]:
    """The answer of `check`, with the report where it was asked."""
    body = answer.body()
    return body | {"report": report(answer)} if answer.asked.report else body


def report(answer: CheckResult) -> dict[str, Any]:
    """Report skew, violations and the plan's moves. Replicas are counted by node; by stream and
    range over all nodes (skew is greatest minus least); by location with replicas per node and the
    shards that break a rule there."""
    topology, streams = answer.topology, answer.examined
    loads = Counter(
        node for each in streams for nodes in each.shards for node in set(nodes) if node != UNKNOWN
    )
    order = sorted(range(topology.size), key=lambda node: natural_key(topology.ids[node]))
    alive = [node for node in order if not topology.is_dead(node)]
    inside = _group_live_nodes(topology, alive)
    violations = answer.diagnosis.violations
    return {
        "nodes": {topology.ids[node]: loads[node] for node in order},
        "streams": [row for each in streams for row in _stream(each, alive)],
        "locations": _locations(inside, loads, violations),
        "total": _total(loads, alive),
        "servers": _servers(topology, order, loads, streams, _shares(answer)),
        "skews": _skews(inside, streams),
        "violations": _violations(streams, violations),
        "plan": _plan(answer),
    }


def _group_live_nodes(topology: Topology, alive: Sequence[int]) -> dict[str, list[int]]:
    """Living nodes by location, both in natural order."""
    domains = topology.domain_of(LEAF)
    found: dict[str, list[int]] = {}
    for node in alive:
        found.setdefault(topology.domain_name(LEAF, int(domains[node])), []).append(node)
    return dict(sorted(found.items(), key=lambda each: natural_key(each[0])))


def _stream(each: StreamToDiagnose, alive: Sequence[int]) -> list[dict[str, Any]]:
    """Return one row for each range, or one for a stream without ranges."""
    return [
        {
            "stream": each.spec.stream,
            "range": label,
            "skew": _skew(loads, alive),
            "replicas": sum(loads.values()),
        }
        for label, loads in _count_by_range(each).items()
    ]


def _count_by_range(each: StreamToDiagnose) -> dict[str | None, Counter[int]]:
    """Replicas by node of every range, of the whole stream where it has none."""
    labels = each.spec.ranges or ()
    found: dict[str | None, Counter[int]] = {}
    for shard, nodes in enumerate(each.shards):
        label = labels[shard] if shard < len(labels) else None
        loads = found.setdefault(label, Counter())
        loads.update(int(node) for node in set(nodes) if node != UNKNOWN)
    return found


def _total(loads: Mapping[int, int], alive: Sequence[int]) -> dict[str, Any]:
    """All replicas over all nodes: the second of Kudu's two dimensions."""
    counts = [loads.get(node, 0) for node in alive]
    return {
        "nodes": len(counts),
        "min": min(counts, default=None),
        "max": max(counts, default=None),
        "average": sum(counts) / len(counts) if counts else None,
        "skew": _skew(loads, alive),
    }


def _skew(loads: Mapping[int, int], nodes: Sequence[int]) -> int:
    counts = [loads.get(node, 0) for node in nodes]
    return max(counts, default=0) - min(counts, default=0)


def _locations(
    inside: Mapping[str, Sequence[int]], loads: Mapping[int, int], violations: Sequence[Violation]
) -> list[dict[str, Any]]:
    broken = {(v.domain, v.stream, v.shard) for v in violations}
    found = Counter(domain for domain, _, _ in broken)
    rows = []
    for name, nodes in inside.items():
        counts = [loads.get(node, 0) for node in nodes]
        average = sum(counts) / len(counts)
        rows.append(
            {
                "location": name,
                "load": average,
                "min": min(counts),
                "max": max(counts),
                "average": average,
                "violations": found[name],
            }
        )
    return rows


def _servers(
    topology: Topology,
    order: Sequence[int],
    loads: Mapping[int, int],
    streams: Sequence[StreamToDiagnose],
    shares: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """`ksck`'s table of servers; with how far each is filled, where resources are counted."""
    leaders = Counter(nodes[0] for each in streams for nodes in each.shards if len(nodes))
    return [
        {
            "node": topology.ids[node],
            "location": str(topology.locations[node]) or None,
            "status": topology.status(node),
            "replicas": loads.get(node, 0),
            "leaders": leaders[node],
        }
        | ({"utilisation": shares[topology.ids[node]]} if shares else {})
        for node in order
    ]


def _shares(answer: CheckResult) -> dict[str, dict[str, Any]]:
    """How far each node is filled, by resource; nothing for a file without resources."""
    if answer.node_loads is None:
        return {}
    used = utilisation_body(answer.topology, answer.node_loads)
    return {
        name: {resource: found["nodes"][name]["utilisation"] for resource, found in used.items()}
        for name in answer.topology.ids
    }


def _skews(
    inside: Mapping[str, Sequence[int]], streams: Sequence[StreamToDiagnose]
) -> list[dict[str, Any]]:
    """Compute inside each location the skew of the streams with replicas there, by range where
    there are ranges. None where there is no stream."""
    families = [loads for each in streams for loads in _count_by_range(each).values()]
    rows = []
    for name, nodes in inside.items():
        here = [loads for loads in families if any(loads.get(node) for node in nodes)]
        skews = [_skew(loads, nodes) for loads in here]
        rows.append(
            {
                "location": name,
                "nodes": len(nodes),
                "min": min(skews, default=None),
                "max": max(skews, default=None),
                "average": sum(skews) / len(skews) if skews else None,
            }
        )
    return rows


def _violations(
    streams: Sequence[StreamToDiagnose], violations: Sequence[Violation]
) -> dict[str, Any]:
    """Count by domain the streams and shards that do not comply. Each shard is listed with its
    replicas there, if a rule is broken at a place."""
    specs = {each.spec.stream: each for each in streams}
    placed = [v for v in violations if v.domain is not None and v.shard is not None]
    by_domain: dict[str, set[tuple[str | None, int | None]]] = {}
    for each in placed:
        by_domain.setdefault(each.domain or "", set()).add((each.stream, each.shard))
    return {
        "domains": [
            {
                "domain": domain,
                "streams": len({stream for stream, _ in shards}),
                "shards": len(shards),
            }
            for domain, shards in sorted(by_domain.items(), key=lambda each: natural_key(each[0]))
        ],
        "details": [
            {
                "domain": v.domain,
                "stream": v.stream,
                "shard": v.shard,
                "rule": v.rule,
                "class": v.violation_class,
                "replication_factor": specs[v.stream or ""].spec.replication_factor,
                "replicas": v.count,
            }
            for v in placed
        ],
    }


def _plan(answer: CheckResult) -> dict[str, Any]:
    """Count the moves of `plan --until-balanced` without limits."""
    wanted = PlanOptions(until_balanced=True, what_if=WhatIf(lose=answer.asked.lose))
    found = plan_moves(answer.document, wanted)
    balances = [move for move in found.plan.moves if move.cause is Cause.BALANCE]
    repairs = [move for move in found.plan.moves if move.cause is not Cause.BALANCE]
    waves = found.waves
    return {
        "repair": _count_replicas(repairs),
        "rebalance": _count_replicas(balances),
        "waves": 0 if waves is None else len(waves.plans),
        "crossing": found.plan.crossing,
        "lower_bound": found.plan.lower_bound,
        "unfixable": len(found.unfixable),
    }


def _count_replicas(moves: Sequence[PlannedMove]) -> dict[str, int]:
    return {"moves": len(moves), "copies": sum(move.add is not None for move in moves)}
