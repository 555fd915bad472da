"""`spread`: even at every level, all rule kinds at once, and never stuck where a way exists.

Goal: what the reconciler answers for small clusters is what a search through all arrangements
allows. Method: whole decisions through `Reconciler`, judged from records alone, in plain Python;
fixed cases for every rule kind, random ones against brute force.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import pytest

from placement.model import (
    Code,
    Configuration,
    Decision,
    Liveness,
    NodeAttributes,
    NodeChanged,
    Outcome,
    StreamCreated,
)
from placement.reconciler import Reconciler
from tests.builders.drawn import share

LEVELS = ("region", "az")
Fleet = Mapping[str, NodeAttributes]


def fleet(text: str) -> dict[str, NodeAttributes]:
    """Nodes from `/eu/az1: a b, /us/az1: c`."""
    made = {}
    for part in text.split(","):
        place, names = part.split(":")
        for name in names.split():
            made[name] = NodeAttributes(location=place.strip())
    return made


def placed(
    nodes: Fleet,
    *streams: Mapping[str, Any],
    levels: Sequence[str] = LEVELS,
) -> tuple[list[Decision], list[list[list[str]]]]:
    """Decisions and replicas of streams created in turn."""
    reconciler = Reconciler(Configuration(levels=tuple(levels)))
    reconciler.apply(
        [
            NodeChanged(0, name, "i", 1, Liveness.UP, attributes=attributes)
            for name, attributes in nodes.items()
        ],
        0,
    )
    decisions, lists = [], []
    for number, stream in enumerate(streams):
        spec = {"shards": 1, "replication_factor": 3} | dict(stream)
        name = spec.pop("stream", f"s{number}")
        ready = reconciler.apply([StreamCreated(0, name, 1, **spec)], 0)
        decisions.append(ready.decisions[name])
        found = (ready.assignments.get((name, shard)) for shard in range(spec["shards"]))
        lists.append([list(each.replicas) for each in found if each])
    return decisions, lists


def one(
    nodes: Fleet, policy: Mapping[str, Any] | None = None, **stream: Any
) -> tuple[Decision, list[list[str]]]:
    decisions, lists = placed(nodes, {"policy": policy} | stream)
    return decisions[0], lists[0]


def counts(nodes: Fleet, replicas: Sequence[str], depth: int) -> Counter[str]:
    return Counter("/".join(nodes[n].location.split("/")[: depth + 1]) for n in replicas)


SIX = fleet("/eu/az1: a b, /eu/az2: c d, /us/az1: e f, /us/az2: g h")


# Evenness


@pytest.mark.parametrize("factor", range(1, 9))
@pytest.mark.parametrize("shards", [1, 5, 16])
def test_even_at_every_level_per_shard_and_in_total(factor: int, shards: int) -> None:
    decision, lists = one(SIX, shards=shards, replication_factor=factor)
    assert decision.outcome is Outcome.PLACED
    everything = [node for nodes in lists for node in nodes]
    for depth, domains in ((1, 2), (2, 4), (3, 8)):
        for replicas in (*lists, everything):
            held = [*counts(SIX, replicas, depth).values()]
            if depth == 3:
                held = [*Counter(replicas).values()]
            held += [0] * (domains - len(held))
            assert max(held) - min(held) <= 1
    leads = Counter(nodes[0] for nodes in lists)
    per_node = [leads[node] for node in SIX]
    assert max(per_node) - min(per_node) <= 1
    per_zone = counts(SIX, [nodes[0] for nodes in lists], 2)
    assert max(per_zone.values()) - min(per_zone[f"/{z}"] for z in ("eu/az1", "us/az2")) <= 1


def test_load_is_in_proportion_to_weight() -> None:
    weights = {"a": 4.0, "b": 1.0, "c": 1.0, "d": 1.0, "e": 1.0}
    nodes = {name: NodeAttributes(location="/r", weight=weight) for name, weight in weights.items()}
    for shards in (4, 8, 16, 33):
        _, lists = one(nodes, shards=shards, replication_factor=1)
        held = Counter(node for replicas in lists for node in replicas)
        for name, weight in weights.items():
            assert abs(held[name] - shards * weight / 8) < 1


def test_streams_do_not_all_start_on_one_node() -> None:
    _, lists = placed(SIX, *({"replication_factor": 1} for _ in range(80)))
    held = Counter(replicas[0] for shards in lists for replicas in shards)
    assert set(held.values()) == {10}


def test_redis_layout() -> None:
    """Leader and copies in different zones, leaders spread over the zones by their weight."""
    nodes = fleet("/z1: a b c, /z2: d e, /z3: f")
    policy = {"rules": [{"at_most": 1, "per": "1"}]}
    decision, lists = one(nodes, policy, shards=9, replication_factor=2)
    assert decision.outcome is Outcome.PLACED
    assert all(len(counts(nodes, replicas, 1)) == 2 for replicas in lists)
    leads = counts(nodes, [replicas[0] for replicas in lists], 1)
    shares = {"/z1": 4.5, "/z2": 3, "/z3": 1.5}
    assert all(abs(leads[zone] - share) < 1 for zone, share in shares.items())


# Rule kinds


@pytest.mark.parametrize(
    ("rules", "factor", "expected"),
    [
        ([{"exactly": {"/eu": 3, "/us": 1}}], 4, {"/eu": 3, "/us": 1}),
        ([{"exactly": {"/eu/az1": 2, "/us": 0, "/us/az1": 0}}], 2, None),
        ([{"exactly": {"/eu/az1": 2, "/us": 0}}], 2, {"/eu/az1": 2}),
        ([{"at_least": {"/eu/az2": 2}}], 3, {"/eu/az2": 2}),
        ([{"at_least": {"/eu": 2, "/eu/az2": 1, "/us/az1": 1}}], 3, {"/eu": 2, "/us/az1": 1}),
        ([{"at_least": 4, "domains": "az"}], 4, {"/eu/az1": 1, "/us/az2": 1}),
        ([{"at_most": "half", "per": "region"}], 4, {"/eu": 2, "/us": 2}),
        ([{"leader_in": ["/us/az2", "/us"]}], 3, {}),
        ([{"role": "cold", "count": 1, "other": "region"}], 3, {}),
    ],
)
def test_rule_kinds(rules: Any, factor: int, expected: Mapping[str, int] | None) -> None:
    decision, lists = one(SIX, {"rules": rules}, replication_factor=factor, shards=3)
    if expected is None:
        assert decision.outcome is Outcome.REJECTED
        return
    assert decision.outcome in (Outcome.PLACED, Outcome.DEGRADED), decision.reasons
    for replicas in lists:
        for domain, count in expected.items():
            assert counts(SIX, replicas, domain.count("/"))[domain] == count
        if "leader_in" in rules[0]:
            assert SIX[replicas[0]].location == "/us/az2"
        if "role" in rules[0]:
            cold = SIX[replicas[-1]].location.split("/")[1]
            assert cold not in [SIX[node].location.split("/")[1] for node in replicas[:-1]]


def test_leader_in_falls_to_the_next_place() -> None:
    nodes = fleet("/eu/az1: a, /us/az1: c d")
    policy = {"rules": [{"leader_in": ["/asia", "/us"]}]}
    _, lists = one(nodes, policy, replication_factor=2, shards=4)
    assert [nodes[replicas[0]].location for replicas in lists] == ["/us/az1"] * 4
    policy = {"rules": [{"leader_in": ["/asia"]}]}
    decision, _ = one(nodes, policy, replication_factor=2)
    assert decision.outcome is Outcome.PARTIAL


def test_tags_as_a_rule_and_as_a_wish() -> None:
    nodes = {
        "a": NodeAttributes(location="/x", tags=(("disk", "ssd"),)),
        "b": NodeAttributes(location="/x", tags=(("disk", "ssd"),)),
        "c": NodeAttributes(location="/y"),
    }
    rule = {"with_tags": {"disk": "ssd"}}
    decision, lists = one(nodes, {"rules": [rule]}, replication_factor=2)
    assert sorted(lists[0]) == ["a", "b"]
    decision, lists = one(nodes, {"rules": [rule]}, replication_factor=3)
    assert (decision.outcome, sorted(lists[0])) == (Outcome.PARTIAL, ["a", "b"])
    wish = rule | {"strength": "preferred"}
    decision, lists = one(nodes, {"rules": [wish]}, replication_factor=3)
    assert (decision.outcome, sorted(lists[0])) == (Outcome.DEGRADED, ["a", "b", "c"])


def test_balance_bounds_the_stream_per_domain() -> None:
    nodes = fleet("/z1: a b c, /z2: d e f, /z3: g h i")
    first = {"at_most": 1, "per": "1"}
    lean = {"stream": "lean", "policy": {"rules": [first], "within": ["/z2", "/z3"]}}
    balanced = {"policy": {"rules": [{"balance": 0.1, "per": "1"}, first]}}
    both = [each | {"shards": 15, "replication_factor": 2} for each in (lean, balanced)]
    decisions, lists = placed(nodes, *both)
    assert [each.outcome for each in decisions] == [Outcome.PLACED] * 2
    held = counts(nodes, [node for replicas in lists[1] for node in replicas], 1)
    assert all(abs(count - 10) <= 1 for count in held.values())
    # What every shard needs in one zone is more than the zone's share.
    policy = {"rules": [{"balance": 0.1, "per": "1"}, {"at_least": {"/z1": 1}}]}
    decision, lists = one(nodes, policy, replication_factor=2, shards=15)
    assert decision.outcome is Outcome.PARTIAL
    held = counts(nodes, [node for replicas in lists for node in replicas], 1)
    assert held["/z1"] == 11


def test_colocated_slots_and_exclusive_nodes() -> None:
    decision, lists = one(SIX, {"rules": [{"colocate": "slots"}]}, shards=4)
    assert decision.outcome is Outcome.PLACED
    assert lists == [lists[0]] * 4
    decision, lists = one(SIX, {"rules": [{"exclusive": "nodes"}]}, shards=4, replication_factor=2)
    assert sorted(node for replicas in lists for node in replicas) == sorted(SIX)


# What happens where it does not fit


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [
        (None, Outcome.DEGRADED),
        ("degrade", Outcome.DEGRADED),
        ("reject", Outcome.REJECTED),
        ("wait", Outcome.WAITING),
        ("partial", Outcome.PARTIAL),
    ],
)
def test_evenness_is_its_own_rule(mode: str | None, outcome: Outcome) -> None:
    nodes = fleet("/eu/az1: a, /us/az1: b c d")
    policy = {} if mode is None else {"on_infeasible": mode}
    decision, lists = one(nodes, policy, replication_factor=4)
    assert decision.outcome is outcome
    assert bool(lists) is (outcome in (Outcome.DEGRADED, Outcome.PARTIAL))


@pytest.mark.parametrize(
    ("mode", "outcome"),
    [
        (None, Outcome.PARTIAL),
        ("degrade", Outcome.PARTIAL),
        ("reject", Outcome.REJECTED),
        ("wait", Outcome.WAITING),
        ("partial", Outcome.PARTIAL),
    ],
)
def test_nodes_run_out(mode: str | None, outcome: Outcome) -> None:
    policy = {} if mode is None else {"on_infeasible": mode}
    decision, _ = one(fleet("/a: a, /b: b"), policy, shards=2)
    assert decision.outcome is outcome
    required = policy | {"rules": [{"at_most": 1, "per": "region"}]}
    decision, _ = one(SIX, required, shards=2)
    assert decision.outcome is outcome


def test_an_adopted_stream_keeps_what_it_has() -> None:
    for mode, outcome in [("wait", Outcome.PARTIAL), ("reject", Outcome.REJECTED)]:
        decision, lists = one(
            fleet("/a: a, /b: b"), {"on_infeasible": mode}, replicas=(("b", "a"),)
        )
        assert decision.outcome is outcome
        assert lists == ([["b", "a"]] if outcome is Outcome.PARTIAL else [])


# Against brute force


def lawful(
    nodes: Fleet, rules: Sequence[Mapping[str, Any]], replicas: Sequence[str], factor: int
) -> bool:
    """Whether one shard's nodes obey the written rules, said anew."""
    for rule in rules:
        if (
            "at_most" in rule
            and max(counts(nodes, replicas, rule["per"]).values()) > rule["at_most"]
        ):
            return False
        if isinstance(rule.get("at_least"), int):
            if len(counts(nodes, replicas, rule["domains"])) < rule["at_least"]:
                return False
        elif "at_least" in rule:
            for domain, count in rule["at_least"].items():
                if counts(nodes, replicas, domain.count("/"))[domain] < count:
                    return False
        for domain, count in rule.get("exactly", {}).items():
            if counts(nodes, replicas, domain.count("/"))[domain] != count:
                return False
    return len(replicas) == factor


def arrangements(
    nodes: Fleet,
    options: Sequence[tuple[str, ...]],
    shards: int,
    exclusive: bool,
    room: Mapping[str, int],
) -> bool:
    """Whether every shard can get one of the options."""
    if not shards:
        return True
    for option in options:
        if all(room[node] > 0 for node in option):
            left = {
                node: (0 if exclusive else count - 1) if node in option else count
                for node, count in room.items()
            }
            if arrangements(nodes, options, shards - 1, exclusive, left):
                return True
    return False


def random_case(rng: random.Random) -> tuple[Fleet, list[dict[str, Any]], int, int]:
    places = ["/a/x", "/a/y", "/b/x", "/b/z", "/c", ""]
    names = [f"n{i}" for i in range(rng.randint(2, 6))]
    nodes = {
        name: NodeAttributes(
            location=rng.choice(places[: rng.randint(1, 6)]),
            capacity=rng.choice([None, None, None, 1, 2]),
        )
        for name in names
    }
    factor, shards = rng.randint(1, 4), rng.randint(1, 3)
    kinds: list[dict[str, Any]] = [
        {"at_most": rng.randint(1, 2), "per": rng.choice([1, 2])},
        {"at_least": rng.randint(1, factor), "domains": rng.choice([1, 2])},
        {"at_least": {rng.choice(places[:5]): rng.randint(1, factor)}},
        {"exactly": {"/a": factor - 1, "/b": 1} if factor > 1 else {"/b": 1}},
        {"exclusive": "nodes"},
    ]
    return nodes, rng.sample(kinds, rng.randint(1, 3)), factor, shards


def random_cases(seed: int, number: int) -> Iterator[tuple[Any, ...]]:
    rng = random.Random(seed)
    for _ in range(number):
        yield (*random_case(rng), rng)


def test_whatever_fits_is_found() -> None:
    """An arrangement is found exactly where one exists, and it is lawful."""
    outcomes: Counter[str] = Counter()
    for nodes, rules, factor, shards, rng in random_cases(7, share(400)):
        policy = {"rules": rules, "on_infeasible": rng.choice(["degrade", "degrade", "partial"])}
        soft = policy["on_infeasible"] == "degrade"
        written = [
            {k: str(v) if k in ("per", "domains") else v for k, v in rule.items()} for rule in rules
        ]
        if not soft:
            policy["rules"] = written
        decision, lists = one(
            nodes, policy | {"rules": written}, replication_factor=factor, shards=shards
        )
        exclusive = {"exclusive": "nodes"} in rules
        room = {name: shards if a.capacity is None else a.capacity for name, a in nodes.items()}
        options = [o for o in combinations(nodes, factor) if lawful(nodes, rules, o, factor)]
        possible = arrangements(nodes, options, shards, exclusive, room)
        outcomes[decision.outcome] += 1
        if decision.outcome is Outcome.REJECTED:
            assert decision.reasons[0].code is Code.POLICY_AMBIGUOUS
            assert not possible, (nodes, rules, factor, decision.reasons)
            continue
        whole = decision.outcome in (Outcome.PLACED, Outcome.DEGRADED)
        if soft:
            assert whole is possible, (nodes, rules, factor, shards, decision.reasons)
        for replicas in lists if whole else ():
            assert lawful(nodes, rules, replicas, factor)
        held = Counter(node for replicas in lists for node in replicas)
        assert all(count <= room[node] for node, count in held.items())
        assert not exclusive or max(held.values(), default=0) <= 1
    seldom = min(outcomes[each] for each in (Outcome.PLACED, Outcome.PARTIAL, Outcome.REJECTED))
    assert seldom > share(400) // 20


def test_neither_node_nor_stream_order_matters() -> None:
    replicas = 0
    for nodes, rules, factor, shards, rng in random_cases(11, share(40)):
        written = [
            {k: str(v) if k in ("per", "domains") else v for k, v in rule.items()} for rule in rules
        ]
        asked = {"policy": {"rules": written}, "replication_factor": factor, "shards": shards}
        mixed = dict(rng.sample([*nodes.items()], len(nodes)))
        first, second = placed(nodes, asked), placed(mixed, asked)
        assert first[1] == second[1]
        assert first[0][0].reasons == second[0][0].reasons
        replicas += sum(map(len, first[1]))
    assert replicas > share(40)
