"""The shared oracle: judges what a reconciler published, from its records alone.

Random histories, the Spark application and the end-to-end tests feed it the same records, as the
plain dicts that stand on the topics. It knows nothing of the planner: state
is put together again from the records (`world`), moves are judged as they are issued (`moves`),
batches as they end (`batch`), topics against each other (`epochs`), fleets at rest
(`steady_state`), policies anew (`policy`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from placement.model import (
    AckKind,
    Event,
    MoveAcked,
    OperatorAsked,
    Ready,
    ReplicaLost,
    ReplicasObserved,
    Resource,
)
from tests.oracle.batch import (
    judge_answers,
    judge_counts,
    judge_forgotten,
    judge_limits,
    judge_open,
    judge_shard,
    judge_sync,
)
from tests.oracle.cancellations import CALLED_OFF, Unmarked
from tests.oracle.epochs import judge_epoch, judge_step
from tests.oracle.loads import judge_capacity, judge_speakers
from tests.oracle.movement import MovementBound
from tests.oracle.moves import judge_form, judge_need, judge_words
from tests.oracle.policy import UNKNOWN_NODE, Value
from tests.oracle.steady_state import judge_missed, judge_whole
from tests.oracle.world import OPEN_STATES, Shard, World

# Records leave out what is not set.
UNSET: dict[str, Value] = {
    "topology.v1": {**UNKNOWN_NODE, "administrative": "none", "guard": "none"},
    "decisions.v1": {"requested": None},
    "assignments.v1": {"move_id": None, "roles": None},
    "moves.v1": dict.fromkeys(
        (
            *("remove", "add", "source", "supersedes", "ended_at", "rate_bytes_per_second"),
            *("reminded", "leader", "bytes"),
        )
    ),
    "violations.v1": {},
    "state.v1": {},
    "load.v1": {},
}
# Causes of moves that nothing but a rule asks for: these never go back and forth.
RULE_CAUSES = ("required_rule", "preferred_rule")
# What may differ between two records of one move.
MOVE_PROGRESS = ("state", "reason", "ended_at", "reminded")
# Fields that change when a report of progress extends the deadline.
RENEWAL = ("deadline", "renewed_at", "bytes_done", "bytes_total")


def records_of(ready: Ready) -> Iterator[tuple[str, str, Value | None]]:
    """(topic, key, value) of everything in `ready`, as the topics carry it."""
    for node_id, view in ready.topology.items():
        value = None
        if view is not None:
            value = as_plain(view)
            value |= value.pop("attributes")
            value["tags"] = dict(view.attributes.tags)
        yield "topology.v1", node_id, value
    for (kind, name), memory in ready.memory.items():
        yield "state.v1", f"{kind}/{name}", None if memory is None else as_plain(memory)
    for (stream, shard), load in ready.loads.items():
        yield "load.v1", f"{stream}/{shard}", None if load is None else as_plain(load)
    for stream, decision in ready.decisions.items():
        yield "decisions.v1", stream, as_plain(decision)
    yield from (("decisions.v1", stream, None) for stream in ready.forgotten)
    yield from (("assignments.v1", f"{stream}/{shard}", None) for stream, shard in ready.dropped)
    for (stream, shard), assignment in ready.assignments.items():
        yield "assignments.v1", f"{stream}/{shard}", as_plain(assignment)
    for move_id, (move, dropped) in ready.moves.items():
        yield "moves.v1", move_id, None if dropped else as_plain(move)
    for (stream, shard), violations in ready.violations.items():
        listed = [as_plain(v) | {"class": v.violation_class} for v in violations]
        value = {"stream": stream, "shard": shard, "violations": listed} if listed else None
        yield "violations.v1", f"{stream}/{shard}", value


def as_plain(value: Any) -> Any:
    """A record as plain dicts and tuples; what is none of its own is shared, not copied."""
    names = _field_names(type(value))
    if names:
        return {name: as_plain(getattr(value, name)) for name in names}
    return tuple(map(as_plain, value)) if isinstance(value, tuple) else value


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind))
    return getattr(kind, "_fields", ())


class Log(World):
    """Everything published, in commit order.

    `ordered=False` says that the topics were read one by one, so that only the order within a
    topic is known: checks of a moment (was the target up when the move was issued) are left out,
    joins by epoch and id are made all the same. `levels` are the configured names of the tiers,
    `limits` those that moves have to keep, `remind_ms` the time after which executors are told
    again of moves that were called off. `resources`: those that are counted.
    """

    def __init__(
        self,
        ordered: bool = True,
        levels: Sequence[str] = (),
        limits: Any = None,
        remind_ms: int | None = None,
        resources: Sequence[Resource] = (),
    ) -> None:
        super().__init__(levels, resources)
        self._ordered = ordered
        self._limits = limits
        self._unmarked = Unmarked(remind_ms)
        self._bodies: dict[object, Value] = {}
        self._epochs: dict[Shard, list[Value]] = {}
        # Requests that may be spoken of again: accepted ones.
        self._accepted: set[str] = set()
        self._completed: dict[Shard, list[Value]] = {}
        # Nodes that a rule made a shard leave, and by which move, since the fleet last changed.
        self._left: dict[tuple[Shard, str], str] = {}
        self.movement = MovementBound(self)
        # Nodes that were forgotten in this batch.
        self._forgotten: set[str] = set()
        # Whether a stream was dropped: epochs of new shards may begin higher from then on.
        self._dropped = False
        self._steps: list[tuple[Value | None, Value]] = []
        self._issued: list[Value] = []
        # Loads that were published in this batch.
        self._spoken: list[Value] = []
        self._found: list[str] = []

    def feed(self, topic: str, key: str, value: Value | None, record_id: str | None = None) -> None:
        """Take in one record of a topic (short name); None is a tombstone."""
        handlers = {
            "topology.v1": self._take_node,
            "decisions.v1": self._take_decision,
            "assignments.v1": self._take_assignment,
            "moves.v1": self._take_move,
            "violations.v1": self._take_violations,
            "state.v1": self._take_memory,
            "load.v1": self._take_load,
        }
        handler = handlers.get(topic)
        if handler is None:
            return
        if value is not None:
            value = {**UNSET[topic], **value}
            self._judge_identity(topic, key, value, record_id)
        handler(key, value)

    def feed_ready(self, ready: Ready, caught_up: bool = True, now: int | None = None) -> None:
        """Take in one batch of the core, and judge the state that it leaves."""
        for topic, key, value in records_of(ready):
            self.feed(topic, key, value)
        self.commit(caught_up, now)

    def commit(self, caught_up: bool = True, now: int | None = None) -> None:
        """A batch ends here: judge what only holds between batches. `caught_up` says that the
        batch was allowed to repair, `now` is its time in ms."""
        lists: dict[str, list[list[str]]] = {stream: [] for stream in self.decisions}
        for shard, assignment in self.assignments.items():
            self._report(judge_shard(self, shard, caught_up))
            lists[shard[0]].append(assignment["replicas"])
        for stream, replicas in lists.items():
            self._report(judge_counts(self, stream, replicas))
        self._report(judge_open(self, caught_up, now))
        self._report(judge_sync(self))
        self._report(judge_forgotten(self, self._forgotten))
        self._forgotten.clear()
        if self._limits is not None:
            self._report(judge_limits(self, self._limits, self._issued))
        if self._ordered:
            self._report(judge_capacity(self, self._issued))
            self._report(judge_speakers(self, self._spoken, self._steps))
        if self._issued and not caught_up:
            self._report([f"moves are issued while the source is behind: {self._issued}"])
        self._report(self._unmarked.judge(self.memory.get("unmark", ()), now))
        if self._ordered:
            self._report(self._judge_joins())
            self._steps.clear()
            self.lost.clear()
            self.observed.clear()
        self._issued.clear()
        self._spoken.clear()

    def listen(self, events: Sequence[Event]) -> None:
        """Executors speak, in the batch that is fed next."""
        self._unmarked.hear(events)
        for event in events:
            if isinstance(event, ReplicaLost):
                self.lose((event.stream, event.shard), event.node_id)
            if isinstance(event, ReplicasObserved):
                shard = (event.stream, event.shard)
                self.observed.setdefault(shard, []).append({*event.replicas})
                self._end_settling(*shard)
                recorded = self.assignments.get(shard, {}).get("replicas", ())
                for node_id in sorted({*recorded} - {*event.replicas}):
                    self.lose(shard, node_id)

    def hear(self, ready: Ready, events: Sequence[Event]) -> None:
        """Hold what became of moves against what executors said in the same batch, and answers
        against requests."""
        acks = [event for event in events if isinstance(event, MoveAcked)]
        words = {(str(a.kind), a.move_id or f"{a.stream}/{a.shard}") for a in acks}
        # Whoever stops a move that was not called off gives it up.
        words |= {("failed", a.move_id) for a in acks if a.kind is AckKind.STOPPED and a.move_id}
        # Whoever reports progress has taken the move on.
        words |= {("accepted", name) for kind, name in words if kind == "progressed"}
        # A copy that is found whole is one that is completed.
        found = (event for event in events if isinstance(event, ReplicasObserved))
        words |= {("completed", f"{event.stream}/{event.shard}") for event in found}
        # A copy under way that is lost is a move that has failed.
        lost = (event for event in events if isinstance(event, ReplicaLost))
        words |= {("failed", f"{event.stream}/{event.shard}") for event in lost}
        moves = [as_plain(move) for move, dropped in ready.moves.values() if not dropped]
        self._report(judge_words(moves, words))
        asked = [event for event in events if isinstance(event, OperatorAsked)]
        self._report(judge_answers(asked, ready.answers, self._accepted))

    def violations(self) -> list[str]:
        """Everything found wrong so far, in words."""
        return [*self._found, *self._judge_joins()]

    def final_violations(self, reported_is_enough: bool = False, whole: bool = True) -> list[str]:
        """What is wrong in a fleet at rest: `violations()`, and every placed stream has all its
        replicas on live nodes within its required policy, and nothing is open.

        `reported_is_enough`: a broken required rule passes if an open violation speaks of it.
        `whole`: the fleet has all its nodes, so that no replica may be missing.
        """
        return [*self.violations(), *judge_whole(self, reported_is_enough, whole)]

    def movement_violations(self) -> list[str]:
        """What a fleet at rest could have been given by one move, and was not; and what was moved
        without need."""
        return [*judge_missed(self), *self.movement.judge()]

    def lose(self, shard: Shard, node_id: str) -> None:
        """An executor says that a replica is gone."""
        super().lose(shard, node_id)
        self.movement.lose(shard, node_id)

    # Records, one by one

    def _judge_identity(self, topic: str, key: str, value: Value, record_id: str | None) -> None:
        """Every id once, with one body."""
        natural = {
            "topology.v1": ("incarnation", "sequence", "revision"),
            "decisions.v1": ("sequence", "revision", "decided_at"),
            "assignments.v1": ("epoch",),
            "moves.v1": ("state", "reminded", "renewed_at"),
        }
        names: list[object] = [record_id] if record_id else []
        if topic in natural:
            names.append((topic, key, *map(value.get, natural[topic])))
        for name in names:
            if name in self._bodies:
                same = "the same" if self._bodies[name] == value else "another"
                self._say(f"id {name} came twice, with {same} body")
            self._bodies[name] = value

    def _take_node(self, key: str, value: Value | None) -> None:
        before = self.nodes.pop(key, None)
        self._left.clear()
        self._end_settling()
        if value is None:
            self._forgotten.add(key)
            return
        self._forgotten.discard(key)
        if before is not None and value["revision"] <= before["revision"]:
            self._say(f"node {key} went from revision {before['revision']} to {value}")
        self.nodes[key] = value

    def _take_load(self, key: str, value: Value | None) -> None:
        stream, _, number = key.rpartition("/")
        self.loads.pop((stream, int(number)), None)
        if value is not None:
            self.loads[stream, int(number)] = value
            self._spoken.append(value)

    def _take_decision(self, key: str, value: Value | None) -> None:
        if value is None:
            before = self.decisions.pop(key, None)
            if before is None or before["outcome"] != "dropped":
                self._say(f"decision {key} was forgotten as {before and before['outcome']}")
            return
        self._take_spec(key, value)
        revision = self.decisions[key]["revision"] if key in self.decisions else 0
        if value["revision"] <= revision:
            self._say(f"decision {key} went from revision {revision} to {value['revision']}")
        if (value["outcome"] == "rejected") > bool(value["reasons"]):
            self._say(f"decision {key} is {value['outcome']} without a reason")
        self.decisions[key] = value

    def _take_spec(self, stream: str, decision: Value) -> None:
        """Another spec asks for other places: where a rule made shards leave counts anew."""
        before = self.decisions.get(stream)
        if before is None or before["spec"] == decision["spec"]:
            return
        self._left = {left: move for left, move in self._left.items() if left[0][0] != stream}
        self._end_settling(stream)

    def _take_assignment(self, key: str, value: Value | None) -> None:
        stream, _, number = key.rpartition("/")
        shard = (stream, int(number))
        before = self.assignments.get(shard)
        if value is None:
            if before is None:
                self._say(f"{key} was taken away and was not there")
            self.assignments.pop(shard, None)
            self._end_settling(*shard)
            self._dropped = True
            return
        self._judge_next(key, before, value["epoch"], self._epochs.get(shard))
        self.assignments[shard] = value
        self._epochs.setdefault(shard, []).append(value)
        self._steps.append((before, value))
        replicas, adding, removing = value["replicas"], value["adding"], value["removing"]
        if before is not None:
            self.movement.begin(shard, before["replicas"])
        if len({*replicas, *adding}) != len(replicas) + len(adding):
            self._say(f"{key} has a node twice: {replicas} adding {adding}")
        if not set(removing) <= set(replicas):
            self._say(f"{key} removes {removing}, which is none of {replicas}")
        if (adding or removing) and not value["move_id"]:
            told = f"adds {adding} and removes {removing}"
            self._say(f"{key} names move {value['move_id']} but {told}")

    def _judge_next(
        self, key: str, before: Value | None, epoch: int, history: list[Value] | None
    ) -> None:
        """Epochs rise by one; those of a stream that was dropped never come again."""
        if before is not None:
            follows = epoch == before["epoch"] + 1
        elif history:
            follows = epoch > history[-1]["epoch"]
        else:
            follows = epoch >= 1 if self._dropped else epoch == 1
        if not follows:
            self._say(f"{key} went to epoch {epoch} from {before and before['epoch']}")

    def _take_move(self, key: str, value: Value | None) -> None:
        before = self.moves.pop(key, None)
        if value is None:
            if before is None or before["state"] in OPEN_STATES:
                self._say(f"move {key} was forgotten as {before and before['state']}")
            self._unmarked.forget(key)
            return
        self.moves[key] = self.all_moves[key] = value
        shard, state = (value["stream"], value["shard"]), value["state"]
        if before is None:
            self._judge_issue(key, value)
        else:
            self._judge_progress(key, before, value)
        if (value["ended_at"] is None) != (state in OPEN_STATES):
            self._say(f"move {key} is {state} and ended at {value['ended_at']}")
        if state in OPEN_STATES:
            if self.open_moves.setdefault(shard, key) != key:
                self._say(f"{shard} has two open moves: {key} and {self.open_moves[shard]}")
        else:
            self._take_end(shard, key, value)

    def _judge_progress(self, key: str, before: Value, move: Value) -> None:
        changed = [f for f in move if move[f] != before[f] and f not in MOVE_PROGRESS]
        if {*changed} & {*RENEWAL}:
            self._judge_renewal(key, before, move)
            changed = [f for f in changed if f not in RENEWAL]
        if changed:
            self._say(f"move {key} changed its {changed}")
        if before["state"] in CALLED_OFF:
            self._report(self._unmarked.judge_reminder(before, move))
        elif before["state"] not in OPEN_STATES or move["state"] == "issued":
            self._say(f"move {key} went from {before['state']} to {move['state']}")

    def _judge_renewal(self, key: str, before: Value, move: Value) -> None:
        """Progress extends the lease of an open move, and never shortens it."""
        renewed, last = move.get("renewed_at"), before.get("renewed_at") or move["issued_at"]
        if renewed is None or renewed <= last or move["deadline"] <= before["deadline"]:
            self._say(f"move {key} was renewed from {before} to {move}")
        if before["state"] not in OPEN_STATES:
            self._say(f"move {key} was renewed when it was {before['state']}")

    def _judge_issue(self, key: str, move: Value) -> None:
        self._issued.append(move)
        self._report(judge_form(self, key, move))
        if not self._ordered:
            return
        self._report(judge_need(self, key, move))
        shard = (move["stream"], move["shard"])
        if move["add"]:
            self.movement.issue(shard, move)
        if move["cause"] in RULE_CAUSES:
            if (shard, move["add"]) in self._left and not self.movement.follows_order(move):
                self._say(f"move {key} brings {shard} back to {move['add']}, which a rule left")
            self._left[shard, move["remove"]] = key

    def _take_end(self, shard: Shard, key: str, move: Value) -> None:
        if move["state"] in CALLED_OFF:
            self._unmarked.call_off(move)
        if self.open_moves.get(shard) == key:
            del self.open_moves[shard]
        left = (shard, move["remove"])
        if move["state"] == "completed":
            self._completed.setdefault(shard, []).append(move)
            self.movement.complete(shard, move)
        elif self._left.get(left) == key:
            del self._left[left]

    def _take_violations(self, key: str, value: Value | None) -> None:
        stream, _, number = key.rpartition("/")
        if value is None:
            if self.open_violations.pop((stream, int(number)), None) is None:
                self._say(f"violations of {key} were healed twice")
        else:
            self.open_violations[stream, int(number)] = value["violations"]

    def _take_memory(self, key: str, value: Value | None) -> None:
        kind, _, name = key.partition("/")
        if kind == "hold":
            self._end_settling()
        if kind == "backoff" and value is None:
            stream, number, _ = name.rsplit("/", 2)
            self._end_settling(stream, int(number))
        self.memory.setdefault(kind, {}).pop(name, None)
        if value is not None:
            self.memory[kind][name] = value["body"]

    def _end_settling(self, stream: str | None = None, number: int | None = None) -> None:
        """What shards rest on changes: what they have moved since it last did is judged."""
        if self._ordered:
            self._report(self.movement.end(stream, number))

    def _judge_joins(self) -> Iterator[str]:
        """Joins that have not been judged: in order those of this batch, else all."""
        for before, after in self._steps:
            shard = (after["stream"], after["shard"])
            yield from judge_step(self, before, after, self._completed.get(shard, ()))
        for move in self._issued if self._ordered else self.all_moves.values():
            yield from judge_epoch(move, self._epochs.get((move["stream"], move["shard"]), ()))

    def _say(self, what: str) -> None:
        self._found.append(what)

    def _report(self, found: Iterable[str]) -> None:
        self._found.extend(found)
