"""The story language: a reconciler driven by text commands, one batch per command.

A behaviour told as a story can be read, and a change of it reviewed, without reading code. The
stories in `tests/placement/testdata` and `tests/simulation` and the histories of the simulator are
all told in it; the shared oracle judges every batch besides. The commands:

    settings       levels=a,b  max_in= max_out= max_open= max_per_batch=  completion=immediate
                   default='{strategy: …}'  deadline= retention= (seconds): a new, empty reconciler
    topology       lines `/site1 n1 n2 weight=2 capacity=4 leader=false disk=ssd`: these nodes are
                   up; what is no attribute is a tag; `-` is the location of nodes without one
    create         stream= shards= rf= [policies= | policy='{…}'] [quorum= replicas='n1 n2,n3']
                   [sequence= body= repair=dead_only]; `streams=12` creates t1 … t12 alike
    up, dead, suspect, unregister   nodes=n1,n2      relocate   node= location= [disk=ssd]
    drain, undrain                  nodes=n1,n2
    ack            kind=accepted|completed|failed moves=all|m1,m2 [reason=]: `all` are the open ones
    batch          lines are commands of the three kinds above, all in one batch
    tick           seconds=: time passes
    replan         nothing happens; at rest it answers nothing
    show           what=shards|nodes|layout|load|moves|violations|decisions [stream=]
    verify         the fleet is at rest: the oracle's final check
    rebuild        a new reconciler from the records alone; digests must agree, and so must the
                   next batch of both

Every command that makes a batch takes `caught_up=no`. Moves are called m1, m2, … as they appear.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from placement.events import AckKind, Event, MoveAcked, NodeChanged, StreamCreated
from placement.limits import Limits
from placement.model import AdministrativeState, Assignment, Liveness, Move, NodeAttributes, Ready
from placement.reconcile import Reconciler
from placement.state import Configuration
from tests.datadriven import CaseError, Command, parse_command
from tests.oracle import Log, records_of
from tests.placement.records import Records
from tests.story_answers import (
    alert_line,
    decision_lines,
    in_order,
    layout,
    move_line,
    reason_text,
    shard_line,
    violation_line,
)

LIVENESS = {
    "up": Liveness.UP,
    "dead": Liveness.DEAD,
    "suspect": Liveness.SUSPECT,
    "unregister": Liveness.UNREGISTERED,
}
ORDERS = {"drain": AdministrativeState.DRAINING, "undrain": AdministrativeState.NONE}


class Story:
    """One reconciler and what it has published."""

    def __init__(self) -> None:
        self.now = 0
        self.sequence = 0
        self.begin(Configuration())

    def begin(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.reconciler = Reconciler(configuration)
        self.twin: Reconciler | None = None
        self.records = Records()
        self.names: dict[str, str] = {}
        self.log = Log(levels=configuration.levels)

    def answer(self, command: Command) -> str:
        """Carry out one command."""
        makes = self.makers().get(command.name)
        if makes is not None:
            caught_up = command.take("caught_up", "yes") == "yes"
            return "\n".join(self.told(self.commit(list(makes(command)), caught_up)))
        commands: dict[str, Callable[[Command], str]] = {
            "settings": self.settings,
            "topology": self.topology,
            "show": self.show,
            "verify": self.verify,
            "rebuild": self.rebuild,
        }
        if command.name not in commands:
            raise CaseError(f"unknown command {command.name}")
        return commands[command.name](command)

    # Commands that are a batch

    def makers(self) -> dict[str, Callable[[Command], Iterator[Event]]]:
        """What turns a command into events."""
        return {
            **dict.fromkeys(LIVENESS, self.change_nodes),
            **dict.fromkeys(ORDERS, self.order),
            "relocate": self.relocate,
            "create": self.create,
            "ack": self.ack,
            "batch": self.batch,
            "tick": self.tick,
            "replan": lambda _: iter(()),
        }

    def batch(self, command: Command) -> Iterator[Event]:
        for line in command.read():
            inner = parse_command(line)
            yield from self.makers()[inner.name](inner)
            inner.check_used()

    def tick(self, command: Command) -> Iterator[Event]:
        self.now += int(float(command.take("seconds")) * 1000)
        return iter(())

    def change_nodes(self, command: Command) -> Iterator[Event]:
        for node_id in command.take("nodes").split(","):
            yield self.change(node_id, LIVENESS[command.name])

    def order(self, command: Command) -> Iterator[Event]:
        for node_id in command.take("nodes").split(","):
            known = self.records.nodes[node_id].liveness
            yield self.change(node_id, known, administrative=ORDERS[command.name])

    def relocate(self, command: Command) -> Iterator[Event]:
        node_id, location = command.take("node"), command.take("location")
        known = self.records.nodes[node_id]
        disk = command.given("disk")
        tags = (("disk", disk),) if disk else None
        yield self.change(node_id, known.liveness, location=location, tags=tags)

    def change(self, node_id: str, liveness: Liveness, **more: Any) -> NodeChanged:
        self.sequence += 1
        return NodeChanged(self.now, node_id, "a", self.sequence, liveness, **more)

    def create(self, command: Command) -> Iterator[Event]:
        count = int(command.take("streams", "0"))
        names = [f"t{n + 1}" for n in range(count)] or [command.take("stream")]
        quorum, policy, replicas = map(command.given, ("quorum", "policy", "replicas"))
        repair = command.given("repair")
        self.sequence += 1
        sequence = int(command.take("sequence", str(self.sequence)))
        for name in names:
            yield StreamCreated(
                at=self.now,
                stream=name,
                sequence=sequence,
                shards=int(command.take("shards", "1")),
                replication_factor=int(command.take("rf")),
                placement_policies=command.given("policies"),
                policy=None if policy is None else yaml.safe_load(policy),
                quorum=int(quorum) if quorum and quorum.isdecimal() else quorum,
                replicas=replicas and tuple(tuple(nodes.split()) for nodes in replicas.split(",")),
                body_hash=command.take("body", ""),
                repair=repair,
            )

    def ack(self, command: Command) -> Iterator[Event]:
        kind, moves = AckKind(command.take("kind")), command.take("moves")
        named = {name: move_id for move_id, name in self.names.items()}
        wanted = [named.get(name, name) for name in moves.split(",")]
        if moves == "all":
            wanted = [move.move_id for move in self.records.open_moves()]
        reason = command.given("reason")
        for move_id in wanted:
            move = self.log.all_moves.get(move_id, {"stream": "?", "shard": 0})
            yield MoveAcked(self.now, kind, move_id, move["stream"], move["shard"], reason)

    def commit(self, events: list[Event], caught_up: bool = True) -> Ready:
        """One batch, judged by the oracle and, after a rebuild, by the rebuilt twin."""
        ready = self.reconciler.apply(events, self.now, caught_up)
        self.records.commit(ready)
        for move_id in ready.moves:
            self.name(move_id)
        self.log.feed_ready(ready, caught_up)
        assert not self.log.violations(), self.log.violations()
        if self.twin is not None:
            again = self.twin.apply(events, self.now, caught_up)
            assert list(records_of(again)) == list(records_of(ready))
            self.reconciler, self.twin = self.twin, None
        return ready

    # Commands that are none

    def settings(self, command: Command) -> str:
        limits = {
            f"{name}{suffix}": int(command.take(name, "1000"))
            for name, suffix in (
                ("max_in", "_per_node"),
                ("max_out", "_per_node"),
                ("max_open", ""),
                ("max_per_batch", ""),
            )
        }
        self.begin(
            Configuration(
                levels=tuple(filter(None, command.take("levels", "").split(","))),
                default_policy=yaml.safe_load(command.take("default", "{strategy: spread}")),
                limits=Limits(**limits),
                acked=command.take("completion", "acked") == "acked",
                deadline_ms=int(command.take("deadline", "600")) * 1000,
                retention_ms=int(command.take("retention", "3600")) * 1000,
            )
        )
        return ""

    def topology(self, command: Command) -> str:
        events: list[Event] = []
        for line in command.read():
            location, *words = line.split()
            pairs = dict(word.split("=") for word in words if "=" in word)
            capacity = pairs.pop("capacity", None)
            attributes = NodeAttributes(
                location="" if location == "-" else location,
                weight=float(pairs.pop("weight", 1)),
                capacity=None if capacity is None else int(capacity),
                leader=pairs.pop("leader", "true") == "true",
                tags=tuple(sorted(pairs.items())),
            )
            events.extend(
                self.change(node_id, Liveness.UP, attributes=attributes)
                for node_id in words
                if "=" not in node_id
            )
        told = self.told(self.commit(events))
        locations = {view.attributes.location for view in self.records.nodes.values()}
        known = f"ok nodes={len(self.records.nodes)} locations={len(locations)}"
        return "\n".join((known, *told))

    def verify(self, _command: Command) -> str:
        found = self.log.final_violations()
        return "\n".join(found) if found else "ok"

    def rebuild(self, _command: Command) -> str:
        self.twin = self.records.rebuild(self.configuration, self.now)
        assert self.twin.digest == self.reconciler.digest
        assert self.twin.now == self.reconciler.now
        nodes, streams = len(self.records.nodes), len(self.records.decisions)
        return f"ok nodes={nodes} streams={streams} open={self.twin.open_moves}"

    def show(self, command: Command) -> str:
        what, only = command.take("what"), command.given("stream")
        records = self.records

        def of(key: tuple[str, int]) -> bool:
            return only in (None, key[0])

        shards = [records.assignments[key] for key in filter(of, sorted(records.assignments))]
        lines: Iterator[str]
        match what:
            case "shards":
                lines = map(shard_line, shards)
            case "layout":
                lines = layout(shards, only is None)
            case "load":
                lines = self.load(shards)
            case "nodes":
                lines = (
                    f"{node_id}: {view.liveness} {view.attributes.location or '-'}"
                    for node_id, view in in_order(records.nodes)
                )
            case "moves":
                moves = {self.name(move_id): move for move_id, move in records.moves.items()}
                lines = (self.move_line(move) for _, move in in_order(moves))
            case "violations":
                found = (records.violations[key] for key in filter(of, sorted(records.violations)))
                lines = (violation_line(each) for violations in found for each in violations)
            case "decisions":
                decisions = (d for name, d in in_order(records.decisions) if only in (None, name))
                lines = (line for decision in decisions for line in decision_lines(decision))
            case _:
                raise CaseError(f"show what={what}")
        return "\n".join(lines)

    def load(self, shards: list[Assignment]) -> Iterator[str]:
        held = Counter(node for a in shards for node in a.replicas)
        led = Counter(a.replicas[0] for a in shards)
        for node_id, _ in in_order(self.records.nodes):
            yield f"{node_id}: {held[node_id]} replicas, leads {led[node_id]}"

    # Answers

    def told(self, ready: Ready) -> Iterator[str]:
        """What a batch published, except of nodes."""
        for decision in ready.decisions.values():
            yield from decision_lines(decision)
            placed = [a for a in ready.assignments.values() if a.stream == decision.stream]
            if decision.revision == 1 and len(ready.decisions) == 1:
                yield from layout(placed, named=False)
        for move, forgotten in ready.moves.values():
            yield f"{self.name(move.move_id)} forgotten" if forgotten else self.move_line(move)
        for key in sorted(ready.assignments):
            if ready.assignments[key].epoch > 1 or ready.assignments[key].adding:
                yield shard_line(ready.assignments[key])
        for (stream, shard), violations in sorted(ready.violations.items()):
            yield from map(violation_line, violations)
            if not violations:
                yield f"healed {stream}/{shard}"
        yield from map(alert_line, ready.alerts)
        for refused in ready.refused:
            yield f"refused event {refused.index}: {reason_text(refused.reason)}"
        for name, count in sorted(ready.counts.items()):
            yield f"{name}={count}"

    def name(self, move_id: str) -> str:
        return self.names.setdefault(move_id, f"m{len(self.names) + 1}")

    def move_line(self, move: Move) -> str:
        superseded = self.name(move.supersedes) if move.supersedes else None
        return move_line(self.name(move.move_id), move, superseded)
