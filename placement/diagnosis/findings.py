"""What diagnosis of a cluster is given and what it finds, as values."""

from collections.abc import Mapping
from dataclasses import dataclass

from placement.assignments import ShardLists
from placement.diagnosis.health import Copies, CriticalDomain, Health, UnderDiversified, worst
from placement.model import Reason, StreamSpec, ViolationClass
from placement.policy import Policy

# A node that a list names and nobody knows: its copy is lost.
UNKNOWN = -2


@dataclass(frozen=True, slots=True)
class StreamToDiagnose:
    """A stream to be judged.

    `shards`: nodes by index, leader first, moves under way counted as done (UNKNOWN for a node
    that does not exist); lists may be short or long, or name a node twice. `complete`: where whole
    copies stand now, the same object where that is everywhere. `moving`: shards with a move under
    way.
    """

    spec: StreamSpec
    policy: Policy
    shards: ShardLists
    complete: ShardLists
    moving: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """A rule that is not met: by a shard, by the stream (`shard` None), or, if `stream` is None
    too, by the node that `domain` names."""

    stream: str | None
    shard: int | None
    rule: str
    strength: str
    level: str | None
    domain: str | None
    count: int
    limit: int
    violation_class: ViolationClass
    reason: Reason


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a cluster; `shards` is the health of every shard by stream."""

    violations: tuple[Diagnosed, ...]
    shards: Mapping[str, tuple[Health, ...]]
    copies: tuple[Copies, ...]
    critical: tuple[CriticalDomain, ...]
    under_diversified: tuple[UnderDiversified, ...]

    @property
    def streams(self) -> dict[str, Health]:
        """Each stream's worst shard."""
        return {name: worst(each) for name, each in self.shards.items()}

    @property
    def worst(self) -> Health:
        """The worst stream."""
        return worst(self.streams.values())
