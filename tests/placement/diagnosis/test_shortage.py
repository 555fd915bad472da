"""What a place lacks: named where no arrangement helps, and never where one would.

Method: small random fleets, of which every lawful arrangement is tried; the rules themselves say
which are lawful. A table names the place, the amount and the reason of known cases.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.diagnosis import Demand, over_capacity
from placement.model import Liveness, NodeAttributes, Resource, StreamSpec, ViolationClass
from placement.rules import NodeLoads, Strength, find_breaches
from placement.strategies import STRATEGIES
from placement.topology import Topology
from tests.builders.drawn import examples
from tests.placement.diagnosis.test_cluster import compiled

DISK = "disk_bytes"
PLACES = ("/eu/a", "/eu/b", "/us/a")
POLICIES: tuple[dict[str, Any], ...] = (
    {"strategy": "spread"},
    {"strategy": "spread", "rules": [{"at_most": 1, "per": "region"}]},
    {"strategy": "spread", "rules": [{"at_least": {"/eu": 1}}]},
    {"strategy": "spread", "rules": [{"at_least": {"/eu/a": 1}}]},
    {"strategy": "spread", "rules": [{"exactly": {"/eu": 1, "/us": 1}}]},
    {"strategy": "spread", "within": ["/eu"]},
    {"strategy": "spread", "with_tags": {"disk": "ssd"}},
    {"strategy": "network_topology", "replication": {"eu": 1, "us": 1}},
)


class Stream(NamedTuple):
    """Replicas by shard, and the size of each shard."""

    policy: dict[str, Any]
    copies: int
    rows: list[list[int]]
    sizes: list[int]


class Fleet(NamedTuple):
    """Nodes by place and size, all of which may be filled; those with an ssd; those that died."""

    nodes: list[tuple[str, int]]
    streams: list[Stream]
    ssd: frozenset[int] = frozenset()
    dead: frozenset[int] = frozenset()


def found(fleet: Fleet) -> list[tuple[ViolationClass, str]]:
    """The violations of nodes over capacity: class and message."""
    topology, loads, demands = built(fleet)
    violations = over_capacity(topology, loads, demands)
    return [(each.violation_class, each.reason.message) for each in violations]


def built(fleet: Fleet) -> tuple[Topology, NodeLoads, list[Demand]]:
    topology = Topology(("region", "rack"))
    for number, (place, size) in enumerate(fleet.nodes):
        tags = (("disk", "ssd"),) if number in fleet.ssd else ()
        attributes = NodeAttributes(location=place, tags=tags, capacities=((DISK, size),))
        liveness = Liveness.DEAD if number in fleet.dead else Liveness.UP
        topology.upsert(f"n{number}", attributes, liveness)
    borne = np.zeros((1, len(fleet.nodes)), np.int64)
    demands = []
    for stream in fleet.streams:
        policy = compiled(topology, stream.policy)
        rows, sizes = np.asarray(stream.rows, np.int64), np.asarray([stream.sizes], np.int64)
        for nodes, size in zip(stream.rows, stream.sizes, strict=True):
            borne[0, nodes] += size
        demands.append(Demand(policy, policy.copies(stream.copies), rows, sizes))
    resources = (Resource(DISK, capacity=1.0),)
    return topology, NodeLoads(topology, resources, borne, np.zeros(1, np.int64)), demands


def has_lawful_arrangement(fleet: Fleet) -> bool:
    """Whether all shards have lawful nodes on which everything fits, every way tried."""
    topology, loads, demands = built(fleet)
    choices: list[list[tuple[tuple[int, ...], int]]] = []
    for stream, demand in zip(fleet.streams, demands, strict=True):
        lawful = [*lawful_rows(topology, stream, demand)]
        choices.extend([(nodes, size) for nodes in lawful] for size in stream.sizes)
    limit = loads.limit[0]
    for chosen in product(*choices):
        borne = np.zeros(len(limit), np.int64)
        for nodes, size in chosen:
            borne[[*nodes]] += size
        if (borne <= limit).all():
            return True
    return False


def lawful_rows(topology: Topology, stream: Stream, demand: Demand) -> Iterator[tuple[int, ...]]:
    spec = StreamSpec("s", len(stream.rows), stream.copies, stream.policy)
    context = demand.policy.rule_context(spec, topology)
    rules = STRATEGIES[demand.policy.strategy].rules(demand.policy, topology)
    usable = topology.eligible & demand.policy.nodes.mask(topology)
    for nodes in permutations(np.flatnonzero(usable).tolist(), demand.copies):
        if next(find_breaches(rules, Strength.REQUIRED, [nodes], context), None) is None:
            yield nodes


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    sizes = st.integers(1, 10)
    nodes = draw(st.lists(st.tuples(st.sampled_from(PLACES), sizes), min_size=3, max_size=5))
    numbers = st.integers(0, len(nodes) - 1)
    streams = []
    for _ in range(draw(st.integers(1, 2))):
        policy, copies = draw(st.sampled_from(POLICIES)), 2
        row = st.lists(numbers, min_size=copies, max_size=copies, unique=True)
        rows = draw(st.lists(row, min_size=1, max_size=2))
        streams.append(Stream(policy, copies, rows, [draw(sizes) for _ in rows]))
    ssd, dead = draw(st.frozensets(numbers)), draw(st.frozensets(numbers, max_size=1))
    return Fleet(nodes, streams, ssd, dead)


@examples(200)
@given(fleets())
def test_no_room_is_said_to_be_missing_where_an_arrangement_exists(fleet: Fleet) -> None:
    classes = {kind for kind, _ in found(fleet)}
    if ViolationClass.UNFIXABLE in classes:
        assert not has_lawful_arrangement(fleet)


def one_each(*sizes: int) -> list[tuple[str, int]]:
    return list(zip(("/eu/a", "/eu/b", "/us/a", "/us/b"), sizes, strict=True))


NTS = {"strategy": "network_topology", "replication": {"eu": 1, "us": 1}}
FULL = "node n0 bears 30 bytes of disk_bytes, 20 bytes may be filled"
CASES: tuple[tuple[str, Fleet, str], ...] = (
    (
        "each shard has one copy in /eu, where 25 of 30 bytes fit",
        Fleet(one_each(20, 5, 90, 90), [Stream(NTS, 2, [[0, 2]] * 3, [10] * 3)]),
        "; 5 bytes more would be needed in /eu",
    ),
    (
        "two regions, one copy in each of them by a rule of domains",
        Fleet(one_each(20, 5, 90, 90), [Stream(POLICIES[1], 2, [[0, 2]] * 3, [10] * 3)]),
        "; 5 bytes more would be needed in /eu",
    ),
    (
        "the stream may stand within /eu only, and needs it twice",
        Fleet(
            [("/eu/a", 20), ("/eu/b", 30), ("/eu/c", 5), ("/us/a", 90)],
            [Stream(POLICIES[5], 2, [[0, 1]] * 3, [10] * 3)],
        ),
        "; 5 bytes more would be needed in /eu",
    ),
    (
        "nodes with a tag, in several places",
        Fleet(
            one_each(20, 50, 5, 90),
            [Stream(POLICIES[6], 1, [[0]] * 3, [10] * 3)],
            ssd=frozenset({0, 2}),
        ),
        "; 5 bytes more would be needed on the 2 nodes that the policy admits",
    ),
    (
        "of two copies one finds a node: no room is needed for the other",
        Fleet(
            [("/eu/a", 20), ("/us/a", 90), ("/us/a", 90), ("/us/b", 90)],
            [Stream(POLICIES[5], 2, [[0]] * 3, [10] * 3)],
        ),
        "; 10 bytes more would be needed in /eu/a",
    ),
    (
        "a shard that is larger than any node",
        Fleet(one_each(20, 25, 25, 25), [Stream(POLICIES[0], 1, [[0]], [30])]),
        "; 5 bytes more would be needed on one node, for its largest shard",
    ),
    (
        "the fleet as a whole",
        Fleet(one_each(20, 3, 3, 3), [Stream(POLICIES[0], 1, [[0]] * 30, [1] * 30)]),
        "; 1 byte more would be needed on other nodes",
    ),
    (
        "somewhere there is room",
        Fleet(one_each(20, 10, 0, 0), [Stream(POLICIES[0], 1, [[0]] * 30, [1] * 30)]),
        "",
    ),
)


@pytest.mark.parametrize(("fleet", "missing"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_the_narrowest_place_that_lacks_room_is_named(fleet: Fleet, missing: str) -> None:
    kind = ViolationClass.UNFIXABLE if missing else ViolationClass.FIXABLE
    assert found(fleet) == [(kind, FULL + missing)]


def test_a_dead_node_has_no_room() -> None:
    nodes = one_each(20, 90, 90, 90)
    streams: Sequence[Stream] = [Stream(POLICIES[5], 1, [[0]] * 3, [10] * 3)]
    fleet = Fleet(nodes, [*streams], dead=frozenset({1}))
    assert [message for _, message in found(fleet)] == [
        f"{FULL}; 10 bytes more would be needed in /eu/a"
    ]
