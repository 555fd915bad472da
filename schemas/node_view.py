"""What is published of a node: the state of record of topology."""

from enum import StrEnum
from typing import Annotated

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
    Text,
    TimeMs,
    Tokens,
    Weight,
    WireModel,
)
from schemas.reason import LAX, Reason

# The unlocated domain is written as the empty path.
LocationOrNone = Location | Annotated[str, Field(max_length=0)]


class Liveness(StrEnum):
    """What the failure detector believes of a node."""

    UP = "up"
    SUSPECT = "suspect"
    DEAD = "dead"
    UNREGISTERED = "unregistered"


class AdministrativeState(StrEnum):
    """What the operator has ordered for a node."""

    NONE = "none"
    CORDONED = "cordoned"
    MAINTENANCE = "maintenance"
    DRAINING = "draining"


class Guard(StrEnum):
    """Why a node that lives gets no new replicas: it has flapped, or its location is doubtful."""

    NONE = "none"
    HELD_DOWN = "held_down"
    QUARANTINED = "quarantined"


class NodeStatus(StrEnum):
    """The strongest of liveness, administrative state and guard: one word for people."""

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

    at: TimeMs
    liveness: Annotated[Liveness, LAX]


class HoldDown(WireModel):
    """A flapping node receives no replicas from `since` to `until`; `active` until that has run
    out. The next hold-down is twice as long, unless the node stays quiet for as long as this."""

    since: TimeMs
    until: TimeMs
    active: bool


class LivenessMode(StrEnum):
    """Who says whether a node lives."""

    HEARTBEAT = "heartbeat"
    EXTERNAL = "external"


class Reported(WireModel):
    """The last report of the external detector: its sequence, -1 before the first, and word."""

    sequence: Annotated[int, Field(ge=-1)]
    said: Text


class LocationSource(StrEnum):
    """Who says where nodes stand."""

    CLAIM = "claim"
    COMMAND = "command"
    FILE = "file"
    INVENTORY = "inventory"
    CLOUD = "cloud"


class PendingPlace(WireModel):
    """A place and tags that a node claims and that are not in force: `impact_hash` is what an
    approval has to name, `meant` the known place it probably means if that looks like a typo."""

    location: LocationOrNone
    tags: Tags
    impact_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{0,128}$")]
    meant: LocationOrNone | None = None


class NodeView(Message):
    """What the reconciler believes of a node. Key: `node_id`. The state of record of topology.

    `location` is empty for a node that has none. `since` is when `liveness` was reached,
    `transitions` are its latest changes, by which flapping is told, `hold_down` the node's last.
    `claimed_location` is what the node claims where that is not in force, `pending` what waits for
    approval, `quarantine` why its place is not trusted with replicas.
    """

    node_id: Id
    incarnation: Id
    sequence: Ordinal
    body_hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{0,128}$")]
    revision: Ordinal
    host: Host | None = None
    location: LocationOrNone
    tags: Tags
    weight: Weight
    capacity: Capacity | None = None
    leader: bool
    tokens: Tokens | None = None
    liveness: Annotated[Liveness, LAX]
    status: Annotated[NodeStatus, LAX]
    since: TimeMs
    administrative: Annotated[AdministrativeState, LAX] = AdministrativeState.NONE
    guard: Annotated[Guard, LAX] = Guard.NONE
    transitions: Items[Transition] | None = None
    hold_down: HoldDown | None = None
    liveness_mode: Annotated[LivenessMode, LAX] = LivenessMode.HEARTBEAT
    reported: Reported | None = None
    location_source: Annotated[LocationSource, LAX] = LocationSource.CLAIM
    claimed_location: LocationOrNone | None = None
    pending: PendingPlace | None = None
    quarantine: Reason | None = None

    def record_key(self) -> str:
        """The node's id."""
        return self.node_id
