"""Keeps a shard off a target on which its move has failed, for a while.

Another target is tried at once; the same one after a pause that doubles with every failure, up to a
bound. Failures are published (`backoff` in `state.v1`), so that a restart knows them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KIND = "backoff"


@dataclass(slots=True)
class Backoff:
    """Holds failures by shard (stream and number) and node id: their number, and the pause's end in
    ms."""

    known: dict[tuple[str, int], dict[str, tuple[int, int]]] = field(default_factory=dict)

    def record_failure(
        self, shard: tuple[str, int], node_id: str, now: int, first_ms: int, most_ms: int
    ) -> Mapping[str, Any]:
        """Count one more failure; returns the body to remember of it."""
        nodes = self.known.setdefault(shard, {})
        failures = nodes.get(node_id, (0, 0))[0] + 1
        # Beyond 2^40 pauses are bounded whatever the figures.
        pause = min(first_ms << min(failures - 1, 40), most_ms)
        nodes[node_id] = (failures, now + pause)
        body = {"stream": shard[0], "shard": shard[1], "node": node_id}
        return body | {"failures": failures, "until": now + pause}

    def restore(self, body: Mapping[str, Any]) -> None:
        """Restore a failure from the published memory."""
        nodes = self.known.setdefault((body["stream"], body["shard"]), {})
        nodes[body["node"]] = (body["failures"], body["until"])

    def pauses_of(self, shard: tuple[str, int], now: int) -> dict[str, int]:
        """List the nodes that the shard leaves alone at `now`, each with the time until when."""
        nodes = self.known.get(shard)
        if not nodes:
            return {}
        return {node_id: until for node_id, (_, until) in nodes.items() if until > now}

    def forget(self, shard: tuple[str, int], node_id: str) -> bool:
        """Forget the failures on a node; returns whether there were any."""
        nodes = self.known.get(shard, {})
        found = nodes.pop(node_id, None) is not None
        if not nodes:
            self.known.pop(shard, None)
        return found

    def expired_pauses(self, before: int) -> list[tuple[tuple[str, int], str]]:
        """List the shards and nodes whose pause ended before the given time, in their order.

        A rebuilt process knows the same failures, though not in the order in which they came.
        """
        return sorted(
            (shard, node_id)
            for shard, nodes in self.known.items()
            for node_id, (_, until) in nodes.items()
            if until < before
        )


def name_of(shard: tuple[str, int], node_id: str) -> str:
    """Name a failure in the memory."""
    return f"{shard[0]}/{shard[1]}/{node_id}"
