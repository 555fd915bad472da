"""The bodies of requests and answers that `schemas` does not have, for routes and OpenAPI.

Records are those of `schemas`; these only put them together. Answers are written without the
models, which would be checked again for nothing; a test holds them against each other.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field

from schemas.alerts import Alert, RequestAnswered
from schemas.base import Id, Index, Text
from schemas.loads import ShardLoad
from schemas.node_view import NodeView
from schemas.outputs import Assignment, Decision, Move, Violation
from schemas.requests import Request, Target, Ttl

# As many as one page of a list has at most.
SHARDS_PER_LOOKUP_MAX = 1_000
REQUEST_TYPES = {each.__name__: each for each in get_args(Request)}

_Item = TypeVar("_Item")


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class MarkerBody(_Body):
    """The commit at which an answer is true."""

    cell: Id
    sequence: int = Field(description="Number of the commit, which rises by one.")
    writer_epoch: int
    now: int = Field(description="The core's time, in ms since the epoch, UTC.")
    stale_seconds: float = Field(
        description="Seconds since the state was known to hold all that was committed."
    )


class ErrorBody(BaseModel):
    """Why there is no answer."""

    code: str
    message: str


class _Answer(_Body):
    marker: MarkerBody


class Page(_Answer, Generic[_Item]):
    """A page of a list. `next`: the cursor of the next page; null on the last one."""

    items: list[_Item]
    next: str | None


class ShardAnswer(_Answer):
    """One shard. `load`: what is known of its load."""

    assignment: Assignment
    leader: Id | None
    load: ShardLoad | None


class ShardName(_Body):
    """A shard by stream and number."""

    stream: Id
    shard: Index


class LookupBody(_Body):
    """The shards to look up."""

    shards: Annotated[list[ShardName], Field(max_length=SHARDS_PER_LOOKUP_MAX)]


class ShardFoundBody(ShardName):
    """A shard that was looked up; `code` says why it has no assignment."""

    assignment: Assignment | None
    leader: Id | None
    code: str | None


class LookupAnswer(_Answer):
    """The shards in the order in which they were asked for."""

    shards: list[ShardFoundBody]


class NearestAnswer(_Answer):
    """The replica to read from; null where none lives."""

    stream: Id
    shard: Index
    replica: Id | None
    reason: Text
    epoch: int | None


class StreamAnswer(_Answer):
    """A stream: its decision, and all that `placer describe stream` shows."""

    decision: Decision
    description: dict[str, Any]


class NodeItem(_Body):
    """A node with what stands on it."""

    node: NodeView
    replicas: Index
    leaders: Index


class NodeAnswer(_Answer):
    """A node, and all that `placer describe node` shows."""

    node: NodeView
    description: dict[str, Any]


class StatusAnswer(_Answer):
    """The cell as `placer status --output json` shows it, without a diagnosis of every shard.

    `fault`: why the topics cannot be read at present.
    """

    status: dict[str, Any]
    shards: int
    fault: str | None


class LocationItem(_Body):
    """A domain with what stands in it, as `placer locations` shows it."""

    location: Text
    nodes: int
    up: int
    replicas: int
    weight: float
    per_weight: float | None


class OperatorBody(_Body):
    """A request of an operator: the fields of the message that `type` names, in `schemas`."""

    type: Literal[tuple(REQUEST_TYPES)]  # type: ignore[valid-type]
    target: Target
    request_id: Id | None = Field(default=None, description="Absent: a new one is made.")
    expected_impact_hash: Text | None = None
    reason: Text | None = None
    ttl_seconds: Ttl | None = None


class DryRunAnswer(_Body):
    """The impact of a request, with the hash that agrees to it; `refusal`: why it would be
    refused."""

    target: Target
    impact: dict[str, Any]


class RequestAnswer(_Body):
    """What the reconciler answered."""

    answer: RequestAnswered


AlertPage = Page[Alert]
MovePage = Page[Move]
ViolationPage = Page[Violation]
DecisionPage = Page[Decision]
AssignmentPage = Page[Assignment]
NodePage = Page[NodeItem]
LocationPage = Page[LocationItem]
