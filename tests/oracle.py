"""The shared oracle: judges what a reconciler published, from its records alone.

Random histories, the Spark application and the end-to-end tests feed it the same records, as the
plain dicts that stand on the topics (design section 5.1). It knows nothing of the planner: state
is put together again from the records, and policies are judged by `tests.oracle_policy`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from placement.model import Ready
from tests.oracle_policy import UNKNOWN_NODE, Value, broken_policy, copies

Shard = tuple[str, int]

OPEN_STATES = ("issued", "accepted")
ALIVE = ("up", "suspect")
# Records leave out what is not set.
UNSET: dict[str, Value] = {
    "topology.v1": {**UNKNOWN_NODE, "administrative": "none", "guard": "none"},
    "decisions.v1": {},
    "assignments.v1": {"move_id": None, "roles": None},
    "moves.v1": dict.fromkeys(("remove", "add", "source", "supersedes", "ended_at")),
    "violations.v1": {},
    "state.v1": {},
}
# Causes of moves that nothing but a rule asks for: these never go back and forth.
RULE_CAUSES = ("required_rule", "preferred_rule")
# What may differ between two records of one move.
MOVE_PROGRESS = ("state", "reason", "ended_at")


def records_of(ready: Ready) -> Iterator[tuple[str, str, Value | None]]:
    """(topic, key, value) of everything in `ready`, as the topics carry it."""
    for node_id, view in ready.topology.items():
        value = None
        if view is not None:
            value = asdict(view)
            value |= value.pop("attributes")
            value["tags"] = dict(view.attributes.tags)
        yield "topology.v1", node_id, value
    for stream, decision in ready.decisions.items():
        yield "decisions.v1", stream, asdict(decision)
    for (stream, shard), assignment in ready.assignments.items():
        yield "assignments.v1", f"{stream}/{shard}", asdict(assignment)
    for move_id, (move, dropped) in ready.moves.items():
        yield "moves.v1", move_id, None if dropped else asdict(move)
    for (stream, shard), violations in ready.violations.items():
        listed = [asdict(v) | {"class": v.violation_class} for v in violations]
        value = {"stream": stream, "shard": shard, "violations": listed} if listed else None
        yield "violations.v1", f"{stream}/{shard}", value
    for (kind, name), memory in ready.memory.items():
        yield "state.v1", f"{kind}/{name}", None if memory is None else asdict(memory)


class Log:
    """Everything published, in commit order.

    `ordered=False` says that the topics were read one by one, so that only the order within a
    topic is known: checks of a moment (was the target up when the move was issued) are left out,
    joins by epoch and id are made all the same. `levels` are the configured names of the tiers.
    """

    def __init__(self, ordered: bool = True, levels: Sequence[str] = ()) -> None:
        self.nodes: dict[str, Value] = {}
        self.decisions: dict[str, Value] = {}
        self.assignments: dict[Shard, Value] = {}
        self.moves: dict[str, Value] = {}
        self.open_violations: dict[Shard, list[Value]] = {}
        self._ordered = ordered
        self._levels = tuple(levels)
        self._bodies: dict[object, Value] = {}
        self._epochs: dict[Shard, list[Value]] = {}
        self.all_moves: dict[str, Value] = {}
        self._open: dict[Shard, str] = {}
        # Nodes that a rule made a shard leave, and by which move, since the fleet last changed.
        self._left: dict[tuple[Shard, str], str] = {}
        self._found: list[str] = []

    def feed(self, topic: str, key: str, value: Value | None, record_id: str | None = None) -> None:
        """Take in one record of a topic (short name); None is a tombstone."""
        handlers = {
            "topology.v1": self._node,
            "decisions.v1": self._decision,
            "assignments.v1": self._assignment,
            "moves.v1": self._move,
            "violations.v1": self._violations,
        }
        handler = handlers.get(topic)
        if handler is None:
            return
        if value is not None:
            value = {**UNSET[topic], **value}
            self._identity(topic, key, value, record_id)
        handler(key, value)

    def feed_ready(self, ready: Ready, caught_up: bool = True) -> None:
        """Take in one batch of the core, and judge the state that it leaves."""
        for topic, key, value in records_of(ready):
            self.feed(topic, key, value)
        self.commit(caught_up)

    def commit(self, caught_up: bool = True) -> None:
        """A batch ends here: judge what only holds between batches. `caught_up` says that the
        batch was allowed to repair."""
        for shard, assignment in self.assignments.items():
            self._judge_shard(shard, assignment, caught_up)
        for stream, decision in self.decisions.items():
            self._judge_counts(stream, decision)

    def violations(self) -> list[str]:
        """Everything found wrong so far, in words."""
        found = list(self._found)
        done: dict[Shard, list[Value]] = {}
        for move in self.all_moves.values():
            if move["state"] == "completed":
                done.setdefault((move["stream"], move["shard"]), []).append(move)
        for shard, history in self._epochs.items():
            for before, after in zip([None, *history], history, strict=False):
                found += self._judge_step(before, after, done.get(shard, []))
        for move in self.all_moves.values():
            found += self._judge_epoch(move)
        return found

    def final_violations(self, reported_is_enough: bool = False) -> list[str]:
        """What is wrong in a fleet at rest: `violations()`, and every placed stream has all its
        replicas on live nodes within its required policy, and nothing is open.

        `reported_is_enough`: a broken required rule passes if an open violation speaks of it.
        """
        found = self.violations()
        found += [f"move {move_id} of {shard} is open" for shard, move_id in self._open.items()]
        for stream, decision in self.decisions.items():
            spec = decision["spec"]
            shards = {n: a for (s, n), a in self.assignments.items() if s == stream}
            if decision["outcome"] in ("rejected", "waiting"):
                found += (
                    [f"{stream} is {decision['outcome']} and has assignments"] if shards else []
                )
                continue
            if sorted(shards) != list(range(spec["shards"])):
                found.append(f"{stream} has shards {sorted(shards)} of {spec['shards']}")
                continue
            for number, assignment in shards.items():
                replicas = assignment["replicas"]
                live = [node for node in replicas if self._alive(node)]
                waits = decision["outcome"] == "partial" and len(live) == len(replicas)
                if len(replicas) > copies(spec) and spec.get("repair") != "dead_only":
                    found.append(f"{stream}/{number} has too many replicas: {replicas}")
                emptied = [n for n in live if self.nodes[n]["administrative"] == "draining"]
                if emptied and not self._admits(stream, number):
                    found.append(f"{stream}/{number} is still on {emptied}")
                if len(live) < copies(spec) and not waits:
                    found.append(f"{stream}/{number} has live replicas {live} only")
            spoken = {n for n in shards if self._admits(stream, n)}
            replicas = [shards[number]["replicas"] for number in sorted(shards)]
            for number, broken in broken_policy(spec, replicas, self.nodes, self._levels):
                told = number in spoken if number is not None else bool(spoken)
                if not (reported_is_enough and told):
                    found.append(f"{stream}/{number}: {broken}")
        return found

    # Records, one by one

    def _identity(self, topic: str, key: str, value: Value, record_id: str | None) -> None:
        """Every id once, with one body (guarantee G2)."""
        natural = {
            "topology.v1": ("incarnation", "sequence", "revision"),
            "decisions.v1": ("revision",),
            "assignments.v1": ("epoch",),
            "moves.v1": ("state",),
        }
        names: list[object] = [record_id] if record_id else []
        if topic in natural:
            names.append((topic, key, *(value[field] for field in natural[topic])))
        for name in names:
            if name in self._bodies:
                same = "the same" if self._bodies[name] == value else "another"
                self._wrong(f"id {name} came twice, with {same} body")
            self._bodies[name] = value

    def _node(self, key: str, value: Value | None) -> None:
        before = self.nodes.pop(key, None)
        self._left.clear()
        if value is None:
            return
        if before is not None and value["revision"] <= before["revision"]:
            self._wrong(f"node {key} went from revision {before['revision']} to {value}")
        self.nodes[key] = value

    def _decision(self, key: str, value: Value | None) -> None:
        assert value is not None, "no tombstones of decisions yet"
        revision = self.decisions[key]["revision"] if key in self.decisions else 0
        if value["revision"] <= revision:
            self._wrong(f"decision {key} went from revision {revision} to {value['revision']}")
        if (value["outcome"] == "rejected") > bool(value["reasons"]):
            self._wrong(f"decision {key} is {value['outcome']} without a reason")
        self.decisions[key] = value

    def _assignment(self, key: str, value: Value | None) -> None:
        assert value is not None, "no tombstones of assignments yet"
        shard = (value["stream"], value["shard"])
        before = self.assignments.get(shard)
        if value["epoch"] != (before["epoch"] if before else 0) + 1:
            self._wrong(f"{key} went to epoch {value['epoch']} from {before and before['epoch']}")
        self.assignments[shard] = value
        self._epochs.setdefault(shard, []).append(value)
        replicas, adding, removing = value["replicas"], value["adding"], value["removing"]
        if len({*replicas, *adding}) != len(replicas) + len(adding):
            self._wrong(f"{key} has a node twice: {replicas} adding {adding}")
        if not set(removing) <= set(replicas):
            self._wrong(f"{key} removes {removing}, which is none of {replicas}")
        if bool(value["move_id"]) != bool(adding or removing):
            told = f"adds {adding} and removes {removing}"
            self._wrong(f"{key} names move {value['move_id']} but {told}")

    def _move(self, key: str, value: Value | None) -> None:
        before = self.moves.pop(key, None)
        if value is None:
            if before is None or before["state"] in OPEN_STATES:
                self._wrong(f"move {key} was forgotten as {before and before['state']}")
            return
        self.moves[key] = self.all_moves[key] = value
        shard, state = (value["stream"], value["shard"]), value["state"]
        if before is None:
            self._issued(key, value)
        else:
            changed = [f for f in value if value[f] != before[f] and f not in MOVE_PROGRESS]
            if changed:
                self._wrong(f"move {key} changed its {changed}")
            if before["state"] not in OPEN_STATES or state == "issued":
                self._wrong(f"move {key} went from {before['state']} to {state}")
        if (value["ended_at"] is None) != (state in OPEN_STATES):
            self._wrong(f"move {key} is {state} and ended at {value['ended_at']}")
        if state in OPEN_STATES:
            if self._open.setdefault(shard, key) != key:
                self._wrong(f"{shard} has two open moves: {key} and {self._open[shard]}")
        else:
            self._closed(shard, key, value)

    def _closed(self, shard: Shard, key: str, move: Value) -> None:
        if self._open.get(shard) == key:
            del self._open[shard]
        left = (shard, move["remove"])
        if move["state"] != "completed" and self._left.get(left) == key:
            del self._left[left]

    def _issued(self, key: str, move: Value) -> None:
        """A move is seen for the first time; `completed` at once is the immediate mode."""
        if move["state"] not in ("issued", "completed"):
            self._wrong(f"move {key} began as {move['state']}")
        lacks = (move["remove"] is None, move["add"] is None)
        if lacks != (move["kind"] == "add", move["kind"] == "remove"):
            told = f"adds {move['add']} and removes {move['remove']}"
            self._wrong(f"move {key} of kind {move['kind']} {told}")
        if move["deadline"] <= move["issued_at"]:
            self._wrong(f"move {key} was late when it was issued")
        superseded = self.all_moves.get(move["supersedes"])
        if move["supersedes"] and (superseded is None or superseded["state"] != "superseded"):
            self._wrong(f"move {key} supersedes {superseded}")
        if self._ordered:
            self._judge_issue(key, move)

    def _judge_issue(self, key: str, move: Value) -> None:
        """A move as it is issued: is it needed, and may its target receive a replica."""
        shard, old, new = (move["stream"], move["shard"]), move["remove"], move["add"]
        if new and not self._may_receive(new) and not self._may_be_fenced(move):
            self._wrong(f"move {key} aims at {new}, which may not receive replicas")
        if move["source"] and not self._alive(move["source"]):
            self._wrong(f"move {key} copies from {move['source']}, which does not live")
        if move["kind"] == "remove":
            self._judge_removal(key, move)
        elif self._alive(old) and not move["supersedes"]:
            draining = self.nodes[old]["administrative"] == "draining"
            why = move["reason"]["code"]
            if why != "RULE_NOT_MET" and not (why == "NODE_DRAINING" and draining):
                self._wrong(f"move {key} replaces the replica on {old}, which lives")
        if move["cause"] in RULE_CAUSES:
            if (shard, new) in self._left:
                self._wrong(f"move {key} brings {shard} back to {new}, which a rule made it leave")
            self._left[shard, old] = key

    def _judge_removal(self, key: str, move: Value) -> None:
        """Only a surplus is removed, and nothing healthy while something else remains."""
        shard, old = (move["stream"], move["shard"]), move["remove"]
        held = [*self.assignments[shard]["replicas"]]
        # A move that is completed at once is in no list any more.
        held += [] if old in held else [old]
        factor = copies(self.decisions[shard[0]]["spec"])
        if len(held) <= factor:
            self._wrong(f"move {key} removes {old} of {held}, {factor} are asked for")
        live = [node for node in held if self._alive(node)]
        # A removal that an executor has begun goes on when another leader makes it anew.
        needed = len(live) <= factor or len(live) < len(held)
        if needed and self._alive(old) and not move["supersedes"]:
            self._wrong(f"move {key} removes the live replica on {old}, with {live} of {held}")

    def _violations(self, key: str, value: Value | None) -> None:
        stream, _, number = key.rpartition("/")
        if value is None:
            if self.open_violations.pop((stream, int(number)), None) is None:
                self._wrong(f"violations of {key} were healed twice")
        else:
            self.open_violations[stream, int(number)] = value["violations"]

    # Between batches

    def _judge_shard(self, shard: Shard, assignment: Value, caught_up: bool) -> None:
        replicas = assignment["replicas"]
        live = [node for node in replicas if self._alive(node)]
        if live and live[0] != replicas[0] and caught_up:
            self._wrong(f"{shard} is led by {replicas[0]}, which is dead, though {live[0]} lives")
        said = [v for v in self.open_violations.get(shard, ()) if v["rule"] == "replicas"]
        factor = copies(self.decisions[shard[0]]["spec"])
        if [v["count"] for v in said] != ([len(live)] if len(live) < factor else []):
            self._wrong(f"{shard} has {len(live)} of {factor} replicas, its violations are {said}")
        if (self._open.get(shard) or None) != assignment["move_id"]:
            self._wrong(f"{shard} shows move {assignment['move_id']}, not {self._open.get(shard)}")

    def _judge_counts(self, stream: str, decision: Value) -> None:
        spec, outcome = decision["spec"], decision["outcome"]
        shards = [a for (name, _), a in self.assignments.items() if name == stream]
        factor = copies(spec)
        placed = sum(len(a["replicas"]) for a in shards)
        whole = sum(len(a["replicas"]) >= factor for a in shards)
        missing = spec["shards"] * factor - sum(min(len(a["replicas"]), factor) for a in shards)
        if outcome == "rejected":
            missing = 0
        said = (decision["shards_placed"], decision["replicas_missing"])
        if said != (whole, missing):
            self._wrong(f"{stream}: shards placed, replicas missing {said} are {whole, missing}")
        wanted = {"placed": missing == 0, "degraded": missing == 0, "waiting": placed == 0}
        if not wanted.get(outcome, True) or (outcome == "partial" and not (placed and missing)):
            self._wrong(f"{stream} is {outcome} with {placed} replicas, {missing} missing")

    def _admits(self, stream: str, shard: int) -> bool:
        """Whether an open violation speaks of a required rule of the shard's policy."""
        return any(
            violation["strength"] == "required" and violation["rule"] != "replicas"
            for violation in self.open_violations.get((stream, shard), ())
        )

    def _alive(self, node_id: str) -> bool:
        return self.nodes.get(node_id, {}).get("liveness") in ALIVE

    def _may_receive(self, node_id: str) -> bool:
        node = self.nodes.get(node_id, {})
        told = (node.get("liveness"), node.get("administrative"), node.get("guard"))
        return told == ("up", "none", "none")

    def _may_be_fenced(self, move: Value) -> bool:
        """Kafka's striping takes a fenced broker as a follower where it has no other."""
        strategy = self.decisions[move["stream"]].get("strategy")
        node = self.nodes.get(move["add"], {})
        told = (node.get("liveness"), node.get("administrative"), node.get("guard"))
        return strategy == "striped" and move["slot"] > 0 and told == ("suspect", "none", "none")

    def _wrong(self, what: str) -> None:
        self._found.append(what)

    # Joins by epoch and id

    def _judge_step(
        self, before: Value | None, after: Value, completed: Sequence[Value]
    ) -> list[str]:
        """A shard's replicas change by a completed move only, and shown moves are known."""
        name = f"{after['stream']}/{after['shard']} at epoch {after['epoch']}"
        shown = self.all_moves.get(after["move_id"])
        found = []
        if after["move_id"] and (shown is None or shown["expected_epoch"] != after["epoch"]):
            found.append(f"{name} shows a move of another epoch: {shown}")
        if before is None:
            return found
        lost = sorted(set(before["replicas"]) - set(after["replicas"]))
        gained = sorted(set(after["replicas"]) - set(before["replicas"]))
        epochs = (before["epoch"], after["epoch"])
        done = [move for move in completed if move["expected_epoch"] in epochs]
        explained = [[[m[n]] if m[n] else [] for n in ("remove", "add")] for m in done]
        if (lost or gained) and [lost, gained] not in explained:
            found.append(f"{name} lost {lost} and gained {gained} without a completed move")
        return found

    def _judge_epoch(self, move: Value) -> list[str]:
        """A move is valid at the epoch that its issue published, where the shard shows it."""
        history = self._epochs.get((move["stream"], move["shard"]), [])
        at = [a for a in history if a["epoch"] == move["expected_epoch"]]
        if move["add"]:
            shown = [a for a in at if a["move_id"] == move["move_id"]]
            shown = [a for a in shown if move["add"] in a["adding"]]
            shown += [a for a in at if move["add"] in a["replicas"] and not a["move_id"]]
        else:
            old = move["remove"]
            shown = [a for a in at if a["move_id"] == move["move_id"] and old in a["removing"]]
            shown += [a for a in at if old not in a["replicas"] and not a["move_id"]]
        if not shown:
            return [f"no assignment shows move {move}, only {at}"]
        if move["source"] and move["source"] not in {*shown[0]["replicas"], move["remove"]}:
            return [f"move {move} copies from a node that has no replica: {shown}"]
        return []
