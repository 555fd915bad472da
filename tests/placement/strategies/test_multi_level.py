"""`multi_level` is even at every level of any tree, as KIP-879 asks.

Goal: the ring of the KIP where the tree is uniform, and evenness where the vendor's
implementation loses it. Method: the ring once more as a recursion of iterators on uniform trees;
properties by prefix on random trees; the KIP's motivating example.
"""

import random
from collections import Counter
from itertools import product

import pytest

from tests.builders.drawn import seeds
from tests.builders.placements import ask, ask_one, node, random_nodes, stream, usable
from tests.stories.datadriven import parse_command
from tests.stories.story import Story

KIP = {"strategy": "multi_level"}


def tree(*widths):
    """A uniform tree; a node's id spells its path."""
    paths = list(product(*(range(width) for width in widths)))
    return [node("n" + "".join(map(str, p)), "/" + "/".join(map(str, p[:-1]))) for p in paths]


class Ring:
    """A node of the KIP's tree."""

    def __init__(self, widths, path=""):
        self.path, self.at = path, 0
        self.children = [Ring(widths[1:], f"{path}{n}") for n in range(widths[0])] if widths else []

    def take(self):
        if not self.children:
            return "n" + self.path
        child = self.children[self.at % len(self.children)]
        self.at += 1
        return child.take()


def prefixes(name, nodes):
    """The domains of a node, top first, the node itself last."""
    path = next(each.attributes.location for each in nodes if each.node_id == name)
    parts = path.split("/")[1:] if path else [""]
    return [tuple(parts[: depth + 1]) for depth in range(len(parts))] + [(*parts, name)]


def children(nodes):
    """Child domains and nodes of every domain."""
    below = {}
    for each in nodes:
        above = ()
        for domain in prefixes(each.node_id, nodes):
            below.setdefault(above, set()).add(domain)
            above = domain
    return below


def held(row, nodes):
    return Counter(domain for name in row for domain in prefixes(name, nodes))


@pytest.mark.parametrize("start", [0, 1, 5])
@pytest.mark.parametrize(
    ("widths", "factor", "shards"),
    [((3, 2, 1), 3, 6), ((3, 2, 2), 2, 9), ((2, 2, 2), 4, 5), ((2, 3), 3, 4), ((4, 1, 1, 2), 3, 8)],
)
def test_a_uniform_tree_is_dealt_by_the_ring(widths, factor, shards, start):
    answer = ask_one(tree(*widths), KIP | {"start": start}, factor=factor, shards=shards)
    ring = Ring(widths)
    for _ in range(start):
        ring.take()
    dealt = [sorted(ring.take() for _ in range(factor)) for _ in range(shards)]
    assert [sorted(row) for row in answer.replicas] == dealt


def test_the_motivation_of_the_kip():
    """Three data centers with two racks each: flat racks may leave one unused, this does not."""
    answer = ask_one(tree(3, 2, 1), KIP, shards=2)
    assert answer.replicas == [["n000", "n100", "n200"], ["n010", "n110", "n210"]]
    assert ask_one(tree(3, 2, 1), {"strategy": "kip879"}).replicas == answer.replicas[:1]


@pytest.mark.parametrize(("widths", "factor"), [((3, 2, 2), 3), ((2, 2, 3), 4), ((3, 3, 1), 2)])
def test_totals_and_leaders_are_even(widths, factor):
    """What the vendor's test asks for: totals per prefix within one, and even leaders."""
    nodes = tree(*widths)
    shards = 5 * len(nodes)
    answer = ask_one(nodes, KIP, factor=factor, shards=shards)
    totals = sum((held(row, nodes) for row in answer.replicas), Counter())
    for siblings in children(nodes).values():
        assert max(totals[d] for d in siblings) - min(totals[d] for d in siblings) <= 1
    assert set(Counter(row[0] for row in answer.replicas).values()) == {5}


def test_a_raised_replication_factor_goes_on_where_the_last_ended():
    """The last replica went to data center 0: the next shard's goes to 1, or to 2 where 1 has one,
    and there to the rack behind the one taken last."""
    given = [["n000", "n100"], ["n200", "n010"]]
    answer = ask_one(tree(3, 2, 1), KIP, shards=2, replicas=given)
    assert answer.replicas == [["n000", "n100", "n210"], ["n200", "n010", "n110"]]


@pytest.mark.parametrize("settings", ["settings", "settings max_per_batch=2", "settings max_in=1"])
@pytest.mark.parametrize(("widths", "factor"), [((3, 2, 1), 2), ((3, 2, 2), 1), ((2, 2, 3), 3)])
def test_a_raise_in_the_stream_is_dealt_like_one_of_a_file(settings, widths, factor):
    """Move by move, as few at a time as limits let through, the rings go on the same."""
    nodes, shards = tree(*widths), 7
    rows = ask_one(nodes, KIP, factor=factor, shards=shards).replicas
    story = Story()
    asked = f"stream=s shards={shards} policy='{{strategy: multi_level}}'"
    given = ",".join(" ".join(row) for row in rows)
    for line in (
        settings,
        *(f"register nodes={each.node_id} location={each.attributes.location}" for each in nodes),
        f"create {asked} rf={factor} replicas='{given}'",
        f"alter {asked} rf={factor + 2}",
    ):
        story.answer(parse_command(line))
    story.finish_moves()
    raised = [story.records.assignments["s", shard].replicas for shard in range(shards)]
    if "max_in" not in settings:
        for more in (factor + 1, factor + 2):
            rows = ask_one(nodes, KIP, factor=more, shards=shards, replicas=rows).replicas
        assert [*map(list, raised)] == rows
    assert [len(row) for row in raised] == [factor + 2] * shards
    totals = sum((held(row, nodes) for row in raised), Counter())
    for siblings in children(nodes).values():
        assert max(totals[d] for d in siblings) - min(totals[d] for d in siblings) <= 1


def test_added_shards_go_on_where_the_last_ended():
    nodes = tree(3, 2, 1)
    whole = ask_one(nodes, KIP | {"start": 4}, factor=2, shards=6).replicas
    for known in range(1, 6):
        again = ask_one(nodes, KIP, factor=2, shards=6, replicas=whole[:known]).replicas
        assert again == whole


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_a_raised_factor_keeps_every_level_even(factor):
    """Method: grow a stream replica by replica, never placing it anew."""
    nodes = tree(3, 2, 2)
    rows = ask_one(nodes, KIP, factor=factor, shards=6).replicas
    for more in range(factor + 1, 7):
        grown = ask_one(nodes, KIP, factor=more, shards=6, replicas=rows)
        assert grown.outcome == "placed"
        assert [row[:-1] for row in grown.replicas] == rows
        rows = grown.replicas
    assert [len(row) for row in rows] == [6] * 6


def test_an_uneven_tree_stays_even_at_the_top():
    """The vendor skips used brokers, and data centers come out uneven."""
    nodes = [
        *(node(f"a{n}", f"/a/r{n % 3}") for n in range(9)),
        *(node(f"b{n}", "/b/r0") for n in range(2)),
        node("c0", "/c/r0"),
    ]
    for factor, shards in product((1, 2, 3, 4, 5), (6, 12)):
        answer = ask_one(nodes, KIP, factor=factor, shards=shards)
        totals = sum((held(row, nodes) for row in answer.replicas), Counter())
        if factor <= 3:
            assert len({totals[dc,] for dc in "abc"}) == 1
        tops = [[held(row, nodes)[dc,] for dc in "abc"] for row in answer.replicas]
        assert list(map(sum, tops)) == [factor] * shards
        assert all(max(top) - min(top) <= 1 + (factor > 3) for top in tops)


def test_without_locations_it_defers_to_simple():
    nodes = [node(f"n{n}") for n in range(4)]
    assert ask_one(nodes, KIP, shards=5).replicas == (
        ask_one(nodes, {"strategy": "simple"}, shards=5).replicas
    )


def test_a_node_without_location_among_others_is_a_domain_of_its_own():
    nodes = [*tree(2, 1, 2), node("x")]
    assert ask_one(nodes, KIP).replicas == [["x", "n000", "n100"]]


def test_only_the_listed_brokers_are_used():
    """The KIP's `brokerIds`."""
    nodes = tree(3, 2, 2)
    policy = KIP | {"nodes": ["n000", "n001", "n100", "n111"]}
    rows = ask_one(nodes, policy, factor=2, shards=8).replicas
    assert {n for row in rows for n in row} == set(policy["nodes"])
    assert all(row[0][1] != row[1][1] for row in rows)
    assert ask_one(nodes, policy, factor=5).outcome == "rejected"


def test_load_of_other_streams_decides_among_equals():
    before = stream(KIP, 1, 3, "before", replicas=[["n000"], ["n100"], ["n210"]])
    answer = ask(tree(3, 2, 1), before, stream(KIP))["s"]
    assert set(answer.replicas[0]) == {"n010", "n110", "n200"}


def test_users_rules_hold_besides():
    nodes = [
        node(f"{dc}{rack}{n}", f"/{dc}/{rack}", tags={"row": n})
        for dc in "xyz"
        for rack in "ab"
        for n in "123"
    ]
    rows = ask_one(nodes, KIP | {"rules": [{"at_most": 1, "per": "tag:row"}]}, shards=6).replicas
    assert all(len({n[2] for n in row}) == len({n[0] for n in row}) == 3 for row in rows)
    wish = {"at_most": 1, "per": "tag:row", "strength": "preferred"}
    rows = ask_one(nodes, KIP | {"rules": [wish]}, factor=4, shards=6).replicas
    assert all(max(Counter(n[0] for n in row).values()) == 2 for row in rows)
    led = ask_one(nodes, KIP | {"rules": [{"leader_in": ["/y"]}]}, shards=6).replicas
    assert {row[0][0] for row in led} == {"y"}


@pytest.mark.parametrize("seed", seeds(80))
def test_on_any_tree(seed):
    """Every domain's children differ by one at most, unless the lesser is full; same answer for
    another order of nodes."""
    rng = random.Random(seed)
    nodes = [each for each in random_nodes(rng) if each.attributes.capacity is None]
    factor, shards = rng.randint(1, 5), rng.randint(1, 9)
    answer = ask_one(nodes, KIP, factor=factor, shards=shards)
    again = ask_one(rng.sample(nodes, len(nodes)), KIP, factor=factor, shards=shards)
    assert (again.outcome, again.replicas) == (answer.outcome, answer.replicas)
    up = [each for each in nodes if each.node_id in usable(nodes)]
    able = {each.node_id for each in up if each.attributes.leader}
    if len(up) < factor or not able:
        assert (answer.outcome, bool(answer.codes)) == ("rejected", True)
        return
    assert answer.outcome == "placed"
    deepest = max(each.attributes.location.count("/") for each in nodes)
    for row in answer.replicas:
        assert len(set(row)) == factor
        assert row[0] in able
        assert even_at_every_level(row, up, deepest)


def even_at_every_level(row, nodes, deepest):
    """On a path shorter than the level the deepest component counts."""
    padded = {}
    for each in nodes:
        parts = each.attributes.location.split("/")[1:] or [""]
        padded[each.node_id] = [tuple(parts[: depth + 1]) for depth in range(deepest)]
    for depth in range(deepest):
        counts = Counter(padded[name][depth] for name in row)
        free = {padded[n][depth]: padded[n] for n in padded if n not in row}
        above = {path[depth]: path[depth - 1] if depth else () for path in padded.values()}
        for domain, other in product(counts, free):
            if above[domain] == above[other] and counts[domain] > counts[other] + 1:
                return False
    return True


def test_replicas_that_all_shards_gain_go_to_all_nodes():
    """Rings of two would give every even shard's third replica to the same node."""
    nodes = tree(1, 2, 2)
    two = ask_one(nodes, KIP, factor=2, shards=5).replicas
    three = ask(nodes, stream(KIP, 3, 5, replicas=two))["s"]
    assert three.outcome == "placed"
    assert [row[:2] for row in three.replicas] == two
    assert sorted(Counter(n for row in three.replicas for n in row).values()) == [3, 4, 4, 4]
