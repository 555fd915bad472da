"""Remembers what is neither node, stream, move nor violation, and has every change published.

Each part of the core remembers under a kind of its own, by a name within it; the bodies are JSON
objects. They live in the compacted topic `state.v1`, so that a restart goes on with them:

- `hold`, by domain or `fleet`: holds of repair (`controllers/holds.py`)
- `rebalance`, by number or `wanted`: moves that are left of a plan (`controllers/rebalance.py`)
- `request`, by target: orders of operators (`nodes/orders.py`)
- `location`, by node: what the authority on locations said last (`nodes/location_authority.py`)
- `link`, by link: measurements in a row that were slow (`nodes/links.py`)
- `fleet`, by three names: when nodes came, and what was reported of it (`nodes/admission.py`)
- `backoff`, by shard and node: moves that failed (`moves/backoff.py`)
- `unmark`, by move: cancellations that are not confirmed (`moves/cancellations.py`)
- `out_of_sync`, by shard: replicas that executors found incomplete (`sync_log.py`)
- `epochs`, `highest`: of all streams that were dropped (`cluster_state.py`)
"""

from collections.abc import Iterator, Mapping
from typing import Any

from placement.model import Memory
from placement.state.publisher import Publisher


class MemoryStore(Mapping[tuple[str, str], Memory]):
    """Holds the memory, by kind and name."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._known: dict[tuple[str, str], Memory] = {}

    def __getitem__(self, key: tuple[str, str]) -> Memory:
        return self._known[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def of_kind(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """List the bodies of a kind by name, in the order of the names."""
        found = {name: each.body for (of, name), each in self._known.items() if of == kind}
        return dict(sorted(found.items()))

    def remember(self, kind: str, name: str, body: Mapping[str, Any] | None) -> None:
        """Remember `body`; None forgets it. What has not changed is not published again."""
        key = kind, name
        before = self._known.get(key)
        if (before.body if before else None) == body:
            return
        if body is not None:
            memory = self._known[key] = Memory(kind, name, body, self._publisher.now)
            self._publisher.publish_memory(memory, before)
        elif before is not None:
            del self._known[key]
            self._publisher.retract_memory(before)

    def load(self, memory: Memory) -> None:
        """Remember something as it was published."""
        self._known[memory.kind, memory.name] = memory
        self._publisher.publish_memory(memory, None)
