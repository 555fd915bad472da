"""The published record of a node: the state of record of topology."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from schemas.base import (
    Capacity,
    Host,
    Id,
    Items,
    Location,
    Message,
    Ordinal,
    Tags,
    TimeMs,
    Tokens,
    Weight,
    WireModel,
)
from schemas.loads import Capacities
from schemas.reason import LAX, Reason

# The unlocated domain is written as the empty path.
LocationOrNone = Location | Annotated[str, Field(max_length=0)]


class Liveness(StrEnum):
    """Verdict of the failure detector on a node.

    `up`: it is heard of. `suspect`: it is silent, and gets no replicas. `dead`: it has been silent
    for so long that its replicas are replaced. `unregistered`: it has left for good.
    """

    UP = "up"
    SUSPECT = "suspect"
    DEAD = "dead"
    UNREGISTERED = "unregistered"


class AdministrativeState(StrEnum):
    """Order of operators for a node.

    `cordoned`: it gets no replicas and keeps what it has. `maintenance`: it may be away, and what
    stands on it is not replaced. `draining`: all its replicas are moved off.
    """

    NONE = "none"
    CORDONED = "cordoned"
    MAINTENANCE = "maintenance"
    DRAINING = "draining"


class Guard(StrEnum):
    """Reason why a live node gets no new replicas.

    `held_down`: it came and went too often, and has to stay up for a while. `quarantined`: its
    location is doubtful.
    """

    NONE = "none"
    HELD_DOWN = "held_down"
    QUARANTINED = "quarantined"


class NodeStatus(StrEnum):
    """Status of a node in one word for people.

    The first of `unregistered`, `dead`, `quarantined`, `draining`, `maintenance`, `held_down`,
    `suspect` and `cordoned` that applies, else `up`; `registered` is not used.
    """

    REGISTERED = "registered"
    UP = "up"
    SUSPECT = "suspect"
    DEAD = "dead"
    DRAINING = "draining"
    MAINTENANCE = "maintenance"
    CORDONED = "cordoned"
    HELD_DOWN = "held_down"
    QUARANTINED = "quarantined"
    UNREGISTERED = "unregistered"


# Enumerations are read from their JSON strings, which strict mode alone would refuse.


class Transition(WireModel):
    """A node's liveness changed."""

    at: TimeMs = Field(description="When it changed, in ms since the epoch, UTC.")
    liveness: Annotated[Liveness, LAX] = Field(description="What it changed to.")


class HoldDown(WireModel):
    """A flapping node receives no replicas from `since` to `until`; `active` until that has run
    out. The next hold-down is twice as long, unless the node stays quiet for as long as this."""

    since: TimeMs = Field(description="When it began, in ms since the epoch, UTC.")
    until: TimeMs = Field(description="When it ends, in ms since the epoch, UTC.")
    active: bool = Field(description="Whether it has not run out yet.")


class LivenessMode(StrEnum):
    """Source of a node's liveness: its own `heartbeat`s, or an `external` detector."""

    HEARTBEAT = "heartbeat"
    EXTERNAL = "external"


class Reported(WireModel):
    """The last report of the external detector: its sequence, -1 before the first, and word."""

    sequence: Annotated[int, Field(ge=-1)] = Field(
        description="The detector's sequence of its last report; -1 before the first."
    )
    said: Literal["reported up", "reported down", ""] = Field(
        description="What it said; empty before the first report."
    )


class LocationSource(StrEnum):
    """Source of locations: the nodes themselves (`claim`), or the configured authority.

    An authority is a `command`, a `file`, the topic `inventory`, or the metadata of a `cloud`.
    """

    CLAIM = "claim"
    COMMAND = "command"
    FILE = "file"
    INVENTORY = "inventory"
    CLOUD = "cloud"


class PendingPlace(WireModel):
    """A location and tags that a node claims and that are not in force.

    An approval has to name `impact_hash`; `meant` is the known location that the claim probably
    means, if it looks like a typing error.
    """

    location: LocationOrNone = Field(
        description="The location that is claimed, top tier first; empty: none."
    )
    tags: Tags = Field(description="The tags that are claimed, key to value.")
    impact_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{0,128}$")] = Field(
        description="Hash to send as `expected_impact_hash` of `ApproveRelocation`, in "
        "hexadecimal; empty while its impact is not known."
    )
    meant: LocationOrNone | None = Field(
        default=None,
        description="The known location that it probably means, if the claim looks like a typing "
        "error.",
    )


class PendingLife(WireModel):
    """A later life of the node's process that has registered and waits. Its other fields are those
    of its registration, with the meaning that they have in NodeView; they are not in force."""

    incarnation: Id = Field(description="The life that waits.")
    sequence: Ordinal = Field(description="The `sequence` of its last registration or change.")
    body_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{0,128}$")] = Field(
        description="Hash of that message's body, in hexadecimal."
    )
    since: TimeMs = Field(description="When it registered, in ms since the epoch, UTC.")
    grace_ms: Ordinal = Field(
        description="Silence, in milliseconds, of the life that holds the name after which this "
        "one takes over."
    )
    host: Host | None = Field(default=None, description="Where it is reached.")
    location: LocationOrNone = Field(description="Where it stands, top tier first; empty: nowhere.")
    tags: Tags = Field(description="Its labels, key to value.")
    weight: Weight = Field(description="Its share of load relative to other nodes. No unit.")
    capacity: Capacity | None = Field(
        default=None, description="The most replicas it may hold; absent: no limit of its own."
    )
    capacities: Capacities | None = Field(
        default=None, description="What it has of each resource, where it said so."
    )
    leader: bool = Field(description="Whether replicas on it may lead.")
    tokens: Tokens | None = Field(
        default=None, description="Its positions on the ring, where it gave them."
    )
    liveness_mode: Annotated[LivenessMode, LAX] = Field(description="Who says whether it lives.")


class RefusedLife(WireModel):
    """A life that goes on sending although another one holds the name: what it says is ignored."""

    incarnation: Id = Field(description="The life that is refused.")
    since: TimeMs = Field(
        description="When that was found, in ms since the epoch, UTC. It ends when this life takes "
        "over, or has been silent for `liveness.dead_after_seconds`."
    )
    reason: Reason = Field(description="Which life holds the name, and what to do.")


class NodeView(Message):
    """The reconciler's view of a node.

    Key: `node_id`. The state of record of topology.

    `location` is empty for a node that has none. `since` is when `liveness` was reached,
    `transitions` are its latest changes, by which flapping is told, `hold_down` the node's last.
    `claimed_location` is what the node claims where that is not in force, `pending` what waits for
    approval, `quarantine` why its place is not trusted with replicas.

    `incarnation` is the life of the node's process that holds its name. A process that finds
    another one there is `pending_life` (it will take over), or `refused_life` (two processes use
    the id: it should end, or come back under an id of its own), or one of `earlier_lives`, which
    others have followed.
    """

    node_id: Id = Field(description="The node's id. It is the record's key.")
    incarnation: Id = Field(description="The life of the node's process that counts.")
    sequence: Ordinal = Field(
        description="The `sequence` of its last message that changed this view."
    )
    body_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{0,128}$")] = Field(
        description="Hash of that message's body, in hexadecimal, by which a repeat is told from "
        "a conflict."
    )
    revision: Ordinal = Field(
        description="Rises by one with every published view of the node, from 1."
    )
    host: Host | None = Field(
        default=None, description="Where the node is reached, as it registered."
    )
    location: LocationOrNone = Field(
        description="Where the node stands, top tier first; empty: nowhere, the unlocated domain."
    )
    tags: Tags = Field(description="Labels that policies can ask for, key to value.")
    weight: Weight = Field(description="Share of load relative to other nodes. No unit.")
    capacity: Capacity | None = Field(
        default=None,
        description="The most replicas the node may hold; absent: no limit of its own.",
    )
    capacities: Capacities | None = Field(
        default=None,
        description="What the node has of each resource, as it registered; absent: it takes any "
        "amount.",
    )
    leader: bool = Field(description="Whether replicas on the node may lead.")
    tokens: Tokens | None = Field(
        default=None, description="Positions of the node on the ring, where it gave them."
    )
    liveness: Annotated[Liveness, LAX] = Field(description="What the failure detector believes.")
    status: Annotated[NodeStatus, LAX] = Field(
        description="The strongest of `liveness`, `administrative` and `guard`, in one word for "
        "people."
    )
    since: TimeMs = Field(description="When `liveness` was reached, in ms since the epoch, UTC.")
    administrative: Annotated[AdministrativeState, LAX] = Field(
        default=AdministrativeState.NONE, description="What operators have ordered."
    )
    guard: Annotated[Guard, LAX] = Field(
        default=Guard.NONE, description="Why the node receives no replicas although it lives."
    )
    transitions: Items[Transition] | None = Field(
        default=None,
        description="The latest changes of `liveness`, oldest first, by which flapping is told.",
    )
    hold_down: HoldDown | None = Field(
        default=None, description="The node's last hold-down; absent if there was none."
    )
    liveness_mode: Annotated[LivenessMode, LAX] = Field(
        default=LivenessMode.HEARTBEAT, description="Who says whether the node lives."
    )
    reported: Reported | None = Field(
        default=None,
        description="The last report of the external detector; absent where there is none.",
    )
    location_source: Annotated[LocationSource, LAX] = Field(
        default=LocationSource.CLAIM, description="Who says where the node stands."
    )
    claimed_location: LocationOrNone | None = Field(
        default=None,
        description="The location that the node claims, where another one is in force.",
    )
    pending: PendingPlace | None = Field(
        default=None, description="A place that waits for approval."
    )
    quarantine: Reason | None = Field(
        default=None, description="Why the node's place is not trusted with replicas."
    )
    pending_life: PendingLife | None = Field(
        default=None,
        description="A later life of the node's process that waits to take over; absent if none.",
    )
    refused_life: RefusedLife | None = Field(
        default=None,
        description="A second process that uses the node's id at the same time; absent if none.",
    )
    earlier_lives: Items[Id] | None = Field(
        default=None,
        description="Incarnations that later ones have followed, up to three, the latest last.",
    )

    def record_key(self) -> str:
        """Return the node's id."""
        return self.node_id
