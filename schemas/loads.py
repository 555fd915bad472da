"""What shards use of their nodes, by the name of the resource: as nodes report it, as it is known.

Which resources there are is configured. A report is refused as a whole where one of its figures
is no amount or one of its resources is unknown: half a report would look like a change.
"""

from typing import Annotated, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from schemas import limits
from schemas.base import Id, Index, Message, TimeMs, WireModel

ResourceName = Annotated[str, StringConstraints(pattern=limits.RESOURCE_PATTERN)]

Amount = Annotated[int, Field(ge=0, le=limits.AMOUNT_MAX)]
"""A whole number in the unit of the resource."""

Amounts = Annotated[
    dict[ResourceName, Amount],
    Field(max_length=limits.FIELDS_MAX, json_schema_extra={"additionalProperties": False}),
]

Capacities = Annotated[
    dict[ResourceName, Annotated[int, Field(ge=1, le=limits.AMOUNT_MAX)]],
    Field(max_length=limits.FIELDS_MAX, json_schema_extra={"additionalProperties": False}),
]
"""What a node has of each resource: more than nothing."""


class ReportedShard(WireModel):
    """What one replica uses of its node: every further field is an amount, by the name of its
    resource."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "minProperties": 3,
            "propertyNames": {"pattern": limits.RESOURCE_PATTERN},
        },
    )
    __pydantic_extra__: dict[str, Amount] = Field(init=False)

    stream: Id = Field(description="The stream of the shard.")
    shard: Index = Field(description="Number of the shard, from 0.")
    uid: Id | None = Field(
        default=None,
        description="The `uid` that the stream was created with, as the assignment names it; "
        "absent: the name is the identity.",
    )

    @property
    def amounts(self) -> dict[str, int]:
        """Return the amounts by the name of the resource."""
        return dict(self.__pydantic_extra__)

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Refuse an entry without any amount, and names that no resource can have."""
        if not self.__pydantic_extra__:
            raise ValueError("at least one amount, by the name of its resource")
        for name in self.__pydantic_extra__:
            if not limits.RESOURCE.match(name):
                raise ValueError(
                    f"amounts by names of resources of the form {limits.RESOURCE_PATTERN}"
                )
        return self


class ShardLoad(Message):
    """The load of a shard, as it is known and counted. Key: `stream/shard`.

    A tombstone: nothing is known any more, as after the stream was dropped. A shard without such
    a record counts with the `expected_load` of its stream, or with the mean of others.
    """

    stream: Id = Field(description="The stream's name.")
    shard: Index = Field(description="Number of the shard, from 0.")
    amounts: Amounts = Field(
        description="What each replica bears, by resource; of a resource with `led` the leader "
        "alone. Smoothed, in the unit of the resource."
    )
    node_id: Id = Field(description="The node whose word it is.")
    at: TimeMs = Field(description="When it became known, in ms since the epoch, UTC.")

    def record_key(self) -> str:
        """Return the shard."""
        return f"{self.stream}/{self.shard}"
