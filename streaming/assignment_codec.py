"""Assignments as the values of records, and back.

They are nearly all there is in a large state, and nearly all of them are at rest: no move is under
way, and there are no roles. Those have a short way of their own; the bytes are the same.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import orjson

from placement.model import Assignment
from streaming.fields import fields_of


def value_of(assignment: Assignment) -> bytes:
    """The body as JSON: its fields that are set."""
    stream, shard, epoch, replicas, adding, removing, move_id, at, roles = assignment
    if adding or removing or move_id is not None or roles is not None:
        return orjson.dumps(fields_of(assignment))
    nodes = ",".join(map(_quoted, replicas))
    return (
        f'{{"stream":{_quoted(stream)},"shard":{shard},"epoch":{epoch},"replicas":[{nodes}],'
        f'"adding":[],"removing":[],"decided_at":{at}}}'
    ).encode()


# So many nodes of a large fleet and streams of a batch are written again and again.
@lru_cache(maxsize=65_536)
def _quoted(name: str) -> str:
    return orjson.dumps(name).decode()


def parse(body: Mapping[str, Any]) -> Assignment:
    """Read what `value_of` wrote."""
    lists = {name: tuple(body[name]) for name in ("replicas", "adding", "removing")}
    if "roles" in body:
        lists["roles"] = tuple(body["roles"])
    return Assignment(**{"move_id": None, **body, **lists})
