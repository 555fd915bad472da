"""Listings of the live state, a row for each thing: `placer nodes`, `locations`, `streams`,
`policies`, `violations`.

In the manner of `kudu tserver list` and `ksck` (Kudu's command line tools): one line each, columns
to choose from, and the same rows as JSON.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from placement.location import natural_key
from placement.model import Outcome
from streaming.live import Live

Rows = list[dict[str, Any]]

_UNLOCATED = "(unlocated)"


def nodes(live: Live) -> Rows:
    """Every node: where it stands, how it fares, what it holds."""
    held: Counter[str] = Counter()
    led: Counter[str] = Counter()
    for shard in live.assignments:
        held.update(shard.replicas)
        led.update(shard.replicas[:1])
    coming, going = _under_way(live)
    return [
        {
            "node": view.node_id,
            "location": view.attributes.location or _UNLOCATED,
            "status": view.status,
            "replicas": held[view.node_id],
            "leaders": led[view.node_id],
            "coming": coming[view.node_id],
            "going": going[view.node_id],
            "weight": view.attributes.weight,
            "capacity": view.attributes.capacity,
            "host": view.attributes.host,
            "tags": dict(view.attributes.tags),
            "since": view.since,
            "incarnation": view.incarnation,
        }
        for view in live.nodes
    ]


def locations(live: Live) -> Rows:
    """Every domain of every level, parents before what is in them."""
    held = {row["node"]: row["replicas"] for row in nodes(live)}
    found: dict[str, dict[str, Any]] = {}
    for view in live.nodes:
        parts = view.attributes.location.split("/")[1:]
        paths = ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        for path in paths or [_UNLOCATED]:
            row = found.setdefault(
                path, {"location": path, "nodes": 0, "up": 0, "replicas": 0, "weight": 0.0}
            )
            row["nodes"] += 1
            row["up"] += view.status == "up"
            row["replicas"] += held[view.node_id]
            row["weight"] += view.attributes.weight
    rows = [found[path] for path in sorted(found, key=natural_key)]
    return [row | {"per_weight": _share(row["replicas"], row["weight"])} for row in rows]


def streams(live: Live) -> Rows:
    """Every stream and the last answer to it."""
    return [
        {
            "stream": decision.stream,
            "outcome": str(decision.outcome),
            "shards": decision.spec.shards,
            "rf": decision.spec.replication_factor,
            "strategy": decision.strategy,
            "missing": decision.replicas_missing,
            "sequence": decision.sequence,
            "reasons": [reason.message for reason in (*decision.reasons, *decision.warnings)],
        }
        for decision in live.decisions
    ]


def policies(live: Live) -> Rows:
    """Every policy in use with the streams that live under it."""
    users: defaultdict[str, list[str]] = defaultdict(list)
    for decision in live.decisions:
        if decision.outcome is Outcome.REJECTED:
            continue
        text, policy = decision.spec.placement_policies, decision.spec.policy
        users[_policy(policy) if text is None else f"placement_policies '{text}'"].append(
            decision.stream
        )
    broken = Counter(each.stream for each in live.violations)
    return [
        {
            "policy": policy,
            "streams": len(named),
            "violations": sum(broken[name] for name in named),
            "named": named,
        }
        for policy, named in sorted(users.items())
    ]


def violations(live: Live) -> Rows:
    """Every open violation and what becomes of it."""
    return [
        {
            "shard": f"{each.stream}/{each.shard}",
            "rule": each.rule,
            "strength": str(each.strength),
            "domain": each.domain,
            "count": each.count,
            "limit": each.limit,
            "class": str(each.violation_class),
            "code": str(each.reason.code),
            "reason": each.reason.message,
            "since": each.since,
        }
        for each in live.violations
    ]


LISTINGS: Mapping[str, Callable[[Live], Rows]] = {
    "nodes": nodes,
    "locations": locations,
    "streams": streams,
    "policies": policies,
    "violations": violations,
}


def _under_way(live: Live) -> tuple[Counter[str], Counter[str]]:
    """Replicas on their way to each node, and from it."""
    moves = live.open_moves
    coming = Counter(move.add for move in moves if move.add is not None)
    going = Counter(move.remove for move in moves if move.remove is not None)
    return coming, going


def _policy(policy: Mapping[str, Any]) -> str:
    """The strategy, and whatever is said besides."""
    rest = {name: value for name, value in policy.items() if name != "strategy"}
    said = ", ".join(f"{name}: {value}" for name, value in sorted(rest.items()))
    return f"{policy.get('strategy', '')} {{{said}}}" if said else str(policy.get("strategy", ""))


def _share(replicas: int, weight: float) -> float | None:
    return round(replicas / weight, 2) if weight else None
