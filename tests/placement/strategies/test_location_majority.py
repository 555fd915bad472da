"""`location_majority` gives answers that Kudu's master could have given, and says what it cannot.

Goal: Kudu's location and server steps with their corner cases. Method: the tables of
placement_policy-test.cc, and an oracle that replays both steps and asks for every replica whether
some draw of Kudu's lots leads to it, on random fleets and loads.
"""

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.builders.drawn import seeds
from tests.builders.placements import ask, ask_one, node, random_nodes, stream, usable

KUDU = {"strategy": "location_majority"}
AWARE = KUDU | {"range_aware": True}

# Servers with their replicas by location, from placement_policy-test.cc.
SEVEN = {"A": {"A0": 2, "A1": 1, "A2": 3}, "B": {"B0": 1, "B1": 2, "B2": 3}, "C": {"C0": 10}}
FIVE = {"A": {"A0": 1}, "B": {"B0": 2}, "C": {"C0": 0}, "D": {"D0": 3}, "E": {"E0": 4}}
UNEVEN = {
    "A": {"A0": 0, "A1": 1},
    "B": {"B0": 1, "B1": 2},
    "C": {"C0": 2},
    "D": {"D0": 3},
    "E": {"E0": 10},
}
TWO = {"A": {"A0": 10, "A1": 10, "A2": 10}, "B": {"B0": 9, "B1": 9, "B2": 9}}
TWO_NEW = {"A": {"A0": 10, "A1": 10, "A2": 10}, "B": {"B0": 0, "B1": 0, "B2": 1, "B3": 10}}
THREE = {
    "A": {"A0": 10, "A1": 10, "A2": 10},
    "B": {"B0": 0, "B1": 0, "B2": 10},
    "C": {"C0": 0, "C1": 0, "C2": 10},
}


def fleet(servers):
    return [node(name, f"/{place}") for place, held in servers.items() for name in held]


def loads(servers, **more):
    """Streams that hold what the servers are said to hold."""
    held = [(name, count) for each in servers.values() for name, count in each.items() if count]
    return [
        replace(stream(KUDU, 1, n, f"at-{name}", replicas=[[name]] * n), **more) for name, n in held
    ]


def created(servers, factor, shards=1, policy=KUDU, **more):
    asked = replace(stream(policy, factor, shards), **more)
    return ask(fleet(servers), *loads(servers), asked)["s"]


def by_location(row):
    return dict(Counter(name[0] for name in row))


@pytest.mark.parametrize(
    ("servers", "factor", "counts", "never"),
    [
        (SEVEN, 3, {"A": 1, "B": 1, "C": 1}, {"A2", "B2"}),
        (SEVEN, 5, {"A": 2, "B": 2, "C": 1}, {"A2", "B2"}),
        (FIVE, 3, {"A": 1, "B": 1, "C": 1}, ()),
        (FIVE, 5, {"A": 1, "B": 1, "C": 1, "D": 1, "E": 1}, ()),
        (UNEVEN, 3, {"A": 1, "B": 1, "C": 1}, {"A1", "B1"}),
        (UNEVEN, 5, {"A": 2, "B": 2, "C": 1}, ()),
        (UNEVEN, 7, {"A": 2, "B": 2, "C": 1, "D": 1, "E": 1}, ()),
        (TWO, 3, {"A": 1, "B": 2}, ()),
        (TWO, 5, {"A": 2, "B": 3}, ()),
        (TWO_NEW, 2, {"A": 1, "B": 1}, {"B3"}),
        (TWO_NEW, 4, {"A": 2, "B": 2}, ()),
        (TWO_NEW, 6, {"A": 3, "B": 3}, ()),
        (THREE, 2, {"B": 1, "C": 1}, {"B2", "C2"}),
        (THREE, 6, {"A": 2, "B": 2, "C": 2}, ()),
        (THREE, 8, {"A": 2, "B": 3, "C": 3}, ()),
    ],
)
def test_the_published_placements(servers, factor, counts, never):
    [row] = created(servers, factor).replicas
    assert by_location(row) == counts
    assert not set(never) & set(row)
    assert len(set(row)) == factor


@pytest.mark.parametrize(("servers", "factor"), [(SEVEN, 8), (FIVE, 6), (UNEVEN, 9)])
def test_more_replicas_than_servers_are_rejected(servers, factor):
    answer = created(servers, factor)
    assert (answer.outcome, answer.codes) == ("rejected", ["NODES_TOO_FEW"])
    [reason] = answer.decision.reasons
    assert (reason.need, reason.have) == (factor, sum(map(len, servers.values())))


@pytest.mark.parametrize(
    ("locations", "factor", "outcome"),
    [
        (1, 3, "placed"),  # without locations there is no rule
        (2, 1, "placed"),
        (2, 2, "degraded"),
        (2, 3, "degraded"),
        (2, 4, "degraded"),
        (3, 2, "degraded"),
        (3, 3, "placed"),
        (3, 4, "degraded"),
        (3, 5, "placed"),
        (3, 6, "placed"),
        (4, 4, "placed"),
        (5, 2, "degraded"),
    ],
)
def test_what_the_rule_cannot_have_is_degraded(locations, factor, outcome):
    servers = {chr(65 + n): {f"{chr(65 + n)}{m}": 0 for m in range(4)} for n in range(locations)}
    answer = created(servers, factor)
    assert (answer.outcome, answer.warned) == (
        outcome,
        ["RULE_NOT_MET"] if outcome == "degraded" else [],
    )
    strict = created(servers, factor, policy=KUDU | {"on_infeasible": "reject"})
    assert strict.outcome == ("rejected" if outcome == "degraded" else "placed")


@pytest.mark.parametrize("mode", ["reject", "wait", "partial"])
def test_a_strict_rule_names_what_is_missing(mode):
    answer = created(TWO, 3, policy=KUDU | {"on_infeasible": mode})
    assert answer.outcome == {"reject": "rejected", "wait": "waiting"}.get(mode, mode)
    [reason] = answer.decision.reasons
    assert (reason.code, reason.need, reason.have) == ("DOMAINS_TOO_FEW", 3, 2)
    assert (reason.level, reason.seen) == ("location", ("/A", "/B"))


def test_server_shortage_bends_the_counts():
    """Three locations with 2, 2 and 1 servers."""
    servers = {"A": {"A0": 0, "A1": 0}, "B": {"B0": 0, "B1": 0}, "C": {"C0": 0}}
    assert by_location(created(servers, 5).replicas[0]) == {"A": 2, "B": 2, "C": 1}
    lone = {"A": {"A0": 0, "A1": 0, "A2": 0}, "B": {"B0": 0}, "C": {"C0": 0}}
    answer = created(lone, 5)
    assert (answer.outcome, by_location(answer.replicas[0])) == (
        "degraded",
        {"A": 3, "B": 1, "C": 1},
    )


def test_no_spare_node_is_a_warning_and_the_stream_is_placed():
    answer = created(FIVE, 5)
    assert (answer.outcome, answer.warned) == ("placed", ["NO_SPARE_NODE"])
    assert created(FIVE, 3).warned == []


def test_locations_without_a_live_server_do_not_count():
    """Of three locations one is down: the rule of two locations holds."""
    nodes = [node(f"{place}{n}", f"/{place}") for place in "AB" for n in range(3)]
    nodes += [node("C0", "/C", status="dead"), node("C1", "/C", status="draining")]
    answer = ask_one(nodes, KUDU, factor=4)
    assert by_location(answer.replicas[0]) == {"A": 2, "B": 2}


def test_servers_without_a_location_are_one_more_location():
    nodes = [*fleet({"A": {"A0": 0, "A1": 0}, "B": {"B0": 0, "B1": 0}}), node("x0"), node("x1")]
    answer = ask_one(nodes, KUDU)
    assert (answer.outcome, by_location(answer.replicas[0])) == ("placed", {"A": 1, "B": 1, "x": 1})


def test_a_location_is_one_name():
    """/dc/r1 and /dc/r2 are two locations that have nothing in common."""
    nodes = [node(f"{rack}{n}", f"/dc/{rack}") for rack in "abc" for n in range(2)]
    assert by_location(ask_one(nodes, KUDU).replicas[0]) == {"a": 1, "b": 1, "c": 1}


def test_tablets_of_a_batch_count_for_their_locations():
    """In Kudu 100 tablets over loads 0, 0, 0, 1, 1 all go to the same three locations."""
    servers = {"A": {"A0": 0}, "B": {"B0": 0}, "C": {"C0": 0}, "D": {"D0": 1}, "E": {"E0": 1}}
    held = Counter(n for row in created(servers, 3, shards=100).replicas for n in row)
    assert set(held) == {"A0", "B0", "C0", "D0", "E0"}
    assert max(held.values()) - min(held.values()) <= 2


def test_two_choices_fill_the_empty_servers():
    """The reference's figures: 750/250, and 687, 687, 687, 437, 311, 187 (each within two)."""
    one = created({"A": {"A0": 0, "A1": 500}}, 1, 1000)
    assert Counter(row[0] for row in one.replicas) == {"A0": 750, "A1": 250}
    six = created({"A": {"A0": 0, "A1": 0, "A2": 0, "A3": 250, "A4": 375, "A5": 500}}, 3, 1000)
    held = Counter(n for row in six.replicas for n in row)
    expected = {"A0": 687, "A1": 687, "A2": 687, "A3": 437, "A4": 311, "A5": 187}
    assert all(abs(held[name] - count) <= 2 for name, count in expected.items())


@pytest.mark.parametrize("ranges", [("new",) * 1000, None])
def test_range_aware_ranks_by_range_first(ranges):
    """A fresh range, or a table without any, is spread evenly whatever the servers hold."""
    answer = created({"A": {"A0": 0, "A1": 500}}, 1, 1000, AWARE, ranges=ranges)
    assert Counter(row[0] for row in answer.replicas) == {"A0": 500, "A1": 500}


def test_each_range_is_even_and_so_is_the_table():
    ranges = ("x",) * 5 + ("y",) * 4
    answer = created({"A": {"A0": 0, "A1": 3, "A2": 9}}, 1, 9, AWARE, ranges=ranges)
    rows = list(zip(ranges, (row[0] for row in answer.replicas), strict=True))
    for label in "xy":
        held = Counter(name for at, name in rows if at == label)
        assert max(held.values()) - min(held[name] for name in ("A0", "A1", "A2")) <= 1
    assert set(Counter(name for _, name in rows).values()) == {3}


def test_a_dimension_counts_its_own_streams_only():
    """KUDU-2823: servers full of other dimensions are as good as empty ones."""
    servers = {"A": {"A0": 0, "A1": 50}}
    for policy in (KUDU, AWARE):
        answer = created(servers, 1, 20, policy, dimension="new")
        assert Counter(row[0] for row in answer.replicas) == {"A0": 10, "A1": 10}
    old = [*loads({"A": {"A0": 6}}, dimension="old"), *loads({"A": {"A1": 6}}, dimension="other")]
    asked = replace(stream(KUDU, 1, 10), dimension="old")
    rows = ask(fleet(servers), *old, asked)["s"].replicas
    assert Counter(row[0] for row in rows) == {"A0": 2, "A1": 8}


def test_a_range_is_counted_over_the_streams_of_its_dimension():
    """Two tables of a tenant share a range that is hot: what the one put on A0 the other does not
    put there too, although as many of its other range are on A1."""
    held = replace(
        stream(AWARE, 1, 8, "at", replicas=[["A0"]] * 4 + [["A1"]] * 4),
        ranges=("hot",) * 4 + ("cold",) * 4,
        dimension="tenant",
    )
    servers = fleet({"A": {"A0": 0, "A1": 0}})
    for dimension, expected in (("tenant", {"A1": 4}), ("other", {"A0": 2, "A1": 2})):
        asked = replace(stream(AWARE, 1, 4), ranges=("hot",) * 4, dimension=dimension)
        rows = ask(servers, held, asked)["s"].replicas
        assert Counter(row[0] for row in rows) == expected


@pytest.mark.parametrize(("key", "value"), [("range_aware", "yes"), ("range_aware", 1)])
def test_a_wrong_parameter_is_named(key, value):
    answer = created(FIVE, 3, policy=KUDU | {key: value})
    assert (answer.outcome, answer.codes) == ("rejected", ["POLICY_UNKNOWN_VALUE"])
    assert f"'{key}'" in answer.decision.reasons[0].message


def test_range_labels_have_to_fit_the_shards():
    answer = created(FIVE, 1, 3, AWARE, ranges=("a", "b"))
    assert (answer.outcome, answer.codes) == ("rejected", ["SHARDS_OUT_OF_RANGE"])


def test_strict_locality_composes():
    """Kudu's use cases 1 and 3 at once: within one data center, and no rack with a majority."""
    nodes = [node(f"{dc}{rack}{n}", f"/{dc}/{rack}") for dc in "pq" for rack in "abc" for n in "12"]
    answer = ask_one(nodes, KUDU | {"within": ["/p"]}, shards=8)
    assert answer.outcome == "placed"
    assert all({n[:2] for n in row} == {"pa", "pb", "pc"} for row in answer.replicas)
    even = ask_one(nodes, KUDU | {"rules": [{"even": "1"}]}, factor=4, shards=8)
    assert all(Counter(n[0] for n in row) == {"p": 2, "q": 2} for row in even.replicas)
    assert ask_one(nodes, KUDU | {"within": ["/p/a"]}).outcome == "rejected"


def test_leaders_are_spread():
    servers = {place: {f"{place}{n}": 0 for n in range(2)} for place in "ABC"}
    answer = created(servers, 3, 60)
    leads = Counter(row[0] for row in answer.replicas)
    assert max(leads.values()) - min(leads.values()) <= 4


# The oracle


def reachable(row, at, servers, held, factor):
    """Whether Kudu could have placed these replicas in some order, given each server's load."""
    members = {place: {n for n in servers if at[n] == place} for place in set(at.values())}
    live = len(members)

    def locations(counts):
        groups = {True: [], False: []}
        for place, names in members.items():
            count = counts[place]
            if count == len(names):
                continue
            over = count + 1 > factor // 2 if live == 2 else count + 1 >= (factor + 1) // 2
            load = (sum(held[n] for n in names) + count) / len(names)
            groups[bool(count and live > 1 and over)].append((load, place))
        group = groups[False] or groups[True]
        return {place for load, place in group if load == min(group)[0]}

    def server(name, taken):
        rest = members[at[name]] - taken
        return len(rest) == 1 or any(held[other] >= held[name] for other in rest - {name})

    def search(left, taken, counts):
        if not left:
            return True
        open_places = locations(counts)
        return any(
            at[name] in open_places
            and server(name, taken)
            and search(left - {name}, taken | {name}, counts + Counter([at[name]]))
            for name in left
        )

    return search(frozenset(row), frozenset(), Counter())


@pytest.mark.parametrize("seed", seeds(80))
def test_every_answer_is_one_that_kudu_could_have_given(seed):
    """Also: the same for nodes in another order."""
    rng = random.Random(seed)
    nodes = [
        each
        for each in random_nodes(rng)
        if each.attributes.capacity is None and each.attributes.leader
    ]
    nodes = [replace(each, attributes=replace(each.attributes, weight=1.0)) for each in nodes]
    at = usable(nodes)
    factor, shards = rng.randint(1, 5), rng.randint(1, 6)
    before = [
        stream(KUDU, 1, n, f"at-{name}", replicas=[[name]] * n)
        for name in sorted(at)
        if (n := rng.choice([0, 0, 1, 2, 5]))
    ]
    answer = ask(nodes, *before, stream(KUDU, factor, shards))["s"]
    again = ask(rng.sample(nodes, len(nodes)), *before, stream(KUDU, factor, shards))["s"]
    assert (again.outcome, again.replicas) == (answer.outcome, answer.replicas)
    if len(at) < factor:
        assert (answer.outcome, answer.codes) == ("rejected", ["NODES_TOO_FEW"])
        return
    held = Counter(row[0] for each in before for row in each.replicas)
    for row in answer.replicas:
        assert len(set(row)) == factor
        assert reachable(row, at, set(at), held, factor)
        held.update(row)
    limit = (factor - 1) // 2
    broken = [max(Counter(at[n] for n in row).values()) > limit for row in answer.replicas]
    ruled = factor > 1 and len(set(at.values())) > 1
    assert (answer.outcome == "degraded") == (ruled and any(broken))
