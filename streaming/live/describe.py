"""Collects all that is known of one node, stream or shard, for `placer describe`.

Plain values, as `--output json` shows them; `streaming.cli.render.describe` makes screens of them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from placement.diagnosis import count_by_rung, is_stuck
from placement.model import (
    Assignment,
    Decision,
    Move,
    NodeView,
    Violation,
    ViolationClass,
    natural_key,
)
from schemas.cluster import Cluster, ClusterStream
from schemas.spelling import did_you_mean
from schemas.topics import DECISIONS, TOPOLOGY
from streaming import codec
from streaming.codec import fields_of
from streaming.live.cell_status import condition_text
from streaming.live.explain import NotInLiveState
from streaming.live.listings import policy_text
from streaming.live.published_state import StateRecords
from streaming.offline import CheckOptions, CheckResult, Document, check_cluster

_UNLOCATED = "(unlocated)"
# Lives of the node's process besides the one in force, as the record has them.
_LIVES = ("pending_life", "refused_life", "earlier_lives")


def describe_node(live: StateRecords, name: str) -> dict[str, Any]:
    """A node: its place, condition and lives; what it holds, what comes and goes, what is broken of
    it. Raises NotInLiveState."""
    views = {view.node_id: view for view in live.nodes}
    view = views.get(name) or _copies_missing("node", name, views)
    attributes, record = view.attributes, live.latest[TOPOLOGY][name]
    few = live.select_node(name)
    shards, moves = few.assignments, live.open_moves
    return {
        "node": name,
        "location": attributes.location or None,
        "location_source": view.source,
        "claimed_location": view.claimed,
        "pending_location": record.get("pending"),
        "quarantine": record.get("quarantine"),
        "host": attributes.host,
        "tags": dict(attributes.tags),
        "weight": attributes.weight,
        "capacity": attributes.capacity,
        "may_lead": attributes.leader,
        "tokens": attributes.tokens,
        "status": view.status,
        "condition": condition_text(view),
        "liveness": view.liveness,
        "since": view.since,
        "transitions": [asdict(each) for each in view.transitions],
        "hold_down": None if view.hold_down is None else asdict(view.hold_down),
        "incarnation": view.incarnation,
        "sequence": view.sequence,
        **{each: record.get(each) for each in _LIVES},
        "orders": _orders(live, view),
        "holds": _holds(live, view),
        "replicas": len(shards),
        "leaders": sum(each.replicas[0] == name for each in shards),
        "by_stream": _group_by_stream(shards, name),
        "moves_in": [_move(move) for move in moves if move.add == name],
        "moves_out": [_move(move) for move in moves if move.remove == name],
        "violations": _violations(few.violations),
        "critical_shards": _critical(few, name),
    }


def describe_stream(live: StateRecords, name: str) -> dict[str, Any]:
    """A stream: what it asks for, the answer to it, how its shards are and where they stand. Raises
    NotInLiveState."""
    decision = _decision(live, name)
    live = live.select_stream(name)
    shards = [each for each in live.assignments if each.stream == name]
    cluster = live.cluster()
    check = _diagnose(cluster)
    health = check.diagnosis.shards.get(name, ())
    broken = [v for v in live.violations if v.stream == name]
    requested = decision.requested
    return {
        "stream": name,
        "outcome": decision.outcome,
        "health": check.diagnosis.streams.get(name),
        "spec": codec.spec_body(decision.spec),
        "policy": policy_text(decision),
        "requested": None if requested is None else fields_of(requested),
        "strategy": decision.strategy,
        "sequence": decision.sequence,
        "revision": decision.revision,
        "decided_at": decision.decided_at,
        "reasons": [codec.reason_body(each) for each in decision.reasons],
        "warnings": [codec.reason_body(each) for each in decision.warnings],
        "shard_health": count_by_rung(health),
        "quorum": _quorum(check),
        "missing": check.missing.get(name),
        "nodes": len({node for each in shards for node in each.replicas}),
        "replicas": sum(len(each.replicas) for each in shards),
        "spread": _spread(live.nodes, shards, cluster.levels),
        "moves": [_move(move) for move in live.open_moves if move.stream == name],
        "violation_classes": dict(Counter(str(v.violation_class) for v in broken)),
        "violations": _violations(broken),
    }


def describe_shard(live: StateRecords, stream: str, shard: int) -> dict[str, Any]:
    """A shard: its replicas and their nodes, its quorum, its move, what is broken, and what happens
    next. Raises NotInLiveState."""
    decision = _decision(live, stream)
    live = live.select_stream(stream)
    found = next((s for s in live.assignments if (s.stream, s.shard) == (stream, shard)), None)
    if found is None:
        many = decision.spec.shards
        placed = f"has {many} shards, counted from 0" if shard >= many else "is not placed"
        raise NotInLiveState(f"there is no shard {stream}/{shard}: stream '{stream}' {placed}")
    check = _diagnose(live.cluster())
    health, copies = check.diagnosis.shards.get(stream, ()), check.diagnosis.copies
    move = next((m for m in live.open_moves if (m.stream, m.shard) == (stream, shard)), None)
    broken = [v for v in live.violations if (v.stream, v.shard) == (stream, shard)]
    views = {view.node_id: view for view in live.nodes}
    known = shard < len(health)
    return {
        "stream": stream,
        "shard": shard,
        "epoch": found.epoch,
        "decided_at": found.decided_at,
        "health": health[shard] if known else None,
        "live": int(copies[0].live[shard]) if known else None,
        "quorum": copies[0].quorum if known else None,
        "replication_factor": decision.spec.replication_factor,
        "replicas": [
            _replica(found, slot, node, views.get(node)) for slot, node in enumerate(found.replicas)
        ],
        "adding": list(found.adding),
        "removing": list(found.removing),
        "move": None if move is None else _move(move) | {"deadline": move.deadline},
        "violations": _violations(broken),
        "next": next_steps(move, broken),
    }


def _decision(live: StateRecords, name: str) -> Decision:
    found = live.select_stream(name).decisions
    return found[0] if found else _copies_missing("stream", name, live.latest[DECISIONS])


def _copies_missing(kind: str, name: str, known: Iterable[str]) -> Any:
    hint = did_you_mean(name, [*known]) or ";"
    raise NotInLiveState(f"there is no {kind} '{name}'{hint} see: placer {kind}s")


def _diagnose(cluster: Cluster) -> CheckResult:
    return check_cluster(Document(cluster), CheckOptions())


def _critical(live: StateRecords, name: str) -> int:
    """Shards that lose their quorum if the node is lost alone. `live`: only shards on the node,
    which are numbered anew for it: the others do not matter, nor do nodes that hold none of
    these."""
    holders = {node for each in live.assignments for node in each.replicas}
    cluster = live.select_nodes(holders).cluster()
    number: dict[tuple[str, int], int] = {}
    sizes: Counter[str] = Counter()
    for each in sorted(live.assignments, key=lambda each: each.shard):
        number[each.stream, each.shard] = sizes[each.stream]
        sizes[each.stream] += 1
    here = {"shard_tokens": None, "dimension": None, "ranges": None}
    streams = tuple(
        each.model_copy(update=here | {"shards": sizes[each.stream]})
        for each in cluster.streams
        if isinstance(each, ClusterStream)
    )
    moves = tuple(
        each.model_copy(update={"shard": number[each.stream, each.shard]})
        for each in cluster.moves
        if (each.stream, each.shard) in number
    )
    critical = _diagnose(replace(cluster, streams=streams, moves=moves)).diagnosis.critical
    return sum(each.shards for each in critical if (each.level, each.domain) == ("node", name))


def _quorum(check: CheckResult) -> int | None:
    return check.diagnosis.copies[0].quorum if check.diagnosis.copies else None


def _group_by_stream(shards: Sequence[Assignment], name: str) -> list[dict[str, Any]]:
    streams: dict[str, list[Assignment]] = {}
    for each in shards:
        streams.setdefault(each.stream, []).append(each)
    return [
        {
            "stream": stream,
            "replicas": len(lists),
            "leaders": sum(each.replicas[0] == name for each in lists),
            "shards": sorted(each.shard for each in lists),
        }
        for stream, lists in streams.items()
    ]


def _spread(
    nodes: Sequence[NodeView], shards: Sequence[Assignment], levels: Sequence[str]
) -> list[dict[str, Any]]:
    """Replicas and leaders in each domain, level by level from the top; nodes without a location
    are one domain. Domains of living nodes that hold nothing are among them."""
    places = {view.node_id: view.attributes.location for view in nodes}
    usable = [view for view in nodes if view.status == "up"]
    depth = max((place.count("/") for place in places.values()), default=0)
    loads = Counter(node for each in shards for node in each.replicas)
    led = Counter(each.replicas[0] for each in shards if each.replicas)
    found = []
    for level in range(1, depth + 1):
        domains = {_domain(view.attributes.location, level): [0, 0] for view in usable}
        for node in loads:
            counts = domains.setdefault(_domain(places.get(node, ""), level), [0, 0])
            counts[0] += loads[node]
            counts[1] += led[node]
        found.append(
            {
                "level": levels[level - 1] if level <= len(levels) else str(level),
                "domains": [
                    {"domain": domain, "replicas": replicas, "leaders": leaders}
                    for domain, (replicas, leaders) in sorted(
                        domains.items(), key=lambda each: natural_key(each[0])
                    )
                ],
            }
        )
    return found


def _domain(place: str, depth: int) -> str:
    """On a path that is shorter the deepest domain counts, as in rules."""
    return "/".join(place.split("/")[: depth + 1]) or _UNLOCATED


def _orders(live: StateRecords, view: NodeView) -> list[dict[str, Any]]:
    """Operators' orders that reach the node."""
    orders = live.memory("request").values()
    return [dict(each) for each in orders if _covers(str(each["target"]), view)]


def _holds(live: StateRecords, view: NodeView) -> list[dict[str, Any]]:
    """Holds that keep the replicas of the node from being replaced."""
    if view.liveness == "up":
        return []
    holds = live.memory("hold").items()
    return [
        {"name": name, **hold}
        for name, hold in holds
        if hold.get("domain") is None or _covers(str(hold["domain"]), view)
    ]


def _covers(target: str, view: NodeView) -> bool:
    return view.node_id == target or f"{view.attributes.location}/".startswith(f"{target}/")


def _replica(found: Assignment, slot: int, node: str, view: NodeView | None) -> dict[str, Any]:
    return {
        "node": node,
        "leads": slot == 0,
        "role": found.roles[slot] if found.roles else "replica",
        "location": None if view is None else view.attributes.location or None,
        "condition": "unknown" if view is None else condition_text(view),
        "since": None if view is None else view.since,
        "complete": node not in found.adding,
    }


def _move(move: Move) -> dict[str, Any]:
    return {
        "move_id": move.move_id,
        "stream": move.stream,
        "shard": move.shard,
        "kind": move.kind,
        "remove": move.remove,
        "add": move.add,
        "source": move.source,
        "leader": move.leader,
        "state": move.state,
        "cause": move.cause,
        "issued_at": move.issued_at,
        "reason": codec.reason_body(move.reason),
    }


def _violations(found: Iterable[Violation]) -> list[dict[str, Any]]:
    return [
        {
            "stream": each.stream,
            "shard": each.shard,
            "rule": each.rule,
            "strength": each.strength,
            "domain": each.domain,
            "class": each.violation_class,
            "reason": codec.reason_body(each.reason),
            "since": each.since,
        }
        for each in found
    ]


def next_steps(move: Move | None, broken: Sequence[Violation]) -> list[str]:
    """Say in sentences what the reconciler does about the shard, and what it waits for."""
    said = [] if move is None else [_progress_text(move)]
    for each in broken:
        rule = f"'{each.rule}'" + (f" in {each.domain}" if each.domain else "")
        why = each.reason.message
        if is_stuck(each):
            said.append(f"{rule} cannot be repaired until nodes or the stream change: {why}")
        elif each.violation_class is ViolationClass.DEFERRED:
            said.append(f"{rule} waits to be repaired: {why}")
        elif move is None:
            said.append(f"{rule} is repaired by a move that will be issued: {why}")
    return said or ["nothing: every replica is in its place and no rule is broken"]


def _progress_text(move: Move) -> str:
    done = "the assignment changes when its executor reports MoveCompleted"
    if move.kind == "leader":
        what = f"{move.leader} is to lead"
    elif move.add is None:
        what = f"the replica on {move.remove} is to be removed"
    else:
        copied = f"copied to {move.add}" + (f" from {move.source}" if move.source else "")
        what = f"a replica is {copied}" + (
            f", to replace the one on {move.remove}" if move.remove else ""
        )
    waits = "no executor has accepted it yet" if move.state == "issued" else "it is under way"
    return f"{what} ({waits}); {done}"
