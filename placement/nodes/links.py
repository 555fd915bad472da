"""Links between locations: round-trip times that nodes measure, and what hangs on a slow link.

A link is known to be slow when three measurements in a row say so, whoever made them; that is told
once, with the shards whose quorum needs it, and may be told again once a measurement was fine.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from placement.assignments import EMPTY
from placement.diagnosis import quorum_size
from placement.model import (
    AlertKind,
    Code,
    LinksMeasured,
    Location,
    Reason,
    natural_key,
    parse_location,
)
from placement.state import ClusterState
from placement.wording import format_count

# What is remembered in `state.v1`, by link: how many measurements in a row were slow.
KIND = "link"
# One or two may be a pause of the node that measures.
SLOW_IN_A_ROW = 3
# An alert names the first of a long list.
_LISTED_MAX = 50


@dataclass(frozen=True, slots=True)
class Link:
    """Two locations of equal depth, in natural order."""

    one: Location
    other: Location

    @classmethod
    def find(cls, home: Location, away: Location) -> "Link | None":
        """Find the link that a node at `home` uses to `away`; None within one location."""
        near = home.prefix(away.depth)
        if near.is_within(away) or away.is_within(near):
            return None
        one, other = sorted((near, away), key=lambda each: natural_key(str(each)))
        return cls(one, other)

    def __str__(self) -> str:
        return f"{self.one} - {self.other}"


class Links:
    """Watches what nodes measure."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    def record_measurements(self, event: LinksMeasured) -> None:
        """Count slow measurements in a row; a location that cannot be reached (None) is slow."""
        state = self._state
        node, limit = state.topology.index.get(event.node_id), state.configuration.link_slow_ms
        if node is None or limit is None:
            state.publisher.count("link_ignored")
            return
        for place, rtt_ms in event.rtt_ms:
            away = parse_location(place)
            if not isinstance(away, Location):
                continue
            link = Link.find(state.topology.locations[node], away)
            if link is not None:
                self._count(link, rtt_ms, limit)

    def _count(self, link: Link, rtt_ms: float | None, limit: float) -> None:
        state = self._state
        if rtt_ms is not None and rtt_ms <= limit:
            state.memory.remember(KIND, str(link), None)
            return
        known = state.memory.get((KIND, str(link)))
        slow = 1 if known is None else min(int(known.body["slow"]) + 1, SLOW_IN_A_ROW + 1)
        state.memory.remember(KIND, str(link), {"slow": slow})
        if slow == SLOW_IN_A_ROW:
            self._alert(link, rtt_ms, limit)

    def _alert(self, link: Link, rtt_ms: float | None, limit: float) -> None:
        shards = sorted(shards_crossing(self._state, link))
        how = (
            "does not answer"
            if rtt_ms is None
            else f"takes {rtt_ms:g} ms, the limit is {limit:g} ms"
        )
        need = format_count(len(shards), "shard needs", "shards need")
        message = f"the link {link} {how}: {need} it for a quorum"
        detail = {
            "one": str(link.one),
            "other": str(link.other),
            "rtt_ms": rtt_ms,
            "shards": len(shards),
            "named": [f"{stream}/{number}" for stream, number in shards[:_LISTED_MAX]],
        }
        self._state.publisher.alert(
            AlertKind.LINK_SLOW, str(link), Reason(Code.LINK_SLOW, message), detail
        )


def shards_crossing(state: ClusterState, link: Link) -> Iterator[tuple[str, int]]:
    """List the shards whose quorum needs a link.

    They are led at one end of it, with too few live copies elsewhere than at its other end. The
    work is in proportion to what stands at the ends.
    """
    topology = state.topology
    ends = {end: set(topology.inside(end).nonzero()[0].tolist()) for end in (link.one, link.other)}
    for near, far in ((link.one, link.other), (link.other, link.one)):
        held = {shard for node in ends[near] for shard in state.table.shards_on(node)}
        for shard in held:
            nodes = [node for node in state.current_replicas(shard) if node != EMPTY]
            if not nodes or nodes[0] not in ends[near]:
                continue
            spec = state.streams.of_shard(shard).spec
            reached = [n for n in nodes if n not in ends[far] and not topology.is_dead(n)]
            if len(reached) < quorum_size(spec.quorum, spec.replication_factor):
                yield state.streams.key(shard)
