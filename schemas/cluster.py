"""The cluster file of the offline tool: nodes and streams in one document.

A fault of the document as a whole (no nodes, a node twice, a malformed location) is one error; a
fault of a single stream, its name being taken included, is kept in that stream's place, so that
the others can be answered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from schemas.acks import MoveKind
from schemas.base import (
    Capacity,
    Host,
    Id,
    Index,
    Items,
    Location,
    Ordinal,
    Tags,
    Text,
    Tokens,
    Weight,
    WireModel,
    describe,
    echo,
)
from schemas.inputs import StreamRequest
from schemas.limits import FIELDS_MAX
from schemas.loads import Amount, Capacities, ResourceName
from schemas.spelling import did_you_mean, find_meant_field

SHARD_BYTES_RESOURCE = "disk_bytes"
"""The resource of which `shard_bytes` are the loads, in files that were written before loads."""

LevelName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.-]{0,63}$")]


class ClusterNodeStatus(StrEnum):
    """Status of a node, as in NodeView, with two more words.

    These are `up`, `suspect`, `dead`, `draining`, `maintenance`, `cordoned`, `held_down`,
    `quarantined`, `registered` and `unregistered`; `down` is another word for `dead`, `fenced` for
    `suspect`.
    """

    REGISTERED = "registered"
    UP = "up"
    SUSPECT = "suspect"
    FENCED = "fenced"
    DEAD = "dead"
    DOWN = "down"
    DRAINING = "draining"
    MAINTENANCE = "maintenance"
    CORDONED = "cordoned"
    HELD_DOWN = "held_down"
    QUARANTINED = "quarantined"
    UNREGISTERED = "unregistered"


class ClusterResource(WireModel):
    """What shards use of their nodes, beside a place: bytes of a disk, requests a second."""

    capacity: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="The share of a node's capacity that may be filled, for example 0.85. Absent: "
        "any load fits.",
    )
    balance: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="How far from the mean utilisation a node may be, as a share of the mean, for "
        "example 0.1. Absent: it does not matter.",
    )
    led: bool = Field(
        default=False, description="Whether only the replica that leads bears the load."
    )


class ClusterNode(WireModel):
    """A node of a cluster file. Without `location` it belongs to the unlocated domain."""

    id: Id = Field(description="The node's id.")
    host: Host | None = Field(
        default=None,
        description="Where the node is reached, as host or host:port; `nearest` finds clients on "
        "it by that.",
    )
    location: Location | None = Field(
        default=None,
        description="Where the node stands, top tier first: `/eu/az1/rack7`. Without it the node "
        "belongs to the unlocated domain.",
    )
    tags: Tags = Field(
        default_factory=dict, description="Labels that policies can ask for, key to value."
    )
    weight: Weight = Field(
        default=1.0, description="Share of load relative to other nodes. No unit."
    )
    capacity: Capacity | None = Field(
        default=None, description="The most replicas the node may hold. Absent: no limit."
    )
    capacities: Capacities | None = Field(
        default=None,
        description="What the node has of each resource, in the resource's unit, for example "
        '`{"disk_bytes": 4000000000000}`. Of one that is not named it takes any amount.',
    )
    leader: bool = Field(default=True, description="Whether replicas on the node may lead.")
    tokens: Tokens | None = Field(
        default=None,
        description="Positions of the node on the ring, for strategies that place by tokens.",
    )
    status: Annotated[ClusterNodeStatus, Field(strict=False)] = Field(
        default=ClusterNodeStatus.UP, description="How the node stands."
    )


class ReplicaState(WireModel):
    """Progress of a node's replicas: end of its log, and time behind the leader."""

    offset: Ordinal | None = Field(
        default=None, description="End of its log: the offset that it would write next."
    )
    lag_ms: Ordinal | None = Field(
        default=None, description="For how long it has been behind the leader, in milliseconds."
    )


ReplicaStates = Annotated[
    dict[Id, ReplicaState], Field(json_schema_extra={"additionalProperties": False})
]
"""By node id."""


class ClusterStream(StreamRequest):
    """A stream of a cluster file: what it asks for and, in `replicas`, what it has.

    `replica_state` outranks the document's, where only one stream's replicas are behind.
    """

    replica_state: ReplicaStates = Field(
        default_factory=dict,
        description="How far the stream's replicas are, by node id; outranks the document's.",
    )
    in_sync: Items[Items[Id]] | None = Field(
        default=None,
        description="For each shard the ids of the nodes whose replicas are complete. Replicas "
        "that are listed and not among them count for no quorum; nothing is copied for them, as "
        "they catch up by themselves. Absent, or no list for a shard: all are.",
    )
    unobserved: Items[Index] | None = Field(
        default=None,
        description="Numbers of the shards whose replicas are not known yet, as those of a stream "
        "that is being adopted: nothing is judged, planned or moved for them.",
    )
    shard_bytes: Items[Ordinal] | None = Field(
        default=None,
        description="The former name of `loads.disk_bytes`: the size of each shard in bytes. It "
        "counts where `resources` has `disk_bytes`.",
    )
    loads: dict[ResourceName, Items[Amount | None]] | None = Field(
        default=None,
        max_length=FIELDS_MAX,
        description="What each shard uses of a node, by resource one number per shard; null where "
        "it is not known: then `expected_load` counts, else the mean of others.",
        json_schema_extra={"additionalProperties": False},
    )

    @field_validator("shard_bytes")
    @classmethod
    def _count_sizes(
        cls, sizes: tuple[int, ...] | None, info: ValidationInfo
    ) -> tuple[int, ...] | None:
        """Sizes stand for shards by their place, so that none may be left out."""
        shards = info.data.get("shards")
        if sizes is not None and shards is not None and len(sizes) != shards:
            raise ValueError(f"a number for each of {shards} shards, {len(sizes)} are given")
        return sizes

    @property
    def known_loads(self) -> Mapping[str, Sequence[int | None]]:
        """Return the loads by resource and shard, None where one is not known."""
        sizes = {} if self.shard_bytes is None else {SHARD_BYTES_RESOURCE: self.shard_bytes}
        return {**sizes, **(self.loads or {})}


class ClusterClient(WireModel):
    """Somebody who reads, for `nearest`. It stands on the node that it names by its `id`, by
    `host`, or by a location that ends with the node; otherwise at `location`, or where `tags` say.
    """

    id: Id = Field(description="The client's id, or that of the node it stands on.")
    host: Host | None = Field(
        default=None, description="The host it runs on, compared with those of the nodes."
    )
    location: Location | None = Field(default=None, description="Where it stands, top tier first.")
    tags: Tags = Field(
        default_factory=dict, description="Where it stands, by tags as those of nodes."
    )
    replica_state: ReplicaStates = Field(
        default_factory=dict,
        description="How far replicas are as this client sees them, by node id; outranks the "
        "stream's.",
    )


class ClusterMove(WireModel):
    """A move in flight. A `replace` without `add` is a replacement that is wanted, with its target
    still open; `leader` names the node that is to lead."""

    stream: Id = Field(description="The stream of the shard.")
    shard: Index = Field(description="Number of the shard, from 0.")
    kind: Annotated[MoveKind, Field(strict=False)] = Field(
        default=MoveKind.REPLACE, description="What is being done."
    )
    remove: Id | None = Field(
        default=None, description="The node that gives up its replica; absent for `add`."
    )
    add: Id | None = Field(
        default=None,
        description="The node that receives a replica; absent for `remove`, and where the target "
        "of a replacement is still open.",
    )
    leader: Id | None = Field(default=None, description="The node that is to lead, for `leader`.")


class ClusterFile(WireModel):
    """One document of a cluster file. `name` is echoed in the answer; `levels` name the tiers."""

    nodes: Items[ClusterNode] = Field(description="All nodes, each id once.")
    streams: Items[ClusterStream] = Field(
        default=(), description="Streams to be placed, or judged where they have `replicas`."
    )
    levels: Annotated[Items[LevelName], Field(max_length=8)] = Field(
        default=(), description="Names of the tiers of locations, top tier first, at most 8."
    )
    name: Text | None = Field(
        default=None, description="Name of the document, echoed in its answer."
    )
    resources: dict[ResourceName, ClusterResource] = Field(
        default_factory=dict,
        max_length=FIELDS_MAX,
        description="What is counted beside replicas, by name, units last: `disk_bytes`, "
        "`write_bytes_per_second`.",
        json_schema_extra={"additionalProperties": False},
    )
    moves: Items[ClusterMove] = Field(default=(), description="Moves under way.")
    clients: Items[ClusterClient] = Field(default=(), description="Who reads, for `nearest`.")
    replica_state: ReplicaStates = Field(
        default_factory=dict, description="How far the replicas of all streams are, by node id."
    )


@dataclass(frozen=True, slots=True)
class DocumentError:
    """The document cannot be understood; `field` is the path to the fault, if there is one."""

    message: str
    field: str | None


@dataclass(frozen=True, slots=True)
class RefusedStream:
    """A stream that cannot be understood, in the place it had; `stream` is its name if readable."""

    stream: str | None
    message: str
    field: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """A document that was understood; `streams` keeps the document's order."""

    name: str | None
    levels: tuple[str, ...]
    nodes: tuple[ClusterNode, ...]
    streams: tuple[ClusterStream | RefusedStream, ...]
    clients: tuple[ClusterClient, ...] = ()
    replica_state: Mapping[str, ReplicaState] = field(default_factory=dict)
    moves: tuple[ClusterMove, ...] = ()
    resources: Mapping[str, ClusterResource] = field(default_factory=dict)


def parse_cluster(document: object, *, joining: bool = False) -> Cluster | DocumentError:
    """Read a document as YAML or JSON gives it. No input makes this raise.

    `joining`: its nodes are to join another cluster, which says what resources there are.
    """
    if not isinstance(document, Mapping):
        return DocumentError(f"the document must be a mapping, it is {echo(document)}", None)
    misspelt = _find_misspelt(document, ClusterFile, "") or _find_misspelt_in_lists(document)
    if misspelt:
        return misspelt
    streams = document.get("streams", ())
    if not isinstance(streams, list | tuple):
        return DocumentError(f"field 'streams' must be an array, it is {echo(streams)}", "streams")
    rest = {name: value for name, value in document.items() if name != "streams"}
    try:
        file = ClusterFile.model_validate(rest)
    except ValidationError as error:
        place, sentence = describe(error, rest)
        return DocumentError(sentence, place or None)
    twice = (
        _find_repeated([node.id for node in file.nodes], "nodes[{}].id")
        or _find_repeated(file.levels, "levels[{}]")
        or _find_repeated([client.id for client in file.clients], "clients[{}].id")
    )
    if twice:
        return twice
    unknown = None if joining else _find_unknown_capacity(file)
    if unknown:
        return unknown
    known = file.resources
    read = _refuse_repeated(
        [_parse_stream(each, index, known) for index, each in enumerate(streams)]
    )
    clients, state = file.clients, file.replica_state
    return Cluster(file.name, file.levels, file.nodes, read, clients, state, file.moves, known)


def parse_streams(document: object) -> Cluster | DocumentError:
    """Parse a document as `parse_cluster` does, but without requiring nodes."""
    if isinstance(document, Mapping) and "nodes" not in document:
        return parse_cluster({**document, "nodes": ()})
    return parse_cluster(document)


def parse_joining(document: object) -> Cluster | DocumentError:
    """Parse a document whose nodes are to join another cluster; see `parse_cluster`."""
    return parse_cluster(document, joining=True)


# What stands in the lists of a document.
_LISTED: Mapping[str, type[WireModel]] = {
    "nodes": ClusterNode,
    "clients": ClusterClient,
    "moves": ClusterMove,
}


def _find_misspelt(
    document: Mapping[Any, Any], model: type[WireModel], place: str
) -> DocumentError | None:
    """Find an unknown field whose name is nearly that of a missing one.

    To ignore it would answer for a cluster without streams, or without levels.
    """
    if model.model_fields.keys() >= document.keys():
        return None
    absent = [name for name in model.model_fields if name not in document]
    for name in document:
        known = not isinstance(name, str) or name in model.model_fields
        meant = None if known else find_meant_field(name, absent)
        if meant is not None:
            field = f"{place}{name}"
            message = f"field {echo(field)} is not known; did you mean '{meant}'?"
            return DocumentError(message, field)
    return None


def _find_misspelt_in_lists(document: Mapping[Any, Any]) -> DocumentError | None:
    """Find misspelt fields in the lists of a document, streams excepted: each is answered for
    itself."""
    for name, model in _LISTED.items():
        listed = document.get(name)
        for index, each in enumerate(listed if isinstance(listed, list | tuple) else ()):
            if isinstance(each, Mapping):
                found = _find_misspelt(each, model, f"{name}[{index}].")
                if found is not None:
                    return found
    resources = document.get("resources")
    for name, each in resources.items() if isinstance(resources, Mapping) else ():
        if isinstance(each, Mapping):
            found = _find_misspelt(each, ClusterResource, f"resources.{name}.")
            if found is not None:
                return found
    return None


def _find_unknown_capacity(file: ClusterFile) -> DocumentError | None:
    """Find a capacity of something that is no resource of the document."""
    for index, node in enumerate(file.nodes):
        place = f"nodes[{index}].capacities"
        found = _find_unknown_resource(node.capacities or {}, file.resources, place)
        if found is not None:
            return DocumentError(*found)
    return None


def _find_unknown_resource(
    amounts: Mapping[str, object], known: Mapping[str, object], place: str
) -> tuple[str, str] | None:
    """Find an amount of something that is no resource: a sentence, and the field."""
    for name in amounts:
        if name not in known:
            field = f"{place}.{name}"
            message = f"field '{field}' names no resource of the file: "
            if not known:
                return f"{message}add 'resources: {{{name}: {{}}}}'", field
            message += f"'resources' has {', '.join(known)}"
            return f"{message}{did_you_mean(name, [*known]) or '; add it there'}", field
    return None


def _find_wrong_load(stream: ClusterStream, known: Mapping[str, object]) -> tuple[str, str] | None:
    """Find the first load of a stream that cannot be counted: a sentence, and the field."""
    loads = stream.loads or {}
    for name, amounts in loads.items():
        if len(amounts) != stream.shards:
            field = f"loads.{name}"
            given = f"field '{field}' must have a number for each of {stream.shards} shards, null "
            return f"{given}where it is not known; {len(amounts)} are given", field
    if stream.shard_bytes is not None and SHARD_BYTES_RESOURCE in loads:
        field = "shard_bytes"
        return f"field '{field}' says what 'loads.{SHARD_BYTES_RESOURCE}' does: leave it out", field
    found = _find_unknown_resource(loads, known, "loads")
    return found or _find_unknown_resource(stream.expected_load or {}, known, "expected_load")


def _parse_stream(
    stream: object, index: int, resources: Mapping[str, object]
) -> ClusterStream | RefusedStream:
    place = f"streams[{index}]"
    if not isinstance(stream, Mapping):
        return RefusedStream(None, f"'{place}' must be an object, it is {echo(stream)}", place)
    misspelt = _find_misspelt(stream, ClusterStream, f"{place}.")
    if misspelt is not None:
        return RefusedStream(_name(stream), misspelt.message, misspelt.field or place)
    try:
        read = ClusterStream.model_validate(stream)
    except ValidationError as error:
        wrong, sentence = describe(error, stream)
        return RefusedStream(_name(stream), sentence, f"{place}.{wrong}")
    fault = _find_wrong_load(read, resources)
    return read if fault is None else RefusedStream(read.stream, fault[0], f"{place}.{fault[1]}")


def _refuse_repeated(
    streams: Sequence[ClusterStream | RefusedStream],
) -> tuple[ClusterStream | RefusedStream, ...]:
    """Refuse each stream whose name an earlier stream of the document has."""
    first: dict[str, int] = {}
    answered: list[ClusterStream | RefusedStream] = []
    for index, stream in enumerate(streams):
        name, place = stream.stream, f"streams[{index}].stream"
        if name is not None and first.setdefault(name, index) != index:
            sentence = f"{echo(name)} is given twice, first in 'streams[{first[name]}].stream'"
            answered.append(RefusedStream(name, f"{sentence}, again in '{place}'", place))
        else:
            answered.append(stream)
    return tuple(answered)


def _name(stream: Mapping[Any, Any]) -> str | None:
    name = stream.get("stream")
    return name if isinstance(name, str) else None


def _find_repeated(values: Sequence[str | None], place: str) -> DocumentError | None:
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            where, first = place.format(index), place.format(values.index(value))
            message = f"{echo(value)} is given twice, first in '{first}', again in '{where}'"
            return DocumentError(message, where)
        if value is not None:
            seen.add(value)
    return None
