"""Rules: the planner's penalty and the checker's violations are two sides of one limit.

Goal: they never disagree, whatever the fleet looks like. Method: random fleets and placements, and
a naive count of what is in which domain, in plain Python.
"""

from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.model import Liveness, NodeAttributes, parse_location
from placement.rules import (
    AtLeastDomains,
    AtMost,
    BalanceNodes,
    ColocateSlots,
    Even,
    ExclusiveNodes,
    LeaderPreference,
    PreferNodes,
    RoleApart,
    Rule,
    RuleContext,
    RuleSet,
    SameDomain,
    Share,
)
from placement.topology import LEAF, NodeFilter, Scope, Topology
from tests.builders.drawn import examples

PLACES = ("/a/r1", "/a/r2", "/b/r1", "/b", "/c/r1/x", "")
SITE = Scope(depth=1, name="site")
DISK = Scope(tag="disk")
SCOPES = st.sampled_from([LEAF, SITE, Scope(depth=2, name="2"), DISK])
LIMITS = st.one_of(st.integers(1, 3), st.sampled_from(Share))
RULES = st.one_of(
    st.builds(AtMost, LIMITS, SCOPES),
    st.builds(Even, SCOPES),
    st.builds(AtLeastDomains, st.integers(1, 4), SCOPES),
    st.builds(SameDomain, SCOPES),
    st.builds(ExclusiveNodes),
)
# Rules are cheap to ask, and the cases that matter are rare combinations.
MANY = examples(300)
WITHIN_A = NodeFilter(within=(parse_location("/a"),))


@dataclass
class Fleet:
    """A topology and, by node index, what a naive reader knows of it."""

    topology: Topology
    places: list[str]
    disks: list[str | None]
    up: list[bool]

    def domain(self, scope: Scope, node: int) -> str | None:
        if scope.tag:
            return self.disks[node] and f"disk={self.disks[node]}"
        return "/".join(self.places[node].split("/")[: (scope.depth or 0) + 1]) or "(unlocated)"

    def count(self, scope: Scope, nodes: list[int]) -> Counter[str]:
        domains = (self.domain(scope, node) for node in nodes)
        return Counter(domain for domain in domains if domain is not None)

    def live(self, scope: Scope, nodes: NodeFilter) -> set[str]:
        admitted = (
            node
            for node, up in enumerate(self.up)
            if up and (nodes.everything or self.places[node].startswith("/a"))
        )
        return {domain for node in admitted if (domain := self.domain(scope, node)) is not None}


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    size = draw(st.integers(1, 9))
    fleet = Fleet(Topology(("site",)), [], [], [])
    for number in range(size):
        place, disk = draw(st.sampled_from(PLACES)), draw(st.sampled_from([None, "ssd", "hdd"]))
        liveness = draw(st.sampled_from([Liveness.UP, Liveness.UP, Liveness.SUSPECT]))
        tags = (("disk", disk),) if disk else ()
        fleet.topology.upsert(f"n{number}", NodeAttributes(location=place, tags=tags), liveness)
        fleet.places.append(place)
        fleet.disks.append(disk)
        fleet.up.append(liveness is Liveness.UP)
    return fleet


@st.composite
def standings(draw: st.DrawFn) -> tuple[Fleet, RuleContext]:
    """Any placement of a shard, lawful or not."""
    fleet = draw(fleets())
    nodes = st.integers(0, fleet.topology.size - 1)
    replicas = draw(st.lists(nodes, unique=True, max_size=5))
    factor = draw(st.integers(max(1, len(replicas)), 6))
    others = draw(st.lists(nodes, max_size=4))
    admitted = draw(st.sampled_from([NodeFilter(), WITHIN_A]))
    return fleet, RuleContext(fleet.topology, factor, replicas, others, admitted)


def found(rule: Rule, standing: RuleContext) -> dict[str | None, tuple[int, int]]:
    findings = {each.domain: (each.count, each.limit) for each in rule.violations(standing)}
    assert len(findings) == len(rule.violations(standing)), "one finding per domain"
    return findings


def hopeless(rule: Rule, standing: RuleContext) -> bool:
    """Whether the stream's other shards stand in several domains already."""
    others = replace(standing, replicas=standing.stream_nodes)
    return isinstance(rule, SameDomain) and bool(rule.violations(others))


@MANY
@given(standings(), RULES)
def test_violations_are_what_a_naive_count_says(
    drawn: tuple[Fleet, RuleContext], rule: Rule
) -> None:
    fleet, standing = drawn
    factor, replicas = standing.replication_factor, list(standing.replicas)
    expected: dict[str | None, tuple[int, int]] = {}
    if isinstance(rule, ExclusiveNodes):
        shared = set(replicas) & set(standing.stream_nodes)
        expected = {fleet.topology.ids[node]: (2, 1) for node in shared}
        assert found(rule, standing) == expected
        return
    assert isinstance(rule, AtMost | Even | AtLeastDomains | SameDomain)
    counts, live = fleet.count(rule.per, replicas), fleet.live(rule.per, standing.nodes)
    match rule:
        case AtMost():
            shares = {
                Share.SHARE: -(-factor // max(1, len(live))),
                Share.MINORITY: (factor - 1) // 2,
                Share.HALF: factor // 2,
            }
            cap = shares[rule.limit] if isinstance(rule.limit, Share) else rule.limit
            expected = {domain: (n, cap) for domain, n in counts.items() if n > cap}
        case Even() if live:
            least = min(counts[domain] for domain in live)
            expected = {d: (n, least + 1) for d, n in counts.items() if n > least + 1}
        case AtLeastDomains() if len(counts) < rule.count:
            expected = {None: (len(counts), rule.count)}
        case SameDomain():
            everywhere = fleet.count(rule.per, [*replicas, *standing.stream_nodes])
            if len(everywhere) > 1:
                expected = {domain: (n, 1) for domain, n in counts.items()}
    assert found(rule, standing) == expected


@MANY
@given(st.data(), fleets(), RULES, st.integers(1, 5), st.sampled_from([NodeFilter(), WITHIN_A]))
def test_steps_without_penalty_break_nothing(
    data: st.DataObject, fleet: Fleet, rule: Rule, factor: int, nodes: NodeFilter
) -> None:
    """A shard built of zero-penalty steps alone, in any order, has no violations."""
    others = data.draw(st.lists(st.integers(0, fleet.topology.size - 1), max_size=3))
    standing = RuleContext(fleet.topology, factor, [], others, nodes)
    if hopeless(rule, standing):
        return
    for _ in range(factor):
        penalty = rule.penalty(standing)
        free = [
            node
            for node in range(fleet.topology.size)
            if penalty[node] == 0 and node not in standing.replicas
        ]
        if not free:
            return
        chosen = data.draw(st.sampled_from(free))
        standing = replace(standing, replicas=[*standing.replicas, chosen])
        if not isinstance(rule, AtLeastDomains):
            assert rule.violations(standing) == []
    assert rule.violations(standing) == []


@MANY
@given(standings(), RULES, st.data())
def test_a_step_with_a_penalty_breaks_something(
    drawn: tuple[Fleet, RuleContext], rule: Rule, data: st.DataObject
) -> None:
    """The other direction: the planner refuses nothing that the checker would let pass."""
    fleet, standing = drawn
    node = data.draw(st.integers(0, fleet.topology.size - 1))
    if node in standing.replicas or rule.violations(standing) or isinstance(rule, AtLeastDomains):
        return
    if hopeless(rule, standing):
        return
    if isinstance(rule, AtMost | Even | SameDomain) and fleet.domain(rule.per, node) is None:
        return  # a node outside all domains is refused without being countable
    after = replace(standing, replicas=[*standing.replicas, node])
    assert bool(rule.penalty(standing)[node]) == bool(rule.violations(after))


@MANY
@given(standings(), RULES)
def test_neither_depends_on_the_order_of_nodes(
    drawn: tuple[Fleet, RuleContext], rule: Rule
) -> None:
    """A rebuild numbers nodes anew: the same fleet registered backwards must be judged the same,
    finding by finding."""
    fleet, standing = drawn
    last = fleet.topology.size - 1
    turned = Topology(("site",))
    for node in range(last, -1, -1):
        topology = fleet.topology
        turned.upsert(topology.ids[node], topology.attributes[node], topology.liveness[node])
    mirror = replace(
        standing,
        topology=turned,
        replicas=[last - node for node in standing.replicas],
        stream_nodes=[last - node for node in standing.stream_nodes],
    )
    assert rule.violations(mirror) == rule.violations(standing)
    assert rule.penalty(mirror).tolist() == rule.penalty(standing).tolist()[::-1]


def test_a_node_without_a_domain_is_the_last_choice() -> None:
    topology = Topology()
    topology.upsert("tagged", NodeAttributes(tags=(("disk", "ssd"),)), Liveness.UP)
    topology.upsert("bare", NodeAttributes(), Liveness.UP)
    standing = RuleContext(topology, 2, [])
    for rule in (AtMost(2, DISK), Even(DISK)):
        tagged, bare = rule.penalty(standing).tolist()
        assert tagged == 0 < bare


@pytest.mark.parametrize("rule", [BalanceNodes(), PreferNodes(("n2", "n0")), ColocateSlots()])
def test_rules_that_only_rank_are_never_broken(rule: Rule) -> None:
    topology = Topology()
    for number in range(4):
        topology.upsert(f"n{number}", NodeAttributes(), Liveness.UP)
    standing = RuleContext(topology, 3, [0, 1], [0, 0, 3])
    assert rule.violations(standing) == []
    expected = {"balance nodes": [2, 0, 0, 1], "prefer nodes n2,n0": [1, 2, 0, 2]}
    assert rule.penalty(standing).tolist() == expected.get(str(rule), [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("share", "caps"),
    [
        # rf:      1  2  3  4  5  6, over three domains
        (Share.SHARE, [1, 1, 1, 2, 2, 2]),
        (Share.MINORITY, [0, 0, 1, 1, 2, 2]),
        (Share.HALF, [0, 1, 1, 2, 2, 3]),
    ],
)
def test_shares_in_replicas(share: Share, caps: list[int]) -> None:
    rule = AtMost(share, LEAF)
    assert [rule.cap(factor, 3) for factor in range(1, 7)] == caps
    assert AtMost(7, LEAF).cap(3, 3) == 7
    assert AtMost(Share.SHARE, LEAF).cap(3, 0) == 3


@pytest.mark.parametrize(
    ("nodes", "passing"),
    [
        (NodeFilter(), "n1 n2 n3"),
        (NodeFilter(within=(parse_location("/a"),)), "n1 n2"),
        (NodeFilter(avoid=(parse_location("/a/r1"),)), "n2 n3"),
        (NodeFilter(nodes=("n1", "n3", "n9")), "n1 n3"),
        (NodeFilter(with_tags=(("disk", "ssd"),)), "n2"),
        (NodeFilter(with_tags=(("disk", "ssd"), ("cpu", "8"))), ""),
        (
            NodeFilter(within=(parse_location("/a"),), nodes=("n2", "n3")),
            "n2",
        ),
    ],
)
def test_filters(nodes: NodeFilter, passing: str) -> None:
    topology = Topology()
    topology.upsert("n1", NodeAttributes(location="/a/r1"), Liveness.UP)
    topology.upsert("n2", NodeAttributes(location="/a/r2", tags=(("disk", "ssd"),)), Liveness.DEAD)
    topology.upsert("n3", NodeAttributes(location="/ab/r1", tags=(("disk", "hdd"),)), Liveness.UP)
    mask = nodes.mask(topology)
    assert " ".join(topology.ids[node] for node in range(3) if mask[node]) == passing


def test_copies_of_several_roles_share_the_last_slots() -> None:
    """Every role rule speaks of the last slots; a second one takes none from those that lead."""
    topology = Topology(("site",))
    for number, place in enumerate(("/a", "/b", "/c")):
        topology.upsert(
            f"n{number}", NodeAttributes(location=place, leader=number > 0), Liveness.UP
        )
    rules = RuleSet((RoleApart("cold", 1, SITE), RoleApart("cold", 1, LEAF)))
    assert rules.role_copies == 1
    able = topology.can_lead
    assert rules.possible_leaders([0, 1, 2], 3, able, topology) == [1]
    preferring = RuleSet((*rules.rules, LeaderPreference((parse_location("/c"),))))  # type: ignore[arg-type]
    assert preferring.possible_leaders([1, 2, 0], 3, able, topology) == [2]
    assert preferring.possible_leaders([0, 1, 2], 3, able, topology) == [1]
