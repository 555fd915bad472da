"""Logs of the nodes topic as lines, `<time> <what>`, and the verdicts they lead to as lines.

Times are milliseconds of broker append time; `suspect_after` is 10 s and `dead_after` 30 s.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from placement.liveness import (
    Heartbeat,
    Heartbeats,
    LastHeartbeat,
    LivenessTable,
    LocalityChange,
    PartitionLog,
    Registration,
    Statement,
    StatementBody,
    Tick,
    Timers,
    Unregistration,
    Verdict,
)
from placement.model import FlapPolicy, Lives, NodeAttributes

TIMERS = Timers(suspect_after_ms=10_000, dead_after_ms=30_000)
# Flapping is a matter of test_flaps.py; with these timers it happens in a short log.
FLAPPING = Timers(10_000, 30_000, FlapPolicy(3, 60_000, 20_000, 50_000))
STATEMENTS = ["registers", "moves", "leaves", "stops"]

Line = tuple[int, str]


def cut(
    lines: Sequence[Line], places: Iterable[int] = (), partition: int = 0
) -> list[PartitionLog]:
    """The log as stretches, cut before the given offsets, as the packing of a batch makes them:
    `elapsed` adds up the gaps within the stretch, none more than `gap_max_ms`."""
    edges = [0, *sorted({place for place in places if 0 < place < len(lines)}), len(lines)]
    stretches = []
    for start, end in pairwise(edges):
        elapsed, records, before = 0, [], lines[start][0]
        for offset in range(start, end):
            at, what = lines[offset]
            elapsed += min(max(at - before, 0), TIMERS.gap_max_ms)
            before = at
            records.append(record(offset, elapsed, at, what))
        kinds: dict[str, Any] = {"beats": Heartbeat, "statements": Statement, "ticks": Tick}
        parts: dict[str, Any] = {
            n: [r for r in records if isinstance(r, kind)] for n, kind in kinds.items()
        }
        parts["beats"] = Heartbeats.of(parts["beats"])
        stretches.append(PartitionLog(partition, lines[start][0], before, elapsed, **parts))
    return stretches


def record(offset: int, elapsed: int, at: int, what: str) -> Heartbeat | Statement | Tick:
    """`tick`, `tick 4` (partitions), `n1.a.7 beats` (node, incarnation, sequence), `n1.a.7
    registers [body] [replaces=a]`, `n1.a.8 stops`: a last heartbeat."""
    if what.startswith("tick"):
        return Tick(offset, elapsed, at, int(what[4:] or 0))
    who, said, *body = what.split()
    node_id, incarnation, sequence = who.split(".")
    if said == "beats":
        return Heartbeat(offset, elapsed, at, node_id, incarnation, int(sequence))
    replaces = next((each[9:] for each in body if each.startswith("replaces=")), None)
    body_hash = body[0] if body else said
    place, life = f"/{body_hash}", (node_id, incarnation, int(sequence))
    bodies: dict[str, StatementBody] = {
        "registers": Registration(NodeAttributes(location=place), replaces=replaces),
        "moves": LocalityChange(place),
        "leaves": Unregistration(),
        "stops": LastHeartbeat(),
    }
    return Statement(offset, elapsed, at, *life, bodies[said], body_hash)


def run(
    lines: Sequence[Line], places: Iterable[int] = (), timers: Timers = TIMERS
) -> list[Verdict]:
    """Verdicts of a log; between two stretches the table goes through its bytes."""
    table, verdicts = LivenessTable(timers), []
    for stretch in cut(lines, places):
        verdicts += table.apply(stretch)
        table = LivenessTable.from_bytes(table.to_bytes(), timers)
    return verdicts


def told(verdicts: Iterable[Verdict]) -> list[str]:
    """`<offset> <node>.<incarnation>.<sequence> <verdict>`, and where the other lives of the node
    have changed `waits=`, `refused=` and `after=` (the earlier ones)."""
    return [
        f"{v.offset} {v.node_id}.{v.incarnation}.{v.sequence} "
        f"{v.refused.code if v.refused else v.liveness}{lives_text(v.lives)}"
        for v in verdicts
    ]


def lives_text(lives: Lives | None) -> str:
    if lives is None:
        return ""
    found = [
        f"waits={lives.pending.incarnation}" if lives.pending else "",
        f"refused={lives.refused.incarnation}" if lives.refused else "",
        f"after={','.join(lives.earlier)}" if lives.earlier else "",
    ]
    return " " + (" ".join(filter(None, found)) or "alone")


def every_second(start: int, end: int, what: str = "tick") -> list[Line]:
    return [(at, what) for at in range(start, end + 1, 1_000)]


def timeline(*parts: Iterable[Line]) -> list[Line]:
    """The parts in one log, in the order of their times."""
    return sorted((line for part in parts for line in part), key=lambda line: line[0])
