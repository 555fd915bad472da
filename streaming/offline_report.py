"""The report of `placer check --report`: what Kudu's `rebalance --report_only` prints, as values.

Figures count moves under way as done, and only nodes that are not dead take part in skews and
averages (apache/kudu, src/kudu/tools/rebalancer_tool.cc).
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from placement.diagnosis import UNKNOWN, Diagnosis, Examined
from placement.location import natural_key
from placement.topology import LEAF, Topology


def report(topology: Topology, streams: Sequence[Examined], diagnosis: Diagnosis) -> dict[str, Any]:
    """Replicas by node; by stream and range how many, and how uneven over all nodes (greatest
    minus least); by location replicas per node, and shards that break a rule there."""
    held = Counter(
        node for each in streams for nodes in each.shards for node in set(nodes) if node != UNKNOWN
    )
    order = sorted(range(topology.size), key=lambda node: natural_key(topology.ids[node]))
    alive = [node for node in order if not topology.is_dead(node)]
    return {
        "nodes": {topology.ids[node]: held[node] for node in order},
        "streams": [row for each in streams for row in _stream(each, alive)],
        "locations": _locations(topology, alive, held, diagnosis),
    }


def _stream(each: Examined, alive: Sequence[int]) -> list[dict[str, Any]]:
    """One row for each range, or one for a stream without ranges."""
    labels = each.spec.ranges or ()
    rows = []
    of_shard = [labels[shard] if shard < len(labels) else None for shard in range(each.spec.shards)]
    for label in dict.fromkeys(of_shard):
        held = Counter(
            node
            for nodes, of_range in zip(each.shards, of_shard, strict=True)
            if of_range == label
            for node in set(nodes)
            if node != UNKNOWN
        )
        counts = [held[node] for node in alive]
        rows.append(
            {
                "stream": each.spec.stream,
                "range": label,
                "skew": max(counts, default=0) - min(counts, default=0),
                "replicas": sum(held.values()),
            }
        )
    return rows


def _locations(
    topology: Topology, alive: Sequence[int], held: Counter[int], diagnosis: Diagnosis
) -> list[dict[str, Any]]:
    domains = topology.domain_of(LEAF)
    inside: dict[str, list[int]] = {}
    for node in alive:
        name = topology.domain_name(LEAF, int(domains[node]))
        inside.setdefault(name, []).append(held[node])
    broken = {(v.domain, v.stream, v.shard) for v in diagnosis.violations}
    violations = Counter(domain for domain, _, _ in broken)
    return [
        {
            "location": name,
            "load": sum(counts) / len(counts),
            "min": min(counts),
            "max": max(counts),
            "average": sum(counts) / len(counts),
            "violations": violations[name],
        }
        for name, counts in sorted(inside.items(), key=lambda each: natural_key(each[0]))
    ]
