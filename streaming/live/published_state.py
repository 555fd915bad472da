"""Reads the state that a reconciler published last from its topics.

`status`, the listings, `explain --live`, `suggest` and `export` look at it. As a `Cluster` it is
what the offline tool reads from a file, so that the same code judges both.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from functools import cache
from typing import Any, Self

import orjson

from placement.model import Assignment, Decision, Move, NodeView, Outcome, Violation, natural_key
from schemas.acks import MoveKind
from schemas.cluster import Cluster, ClusterMove, ClusterNode, ClusterResource, ClusterStream
from schemas.topics import (
    ALERTS,
    ASSIGNMENTS,
    COMMITS,
    DECISIONS,
    INPUT_TOPICS,
    MEMORY,
    MOVES,
    SHARD_LOADS,
    STATE_TOPICS,
    TOPOLOGY,
    VIOLATIONS,
    full_name,
)
from streaming import codec
from streaming.brokers import CommittedReader, Reachability, parse_json_object
from streaming.errors import StreamingError
from streaming.presence import ProcessSeen, read_processes
from streaming.settings import Settings

# Of the alerts the latest are read; who wants more reads the topic.
ALERTS_KEPT = 200
# Outcomes of streams that are in force: the others ask for nothing any more, or never did.
_IN_FORCE = (Outcome.PLACED, Outcome.DEGRADED, Outcome.PARTIAL, Outcome.WAITING)
_SPEC_FIELDS = (
    "stream",
    "shards",
    "replication_factor",
    "quorum",
    "shard_tokens",
    "dimension",
    "ranges",
    "repair",
)


class StateRecords:
    """The last values by topic and key, wherever they were read."""

    def __init__(self, cell: str, prefix: str, levels: Sequence[str] = ()) -> None:
        """`levels`: the tiers' names until a commit says which the reconciler has."""
        self._cell, self._prefix, self._levels = cell, prefix, tuple(levels)
        topics = (*STATE_TOPICS, COMMITS)
        # Assignments are nearly all of a large state: as bytes until they are asked for.
        self.latest: dict[str, dict[str, Any]] = {topic: {} for topic in topics}

    def take(self, topic: str, key: str, value: dict[str, Any] | bytes | None) -> None:
        """Take in one record, parsed or as bytes. A value that is missing or not a JSON object is a
        tombstone."""
        if isinstance(value, bytes) and topic != ASSIGNMENTS:
            value = parse_json_object(value)
        if value is None:
            self.latest[topic].pop(key, None)
        else:
            self.latest[topic][key] = value

    @property
    def configuration(self) -> Mapping[str, Any] | None:
        """Return the configuration of the last commit; None where no record has it."""
        marker = self.latest[COMMITS].get(self._cell)
        return None if marker is None else marker.get("configuration")

    @property
    def levels(self) -> tuple[str, ...]:
        """Return the tiers' names by which the reconciler decides; the given ones where no commit
        has them."""
        body = self.configuration
        return self._levels if body is None else tuple(body["levels"])

    def default_policy(self) -> Mapping[str, Any] | None:
        """Return the policy of streams that ask for none; None where no commit has it."""
        body = self.configuration
        return None if body is None else body["default_policy"]

    @property
    def resources(self) -> dict[str, ClusterResource]:
        """Return what the reconciler counts beside replicas, by name."""
        listed = (self.configuration or {}).get("resources", ())
        return {
            each["name"]: ClusterResource(
                capacity=each["capacity"], balance=each["balance"], led=each["led"]
            )
            for each in listed
        }

    def select_stream(self, name: str) -> "StateRecords":
        """Return a copy with only the shards of one stream: of a large fleet a fraction to
        parse."""
        decisions = self.latest[DECISIONS]
        return self._narrow(
            {name: decisions[name]} if name in decisions else {},
            {
                key: each
                for key, each in self.latest[ASSIGNMENTS].items()
                if _stream_of(key) == name
            },
            {key: each for key, each in self.latest[VIOLATIONS].items() if _stream_of(key) == name},
        )

    def select_node(self, name: str) -> "StateRecords":
        """Return a copy with only the shards that have a replica on a node, and their streams."""
        # No character of a node id is escaped in JSON; of the values without it none is parsed.
        quoted = orjson.dumps(name)
        shards = {}
        for key, value in self.latest[ASSIGNMENTS].items():
            if isinstance(value, bytes) and quoted not in value:
                continue
            if name in self._parse(ASSIGNMENTS, key, value, _parse_assignment).replicas:
                shards[key] = value
        streams = {_stream_of(key) for key in shards}
        return self._narrow(
            {key: each for key, each in self.latest[DECISIONS].items() if key in streams},
            shards,
            {key: each for key, each in self.latest[VIOLATIONS].items() if key in shards},
        )

    def select_nodes(self, names: Collection[str]) -> "StateRecords":
        """Return a copy with only these nodes, which are parsed from their records."""
        few = StateRecords(self._cell, self._prefix, self._levels)
        known = self.latest[TOPOLOGY]
        chosen = {name: known[name] for name in names if name in known}
        few.latest = self.latest | {TOPOLOGY: chosen}
        return few

    def _narrow(
        self, decisions: dict[str, Any], assignments: dict[str, Any], violations: dict[str, Any]
    ) -> "StateRecords":
        # Not made anew: a kind of records that has its nodes parsed keeps them.
        few = copy(self)
        chosen = {DECISIONS: decisions, ASSIGNMENTS: assignments, VIOLATIONS: violations}
        few.latest = self.latest | chosen
        return few

    @property
    def marker(self) -> Mapping[str, Any]:
        """The last commit. Raises StreamingError where no reconciler of this cell has run."""
        marker = self.latest[COMMITS].get(self._cell)
        if marker is None:
            raise StreamingError(
                f"no reconciler of cell '{self._cell}' has committed anything to "
                f"{full_name(COMMITS, self._prefix)}; start one with: placer run"
            )
        return marker

    @property
    def nodes(self) -> list[NodeView]:
        """All known nodes, in the natural order of their ids."""
        return self._parse_sorted(TOPOLOGY, codec.parse_node)

    @property
    def decisions(self) -> list[Decision]:
        """The last answer to every stream, by name."""
        return self._parse_sorted(DECISIONS, codec.parse_decision)

    @property
    def assignments(self) -> list[Assignment]:
        """All shards, by stream and number."""
        return self._parse_sorted(ASSIGNMENTS, _parse_assignment, _shard_key())

    @property
    def open_moves(self) -> list[Move]:
        """Moves under way, the oldest first."""
        moves = self._parse_sorted(MOVES, codec.parse_move)
        found = [move for move in moves if move.state.is_open]
        return sorted(found, key=lambda move: move.issued_at)

    @property
    def violations(self) -> list[Violation]:
        """Open violations of all shards, by stream and shard."""
        lists = self._parse_sorted(VIOLATIONS, codec.parse_violations)
        return [violation for found in lists for violation in found]

    def memory(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """Return the reconciler's memory records of a kind, by name."""
        found = self._parse_sorted(MEMORY, codec.parse_memory)
        return {each.name: each.body for each in found if each.kind == kind}

    def count_replicas(self) -> tuple[Counter[str], Counter[str]]:
        """Count the replicas on each node, and those of them that lead."""
        assignments = self.assignments
        held = Counter(node for each in assignments for node in each.replicas)
        return held, Counter(each.replicas[0] for each in assignments if each.replicas)

    def cluster(self) -> Cluster:
        """Return the published state as a cluster file: nodes, placed streams with replicas, and
        moves under way."""
        replicas: dict[str, dict[int, tuple[str, ...]]] = {}
        for shard in sorted(self.assignments, key=lambda each: each.shard):
            replicas.setdefault(shard.stream, {})[shard.shard] = shard.replicas
        behind, resources = self.memory("out_of_sync"), self.resources
        loads = self._loads() if resources else {}
        streams = [
            _count_by(resources, stream_of(decision, replicas.get(name), behind), loads.get(name))
            for name, decision in ((each.spec.stream, each) for each in self.decisions)
            if decision.outcome in _IN_FORCE
        ]
        return Cluster(
            name=None,
            levels=self.levels,
            nodes=tuple(_node(each, resources) for each in self.nodes),
            streams=tuple(streams),
            moves=tuple(map(_move, self.open_moves)),
            resources=resources,
        )

    def _loads(self) -> dict[str, dict[int, dict[str, int]]]:
        """What is known of shards, by stream, shard and resource."""
        found: dict[str, dict[int, dict[str, int]]] = {}
        for each in self._parse_sorted(SHARD_LOADS, codec.parse_load):
            found.setdefault(each.stream, {})[each.shard] = dict(each.amounts)
        return found

    def _parse_sorted(
        self, topic: str, parse: Callable[[Any], Any], sort_key: Callable[[str], Any] = natural_key
    ) -> list[Any]:
        """A topic's records in the natural order of their keys. Raises StreamingError for one that
        is none of ours."""
        values = sorted(self.latest[topic].items(), key=lambda each: sort_key(each[0]))
        return [self._parse(topic, key, body, parse) for key, body in values]

    def _parse(self, topic: str, key: str, body: Any, parse: Callable[[Any], Any]) -> Any:
        try:
            return parse(body)
        except (KeyError, ValueError, TypeError) as error:
            name = full_name(topic, self._prefix)
            raise StreamingError(
                f"{name}: this version cannot read the record with key {key!r}: {error}; "
                "see: placer doctor"
            ) from error


class PublishedState(StateRecords):
    """The state as of the last `refresh`, read from a broker. Raises BrokerUnreachable and
    TopicMissing when it is made."""

    def __init__(
        self,
        settings: Settings,
        topics: Sequence[str] = STATE_TOPICS,
        reachability: Reachability | None = None,
    ) -> None:
        """`topics`: those that are read besides the commits; the others stay empty. `reachability`
        tells at `refresh` when the brokers go and come back."""
        super().__init__(settings.cell, settings.topics.prefix, settings.levels)
        self._options = settings.resolved_kafka_options()
        self._bootstrap = settings.kafka.bootstrap_servers
        self._reachability = reachability
        self._reader = self._follow((*topics, COMMITS))
        self._alerts_reader: CommittedReader | None = None
        self._alerts: deque[Mapping[str, Any]] = deque(maxlen=ALERTS_KEPT)
        self.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        if self._alerts_reader is not None:
            self._alerts_reader.close()

    def refresh(self) -> None:
        """Take in what has been committed since. Raises BrokerUnreachable."""
        for topic, values in self._reader.read_changes().items():
            for key, value in values.items():
                self.take(topic, key.decode("utf-8", "backslashreplace"), value)

    def lag(self) -> dict[str, int]:
        """Records of each input topic that no commit has taken in yet. Its own ticks, one a
        second, are among them."""
        waiting: dict[str, int] = {}
        for topic in INPUT_TOPICS:
            name, positions = full_name(topic, self._prefix), self.marker["positions"]
            waiting[topic] = sum(
                max(self._reader.end(name, int(partition)) - position, 0)
                for partition, position in positions.get(topic, {}).items()
            )
        return waiting

    def processes(self, at_ms: int) -> list[ProcessSeen]:
        """The processes of the cell that were there in the last seconds before `at_ms`."""
        epoch = int(self.marker["writer_epoch"])
        return read_processes(self._bootstrap, self._prefix, self._options, epoch, at_ms)

    def alerts(self) -> list[Mapping[str, Any]]:
        """The latest alerts, the oldest first."""
        if self._alerts_reader is None:
            with self._follow((ALERTS,), from_beginning=False) as at_the_end:
                ends = at_the_end.positions[ALERTS]
            start = {partition: max(end - ALERTS_KEPT, 0) for partition, end in ends.items()}
            self._alerts_reader = self._follow((ALERTS,), positions={ALERTS: start})
        records = self._alerts_reader.read_to_end()
        self._alerts.extend(record.value for record in records if record.value is not None)
        return list(self._alerts)

    def _follow(self, topics: Sequence[str], **where: Any) -> CommittedReader:
        return CommittedReader(
            self._bootstrap,
            self._prefix,
            topics,
            options=self._options,
            reachability=self._reachability,
            **where,
        )


def _parse_assignment(value: dict[str, Any] | bytes) -> Assignment:
    return codec.parse_assignment(orjson.loads(value) if isinstance(value, bytes) else value)


def _shard_key() -> Callable[[str], Any]:
    """The natural order of shards' keys; the name of a stream is looked at once."""
    streams = cache(natural_key)

    def sort_key(key: str) -> Any:
        stream, _, shard = key.rpartition("/")
        return streams(stream), (0, int(shard), shard) if shard.isdecimal() else (1, 0, shard)

    return sort_key


def _stream_of(key: str) -> str:
    """Return the stream of a shard's key, such as `orders/3`."""
    return key.rpartition("/")[0]


def _count_by(
    resources: Collection[str],
    stream: ClusterStream,
    loads: Mapping[int, Mapping[str, int]] | None,
) -> ClusterStream:
    """A stream with what is known and expected of its shards, of the resources that there are."""
    known = loads or {}
    shards = range(stream.shards)
    by_name = {
        name: tuple(known[shard].get(name) if shard in known else None for shard in shards)
        for name in sorted({name for amounts in known.values() for name in amounts})
        if name in resources
    }
    expected = _counted(stream.expected_load, resources)
    return stream.model_copy(update={"loads": by_name or None, "expected_load": expected})


def _counted(
    amounts: Mapping[str, int] | None, resources: Collection[str]
) -> dict[str, int] | None:
    """The amounts of resources that are counted; None where there are none."""
    return {name: each for name, each in (amounts or {}).items() if name in resources} or None


def _node(view: NodeView, resources: Collection[str]) -> ClusterNode:
    a = view.attributes
    return ClusterNode.model_validate(
        {
            "id": view.node_id,
            "host": a.host,
            "location": a.location or None,
            "tags": dict(a.tags),
            "weight": a.weight,
            "capacity": a.capacity,
            "capacities": _counted(dict(a.capacities or ()), resources),
            "leader": a.leader,
            "tokens": a.tokens,
            "status": view.status,
        }
    )


def stream_of(
    decision: Decision,
    by_shard: Mapping[int, tuple[str, ...]] | None,
    out_of_sync: Mapping[str, Mapping[str, Any]] | None = None,
) -> ClusterStream:
    """A decided stream as a cluster file would say it. `by_shard`: its replicas, by number;
    `out_of_sync`: what the reconciler remembers of replicas that are, by shard."""
    spec = decision.spec
    body = {name: getattr(spec, name) for name in _SPEC_FIELDS}
    if spec.expected_load is not None:
        body["expected_load"] = dict(spec.expected_load)
    known = by_shard or {}
    replicas = None if by_shard is None else [*known.values()]
    unobserved = [n for n in range(spec.shards) if n not in known] if spec.adopt else []
    if unobserved and decision.outcome is not Outcome.WAITING:
        replicas = [known.get(n, ()) for n in range(spec.shards)]
        body["unobserved"] = unobserved
    body |= {"replicas": replicas}
    behind = [(out_of_sync or {}).get(f"{spec.stream}/{n}") for n in range(len(replicas or ()))]
    if any(behind):
        lists = zip(replicas or (), behind, strict=True)
        body["in_sync"] = [
            tuple(each for each in nodes if each not in (found or {}).get("nodes", ()))
            for nodes, found in lists
        ]
    policies = spec.placement_policies
    body |= {"policy": dict(spec.policy)} if policies is None else {"placement_policies": policies}
    return ClusterStream.model_validate(body)


def _move(move: Move) -> ClusterMove:
    return ClusterMove(
        stream=move.stream,
        shard=move.shard,
        kind=MoveKind(move.kind),
        remove=move.remove,
        add=move.add,
        leader=move.leader,
    )
