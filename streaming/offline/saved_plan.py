"""Keeps a plan in a file for approval and refuses it where the cluster has changed.

The file holds what was asked, the moves, what they rest on, the hash over both, and the lists that
each wave leaves, which `placer kafka apply` carries out.
Cruise Control's second step, in contrast, carries out the approved plan on any cluster.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from placement.model import Cause, Code, MoveKind, Reason
from placement.planning import PlannedMove, StateDifference, Touched, find_differences, impact_hash
from schemas.base import describe
from schemas.cluster import ClusterNode
from streaming.offline.documents import Document
from streaming.offline.plan import PlanOptions, PlanResult, check_what_if, impact_of, move_body
from streaming.offline.reassignment import (
    ReassignmentInvalid,
    parse_reassignment,
    reassignment_json,
)
from streaming.offline.what_if import WhatIf

_VERSION = 1


class SavedPlanInvalid(Exception):
    """A file that is no saved plan; the message says why."""


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """Holds a plan's hypothetical changes, its moves in JSON, and the state that they depend on.

    `waves`: the lists of node ids after each wave, by stream and shard, of the shards that the wave
    changes; None in a file of a version that did not write them.
    """

    hash: str
    what_if: WhatIf
    moves: tuple[PlannedMove, ...]
    bodies: tuple[dict[str, Any], ...]
    touched: Touched
    waves: tuple[Mapping[tuple[str, int], tuple[str, ...]], ...] | None = None


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """Compares a saved plan with a cluster. The plan is current where nothing has changed."""

    document: Document
    saved: SavedPlan
    changes: tuple[StateDifference, ...]

    @property
    def is_current(self) -> bool:
        """Return whether what the moves rest on is as it was."""
        return not self.changes

    def body(self) -> dict[str, Any]:
        """The answer of `plan --verify`."""
        name = self.document.cluster.name
        body: dict[str, Any] = {} if name is None else {"name": name}
        body["stands"] = self.is_current
        body["hash"] = self.saved.hash
        body["changes"] = [
            {each.name: getattr(change, each.name) for each in fields(change)}
            for change in self.changes
        ]
        body["moves"] = list(self.saved.bodies) if self.is_current else []
        return body


def saved_plan_text(planned: PlanResult, wanted: PlanOptions) -> str:
    """The text of the file."""
    what_if = wanted.what_if
    asked = {
        "lose": what_if.lose,
        "drain": what_if.drain,
        "add": [node.model_dump(mode="json", exclude_defaults=True) for node in what_if.add],
        "rf": what_if.factors,
        "assignments": reassignment_json(what_if.assignments) if what_if.assignments else None,
    }
    found = planned.impact
    value = {
        "version": _VERSION,
        "hash": found.hash,
        "asked": asked,
        "moves": [move_body(move) for move in planned.plan.moves],
        "touched": {each.name: getattr(found.touched, each.name) for each in fields(Touched)},
        "waves": [_wave_body(each) for each in planned.wave_lists()],
    }
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode() + "\n"


def load_plan(file: str) -> SavedPlan:
    """Read a saved plan. Raises OSError and SavedPlanInvalid."""
    try:
        value = orjson.loads(Path(file).read_bytes())
    except ValueError as error:
        raise SavedPlanInvalid(f"not JSON: {error}") from error
    try:
        if value["version"] != _VERSION:
            raise SavedPlanInvalid(f"version {value['version']} of saved plans is not known")
        saved = SavedPlan(
            hash=value["hash"],
            what_if=_what_if(value["asked"]),
            moves=tuple(map(_move, value["moves"])),
            bodies=tuple(value["moves"]),
            touched=Touched(**{each.name: value["touched"][each.name] for each in fields(Touched)}),
            waves=_waves(value["waves"]) if "waves" in value else None,
        )
        found = impact_hash(saved.moves, saved.touched)
    except (KeyError, TypeError, AttributeError) as error:
        raise SavedPlanInvalid("not a plan that --save has written") from error
    except ValidationError as error:
        raise SavedPlanInvalid(describe(error, value)[1]) from error
    except (ValueError, ReassignmentInvalid) as error:
        raise SavedPlanInvalid(f"not a plan that --save has written: {error}") from error
    if found != saved.hash:
        raise SavedPlanInvalid(f"its moves have the hash {found}, it says {saved.hash}")
    _refuse_other_waves(saved)
    return saved


def verify_plan(document: Document, saved: SavedPlan) -> VerifyResult:
    """Compare a saved plan with a document. Raises NoMatchingNode where an option of the plan names
    a domain, tag or node that has no node any more."""
    cluster, check = check_what_if(document, saved.what_if)
    now = impact_of(check, cluster, saved.moves).touched
    return VerifyResult(document, saved, find_differences(saved.touched, now))


def _wave_body(lists: Mapping[tuple[str, int], Sequence[str]]) -> list[dict[str, Any]]:
    return [
        {"stream": stream, "shard": shard, "replicas": nodes}
        for (stream, shard), nodes in lists.items()
    ]


def _waves(told: Sequence[Any]) -> tuple[dict[tuple[str, int], tuple[str, ...]], ...]:
    return tuple(
        {(row["stream"], row["shard"]): tuple(row["replicas"]) for row in wave} for wave in told
    )


def _refuse_other_waves(saved: SavedPlan) -> None:
    """Raise SavedPlanInvalid where the last lists of a shard differ from what its moves leave.

    The hash covers the moves.
    """
    if saved.waves is None:
        return
    held: dict[tuple[str, int], Counter[str]] = {}
    for move in saved.moves:
        before = saved.touched.shards[f"{move.stream}/{move.shard}"]["replicas"]
        nodes = held.setdefault((move.stream, move.shard), Counter(before))
        nodes.update([move.add] if move.add else [])
        nodes.subtract([move.remove] if move.remove else [])
    last = {key: nodes for wave in saved.waves for key, nodes in wave.items()}
    for stream, shard in sorted(held.keys() | last.keys()):
        wanted, listed = held.get((stream, shard)), last.get((stream, shard))
        if wanted is None or listed is None or +wanted != Counter(listed):
            raise SavedPlanInvalid(f"its waves do not do what its moves do to {stream}/{shard}")


def _what_if(asked: Mapping[str, Any]) -> WhatIf:
    given = asked["assignments"]
    return WhatIf(
        tuple(asked["lose"]),
        tuple(asked["drain"]),
        tuple(ClusterNode.model_validate_json(orjson.dumps(node)) for node in asked["add"]),
        tuple((name, int(factor)) for name, factor in asked["rf"]),
        {} if given is None else parse_reassignment(given),
    )


def _move(body: Mapping[str, Any]) -> PlannedMove:
    reason = Reason(Code(body["reason"]["code"]), body["reason"]["message"])
    return PlannedMove(
        body["stream"],
        body["shard"],
        MoveKind(body["kind"]),
        body["remove"],
        body["add"],
        body.get("leader"),
        Cause(body["cause"]),
        reason,
        body.get("bytes"),
    )
