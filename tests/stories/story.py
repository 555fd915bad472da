"""The story language: a reconciler driven by text commands, one batch per command.

A behaviour told as a story can be read, and a change of it reviewed, without reading code. The
stories in `testdata` of `tests/placement`, `tests/needs` and `tests/simulation` and the simulated
histories are all told in it; the shared oracle judges every batch besides. The commands:

    settings       levels=a,b  max_in= max_out= max_copies_from= max_open= max_per_batch=
                   max_per_domain_pair= max_bytes_per_node= max_bytes_per_domain_pair=
                   max_bytes_open= completion=immediate default='{strategy: …}'
                   rate= (bytes per second) deadline= retention= hold_window=
                   hold_levels= backoff= remind=
                   (seconds) resources='{disk_bytes: {capacity: 0.8}}': a new, empty reconciler
    topology       lines `/site1 n1 n2 weight=2 capacity=4 leader=false disk=ssd`: these nodes are
                   up; what is no attribute is a tag; `-` is the location of nodes without one
    register       nodes= location= [weight= capacity= leader= disk=ssd has=disk_bytes:100]: the
                   same in one line
    create         stream= shards= rf= [policies= | policy='{…}'] [quorum= replicas='n1 n2,n3']
                   [sequence= body= dimension= ranges=a,b repair=dead_only
                   expected=disk_bytes:5];
                   `streams=12` creates t1 … t12 alike
    alter          as create: the full spec that is to hold from now on
    drop           streams=a,b [sequence= body=]
    lose           shards=t1/0 nodes=n1 [reason=]: executors say that the replica is gone
    up, dead, suspect, unregister   nodes=n1,n2 or a series, n1..n9, or a domain, nodes=/site1
    drain, cordon, maintain, undrain   nodes= likewise
    restart        nodes= [away=2 seconds=12 (both in seconds) way=kill|stop|name|double|live
                   location=]: processes end, silently, saying so or being named by the later ones,
                   and come back after `away`; `double`: others come beside them; `live`: those
                   that are there go on. Time passes.
    relocate       node= location= [disk=ssd]
    guard          nodes= state=none|held_down|quarantined
    approve        node= [hash=]: without one, the hash that was published last
    report         nodes= t1/0=disk_bytes:5,writes:2 … [suspected=t1/0:disk_bytes:900:5]: loads of
                   shards, smoothed; those that are held back, with the figure before
    measure        node= rtt=/eu:12,/us:-: round trips in ms, `-`: no answer
    locate         node= location= [source=inventory reason=]: what an authority says; `-`: nothing
    ack            kind=accepted|completed|failed|stopped moves=all|off|m1,m2 [reason=]: `all` are
                   the open ones, `off` those that were called off as far as nobody has said to have
                   stopped them, `t1/0` is the last move of the shard, `t1/0~1` the one before;
                   shards=t1/0: an acknowledgement that names no move; of=t1/0: the shard that it
                   names, where that is not the move's own
    ask            action=drain target=n1|/site1|fleet|m1 [hash=seen] [ttl= (seconds) id=]: an
                   operator's request; `look`, with the same words, shows its impact beforehand
    batch          lines are commands of the kinds above, all in one batch
    tick           seconds=: time passes
    replan         nothing happens; at rest it answers nothing
    rest           executors complete all moves until there is none, and nothing is left to do;
                   whole=no: nodes are missing, so that replicas may be
    balance        the same with time passing, until nothing makes the loads more even
    show           what=shards|nodes|layout|load|used|places|moves|violations|decisions
                   [stream=]
    explain        shard=t1/0 [node=]: why its replicas are there, or why the node has none; and
                   what moves, or why nothing does
    orders         operators' orders that stand, and how far drains have come
    verify         the fleet is at rest: the oracle's final check
    rebuild        a new reconciler from the records alone; digests must agree, and so must the
                   next batch of both; order=7: records come in an order drawn from this number

Every command that makes a batch takes `caught_up=no`. Moves are called m1, m2, … as they appear.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator

import yaml

from placement.model import (
    Assignment,
    Configuration,
    Event,
    Limits,
    Move,
    Quotas,
    Ready,
    Rebalance,
    Resource,
)
from placement.moves import cancellations
from placement.reconciler import Reconciler
from tests.oracle.loads import loads_of_nodes
from tests.oracle.log import Log, records_of
from tests.stories.actors import Actors
from tests.stories.answers import (
    alert_line,
    answer_line,
    decision_lines,
    in_order,
    layout,
    move_line,
    node_line,
    order_text,
    reason_text,
    shard_line,
    violation_line,
)
from tests.stories.datadriven import CaseError, Command, parse_command
from tests.stories.explanation import why
from tests.stories.records import Records

# More batches than any fleet of a story needs; what takes longer goes round in circles.
REST_BATCHES = 300
# Plans that even a small fleet out, each waiting until what the one before moved may move again.
BALANCE_ROUNDS = 20
# What executors say that do all they are told.
FINISH, STOP = "ack kind=completed moves=all", "ack kind=stopped moves=off"


class Story:
    """One reconciler and what it has published."""

    def __init__(self) -> None:
        self.actors = Actors()
        self.begin(Configuration())

    def begin(self, configuration: Configuration) -> None:
        self.configuration = configuration
        self.reconciler = Reconciler(configuration)
        self.twin: Reconciler | None = None
        self.records = Records()
        self.actors = Actors(self.actors.now, self.actors.sequence)
        remind_ms = configuration.remind_ms
        known = (configuration.levels, configuration.limits, remind_ms, configuration.resources)
        self.log = Log(True, *known)

    def answer(self, command: Command) -> str:
        """Carry out one command."""
        if command.name in self.actors.makers():
            return "\n".join(self.told(self.carry_out(command)))
        commands: dict[str, Callable[[Command], str]] = {
            "settings": self.settings,
            "topology": self.topology,
            "show": self.show,
            "verify": self.verify,
            "rebuild": self.rebuild,
            "look": self.look,
            "orders": self.orders,
            "rest": self.rest,
            "explain": self.explain,
            "balance": self.balance,
        }
        if command.name not in commands:
            raise CaseError(f"unknown command {command.name}")
        return commands[command.name](command)

    @property
    def now(self) -> int:
        """Time of the story in ms."""
        return self.actors.now

    # Batches

    def carry_out(self, command: Command) -> Ready:
        """A command that makes a batch."""
        events = list(self.actors.makers()[command.name](command))
        return self.commit(events, command.take("caught_up", "yes") == "yes")

    def commit(self, events: list[Event], caught_up: bool = True) -> Ready:
        """One batch, judged by the oracle and, after a rebuild, by the rebuilt twin."""
        ready = self.reconciler.apply(events, self.now, caught_up)
        self.log.listen(events)
        self.records.commit(ready)
        self.actors.see(ready)
        self.log.feed_ready(ready, caught_up, self.now)
        if self.configuration.acked:
            self.log.hear(ready, events)
        assert not self.log.violations(), self.log.violations()
        if self.twin is not None:
            again = self.twin.apply(events, self.now, caught_up)
            assert list(records_of(again)) == list(records_of(ready))
            assert (again.alerts, again.answers) == (ready.alerts, ready.answers)
            self.reconciler, self.twin = self.twin, None
        return ready

    # Commands that are none

    def settings(self, command: Command) -> str:
        limits = {
            f"{name}{suffix}": int(command.take(name, "1000"))
            for name, suffix in (
                ("max_in", "_per_node"),
                ("max_out", "_per_node"),
                ("max_copies_from", "_node"),
                ("max_open", ""),
                ("max_per_batch", ""),
                ("max_per_domain_pair", ""),
            )
        }
        for name in ("max_bytes_per_node", "max_bytes_per_domain_pair", "max_bytes_open"):
            if (most := command.given(name)) is not None:
                limits[name] = int(most)
        relocate, held = command.given("relocate_up_to"), command.given("hold_levels")
        self.begin(
            Configuration(
                levels=tuple(filter(None, command.take("levels", "").split(","))),
                default_policy=yaml.safe_load(command.take("default", "{strategy: spread}")),
                limits=Limits(**limits),
                acked=command.take("completion", "acked") == "acked",
                deadline_ms=int(command.take("deadline", "600")) * 1000,
                rebalance=Rebalance(command.take("rebalance", "off")),
                dwell_ms=int(command.take("dwell", "600")) * 1000,
                leader_moves=command.take("leader_moves", "no") == "yes",
                retention_ms=int(command.take("retention", "3600")) * 1000,
                hold_window_ms=int(command.take("hold_window", "600")) * 1000,
                hold_levels=None if held is None else tuple(held.split(",")),
                backoff_ms=int(command.take("backoff", "0")) * 1000,
                remind_ms=int(command.take("remind", "60")) * 1000,
                rate_bytes_per_second=int(rate) if (rate := command.given("rate")) else None,
                relocate_up_to=None if relocate is None else int(relocate),
                enforce_levels=command.take("enforce_levels", "no") == "yes",
                authority=command.take("authority", "claim"),
                resources=_resources(command.take("resources", "{}")),
                quotas=Quotas(
                    nodes=int(command.take("nodes_max", "10000")),
                    pending=int(command.take("pending_max", "1000")),
                    new_nodes_per_minute=int(command.take("new_per_minute", "1000")),
                    places=int(command.take("places_max", "4096")),
                ),
            )
        )
        return ""

    def topology(self, command: Command) -> str:
        events: list[Event] = []
        for line in command.read():
            location, *words = line.split()
            nodes = ",".join(word for word in words if "=" not in word)
            more = [word for word in words if "=" in word]
            told = f"register nodes={nodes} location={location} {' '.join(more)}"
            events.extend(self.actors.register(parse_command(told)))
        ready = self.commit(events)
        locations = {view.attributes.location for view in self.records.nodes.values()}
        known = f"ok nodes={len(self.records.nodes)} locations={len(locations)}"
        return "\n".join((known, *self.told(ready)))

    def verify(self, _command: Command) -> str:
        found = self.log.final_violations()
        return "\n".join(found) if found else "ok"

    def rebuild(self, command: Command) -> str:
        order = command.given("order")
        self.twin = self.rebuilt(None if order is None else random.Random(order))
        assert self.twin.digest == self.reconciler.digest
        assert self.twin.now == self.reconciler.now
        assert self.twin.open_moves == self.reconciler.open_moves
        nodes, streams = len(self.records.nodes), len(self.records.decisions)
        return f"ok nodes={nodes} streams={streams} open={self.twin.open_moves}"

    def rebuilt(self, order: random.Random | None) -> Reconciler:
        return self.records.rebuild(self.configuration, self.now, order)

    def rest(self, command: Command) -> str:
        """Executors complete what is open until there is nothing to do, which has to last."""
        batches, moves = self.finish_moves()
        whole = command.take("whole", "yes") == "yes"
        found = self.log.final_violations(reported_is_enough=True, whole=whole)
        found += self.log.movement_violations()
        assert not found, "\n".join(found)
        ready = self.carry_out(parse_command("replan"))
        assert ready.empty, f"at rest, and yet {ready}"
        self.second_opinion()
        return f"ok after {batches} batches, {moves} moves"

    def finish_moves(self) -> tuple[int, int]:
        """Batches and moves until nothing is open and nothing comes."""
        completed = 0
        for batches in range(REST_BATCHES):
            completing = parse_command("batch", [FINISH, STOP])
            open_before = len(self.records.open_moves())
            ready = self.carry_out(completing)
            completed += open_before
            # That a move was stopped calls for nothing more.
            kept = any(kind != cancellations.KIND for kind, _ in ready.memory)
            news = ready.moves or ready.assignments or ready.violations or kept
            if not open_before and not news:
                until = self.waits_until()
                if until <= self.now:
                    return batches, completed
                self.actors.now = until
        raise AssertionError(f"no rest after {REST_BATCHES} batches")

    def balance(self, _command: Command) -> str:
        """The fixpoint: nothing is wanted any more, and who asks is told that there is nothing."""
        for _ in range(BALANCE_ROUNDS):
            self.finish_moves()
            wanted = self.records.memory.get(("rebalance", "wanted"))
            if wanted is None:
                break
            self.actors.now = max(self.now, wanted.body["after"])
        else:
            raise AssertionError(f"no balance after {BALANCE_ROUNDS} rounds")
        asked = parse_command("ask action=rebalance target=fleet")
        refusal = self.reconciler.preview(self.actors.asked(asked)).refusal
        assert refusal is not None, "balanced, and yet there is something to do"
        return reason_text(refusal)

    def waits_until(self) -> int:
        """The time until when a target on which a move has failed is left alone, and until when no
        relief is searched for after a search in vain or a move that failed."""
        memory = self.records.memory.values()
        times = [each.body["until"] for each in memory if each.kind == "backoff"]
        if self.configuration.resources:
            relief = [each.body for each in memory if each.kind == "rebalance"]
            times += [body.get("until", body.get("after", 0)) for body in relief]
        return max(times, default=0)

    def second_opinion(self) -> None:
        """One that does not know what was tried before, and is told of every node once more, finds
        nothing to do either."""
        self.twin, known = None, self.records.violations
        self.records.violations = {}
        again = self.rebuilt(None)
        self.records.violations = known
        looked_at = [
            self.actors.change(node_id, view.liveness, attributes=view.attributes)
            for node_id, view in in_order(self.records.nodes)
        ]
        ready = again.apply(looked_at, self.now)
        assert not ready.moves, f"repairs were missed: {ready.moves}"
        assert not ready.assignments, f"promotions were missed: {ready.assignments}"

    def look(self, command: Command) -> str:
        """The dry run of a request: what it would touch, and the hash that agrees to it."""
        before = self.reconciler.digest
        seen = self.reconciler.preview(self.actors.asked(command))
        assert self.reconciler.digest == before
        self.actors.seen = seen.hash
        refused = f"; {reason_text(seen.refusal)}" if seen.refusal else ""
        return "\n".join([f"{seen}{refused}", *map(str, seen.relocated)])

    def explain(self, command: Command) -> str:
        told = (self.records, self.configuration, self.now)
        return "\n".join(why(*told, command.take("shard"), command.given("node")))

    def standing(self) -> list[tuple[str, str]]:
        """Operators' orders that stand: target and action."""
        memory = self.records.memory.values()
        return sorted((m.name, str(m.body["action"])) for m in memory if m.kind == "request")

    def orders(self, _command: Command) -> str:
        requests = [each for each in self.records.memory.values() if each.kind == "request"]
        told = sorted((each.name, order_text(each.body)) for each in requests)
        return "\n".join(f"{target}: {text}" for target, text in told)

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
            case "load" | "used":
                lines = self.load(shards) if what == "load" else self.used()
            case "places":
                lines = self.places(shards)
            case "nodes":
                lines = (node_line(node_id, view) for node_id, view in in_order(records.nodes))
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

    def used(self) -> Iterator[str]:
        """What nodes bear of each resource, of what they have."""
        for node_id, view in in_order(self.records.nodes):
            has = dict(view.attributes.capacities or ())
            parts = [
                f"{loads_of_nodes(self.log, each)[node_id]} of {has.get(each.name, 'any')}"
                f" {each.name}"
                for each in self.configuration.resources
            ]
            yield f"{node_id}: {', '.join(parts)}"

    def places(self, shards: list[Assignment]) -> Iterator[str]:
        """Replicas by location, and how they are shared out there."""
        held = Counter(node for a in shards for node in a.replicas)
        found: dict[str, list[int]] = {}
        for node_id, view in in_order(self.records.nodes):
            found.setdefault(view.attributes.location, []).append(held[node_id])
        for location, counts in in_order(found):
            each = f"{min(counts)} to {max(counts)} each"
            yield f"{location or '-'}: {sum(counts)} replicas on {len(counts)} nodes, {each}"

    # Answers

    def told_of_streams(self, ready: Ready) -> Iterator[str]:
        """Decisions, and what was taken away."""
        for decision in ready.decisions.values():
            yield from decision_lines(decision)
            placed = [a for a in ready.assignments.values() if a.stream == decision.stream]
            if decision.revision == 1 and len(ready.decisions) == 1:
                yield from layout(placed, named=False)
        if ready.dropped:
            yield f"taken away: {' '.join(f'{name}/{number}' for name, number in ready.dropped)}"
        yield from (f"{name} forgotten" for name in ready.forgotten)

    def told(self, ready: Ready) -> Iterator[str]:
        """What a batch published, except of nodes."""
        yield from self.told_of_streams(ready)
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
        yield from map(answer_line, ready.answers)
        for refused in ready.refused:
            yield f"refused event {refused.index}: {reason_text(refused.reason)}"
        for name, count in sorted(ready.counts.items()):
            yield f"{name}={count}"

    def name(self, move_id: str) -> str:
        return self.actors.names[move_id]

    def move_line(self, move: Move) -> str:
        superseded = self.name(move.supersedes) if move.supersedes else None
        return move_line(self.name(move.move_id), move, superseded)


def _resources(text: str) -> tuple[Resource, ...]:
    """Resources by name, as the settings have them."""
    found = yaml.safe_load(text)
    return tuple(Resource(name, **(found[name] or {})) for name in sorted(found))
