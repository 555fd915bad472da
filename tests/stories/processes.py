"""Processes of a story's nodes: they end and come back, or a second one comes with a node's id.

What they say goes through a liveness table of the default timers, restored from what is published
of the nodes, as after a start of the application; its verdicts are the story's events.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from placement.liveness import (
    Clock,
    Heartbeat,
    Heartbeats,
    LastHeartbeat,
    LivenessTable,
    PartitionLog,
    Registration,
    Statement,
    StatementBody,
    Tick,
    Timers,
)
from placement.model import NodeAttributes, NodeChanged, NodeView
from streaming.codec import event_of_verdict

TIMERS = Timers(suspect_after_ms=60_000, dead_after_ms=300_000)
BEAT_MS = 1_000

# How the process of a node ends and another begins; `double`: it does not end, and neither do
# those that are there; `live`: nothing begins, those that are there go on.
WAYS = ("kill", "stop", "name", "double", "live")


@dataclass(frozen=True, slots=True)
class Restart:
    """One restart, of nodes that are published: `away_ms` between two lives of a node, after which
    there are `lasts_ms` of the later; `location`: where that stands, if it is another place."""

    way: str
    away_ms: int
    lasts_ms: int
    location: str | None = None


def events_of(
    views: Sequence[NodeView], restart: Restart, now: int, incarnation: str
) -> tuple[list[NodeChanged], int]:
    """The verdicts as events, and the time at their end."""
    end = now + restart.away_ms + restart.lasts_ms
    table = LivenessTable(TIMERS)
    table.restore(views, {0: Clock(0, now)})
    said = [word for view in views for word in _said(view, restart, (now, end), incarnation)]
    verdicts = table.apply(_log(said, now, end))
    return [event_of_verdict(verdict) for verdict in verdicts if verdict.refused is None], end


# When, by which life of which node, with which sequence, and what, besides that it lives.
_Word = tuple[int, str, str, int, StatementBody | None]


def _said(
    view: NodeView, restart: Restart, times: tuple[int, int], incarnation: str
) -> Iterator[_Word]:
    now, end = times
    start, way = now + restart.away_ms, restart.way
    node_id, holder, waits = view.node_id, view.incarnation, view.lives.pending
    going_on = [(holder, view.sequence)] if way in ("double", "live") else []
    if way in ("double", "live") and waits is not None:
        going_on.append((waits.incarnation, waits.sequence))
    for life, sequence in going_on:
        for number, at in enumerate(range(now + 300, end, BEAT_MS)):
            yield at, node_id, life, sequence + number + 1, None
    if way == "stop":
        yield now + 10, node_id, holder, view.sequence + 1, LastHeartbeat()
    if way == "live":
        return
    replaces = holder if way == "name" else None
    registration = Registration(_about(view, restart.location), replaces=replaces)
    yield start, node_id, incarnation, 1, registration
    for number, at in enumerate(range(start + 200, end, BEAT_MS)):
        yield at, node_id, incarnation, number + 2, None


def _about(view: NodeView, location: str | None) -> NodeAttributes:
    """What the node says of itself once more: also what is not in force."""
    about = view.attributes
    if view.pending is not None:
        about = replace(about, location=view.pending.location, tags=view.pending.tags)
    elif view.claimed is not None:
        about = replace(about, location=view.claimed)
    return about if location is None else replace(about, location=location)


def _log(said: Iterable[_Word], now: int, end: int) -> PartitionLog:
    ticks = [(at, "", "", 0, None) for at in range(now + 500, end + 1, 1_000)]
    beats, statements, judged = [], [], []
    for offset, word in enumerate(sorted([*said, *ticks], key=lambda word: word[:4])):
        at, node_id, incarnation, sequence, told = word
        place = (offset, at - now, at)
        who = (node_id, incarnation, sequence)
        if not node_id:
            judged.append(Tick(*place, 1))
        elif told is None:
            beats.append(Heartbeat(*place, *who))
        else:
            statements.append(Statement(*place, *who, told, "h"))
    return PartitionLog(0, now, end, end - now, Heartbeats.of(beats), statements, judged)
