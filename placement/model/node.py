"""Facts that a node reports of itself: its attributes, and the lives of its processes.

A life is one run of a node's process, named by its incarnation. One life at a time holds the
node's name; the others are remembered here because they decide who holds it next, and because two
that live at once are a fault that somebody has to end.
"""

from dataclasses import dataclass

from placement.model.reasons import Reason

# Amounts by the name of the resource, in the order of the names.
Amounts = tuple[tuple[str, int], ...]

# Places on a ring: all integers, in numeric order, or all strings, in code-point order.
Tokens = tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeAttributes:
    """Attributes of a node, as it reports them.

    `capacity` counts replicas, `weight` is a share of load, `tokens` are its explicit places on the
    rings of `ring` and `network_topology`, `capacities` are what it has of resources.
    """

    location: str = ""
    tags: tuple[tuple[str, str], ...] = ()
    host: str | None = None
    weight: float = 1.0
    capacity: int | None = None
    leader: bool = True
    tokens: Tokens | None = None
    capacities: Amounts | None = None


@dataclass(frozen=True, slots=True)
class PendingLife:
    """A later life that has registered while the holder may still live. It takes over once the
    holder has been silent for `grace_ms` on the silence clock; `attributes` and `external` are
    those of its registration, `since` the append time of that."""

    incarnation: str
    sequence: int
    body_hash: str
    since: int
    grace_ms: int
    attributes: NodeAttributes
    external: bool = False


@dataclass(frozen=True, slots=True)
class RefusedLife:
    """A life that goes on speaking beside the holder, and why it is not listened to."""

    incarnation: str
    since: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Lives:
    """The lives of a node besides the one that holds its name.

    `earlier` are incarnations that others have followed, the latest last.
    """

    pending: PendingLife | None = None
    refused: RefusedLife | None = None
    earlier: tuple[str, ...] = ()
