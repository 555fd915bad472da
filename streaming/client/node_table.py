"""Holds what a client has to know of nodes: where they stand, and whether they live.

`placement_view.py` fills it from `topology.v1`, and asks it for the replica to read from. A word
for liveness that this version does not know is taken as `suspect`: such a node serves where no
other does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from placement.model import Liveness, Location, NodeAttributes, Reason, parse_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_LIVENESS = {str(each): each for each in Liveness}


@dataclass(frozen=True, slots=True)
class _Node:
    """A node as its last record has it."""

    attributes: NodeAttributes
    location: Location
    liveness: Liveness
    status: str


class KnownNodes:
    """Some nodes by index, as `placement.replica_selector` reads them."""

    def __init__(self, nodes: Mapping[str, _Node]) -> None:
        self.ids = [*nodes]
        self.attributes = [node.attributes for node in nodes.values()]
        self.locations = [node.location for node in nodes.values()]
        self.liveness = [node.liveness for node in nodes.values()]
        self._statuses = [node.status for node in nodes.values()]

    def status(self, node: int) -> str:
        """Name a node's condition in one word."""
        return self._statuses[node]


class NodeTable:
    """Knows the nodes that `topology.v1` has. Not safe for threads."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def put(self, node_id: str, body: Mapping[str, Any]) -> None:
        """Take in the record of a node. Raises KeyError or ValueError for one that cannot be
        read."""
        location = parse_location(body.get("location") or "")
        if isinstance(location, Reason):
            raise ValueError(location.message)
        attributes = NodeAttributes(
            location=str(location),
            tags=tuple(sorted((body.get("tags") or {}).items())),
            host=body.get("host"),
            leader=body.get("leader", True),
        )
        liveness = _LIVENESS.get(body["liveness"], Liveness.SUSPECT)
        status = body.get("status", body["liveness"])
        self._nodes[node_id] = _Node(attributes, location, liveness, status)

    def drop(self, node_id: str) -> None:
        """Forget a node; nothing where it is not known."""
        self._nodes.pop(node_id, None)

    def host(self, node_id: str) -> str | None:
        """Return the host of a node; None where none is known."""
        node = self._nodes.get(node_id)
        return None if node is None else node.attributes.host

    def select(self, ids: Iterable[str]) -> KnownNodes:
        """Return those of the nodes that are known, in this order."""
        return KnownNodes({each: self._nodes[each] for each in ids if each in self._nodes})
