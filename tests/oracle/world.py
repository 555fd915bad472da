"""The oracle's picture of the world: the last record of every key, and what it means."""

from collections import Counter
from collections.abc import Sequence

from placement.model import Resource
from tests.oracle.policy import Judge, Value, copies

Shard = tuple[str, int]

OPEN_STATES = ("issued", "accepted")
ALIVE = ("up", "suspect")


class World:
    """Records as the topics hold them. `levels` are the configured names of the tiers,
    `resources` those that are counted beside replicas."""

    def __init__(self, levels: Sequence[str] = (), resources: Sequence[Resource] = ()) -> None:
        self.nodes: dict[str, Value] = {}
        self.decisions: dict[str, Value] = {}
        self.assignments: dict[Shard, Value] = {}
        self.moves: dict[str, Value] = {}
        self.all_moves: dict[str, Value] = {}
        self.open_moves: dict[Shard, str] = {}
        self.open_violations: dict[Shard, list[Value]] = {}
        # What is remembered beside these, by kind and name.
        self.memory: dict[str, dict[str, Value]] = {}
        # Reported loads of shards.
        self.loads: dict[Shard, Value] = {}
        # Replicas that executors say are gone, as far as no batch has been judged since.
        self.lost: dict[Shard, set[str]] = {}
        # Replicas that executors say are there, as far as no batch has been judged since.
        self.observed: dict[Shard, list[set[str]]] = {}
        self.levels, self.resources = tuple(levels), tuple(resources)

    def lose(self, shard: Shard, node_id: str) -> None:
        """An executor says that a replica is gone."""
        self.lost.setdefault(shard, set()).add(node_id)

    def spec(self, stream: str) -> Value:
        """What is in force for a stream."""
        spec: Value = self.decisions[stream]["spec"]
        return spec

    def copies(self, stream: str) -> int:
        """Replicas of a whole shard of the stream."""
        return copies(self.spec(stream))

    def quorum(self, stream: str) -> int:
        """Replicas in sync that a shard of the stream needs."""
        spec = self.spec(stream)
        words = {"one": 1, "majority": spec["replication_factor"] // 2 + 1}
        return int(words.get(spec["quorum"], spec["quorum"]))

    def out_of_sync(self, shard: Shard) -> set[str]:
        """Nodes whose replica of the shard executors found to be behind."""
        body = self.memory.get("out_of_sync", {}).get(f"{shard[0]}/{shard[1]}", {"nodes": ()})
        return {*body["nodes"]}

    def alive(self, node_id: str | None) -> bool:
        """Whether replicas on the node live."""
        return self.nodes.get(node_id or "", {}).get("liveness") in ALIVE

    def may_receive(self, node_id: str) -> bool:
        """Whether the node may be given replicas."""
        node = self.nodes.get(node_id, {})
        told = (node.get("liveness"), node.get("administrative"), node.get("guard"))
        return told == ("up", "none", "none")

    def may_be_fenced(self, move: Value) -> bool:
        """Kafka's striping takes a fenced broker as a follower where it has no other."""
        node = self.nodes.get(move["add"], {})
        told = (node.get("liveness"), node.get("administrative"), node.get("guard"))
        striped = self.decisions[move["stream"]].get("strategy") == "striped"
        return striped and move["slot"] > 0 and told == ("suspect", "none", "none")

    def renews(self, move: Value) -> bool:
        """Whether the move is an earlier one that goes on under another leader."""
        before = self.all_moves.get(move["supersedes"]) or {}
        return all(before.get(key) == move[key] for key in ("remove", "add", "kind"))

    def is_draining(self, node_id: str) -> bool:
        """Whether the node is to be emptied."""
        return bool(self.nodes[node_id]["administrative"] == "draining")

    def live(self, replicas: Sequence[str]) -> list[str]:
        """Those of the nodes that live."""
        return [node for node in replicas if self.alive(node)]

    def is_away(self, node_id: str) -> bool:
        """Whether the node is dead and its replicas are meant to stay all the same: it is in
        maintenance, or held with many others that went at once."""
        node = self.nodes.get(node_id, {})
        if node.get("liveness") != "dead":
            return False
        return node["administrative"] == "maintenance" or self._is_held(node)

    def _is_held(self, node: Value) -> bool:
        reached = [
            hold["overridden"]
            for hold in self.memory.get("hold", {}).values()
            if node["since"] >= hold["since"]
            and f"{node['location']}/".startswith(f"{hold['domain'] or ''}/")
        ]
        return bool(reached) and not any(reached)

    def kept(self, replicas: Sequence[str]) -> list[str]:
        """Those of the nodes whose replicas need not be replaced."""
        return [node for node in replicas if self.alive(node) or self.is_away(node)]

    def staying(self, replicas: Sequence[str]) -> list[str]:
        """Those of them that count where they stand: their nodes are neither to be emptied nor at a
        doubtful place."""
        return [node for node in self.kept(replicas) if not self.is_leaving(node)]

    def settled(self, replicas: Sequence[str]) -> list[str]:
        """Those of them whose nodes are not to be emptied, at doubtful places, too."""
        return [node for node in self.kept(replicas) if not self.is_draining(node)]

    def is_leaving(self, node_id: str) -> bool:
        """Whether the node is to be emptied, or where it stands is doubtful."""
        return self.is_draining(node_id) or self.nodes[node_id]["guard"] == "quarantined"

    def may_stay(self, node_id: str) -> bool:
        """Whether the node's domains count when an arrangement is judged."""
        return bool(self.staying([node_id]))

    def planned(self, stream: str) -> dict[int, list[str]]:
        """Replicas of a stream by shard once all moves under way have been completed."""
        found = {n: a for (name, n), a in self.assignments.items() if name == stream}
        return {number: _planned(found[number]) for number in sorted(found)}

    def lists(self, stream: str) -> dict[int, list[str]]:
        """Replicas of a stream by shard."""
        found = {n: a["replicas"] for (name, n), a in self.assignments.items() if name == stream}
        return {number: list(found[number]) for number in sorted(found)}

    def judge(self, stream: str, accounted: bool = False) -> Judge:
        """The stream's required policy over the nodes as they are; `accounted`: domains count
        while a replica may stay there, not only where a new one may come."""
        counts = self.may_stay if accounted else self.may_receive
        return Judge(self.spec(stream), self.nodes, self.levels, counts)

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
