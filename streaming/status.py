"""`placer status`: what a running reconciler believes, does and waits for, from its topics."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.model import Move
from schemas.cluster import Cluster
from streaming.live import Live
from streaming.offline import Document
from streaming.offline_check import Asked, Checked, checked, health_body

# A person looks at the oldest moves; the count says how many there are.
MOVES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Status:
    """The state at one moment. `at_ms`: when it was read, by this machine's clock."""

    at_ms: int
    cluster: Cluster
    judged: Checked
    marker: Mapping[str, Any]
    outcomes: Mapping[str, int]
    moves: tuple[Move, ...]
    violations: Mapping[str, int]
    holds: Mapping[str, Mapping[str, Any]]
    requests: Mapping[str, Mapping[str, Any]]
    lag: Mapping[str, int]

    @property
    def silence_seconds(self) -> float:
        """How long ago the last commit was, by this machine's clock."""
        return max(self.at_ms - int(self.marker["now"]), 0) / 1000

    @property
    def healthy(self) -> bool:
        """Whether no shard is worse than degraded and nothing is held."""
        fine = ("healthy", "rebalancing", "degraded")
        return self.judged.diagnosis.worst in fine and not self.holds

    def body(self) -> dict[str, Any]:
        """The answer of `status`."""
        nodes = Counter(str(node.status) for node in self.cluster.nodes)
        return {
            "cell": self.marker["cell"],
            "writer_epoch": self.marker["writer_epoch"],
            "last_commit": {
                "sequence": self.marker["sequence"],
                "at": self.marker["now"],
                "seconds_ago": self.silence_seconds,
                "digest": self.marker["digest"],
            },
            "lag": dict(self.lag),
            "ignored": dict(self.marker.get("ignored", {})),
            "nodes": dict(sorted(nodes.items())),
            "streams": dict(sorted(self.outcomes.items())),
            "health": health_body(self.judged.diagnosis),
            "violations": dict(sorted(self.violations.items())),
            "holds": dict(self.holds),
            "requests": dict(self.requests),
            "moves": {
                "open": len(self.moves),
                "oldest": [self._move(move) for move in self.moves[:MOVES_SHOWN_MAX]],
            },
        }

    def _move(self, move: Move) -> dict[str, Any]:
        return {
            "move_id": move.move_id,
            "stream": move.stream,
            "shard": move.shard,
            "kind": move.kind,
            "remove": move.remove,
            "add": move.add,
            "state": move.state,
            "cause": move.cause,
            "seconds": max(self.at_ms - move.issued_at, 0) / 1000,
        }


def status(live: Live, at_ms: int) -> Status:
    """Read the live state as it is now. Raises StreamingError where there is none."""
    cluster, marker = live.cluster(), live.marker
    return Status(
        at_ms=at_ms,
        cluster=cluster,
        judged=checked(Document(cluster), Asked()),
        marker=marker,
        outcomes=Counter(str(decision.outcome) for decision in live.decisions),
        moves=tuple(live.open_moves),
        violations=Counter(str(each.violation_class) for each in live.violations),
        holds=live.memory("hold"),
        requests=live.memory("request"),
        lag=live.lag(),
    )
