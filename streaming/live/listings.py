"""Listings of the live state, a row for each thing: `placer nodes`, `locations`, `streams`,
`policies`, `violations`.

In the manner of `kudu tserver list` and `ksck` (Kudu's command line tools): one line each, columns
to choose from, and the same rows as JSON.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from placement.diagnosis import Health, count_by_rung
from placement.model import (
    AdministrativeState,
    Code,
    Decision,
    Guard,
    Liveness,
    NodeView,
    Outcome,
    ViolationClass,
    natural_key,
    status_of,
)
from streaming.live.published_state import StateRecords
from streaming.offline import CheckOptions, Document, check_cluster, flow_text

ListingRows = list[dict[str, Any]]

_UNLOCATED = "(unlocated)"


@dataclass(frozen=True, slots=True)
class Listing:
    """Its rows, the columns that each of them has, and the words of columns that have no others."""

    rows: Callable[[StateRecords], ListingRows]
    columns: tuple[str, ...]
    words: Mapping[str, tuple[str, ...]]


def nodes(live: StateRecords) -> ListingRows:
    """Every node: where it stands, whether it lives, what is ordered for it, what it holds."""
    loads, led = live.count_replicas()
    coming, going = _count_moving(live)
    return [
        {
            "node": view.node_id,
            "location": view.attributes.location or _UNLOCATED,
            "status": view.status,
            "liveness": str(view.liveness),
            "administrative": str(view.administrative),
            "guard": str(view.guard),
            "restart": _restart_state(view),
            "replicas": loads[view.node_id],
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


def locations(live: StateRecords) -> ListingRows:
    """Every domain of every level, parents before what is in them."""
    loads, _ = live.count_replicas()
    at: defaultdict[str, list[NodeView]] = defaultdict(list)
    for view in live.nodes:
        at[view.attributes.location].append(view)
    found: dict[str, dict[str, Any]] = {}
    for location, views in at.items():
        counts = {
            "nodes": len(views),
            "up": sum(view.status == "up" for view in views),
            "replicas": sum(loads[view.node_id] for view in views),
            "weight": sum(view.attributes.weight for view in views),
        }
        parts = location.split("/")[1:]
        paths = ["/" + "/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        for path in paths or [_UNLOCATED]:
            row = found.setdefault(
                path, {"location": path, "nodes": 0, "up": 0, "replicas": 0, "weight": 0.0}
            )
            for name, count in counts.items():
                row[name] += count
    rows = [found[path] for path in sorted(found, key=natural_key)]
    return [row | {"per_weight": _share(row["replicas"], row["weight"])} for row in rows]


def streams(live: StateRecords) -> ListingRows:
    """Every stream: how it is now, and the last answer to it. A stream that is not in force has no
    health."""
    found = check_cluster(Document(live.cluster()), CheckOptions())
    health, missing = found.diagnosis.streams, found.missing
    return [
        {
            "stream": decision.stream,
            "health": None if decision.stream not in health else str(health[decision.stream]),
            "outcome": str(decision.outcome),
            "shards": decision.spec.shards,
            "rf": decision.spec.replication_factor,
            "strategy": decision.strategy,
            "missing": missing.get(decision.stream),
            "missing_when_decided": decision.replicas_missing,
            "shard_health": count_by_rung(found.diagnosis.shards.get(decision.stream, ())),
            "sequence": decision.sequence,
            "reasons": [reason.message for reason in (*decision.reasons, *decision.warnings)],
        }
        for decision in live.decisions
    ]


def policies(live: StateRecords) -> ListingRows:
    """Every policy in use with the streams that live under it."""
    users: defaultdict[str, list[str]] = defaultdict(list)
    for decision in live.decisions:
        if decision.outcome is Outcome.REJECTED:
            continue
        users[policy_text(decision)].append(decision.stream)
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


def violations(live: StateRecords) -> ListingRows:
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


def _texts(kinds: Iterable[object]) -> tuple[str, ...]:
    return tuple(map(str, kinds))


_STATUSES = dict.fromkeys(
    status_of(liveness, order, guard)
    for liveness in Liveness
    for order in AdministrativeState
    for guard in Guard
)

LISTINGS: Mapping[str, Listing] = {
    "nodes": Listing(
        nodes,
        (
            "node",
            "location",
            "status",
            "liveness",
            "administrative",
            "guard",
            "restart",
            "replicas",
            "leaders",
            "coming",
            "going",
            "weight",
            "capacity",
            "host",
            "tags",
            "since",
            "incarnation",
        ),
        {
            "status": _texts(_STATUSES),
            "liveness": _texts(Liveness),
            "administrative": _texts(AdministrativeState),
            "guard": _texts(Guard),
            "restart": ("none", "pending", "refused"),
        },
    ),
    "locations": Listing(
        locations, ("location", "nodes", "up", "replicas", "weight", "per_weight"), {}
    ),
    "streams": Listing(
        streams,
        (
            "stream",
            "health",
            "outcome",
            "shards",
            "rf",
            "strategy",
            "missing",
            "missing_when_decided",
            "shard_health",
            "sequence",
            "reasons",
        ),
        {"health": _texts(Health), "outcome": _texts(Outcome)},
    ),
    "policies": Listing(policies, ("policy", "streams", "violations", "named"), {}),
    "violations": Listing(
        violations,
        (
            "shard",
            "rule",
            "strength",
            "domain",
            "count",
            "limit",
            "class",
            "code",
            "reason",
            "since",
        ),
        {
            "strength": ("required", "preferred"),
            "class": _texts(ViolationClass),
            "code": _texts(Code),
        },
    ),
}
"""Every listing by the name of its command."""


def _restart_state(view: NodeView) -> str:
    """Return whether another life of the node's process waits for its turn, or is refused."""
    if view.lives.refused is not None:
        return "refused"
    return "none" if view.lives.pending is None else "pending"


def _count_moving(live: StateRecords) -> tuple[Counter[str], Counter[str]]:
    """Replicas on their way to each node, and from it."""
    moves = live.open_moves
    coming = Counter(move.add for move in moves if move.add is not None)
    going = Counter(move.remove for move in moves if move.remove is not None)
    return coming, going


def policy_text(decision: Decision) -> str:
    """The policy of a stream on one line: the strategy, and whatever is said besides."""
    text, policy = decision.spec.placement_policies, decision.spec.policy
    if text is not None:
        return f"placement_policies '{text}'"
    rest = {name: value for name, value in policy.items() if name != "strategy"}
    strategy = str(policy.get("strategy", decision.strategy))
    return f"{strategy} {flow_text(rest)}" if rest else strategy


def _share(replicas: int, weight: float) -> float | None:
    return round(replicas / weight, 2) if weight else None
