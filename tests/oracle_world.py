"""The oracle's picture of the world: the last record of every key, and what it means."""

from collections import Counter
from collections.abc import Sequence

from tests.oracle_policy import Judge, Value, copies, may_receive

Shard = tuple[str, int]

OPEN_STATES = ("issued", "accepted")
ALIVE = ("up", "suspect")


class World:
    """Records as the topics hold them. `levels` are the configured names of the tiers."""

    def __init__(self, levels: Sequence[str] = ()) -> None:
        self.nodes: dict[str, Value] = {}
        self.decisions: dict[str, Value] = {}
        self.assignments: dict[Shard, Value] = {}
        self.moves: dict[str, Value] = {}
        self.all_moves: dict[str, Value] = {}
        self.open_moves: dict[Shard, str] = {}
        self.open_violations: dict[Shard, list[Value]] = {}
        self.levels = tuple(levels)

    def spec(self, stream: str) -> Value:
        """What is in force for a stream."""
        spec: Value = self.decisions[stream]["spec"]
        return spec

    def copies(self, stream: str) -> int:
        """Replicas of a whole shard of the stream."""
        return copies(self.spec(stream))

    def alive(self, node_id: str | None) -> bool:
        """Whether replicas on the node live."""
        return self.nodes.get(node_id or "", {}).get("liveness") in ALIVE

    def may_receive(self, node_id: str) -> bool:
        """Whether the node may be given replicas."""
        return may_receive(self.nodes.get(node_id, {}))

    def may_be_fenced(self, move: Value) -> bool:
        """Kafka's striping takes a fenced broker as a follower where it has no other."""
        node = self.nodes.get(move["add"], {})
        told = (node.get("liveness"), node.get("administrative"), node.get("guard"))
        striped = self.decisions[move["stream"]].get("strategy") == "striped"
        return striped and move["slot"] > 0 and told == ("suspect", "none", "none")

    def is_draining(self, node_id: str) -> bool:
        """Whether the node is to be emptied."""
        return bool(self.nodes[node_id]["administrative"] == "draining")

    def live(self, replicas: Sequence[str]) -> list[str]:
        """Those of the nodes that live."""
        return [node for node in replicas if self.alive(node)]

    def staying(self, replicas: Sequence[str]) -> list[str]:
        """Those of the nodes that live and are not to be emptied."""
        return [node for node in self.live(replicas) if not self.is_draining(node)]

    def planned(self, stream: str) -> dict[int, list[str]]:
        """Replicas of a stream by shard once all moves under way have been completed."""
        found = {n: a for (name, n), a in self.assignments.items() if name == stream}
        return {number: _planned(found[number]) for number in sorted(found)}

    def lists(self, stream: str) -> dict[int, list[str]]:
        """Replicas of a stream by shard."""
        found = {n: a["replicas"] for (name, n), a in self.assignments.items() if name == stream}
        return {number: list(found[number]) for number in sorted(found)}

    def judge(self, stream: str) -> Judge:
        """The stream's required policy over the nodes as they are."""
        return Judge(self.spec(stream), self.nodes, self.levels)

    def load(self) -> Counter[str]:
        """Replicas by node, those under way counted with their target."""
        found: Counter[str] = Counter()
        for assignment in self.assignments.values():
            found.update(
                {*assignment["replicas"], *assignment["adding"]} - {*assignment["removing"]}
            )
        return found

    def speaks(self, shard: Shard) -> bool:
        """Whether an open violation speaks of a required rule of the shard's policy."""
        return any(
            violation["strength"] == "required" and violation["rule"] != "replicas"
            for violation in self.open_violations.get(shard, ())
        )


def _planned(assignment: Value) -> list[str]:
    held = [*assignment["replicas"], *assignment["adding"]]
    return [node for node in held if node not in assignment["removing"]]
