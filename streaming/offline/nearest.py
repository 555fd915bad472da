"""`placer nearest`: chooses the replica that each client of a cluster file should read from."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.assignments import EMPTY
from placement.model import UNLOCATED, Location, parse_location
from placement.replica_selector import (
    Choice,
    Client,
    Freshness,
    is_own_node,
    select_exact_rack,
    select_nearest,
)
from placement.topology import Topology
from schemas.cluster import ClusterClient, ClusterStream, RefusedStream, ReplicaState
from streaming.locations import LocationMap, cloud_location
from streaming.offline.documents import Document
from streaming.offline.place import PlaceResult, place_streams


@dataclass(frozen=True, slots=True)
class NearestResult:
    """A cluster and, for every client, stream and shard, the replica to read from."""

    placed: PlaceResult
    choices: tuple[dict[str, Any], ...]

    @property
    def has_unanswered(self) -> bool:
        """Return whether a client finds no replica of something."""
        return any(choice["replica"] is None for choice in self.choices)

    def body(self) -> dict[str, Any]:
        """The answer of `nearest`."""
        name = self.placed.cluster.name
        return ({} if name is None else {"name": name}) | {"nearest": self.choices}


def choose_nearest(
    document: Document,
    exact: bool,
    known: LocationMap | None = None,
    cloud_form: str = "kubernetes",
) -> NearestResult:
    """Choose for every client of the document; what the document does not place is placed first.

    A client that says no location is resolved as a node is: by the mapping, else by its region and
    zone tags.
    """
    whole = place_streams(document)
    rows: list[dict[str, Any]] = []
    for client in document.cluster.clients:
        who = locate_reader(client, whole.state.topology, known, cloud_form)
        for stream in document.cluster.streams:
            rows += _choices(whole, client, who, stream, exact)
    return NearestResult(whole, tuple(rows))


def choose_replica(
    who: Client,
    replicas: Sequence[int],
    topology: Topology,
    states: Mapping[str, ReplicaState],
    exact: bool = False,
) -> Choice:
    """Choose the replica of one shard that a client should read from. `replicas`: the indices of
    its nodes, the leader's first; `states`: how far replicas are, by node id."""
    rule = select_exact_rack if exact else select_nearest
    return rule(who, replicas, topology, _freshness(states, topology.index))


def locate_reader(
    client: ClusterClient,
    topology: Topology,
    known: LocationMap | None = None,
    cloud_form: str = "kubernetes",
) -> Client:
    """The client as the selector knows it. Without a location it stands where the mapping or its
    tags say, else where its node does."""
    place = client.location or _resolve_location(client, known, cloud_form)
    located = UNLOCATED if place is None else parse_location(place)
    assert isinstance(located, Location)
    who = Client(client.id, located, tuple(sorted(client.tags.items())), client.host)
    own = (n for n in topology.index.values() if is_own_node(who, n, topology))
    node = next(own, None) if place is None else None
    return who if node is None else replace(who, location=topology.locations[node])


def _resolve_location(
    client: ClusterClient, known: LocationMap | None, cloud_form: str
) -> str | None:
    found = None if known is None else known.locate(client.id, client.host)
    return found or cloud_location(client.tags, cloud_form)


def _choices(
    placed: PlaceResult,
    client: ClusterClient,
    who: Client,
    stream: ClusterStream | RefusedStream,
    exact: bool,
) -> Iterator[dict[str, Any]]:
    known = placed.state.streams.get(stream.stream or "")
    if isinstance(stream, RefusedStream) or known is None or not known.shards:
        yield _row(client, stream.stream, None, None, f"{stream.stream} is not placed")
        return
    topology, table = placed.state.topology, placed.state.table
    said = {**placed.cluster.replica_state, **stream.replica_state, **client.replica_state}
    for shard in known.shards:
        replicas = [node for node in table.nodes(shard) if node != EMPTY]
        choice = choose_replica(who, replicas, topology, said, exact)
        node = None if choice.node is None else topology.ids[choice.node]
        yield _row(client, stream.stream, table.number_of(shard), node, choice.reason)


def _row(
    client: ClusterClient, stream: str | None, shard: int | None, replica: str | None, reason: str
) -> dict[str, Any]:
    return {
        "client": client.id,
        "stream": stream,
        "shard": shard,
        "replica": replica,
        "reason": reason,
    }


def _freshness(
    states: Mapping[str, ReplicaState], index: Mapping[str, int]
) -> dict[int, Freshness]:
    """By node index; states of nodes that the file does not have say nothing."""
    return {
        index[node_id]: Freshness(state.offset, state.lag_ms)
        for node_id, state in states.items()
        if node_id in index
    }
