"""Computes the answer of `placer status` from the topics of a running reconciler."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from placement.diagnosis import count_by_rung, is_stuck
from placement.model import (
    AdministrativeState,
    Code,
    Guard,
    Move,
    NodeView,
    Reason,
    Violation,
    ViolationClass,
)
from placement.planning import PlanPhase
from schemas.cluster import Cluster
from streaming.codec import reason_body
from streaming.live.published_state import StateRecords
from streaming.offline import (
    CheckOptions,
    CheckResult,
    Document,
    PlanOptions,
    check_cluster,
    health_body,
    plan_moves,
)
from streaming.presence import ProcessSeen

# A person looks at the oldest moves; the count says how many there are.
MOVES_SHOWN_MAX = 20
# What was said longer ago either still stands, and is shown as what it is, or is over.
ALERTS_WITHIN_MS = 3_600_000
ALERTS_SHOWN_MAX = 3
# A plan of so many replicas takes about a second.
PLANNED_REPLICAS_MAX = 10_000
# Severities of alerts that nobody has to act on; answers to requests were alerts once.
_NO_NEWS = ("info",)
_ANSWERS = "REQUEST"


@dataclass(frozen=True, slots=True)
class RebalancePreview:
    """Counts the moves of a rebalance as of now, and those that copy a replica."""

    moves: int
    copies: int


def preview_rebalance(live: StateRecords) -> RebalancePreview | None:
    """Preview a rebalance as of now. None while it would wait for repairs and open moves, and for
    fleets on which planning takes longer than a person waits."""
    replicas = sum(len(each.replicas) for each in live.assignments)
    waits = not all(map(is_stuck, live.violations))
    if waits or live.open_moves or replicas > PLANNED_REPLICAS_MAX:
        return None
    found = plan_moves(Document(live.cluster()), PlanOptions(phase=PlanPhase.REBALANCE))
    return RebalancePreview(len(found.plan.moves), found.impact.copies)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """What the records say of a cell without a diagnosis of its shards, so that it costs the same
    for any number of them. `at_ms`: when it was read, by this machine's clock; `alerts`: those of
    note, the newest first; `awaited`: what decisions say of shards that have not been observed yet;
    `processes`: those of the cell that were there, the active one first."""

    at_ms: int
    nodes: tuple[NodeView, ...]
    marker: Mapping[str, Any]
    outcomes: Mapping[str, int]
    moves: tuple[Move, ...]
    violations: tuple[Violation, ...]
    holds: Mapping[str, Mapping[str, Any]]
    requests: Mapping[str, Mapping[str, Any]]
    alerts: Sequence[Mapping[str, Any]] = ()
    awaited: Sequence[Reason] = ()
    processes: Sequence[ProcessSeen] = ()

    @property
    def silence_seconds(self) -> float:
        """Return the seconds since the last commit, by this machine's clock."""
        return max(self.at_ms - int(self.marker["now"]), 0) / 1000

    @property
    def conditions(self) -> dict[str, str]:
        """Describe the condition of each node: `draining (suspect)`."""
        return {view.node_id: condition_text(view) for view in self.nodes}

    @property
    def hold_window_ms(self) -> int | None:
        """Return the time from the last return to the end of a hold. None where the marker does not
        have it."""
        window = (self.marker.get("configuration") or {}).get("hold_window_ms")
        return None if window is None else int(window)

    def body(self) -> dict[str, Any]:
        """The summary as `status` and the HTTP interface give it."""
        nodes = Counter(str(view.status) for view in self.nodes)
        kinds = Counter(str(each.violation_class) for each in self.violations)
        return {
            "cell": self.marker["cell"],
            "writer_epoch": self.marker["writer_epoch"],
            "last_commit": {
                "sequence": self.marker["sequence"],
                "at": self.marker["now"],
                "seconds_ago": self.silence_seconds,
                "digest": self.marker["digest"],
            },
            "processes": [asdict(each) for each in self.processes],
            "ignored": dict(self.marker.get("ignored", {})),
            "nodes": dict(sorted(nodes.items())),
            "conditions": dict(sorted(Counter(self.conditions.values()).items())),
            "restarts": self._restarts(),
            "relocations": {
                view.node_id: view.pending.location for view in self.nodes if view.pending
            },
            "streams": dict(sorted(self.outcomes.items())),
            "awaited": [reason_body(each) for each in self.awaited],
            "violations": dict(sorted(kinds.items())),
            "holds": {name: self._hold_body(hold) for name, hold in self.holds.items()},
            "requests": dict(self.requests),
            "moves": {
                "open": len(self.moves),
                "by_cause": dict(Counter(str(move.cause) for move in self.moves)),
                "waiting": self.waiting,
                "oldest": [self._move(move) for move in self.moves[:MOVES_SHOWN_MAX]],
            },
            "alerts": list(self.alerts),
        }

    @property
    def waiting(self) -> list[dict[str, Any]]:
        """List the reasons for which needed moves wait: code, how many, and one of their
        messages."""
        waits = [v for v in self.violations if v.violation_class is ViolationClass.DEFERRED]
        counts = Counter(str(each.reason.code) for each in waits)
        said = {str(each.reason.code): each.reason.message for each in reversed(waits)}
        return [
            {"code": code, "count": count, "message": said[code]}
            for code, count in counts.most_common()
        ]

    def _restarts(self) -> list[dict[str, Any]]:
        """Nodes of which a later life waits for its turn, or is refused."""
        found: list[dict[str, Any]] = []
        for view in self.nodes:
            pending, refused = view.lives.pending, view.lives.refused
            if pending is not None:
                life = {"incarnation": pending.incarnation, "since": pending.since}
                grace = {"grace_ms": pending.grace_ms, "reason": None}
                found.append({"node": view.node_id, "state": "pending", **life, **grace})
            if refused is not None:
                life = {"incarnation": refused.incarnation, "since": refused.since}
                why = {"grace_ms": None, "reason": refused.reason.message}
                found.append({"node": view.node_id, "state": "refused", **life, **why})
        return found

    def _hold_body(self, hold: Mapping[str, Any]) -> dict[str, Any]:
        window = self.hold_window_ms
        # It keeps when the first of its nodes may have gone: a window before it began.
        return {**hold, "began_at": None if window is None else hold["since"] + window}

    def _move(self, move: Move) -> dict[str, Any]:
        return {
            "move_id": move.move_id,
            "stream": move.stream,
            "shard": move.shard,
            "kind": move.kind,
            "remove": move.remove,
            "add": move.add,
            "leader": move.leader,
            "state": move.state,
            "cause": move.cause,
            "seconds": max(self.at_ms - move.issued_at, 0) / 1000,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStatus(CellSummary):
    """The state at one moment, diagnosed. `loads`, `leaders`: replicas by node as they stand, and
    those that lead; `lag`: records of each input topic that no commit has taken in."""

    cluster: Cluster
    check: CheckResult
    loads: Mapping[str, int]
    leaders: Mapping[str, int]
    lag: Mapping[str, int]
    balance: RebalancePreview | None = None

    @property
    def is_healthy(self) -> bool:
        """Return whether no shard is worse than degraded, nothing is held, and every stream could
        be judged."""
        fine = ("healthy", "rebalancing", "degraded")
        return self.check.diagnosis.worst in fine and not (self.holds or self.unjudged)

    @property
    def unjudged(self) -> dict[str, str]:
        """Return the streams in force whose policy this command cannot read, with the reason.

        A plug-in that is not installed here, or a rule of a newer version.
        """
        return {str(each["stream"]): each["reasons"][0]["message"] for each in self.check.refused}

    @property
    def rungs(self) -> dict[str, dict[str, int]]:
        """Count shards and streams by health, the worst first."""
        found = self.check.diagnosis
        shards = (health for each in found.shards.values() for health in each)
        return {"streams": count_by_rung(found.streams.values()), "shards": count_by_rung(shards)}

    def body(self) -> dict[str, Any]:
        """The answer of `status`."""
        return CellSummary.body(self) | {
            "lag": dict(self.lag),
            "health": health_body(self.check.diagnosis) | {"counts": self.rungs},
            "unjudged": self.unjudged,
            "balance": None if self.balance is None else asdict(self.balance),
        }


def read_status(
    live: StateRecords,
    at_ms: int,
    lag: Mapping[str, int],
    alerts: Iterable[Mapping[str, Any]] = (),
    balance: RebalancePreview | None = None,
    processes: Sequence[ProcessSeen] = (),
) -> CellStatus:
    """Combine the live state, the input lag, the latest alerts (oldest first), the preview of a
    rebalance and the processes of the cell. Raises StreamingError where there is none."""
    cluster = live.cluster()
    loads, leaders = live.count_replicas()
    return CellStatus(
        **_summary_fields(live, at_ms, alerts, processes),
        cluster=cluster,
        check=check_cluster(Document(cluster), CheckOptions()),
        loads=loads,
        leaders=leaders,
        lag=lag,
        balance=balance,
    )


def summarize_cell(
    live: StateRecords,
    at_ms: int,
    alerts: Iterable[Mapping[str, Any]] = (),
    processes: Sequence[ProcessSeen] = (),
) -> CellSummary:
    """Combine what the records say of the cell, the latest alerts (oldest first) and its processes.
    Raises StreamingError where no reconciler has committed anything."""
    return CellSummary(**_summary_fields(live, at_ms, alerts, processes))


def _summary_fields(
    live: StateRecords,
    at_ms: int,
    alerts: Iterable[Mapping[str, Any]],
    processes: Sequence[ProcessSeen],
) -> dict[str, Any]:
    decisions = live.decisions
    return {
        "at_ms": at_ms,
        "nodes": tuple(live.nodes),
        "marker": live.marker,
        "outcomes": Counter(str(decision.outcome) for decision in decisions),
        "moves": tuple(live.open_moves),
        "violations": tuple(live.violations),
        "holds": live.memory("hold"),
        "requests": live.memory("request"),
        "alerts": _select_alerts(alerts, at_ms),
        "processes": processes,
        "awaited": [
            reason
            for decision in decisions
            for reason in decision.reasons
            if reason.code is Code.REPLICAS_AWAITED
        ],
    }


def condition_text(view: NodeView) -> str:
    """The node's status, and in brackets what it hides: an ordered state does not say whether the
    node lives."""
    parts: list[str] = [view.liveness]
    if view.administrative is not AdministrativeState.NONE:
        parts.append(view.administrative)
    if view.guard is not Guard.NONE:
        parts.append(view.guard)
    rest = [part for part in parts if part not in (view.status, "up")]
    return f"{view.status} ({', '.join(rest)})" if rest else view.status


def _select_alerts(alerts: Iterable[Mapping[str, Any]], at_ms: int) -> list[Mapping[str, Any]]:
    """Select the alerts that a person should see, the newest first; a repeated alert is shown
    once."""
    latest: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for each in alerts:
        if each.get("severity") in _NO_NEWS or each.get("kind") == _ANSWERS:
            continue
        if at_ms - int(each.get("at", 0)) <= ALERTS_WITHIN_MS:
            key = each.get("kind"), each.get("subject")
            latest.pop(key, None)
            latest[key] = each
    return list(latest.values())[::-1][:ALERTS_SHOWN_MAX]
