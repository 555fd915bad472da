"""Judges all shards by their live copies, and finds pages of them, on columns.

The rungs are those of the diagnosis; which rules are broken the reconciler has published. So a
million shards are judged in some ten milliseconds, and a page of them costs its own rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.diagnosis import Health, quorum_size, shard_health
from placement.model import Liveness, natural_key
from schemas.topics import DECISIONS, MEMORY, MOVES, VIOLATIONS
from streaming.read_model.fold import Fold

# Outcomes of streams that ask for nothing any more, or never did.
_NOT_IN_FORCE = ("rejected", "dropped")
_OPEN_STATES = ("issued", "accepted")

RUNGS: tuple[Health, ...] = tuple(Health)


@dataclass(frozen=True, slots=True)
class ShardQuery:
    """Which shards of a stream are asked for. `health`: the word of a rung; `node`: one that holds
    a replica; `shard`: that one alone; `sort`: `shard`, `epoch` or `decided_at`."""

    health: str | None = None
    node: str | None = None
    shard: int | None = None
    sort: str = "shard"
    descending: bool = False
    start: int = 0
    size: int = 50


@dataclass(frozen=True, slots=True)
class ShardPage:
    """Assignments with the health of their shards. `found`: how many match; `total`: how many the
    stream has."""

    rows: Sequence[Mapping[str, Any]]
    found: int
    total: int


def judge_shards(fold: Fold) -> dict[str, NDArray[np.int8]]:
    """Judge the shards of all streams in force: by stream, in natural order, the place in `RUNGS`
    of each shard."""
    dead = {node_id for node_id, view in fold.view_of.items() if view.liveness in _GONE}
    moving, broken = _open_moves(fold), _broken_shards(fold)
    behind = {
        body["name"]: frozenset(body["body"]["nodes"])
        for body in fold.latest[MEMORY].values()
        if body.get("kind") == "out_of_sync"
    }
    judged = {}
    for name in sorted(fold.latest[DECISIONS], key=natural_key):
        decision = fold.latest[DECISIONS][name]
        if decision["outcome"] in _NOT_IN_FORCE:
            continue
        spec = decision["spec"]
        shards, factor = spec["shards"], spec["replication_factor"]
        live = fold.shards.count_live(name, shards, dead, behind)
        if decision["outcome"] == "waiting" or spec.get("adopt"):
            # What is adopted has not been observed yet; it is not lost.
            live[fold.shards.find_unplaced(name, shards)] = factor
        quorum = quorum_size(spec.get("quorum") or "majority", factor)
        marks = [_mark(each.get(name, ()), shards) for each in (broken, moving)]
        judged[name] = shard_health(live, factor, quorum, marks[0], marks[1])
    return judged


def select_shards(
    fold: Fold, stream: str, judged: NDArray[np.int8], query: ShardQuery
) -> ShardPage:
    """Find a page of a stream's shards. `judged`: of the stream, by `judge_shards`."""
    chosen = np.ones(len(judged), bool)
    if query.health is not None:
        chosen &= judged == RUNGS.index(Health(query.health))
    if query.node is not None:
        here = np.zeros(len(judged), bool)
        on_node = [n for n in fold.shards.shards_on(query.node).get(stream, ()) if n < len(here)]
        here[on_node] = True
        chosen &= here
    numbers = np.flatnonzero(chosen)
    if query.shard is not None:
        numbers = numbers[numbers == query.shard]
    found = len(numbers)
    if query.sort != "shard":
        values = fold.shards.values(stream, query.sort, len(judged))[numbers]
        numbers = numbers[np.argsort(values, kind="stable")]
    if query.descending:
        numbers = numbers[::-1]
    page = numbers[query.start : query.start + query.size].tolist()
    rows = [
        {"stream": stream, "shard": n, "health": str(RUNGS[judged[n]])}
        | (fold.shards.body(stream, n) or {"replicas": [], "adding": [], "removing": []})
        for n in page
    ]
    return ShardPage(rows, found, len(judged))


_GONE = (Liveness.DEAD, Liveness.UNREGISTERED)


def _open_moves(fold: Fold) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for body in fold.latest[MOVES].values():
        if body["state"] in _OPEN_STATES:
            found.setdefault(body["stream"], []).append(body["shard"])
    return found


def _broken_shards(fold: Fold) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for key, body in fold.latest[VIOLATIONS].items():
        stream, _, shard = key.rpartition("/")
        if body["violations"] and shard.isdecimal():
            found.setdefault(stream, []).append(int(shard))
    return found


def _mark(shards: Sequence[int], size: int) -> NDArray[np.bool_]:
    marks = np.zeros(size, bool)
    marks[[n for n in shards if n < size]] = True
    return marks
