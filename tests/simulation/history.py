"""A simulated history: what nodes, users, operators and executors do, drawn from one seed.

A history is told in the language of `tests/stories/story.py`, one command per batch, so that one
that fails can be shortened and kept as a text case. What is drawn may depend on what was published
(moves are acknowledged, nodes return); what a line means does not depend on the lines before it
having been drawn, so that lines can be struck out.
"""

import random
from collections.abc import Iterator

from placement.model import Liveness, MoveKind
from tests.simulation.fleets import ELSEWHERE, draw_fleet, draw_settings
from tests.simulation.wishes import AFFINITIES, POLICIES
from tests.stories.datadriven import parse_command
from tests.stories.processes import WAYS
from tests.stories.story import Story

# Batches of a history, besides those in which it comes to rest.
BATCHES = (6, 16)
# Streams that there are from the start.
FIRST_STREAMS = 2
STREAMS_MAX = 6
# Planning for balance costs more than all else: so many histories have it.
BALANCING = 0.25
# Resources cost the oracle as much again: so many histories count some.
WEIGHING = 0.25
RESOURCES = (
    "{disk_bytes: {capacity: 0.8}}",
    "{disk_bytes: {capacity: 0.8, balance: 0.2}, writes: {balance: 0.3}}",
    "{disk_bytes: {capacity: 0.9}, writes: {led: true}}",
    "{disk_bytes: {}, writes: {capacity: 0.5, led: true}}",
)
# Loads of a shard, and what a node has: about ten replicas fit, a large one only alone.
LOADS, CAPACITIES = (0, 5, 10, 10, 20, 90), (30, 40, 60, 100, 200)
# How long a replica stays that was moved for balance.
DWELL_SECONDS = 30
# What ends an order.
ENDS = {"drain": "undrain", "cordon": "uncordon", "maintenance": "undrain"}
# How a domain goes, and how it comes back.
EPISODES = (("dead", "up"), ("drain", "undrain"), ("maintain", "undrain"))


class Failure(Exception):
    """A history that went wrong: its seed, its commands, the last of which failed, and why."""

    def __init__(self, seed: int, blocks: list[str], cause: Exception) -> None:
        super().__init__(f"seed {seed}, command {len(blocks)}: {type(cause).__name__}: {cause}")
        self.seed = seed
        self.blocks = blocks
        self.cause = cause


def tell(story: Story, block: str) -> None:
    """Carry out one command: its line, and its input below."""
    first, *lines = block.split("\n")
    command = parse_command(first, lines)
    if command.name in story.actors.makers():
        story.carry_out(command)
    else:
        story.answer(command)
    command.check_used()


class History:
    """One fleet with its users and executors."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.story = Story()
        self.blocks: list[str] = []
        self.homes = draw_fleet(self.rng)
        self.streams = 0
        self.changes = self.rng.random() < 0.6
        self.relocates = self.rng.random() < 0.3
        # Operators order through requests, or nodes are told so.
        self.asks = self.rng.random() < 0.35
        self.orders = not self.asks and self.rng.random() < 0.7
        # Generators of their own: the rest of the history is the same with and without.
        self.approvals = random.Random(f"approvals {seed}")
        self.strikes = random.Random(f"strikes {seed}")
        self.bound = self.approvals.choice(("", "", " relocate_up_to=0", " relocate_up_to=2"))
        # Another one: who evens loads out, by request or by itself, and how.
        self.balancing = random.Random(f"balancing {seed}")
        mode = self.balancing.choice(("off", "on_join", "continuous"))
        self.balances = mode if self.balancing.random() < BALANCING else ""
        # Operators who forget nodes and end hold-downs.
        self.forgets = random.Random(f"forgets {seed}")
        # Processes of nodes that are restarted, or doubled.
        self.restarts = random.Random(f"restarts {seed}")
        # Likewise of executors that stop what was called off, or do not hear of it.
        self.stops = random.Random(f"stops {seed}")
        self.reminders = f" remind={self.stops.choice((10, 60))}"
        # What shards weigh, and what nodes have room for.
        self.weights = random.Random(f"weights {seed}")
        self.weighs = self.weights.random() < WEIGHING

    def play(self) -> "History":
        """Tell all of it; raises Failure with what was told."""
        try:
            self._tell(draw_settings(self.rng) + self.bound + self.reminders + self._resources())
            self._tell("\n".join(("batch", *self._first_nodes())))
            self._tell("\n".join(("batch", *self._first_streams())))
            for _ in range(self.rng.randint(*BATCHES)):
                self._step()
            self._tell("\n".join(("batch", *self._recovery())))
            for target, order in self.story.standing():
                self._ask(ENDS[order], target)
            self._tell("rest")
            if self.balances:
                self._balance()
        except Exception as error:
            raise Failure(self.seed, self.blocks, error) from error
        return self

    def _resources(self) -> str:
        """What is counted of loads, if anything; nodes say what they have."""
        rng = self.weights
        if not self.weighs:
            return ""
        for node_id, attributes in self.homes.items():
            has = [f"{name}:{rng.choice(CAPACITIES)}" for name in ("disk_bytes", "writes")]
            told = ",".join(each for each in has if rng.random() < 0.9)
            self.homes[node_id] = f"{attributes} has={told}" if told else attributes
        return f" resources='{rng.choice(RESOURCES)}'"

    def _draw_reports(self) -> Iterator[str]:
        """Nodes say what shards weigh: most of those that hold them, some of others."""
        rng, known = self.weights, self.story.records.assignments
        for _ in range(rng.choice((0, 0, 1, 3)) if self.weighs and known else 0):
            shard = rng.choice(sorted(known))
            nodes = known[shard].replicas if rng.random() < 0.9 else [*self.homes]
            if nodes:
                told = f"disk_bytes:{rng.choice(LOADS)},writes:{rng.choice(LOADS)}"
                yield f"report nodes={rng.choice(nodes)} {shard[0]}/{shard[1]}={told}"

    def _tell(self, block: str) -> None:
        self.blocks.append(block)
        tell(self.story, block)

    def _step(self) -> None:
        rng = self.rng
        if rng.random() < 0.25:
            self._tell(f"rebuild order={rng.randrange(1000)}")
        if rng.random() < 0.05:
            self._tell("rest whole=no")
        if rng.random() < 0.07:
            self._episode()
        if self.asks and rng.random() < 0.4:
            self._request()
        if self.asks and self.forgets.random() < 0.3:
            action = self.forgets.choice(("forget", "forget", "release"))
            self._tell(f"ask action={action} target={self.forgets.choice([*self.homes])}")
        if self.balances and self.balancing.random() < 0.2:
            self._ask_balance()
        if self.restarts.random() < 0.2:
            self._restart()
        lines = [f"tick seconds={rng.choice((0.01, 1, 20))}"]
        for _ in range(rng.randint(0, 4)):
            lines += self._draw()
        if self.bound and self.approvals.random() < 0.3:
            lines.append(f"approve node={self.approvals.choice([*self.homes])}")
        lines += self._draw_reports()
        lines += self._draw_strike()
        lines += self._draw_stops()
        caught_up = "" if rng.random() < 0.9 else " caught_up=no"
        self._tell("\n".join((f"batch{caught_up}", *lines)))

    def _restart(self) -> None:
        """Restart processes in time, or run them twice: nodes that were up stay up.

        Nothing is reported of the coming and going.
        """
        rng, nodes = self.restarts, self.story.records.nodes
        up = [node_id for node_id in self.homes if node_id in nodes]
        up = [node_id for node_id in up if nodes[node_id].liveness is Liveness.UP]
        if not up:
            return
        chosen = rng.sample(up, min(len(up), rng.randint(1, 3)))
        before = {node_id: nodes[node_id] for node_id in chosen}
        way, away = rng.choice(WAYS), rng.choice((0.5, 3, 20, 50))
        seconds = rng.choice((1, 8, 12))
        where = f"nodes={','.join(chosen)} way={way} away={away} seconds={seconds}"
        place = f" location={rng.choice(ELSEWHERE[:-1])}" if rng.random() < 0.1 else ""
        self._tell(f"restart {where}{place}")
        for node_id, view in before.items():
            now = nodes[node_id]
            assert now.liveness is Liveness.UP, f"{node_id} is {now.liveness} after a restart"
            assert now.transitions == view.transitions, f"{node_id} came and went by a restart"
            if way in ("kill", "stop", "name") and seconds >= 8:
                assert now.incarnation != view.incarnation, f"{node_id} waits for ever"
                assert now.lives.pending is None, f"{node_id} is followed and waits"
            if way == "double":
                assert now.incarnation == view.incarnation, f"{node_id} lost its name"

    def _request(self) -> None:
        """An operator asks for something, having looked at what it would touch, or not."""
        rng = self.rng
        action = rng.choice(("drain", "drain", "cordon", "maintenance", "undrain", "uncordon"))
        targets = [*self.homes, *filter(None, [self._place()] * 4)]
        roll, open_moves = rng.random(), self.story.records.open_moves()
        if roll < 0.15:
            action, targets = "override_hold", ["fleet", *filter(None, [self._place()])]
        elif roll < 0.3 and open_moves:
            action, targets = "cancel_move", [f"m{1 + rng.randrange(len(self.story.actors.names))}"]
        self._ask(action, rng.choice(targets))

    def _ask(self, action: str, target: str) -> None:
        ttl = f" ttl={self.rng.choice((30, 600))}" if action == "maintenance" else ""
        words = f"action={action} target={target}{ttl}"
        if self.rng.random() < 0.9:
            self._tell(f"look {words}")
        self._tell(f"ask {words} hash=seen")

    def _ask_balance(self) -> None:
        """An operator wants the loads evened out, having seen the plan, an older one or none."""
        words = "action=rebalance target=fleet"
        if self.balancing.random() < 0.8:
            self._tell(f"look {words}")
        agreed = self.balancing.choice(("", " hash=seen", " hash=seen", " hash=another"))
        self._tell(f"ask {words}{agreed}")

    def _balance(self) -> None:
        """Loads are evened out until nothing makes them more even, which has to come to an end."""
        self._tell("ask action=rebalance target=fleet")
        self._tell("balance")

    def _episode(self) -> None:
        """A domain goes, the fleet comes to rest without it, and again with it."""
        place = self._place()
        if place is not None:
            goes, returns = self.rng.choice(EPISODES[: 1 if self.asks else None])
            for what in (goes, returns):
                self._tell(f"{what} nodes={place}")
                self._tell("rest whole=no")

    def _draw(self) -> Iterator[str]:
        """One event, or a few that belong together."""
        roll = self.rng.random()
        if roll < 0.4:
            yield from self._draw_node()
        elif roll < 0.46:
            yield from self._draw_domain()
        elif roll < 0.62 and self.streams < STREAMS_MAX:
            yield self._draw_stream()
        elif roll < 0.7 and self.changes:
            yield from self._draw_change()
        else:
            yield from self._draw_acks()

    # Nodes

    def _first_nodes(self) -> Iterator[str]:
        for node_id in self.homes:
            if self.rng.random() < 0.85:
                yield self._registered(node_id)

    def _first_streams(self) -> Iterator[str]:
        for _ in range(self.rng.randint(0, FIRST_STREAMS)):
            yield self._draw_stream()

    def _registered(self, node_id: str) -> str:
        return f"register nodes={node_id} {self.homes[node_id]}"

    def _heals(self, node_id: str) -> Iterator[str]:
        """The node is up where it belongs, and no order stands against it."""
        yield self._registered(node_id)
        if not self.asks:
            yield f"undrain nodes={node_id}"
        yield f"guard nodes={node_id} state=none"

    def _recovery(self) -> Iterator[str]:
        for node_id in self.homes:
            yield from self._heals(node_id)
            if self.bound:
                yield f"approve node={node_id}"

    def _draw_node(self) -> Iterator[str]:
        rng = self.rng
        node_id = rng.choice(list(self.homes))
        if node_id not in self.story.actors.nodes or rng.random() < 0.3:
            yield from self._heals(node_id)
        elif self.relocates and rng.random() < 0.2:
            yield f"relocate node={node_id} location={rng.choice(ELSEWHERE)}"
        elif self.orders and rng.random() < 0.4:
            order = rng.choice(("drain", "drain", "cordon", "maintain", "undrain"))
            yield f"{order} nodes={node_id}"
        elif rng.random() < 0.1:
            state = rng.choice(("held_down", "held_down", "quarantined", "none"))
            yield f"guard nodes={node_id} state={state}"
        elif rng.random() < 0.1:
            for _ in range(rng.randint(1, 3)):
                yield f"suspect nodes={node_id}"
                yield f"up nodes={node_id}"
        else:
            yield f"{rng.choice(('suspect', 'dead', 'dead', 'unregister'))} nodes={node_id}"

    def _draw_domain(self) -> Iterator[str]:
        """A rack or a site loses power, is emptied, or comes back as a whole."""
        rng, place = self.rng, self._place()
        if place is None:
            return
        gone = any(
            liveness is not Liveness.UP
            for liveness, at in self.story.actors.nodes.values()
            if f"{at}/".startswith(f"{place}/")
        )
        if gone:
            yield f"up nodes={place}"
        elif self.orders and rng.random() < 0.3:
            yield f"drain nodes={place}"
        else:
            yield f"{rng.choice(('suspect', 'dead'))} nodes={place}"

    def _draw_strike(self) -> Iterator[str]:
        """While a surplus is being removed one of the copies that were to stay dies."""
        records = self.story.records
        removals = [move for move in records.open_moves() if move.kind is MoveKind.REMOVE]
        if removals and self.strikes.random() < 0.5:
            move = self.strikes.choice(removals)
            held = records.assignments[move.stream, move.shard].replicas
            staying = [node for node in held if node != move.remove]
            if staying:
                yield f"dead nodes={self.strikes.choice(staying)}"

    def _place(self) -> str | None:
        """A location where nodes are, or the site around it."""
        places = sorted({place for _, place in self.story.actors.nodes.values() if place})
        if not places:
            return None
        place = self.rng.choice(places)
        return place if self.rng.random() < 0.5 else "/" + place.split("/")[1]

    # Streams

    def _draw_stream(self) -> str:
        """A new stream, or one that exists."""
        rng = self.rng
        name = f"t{self.streams}"
        if self.streams == 0 or rng.random() < 0.85:
            self.streams += 1
            name = f"t{self.streams}"
        return self._asked("create", name)

    def _draw_change(self) -> Iterator[str]:
        """A stream is altered or dropped, or loses a replica."""
        rng, known = self.rng, self.story.records.assignments
        if not known:
            return
        stream, shard = rng.choice(sorted(known))
        roll = rng.random()
        if roll < 0.6:
            yield self._asked("alter", stream)
        elif roll < 0.8:
            yield f"drop streams={stream}"
        else:
            held = known[stream, shard].replicas or ("n1",)
            yield f"lose shards={stream}/{shard} nodes={rng.choice(held)}"

    def _asked(self, what: str, name: str) -> str:
        """A request with its spec."""
        rng = self.rng
        words = [f"{what} stream={name} shards={rng.randint(1, 3)} rf={rng.randint(1, 4)}"]
        roll = rng.random()
        if roll < 0.25:
            words.append(f"policies='{rng.choice(AFFINITIES)}'")
        elif roll < 0.95:
            words.append(f'policy="{rng.choice(POLICIES)}"')
        if what == "create" and rng.random() < 0.2:
            words.append(f"replicas='{self._draw_replicas()}'")
        if rng.random() < 0.1:
            words.append("repair=dead_only")
        if self.weighs and self.weights.random() < 0.5:
            words.append(f"expected=disk_bytes:{self.weights.choice(LOADS)}")
        return f"{' '.join(words)} body={self.story.actors.sequence}"

    def _draw_replicas(self) -> str:
        """An existing placement to adopt; it may name too many, dead or unknown nodes."""
        ids = list(self.homes)
        shards = self.rng.randint(1, 3)
        lists = (self.rng.sample(ids, self.rng.randint(0, 3)) for _ in range(shards))
        return ",".join(" ".join(nodes) for nodes in lists)

    # Executors

    def _draw_stops(self) -> Iterator[str]:
        """They stop all or one of what was called off, or name a shard; mostly nothing."""
        rng, off = self.stops, self.story.actors.off
        if off and rng.random() < 0.3:
            move = self.story.actors.moves[rng.choice([*off])]
            shard = f"{move.stream}/{move.shard}"
            which = f"moves={rng.choice(('off', f'{shard}~{rng.randrange(3)}'))}"
            yield f"ack kind=stopped {which if rng.random() < 0.8 else f'shards={shard}'}"

    def _draw_acks(self) -> Iterator[str]:
        """They accept, complete, fail, repeat themselves, come late, or keep silent."""
        rng, issued = self.rng, self.story.actors.issued
        if not issued or rng.random() < 0.02:
            yield "ack kind=completed moves=ghost"
            return
        held = [f"{m.stream}/{m.shard}" for m in self.story.records.open_moves()]
        shards = held or list(issued)
        for shard in rng.sample(shards, min(len(shards), rng.randint(1, 4))):
            kind = rng.choice(("accepted", "completed", "completed", "completed", "failed"))
            if rng.random() < 0.05:
                yield f"ack kind={kind} shards={shard}"
                continue
            back = "" if rng.random() < 0.9 else f"~{rng.randint(1, 2)}"
            for _ in range(rng.choice((1, 1, 1, 2))):
                yield f"ack kind={kind} moves={shard}{back}"
