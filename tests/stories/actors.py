"""Nodes, users, operators and executors of a story: they turn its lines into events.

Everything they say is a function of the line and of what was said and published before, so that a
story from which lines were struck out can still be told: a move that was never made is acknowledged
like one that nobody knows, a node that never came is spoken of all the same.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from placement.model import (
    AckKind,
    Action,
    AdministrativeState,
    Event,
    Guard,
    LinksMeasured,
    Liveness,
    LoadsReported,
    LocationResolved,
    Move,
    MoveAcked,
    NodeAttributes,
    NodeChanged,
    NodeView,
    OperatorAsked,
    Ready,
    ReplicaLost,
    ReplicasObserved,
    ReportedLoad,
    StreamAltered,
    StreamCreated,
    StreamDropped,
    SuspectedLoad,
    natural_key,
)
from tests.stories.datadriven import Command, parse_command
from tests.stories.processes import Restart, events_of

LIVENESS = {
    "up": Liveness.UP,
    "dead": Liveness.DEAD,
    "suspect": Liveness.SUSPECT,
    "unregister": Liveness.UNREGISTERED,
}
ORDERS = {
    "drain": AdministrativeState.DRAINING,
    "cordon": AdministrativeState.CORDONED,
    "maintain": AdministrativeState.MAINTENANCE,
    "undrain": AdministrativeState.NONE,
}
REQUESTS = {"create": StreamCreated, "alter": StreamAltered}
# What `register` takes that is no tag.
ATTRIBUTES = ("nodes", "location", "weight", "capacity", "leader", "has")
SERIES = re.compile(r"(\D+)(\d+)\.\.\1(\d+)")

Maker = Callable[[Command], Iterator[Event]]


class Actors:
    """What they know: the time, the nodes as last spoken of, and the moves they were told."""

    def __init__(self, now: int = 0, sequence: int = 0) -> None:
        self.now = now
        self.sequence = sequence
        self.nodes: dict[str, tuple[Liveness, str]] = {}
        # What was published of the nodes.
        self.views: dict[str, NodeView] = {}
        self.moves: dict[str, Move] = {}
        # Epochs of the assignments that were published last.
        self.epochs: dict[tuple[str, int], int] = {}
        self.hashes: dict[str, str] = {}
        self.names: dict[str, str] = {}
        # The hash of the impact that an operator has looked at last.
        self.seen: str | None = None
        # Moves that were called off, and whose executors have not said that they stopped them.
        self.off: dict[str, None] = {}
        # Moves of every shard, `t1/0`, in the order in which they were issued.
        self.issued: dict[str, list[str]] = {}

    def makers(self) -> dict[str, Maker]:
        """What turns a command into events."""
        return {
            **dict.fromkeys(LIVENESS, self.change_nodes),
            **dict.fromkeys(ORDERS, self.order),
            "register": self.register,
            "restart": self.restart,
            "relocate": self.relocate,
            "approve": self.approve,
            "locate": self.locate,
            "measure": self.measure,
            "guard": self.guard,
            **dict.fromkeys(REQUESTS, self.request),
            "drop": self.drop,
            "lose": self.lose,
            "observe": self.observe,
            "report": self.report,
            "ack": self.ack,
            "ask": self.ask,
            "batch": self.batch,
            "tick": self.tick,
            "replan": lambda _: iter(()),
        }

    def see(self, ready: Ready) -> None:
        """Executors and operators read what was published."""
        for node_id, view in ready.topology.items():
            self.views.pop(node_id, None)
            if view is not None:
                self.views[node_id] = view
            if view is not None and view.pending is not None:
                self.hashes[node_id] = view.pending.impact_hash
        for shard in ready.dropped:
            self.epochs.pop(shard, None)
        self.epochs.update((key, each.epoch) for key, each in ready.assignments.items())
        for move, forgotten in ready.moves.values():
            self.moves[move.move_id] = move
            self.off.pop(move.move_id, None)
            if move.state.is_called_off and not forgotten:
                self.off[move.move_id] = None
            if move.move_id not in self.names:
                self.names[move.move_id] = f"m{len(self.names) + 1}"
                self.issued.setdefault(f"{move.stream}/{move.shard}", []).append(move.move_id)

    def batch(self, command: Command) -> Iterator[Event]:
        for line in command.read():
            inner = parse_command(line)
            yield from self.makers()[inner.name](inner)
            inner.check_used()

    def tick(self, command: Command) -> Iterator[Event]:
        self.now += int(float(command.take("seconds")) * 1000)
        return iter(())

    # Nodes

    def register(self, command: Command) -> Iterator[Event]:
        tags = {key: command.take(key) for key in command.arguments if key not in ATTRIBUTES}
        location, capacity = command.take("location", "-"), command.given("capacity")
        attributes = NodeAttributes(
            location="" if location == "-" else location,
            weight=float(command.take("weight", "1")),
            capacity=None if capacity is None else int(capacity),
            leader=command.take("leader", "true") == "true",
            tags=tuple(sorted(tags.items())),
            capacities=_amounts(command.given("has")),
        )
        for node_id in self.named(command):
            yield self.change(node_id, Liveness.UP, attributes=attributes)

    def restart(self, command: Command) -> Iterator[Event]:
        """Processes end and come back; time passes meanwhile."""
        asked = Restart(
            command.take("way", "kill"),
            round(float(command.take("away", "2")) * 1000),
            round(float(command.take("seconds", "12")) * 1000),
            command.given("location"),
        )
        views = [self.views[each] for each in self.named(command) if each in self.views]
        self.sequence += 1
        events, self.now = events_of(views, asked, self.now, f"life{self.sequence}")
        # What nodes say later comes after what they have said here.
        self.sequence = max([self.sequence, *(event.sequence for event in events)])
        for event in events:
            place = event.attributes.location if event.attributes else None
            known = self.nodes.get(event.node_id, (None, ""))[1]
            self.nodes[event.node_id] = event.liveness, known if place is None else place
            yield event

    def change_nodes(self, command: Command) -> Iterator[Event]:
        for node_id in self.named(command):
            yield self.change(node_id, LIVENESS[command.name])

    def order(self, command: Command) -> Iterator[Event]:
        for node_id in self.named(command):
            known, _ = self.nodes.get(node_id, (Liveness.UP, ""))
            yield self.change(node_id, known, administrative=ORDERS[command.name])

    def relocate(self, command: Command) -> Iterator[Event]:
        node_id, location = command.take("node"), command.take("location")
        known, _ = self.nodes.get(node_id, (Liveness.UP, ""))
        disk = command.given("disk")
        tags = (("disk", disk),) if disk else None
        yield self.change(node_id, known, location="" if location == "-" else location, tags=tags)

    def approve(self, command: Command) -> Iterator[Event]:
        node_id = command.take("node")
        agreed = command.take("hash", self.hashes.get(node_id, ""))
        yield OperatorAsked(self.now, "r1", Action.APPROVE_RELOCATION, node_id, agreed)

    def guard(self, command: Command) -> Iterator[Event]:
        state = Guard(command.take("state"))
        for node_id in self.named(command):
            known, _ = self.nodes.get(node_id, (Liveness.UP, ""))
            yield self.change(node_id, known, guard=state)

    def locate(self, command: Command) -> Iterator[Event]:
        location, reason = command.take("location"), command.given("reason")
        found = None if location == "-" else location
        source = command.take("source", "inventory")
        yield LocationResolved(self.now, command.take("node"), found, source, reason)

    def measure(self, command: Command) -> Iterator[Event]:
        node_id = command.take("node")
        pairs = (pair.split(":") for pair in command.take("rtt").split(","))
        rtt_ms = tuple((place, None if ms == "-" else float(ms)) for place, ms in pairs)
        yield LinksMeasured(self.now, node_id, rtt_ms)

    def named(self, command: Command) -> list[str]:
        """Nodes by id, by a series of ids (`n1..n9`), or all that stand in a domain (`/s1/r2`)."""
        found: list[str] = []
        for name in command.take("nodes").split(","):
            inside = [n for n, (_, at) in self.nodes.items() if f"{at}/".startswith(f"{name}/")]
            series = SERIES.fullmatch(name)
            if series:
                prefix, first, last = series.group(1), int(series.group(2)), int(series.group(3))
                found += [f"{prefix}{number}" for number in range(first, last + 1)]
            else:
                found += sorted(inside, key=natural_key) if name.startswith("/") else [name]
        return found

    def change(self, node_id: str, liveness: Liveness, **more: Any) -> NodeChanged:
        self.sequence += 1
        view = self.views.get(node_id)
        life = "a" if view is None else view.incarnation
        event = NodeChanged(self.now, node_id, life, self.sequence, liveness, **more)
        location = event.attributes.location if event.attributes else event.location
        known = self.nodes.get(node_id, (None, ""))[1]
        self.nodes[node_id] = liveness, known if location is None else location
        return event

    # Users

    def request(self, command: Command) -> Iterator[Event]:
        count = int(command.take("streams", "0"))
        names = [f"t{n + 1}" for n in range(count)] or [command.take("stream")]
        quorum, policy, replicas = map(command.given, ("quorum", "policy", "replicas"))
        repair, ranges, dimension = map(command.given, ("repair", "ranges", "dimension"))
        self.sequence += 1
        sequence = int(command.take("sequence", str(self.sequence)))
        for name in names:
            yield REQUESTS[command.name](
                at=self.now,
                stream=name,
                sequence=sequence,
                shards=int(command.take("shards", "1")),
                replication_factor=int(command.take("rf")),
                placement_policies=command.given("policies"),
                policy=None if policy is None else yaml.safe_load(policy),
                quorum=int(quorum) if quorum and quorum.isdecimal() else quorum,
                replicas=_lists(replicas),
                body_hash=command.take("body", ""),
                repair=repair,
                uid=command.given("uid"),
                adopt=command.given("adopt"),
                dimension=dimension,
                ranges=None if ranges is None else tuple(ranges.split(",")),
                expected_load=_amounts(command.given("expected")),
            )

    def drop(self, command: Command) -> Iterator[Event]:
        self.sequence += 1
        sequence = int(command.take("sequence", str(self.sequence)))
        for name in command.take("streams").split(","):
            body, uid = command.take("body", ""), command.given("uid")
            yield StreamDropped(self.now, name, sequence, body, uid)

    # Executors

    def lose(self, command: Command) -> Iterator[Event]:
        reason, uid = command.given("reason"), command.given("uid")
        for name in command.take("shards").split(","):
            stream, _, number = name.rpartition("/")
            for node_id in command.take("nodes").split(","):
                yield ReplicaLost(self.now, stream, int(number), node_id, reason, uid)

    def observe(self, command: Command) -> Iterator[Event]:
        """An executor has looked at a shard; `epoch=now` is that of its last assignment."""
        stream, _, number = command.take("shard").rpartition("/")
        in_sync, epoch = command.given("in_sync"), command.take("epoch", "now")
        yield ReplicasObserved(
            self.now,
            stream,
            int(number),
            self.epochs.get((stream, int(number)), 0) if epoch == "now" else int(epoch),
            tuple(filter(None, command.take("replicas").split(","))),
            command.given("leader"),
            None if in_sync is None else tuple(in_sync.split(",")),
            command.given("uid"),
            _lists(command.given("following")),
        )

    def report(self, command: Command) -> Iterator[Event]:
        """Nodes say what shards use there, by the names of shards and resources."""
        uid, found = command.given("uid"), list[ReportedLoad]()
        given = [(key, command.take(key)) for key in command.arguments if "/" in key]
        for shard, amounts in given:
            stream, _, number = shard.rpartition("/")
            found.append(ReportedLoad(stream, int(number), _amounts(amounts) or (), uid))
        doubted = []
        for text in filter(None, command.take("suspected", "").split(",")):
            shard, resource, amount, before = text.split(":")
            stream, _, number = shard.rpartition("/")
            doubted.append(SuspectedLoad(stream, int(number), resource, int(amount), int(before)))
        for node_id in self.named(command):
            yield LoadsReported(self.now, node_id, tuple(found), tuple(doubted))

    # Operators

    def ask(self, command: Command) -> Iterator[Event]:
        yield self.asked(command)

    def asked(self, command: Command) -> OperatorAsked:
        """What an operator asks for; `hash=seen` is the one of the last `look`."""
        given, ttl = command.given("hash"), command.given("ttl")
        by_name = {name: move_id for move_id, name in self.names.items()}
        target = command.take("target")
        return OperatorAsked(
            self.now,
            command.take("id", "r1"),
            Action(command.take("action")),
            by_name.get(target, target),
            self.seen if given == "seen" else given,
            None if ttl is None else int(ttl) * 1000,
        )

    def ack(self, command: Command) -> Iterator[Event]:
        kind, reason = AckKind(command.take("kind")), command.given("reason")
        done = command.given("bytes")
        more: dict[str, Any] = {"uid": command.given("uid")}
        more["bytes_done"] = None if done is None else int(done)
        instead = command.given("of")
        if "shards" in command.arguments:
            for shard in command.take("shards").split(","):
                stream, _, number = shard.rpartition("/")
                yield MoveAcked(self.now, kind, None, stream, int(number), reason, **more)
            return
        by_name = {name: move_id for move_id, name in self.names.items()}
        for name in command.take("moves").split(","):
            for move_id in self._meant(name, by_name):
                move = self.moves.get(move_id)
                at = (move.stream, move.shard) if move else ("?", 0)
                if instead is not None:
                    stream, _, number = instead.rpartition("/")
                    at = stream, int(number)
                if kind is AckKind.STOPPED:
                    self.off.pop(move_id, None)
                yield MoveAcked(self.now, kind, move_id, *at, reason, **more)

    def _meant(self, name: str, by_name: dict[str, str]) -> list[str]:
        """Ids of `all` open moves, of those that were called `off`, of `m3`, of the last one of
        shard `t1/0`, of the last but one `t1/0~1`; what is none of these is an id itself."""
        if name == "off":
            return [*self.off]
        if name == "all":
            return [move.move_id for move in self.moves.values() if move.state.is_open]
        shard, _, back = name.partition("~")
        issued = self.issued.get(shard, [])
        if issued:
            return issued[::-1][int(back or 0) :][:1] or [name]
        return [by_name.get(name, name)]


def _amounts(text: str | None) -> tuple[tuple[str, int], ...] | None:
    """`disk_bytes:100,writes:5` as amounts in the order of their names."""
    if text is None:
        return None
    pairs = (part.split(":") for part in text.split(","))
    return tuple(sorted((name, int(amount)) for name, amount in pairs))


def _lists(replicas: str | None) -> tuple[tuple[str, ...], ...] | None:
    """`n1 n2,n3` as a list for each shard; nothing at all is no list, not one that is empty."""
    if replicas is None:
        return None
    return tuple(tuple(nodes.split()) for nodes in replicas.split(",")) if replicas else ()
