"""The fleet as columns: who may receive replicas, and whose domains count."""

import random
from copy import deepcopy

import numpy as np
import pytest

from placement.model import (
    AdministrativeState,
    Configuration,
    Guard,
    Liveness,
    Location,
    NodeAttributes,
    NodeChanged,
    StreamCreated,
    natural_key,
)
from placement.model import status_of as word
from placement.reconciler import Reconciler
from placement.topology import LEAF, NO_DOMAIN, Scope, Topology
from tests.stories.records import Records

# Moves are done as soon as they are issued.
AT_ONCE = Configuration(acked=False)
UP, NONE, TRUSTED = Liveness.UP, AdministrativeState.NONE, Guard.NONE


@pytest.mark.parametrize(
    ("liveness", "ordered", "guard", "status", "eligible", "accounted", "dead"),
    [
        (UP, NONE, TRUSTED, "up", True, True, False),
        (Liveness.SUSPECT, NONE, TRUSTED, "suspect", False, True, False),
        (Liveness.DEAD, NONE, TRUSTED, "dead", False, False, True),
        (Liveness.UNREGISTERED, NONE, TRUSTED, "unregistered", False, False, True),
        (UP, AdministrativeState.DRAINING, TRUSTED, "draining", False, False, False),
        (UP, AdministrativeState.MAINTENANCE, TRUSTED, "maintenance", False, True, False),
        (UP, AdministrativeState.CORDONED, TRUSTED, "cordoned", False, True, False),
        (UP, NONE, Guard.HELD_DOWN, "held_down", False, True, False),
        (UP, NONE, Guard.QUARANTINED, "quarantined", False, False, False),
        # The strongest of several is shown, and each has its effect.
        (
            Liveness.SUSPECT,
            AdministrativeState.DRAINING,
            Guard.HELD_DOWN,
            "draining",
            False,
            False,
            False,
        ),
        (Liveness.SUSPECT, AdministrativeState.CORDONED, TRUSTED, "suspect", False, True, False),
        (Liveness.DEAD, AdministrativeState.MAINTENANCE, TRUSTED, "dead", False, True, True),
        (Liveness.DEAD, AdministrativeState.CORDONED, TRUSTED, "dead", False, False, True),
    ],
)
def test_three_conditions_decide_together(
    liveness, ordered, guard, status, eligible, accounted, dead
):
    topology = Topology(["site"])
    node = topology.upsert("n1", NodeAttributes("/a/r1"), liveness, ordered, guard)
    assert topology.status(node) == word(liveness, ordered, guard) == status
    seen = (topology.eligible[node], topology.counts_for_rules[node], topology.is_dead(node))
    assert tuple(map(bool, seen)) == (eligible, accounted, dead)
    assert len(topology.live_domains(LEAF)) == eligible


def test_a_relabel_touches_the_domains_of_one_node():
    """Goal: a node that moves is counted where it stands now, the others are left alone."""
    topology = Topology(["site", "rack"])
    for number in range(100):  # more than the columns hold at first
        topology.upsert(f"n{number}", NodeAttributes(f"/s{number % 3}/r{number % 7}"), UP)
    before = topology.domain_of(Scope(depth=1)).copy()
    topology.upsert("n5", NodeAttributes("/s9/r1/c2"), UP)
    changed = before != topology.domain_of(Scope(depth=1))
    assert changed.nonzero()[0].tolist() == [5]
    assert topology.locations[5] == Location(("s9", "r1", "c2"))
    assert "/s9" in topology.domain_names(Scope(depth=1), topology.live_domains(Scope(depth=1)))
    topology.upsert("n5", NodeAttributes("/s9"), Liveness.DEAD)
    assert "/s9" not in topology.domain_names(LEAF, topology.live_domains(LEAF))


def test_orders_and_guards_stay_until_they_are_lifted_and_survive_a_rebuild():
    records = Records()
    core = Reconciler(Configuration())
    told = NodeAttributes("/a")
    steps = [
        (
            NodeChanged(1, "n1", "i", 1, UP, told, administrative=AdministrativeState.CORDONED),
            "cordoned",
        ),
        (NodeChanged(2, "n1", "i", 2, UP, guard=Guard.QUARANTINED), "quarantined"),
        (NodeChanged(3, "n1", "i", 3, Liveness.SUSPECT), "quarantined"),
        (NodeChanged(4, "n1", "i", 4, UP, guard=Guard.NONE), "cordoned"),
        (NodeChanged(5, "n1", "i", 5, UP, administrative=AdministrativeState.NONE), "up"),
    ]
    for event, status in steps:
        ready = core.apply([event], event.at)
        records.commit(ready)
        assert ready.topology["n1"].status == status
        assert records.rebuild(Configuration(), event.at).digest == core.digest


def test_what_is_kept_up_to_date_is_what_a_fresh_topology_says():
    """Goal: joins, relabels, tags, conditions and departures change what is cached just as building
    anew would. Method: random histories, compared by names because indexes may differ."""
    rng = random.Random(5)
    places = ["", "/a", "/a/r1", "/a/r2", "/b/r1/x", "/c"]
    for _ in range(20):
        kept, known = Topology(["site"]), {}
        for _ in range(60):
            name = f"n{rng.randrange(90)}"
            attributes = NodeAttributes(
                rng.choice(places), rng.choice([(), (("disk", "ssd"),), (("disk", "hdd"),)])
            )
            if rng.random() < 0.3 and name in known:
                attributes = known[name][0]  # only the condition changes
            if rng.random() < 0.1 and name in known:
                kept.set_condition(kept.index[name], Liveness.UNREGISTERED, NONE, TRUSTED)
                kept.forget(name)
                if rng.random() < 0.5:
                    kept.release(max(kept.forgotten))
                del known[name]
                continue
            condition = rng.choice([UP, UP, Liveness.DEAD])
            known[name] = (attributes, condition)
            kept.upsert(name, *known[name])
            if rng.random() < 0.5:
                compare(kept, known)
        compare(kept, known)


def compare(kept, known):
    fresh = Topology(["site"])
    for name, condition in known.items():
        fresh.upsert(name, *condition)
    assert kept.tiers() == fresh.tiers()
    order = kept.order()
    assert sorted(known, key=lambda n: order[kept.index[n]]) == sorted(known, key=natural_key)
    for scope in (*fresh.tiers(), Scope(tag="disk")):
        for name in known:
            domains = [each.domain_of(scope)[each.index[name]] for each in (kept, fresh)]
            named = [
                None if domain == NO_DOMAIN else each.domain_name(scope, domain)
                for each, domain in zip((kept, fresh), domains, strict=True)
            ]
            assert named[0] == named[1]
        live = [each.domain_names(scope, each.live_domains(scope)) for each in (kept, fresh)]
        assert live[0] == live[1]
        occupied = [each.occupied_domains([scope])[scope] for each in (kept, fresh)]
        counted = [
            each.domain_names(scope, of) for each, of in zip((kept, fresh), occupied, strict=True)
        ]
        assert counted[0] == counted[1]


def test_a_fleet_whose_nodes_come_and_go_for_good_takes_no_more_room_than_it_has():
    """Goal: indexes of nodes that are gone are given away again, and nobody sees it. Method: in
    every batch nodes with new names come and as many old ones leave for good, while streams live
    on them; one reconciler that has seen it all and one just rebuilt must publish the same."""
    rng, records, core = random.Random(3), Records(), Reconciler(AT_ONCE)
    coming, away = iter(range(1_000)), 0
    for batch in range(30):
        at = 1_000 * (batch + 1)
        events = [joined(at, next(coming), rng.randrange(3)) for _ in range(5)]
        if batch >= 4:
            events += [left(at, number) for number in range(away, away + 5)]
            away += 5
        if batch % 10 == 3:
            events += [StreamCreated(at, f"s{batch}{n}", 1, 2, 3) for n in range(2)]
        ready = core.apply(events, at)
        if batch % 4 == 3:
            again = records.rebuild(AT_ONCE, at - 1_000)
            assert again.apply(events, at) == ready
        records.commit(ready)
    assert len(records.nodes) <= 30
    assert core.state.topology.size <= 40, "of 150 nodes that have been there"


def joined(at, number, zone):
    place = NodeAttributes(f"/z{zone}")
    return NodeChanged(at, f"pod-{number}", "a", 1, UP, attributes=place)


def left(at, number):
    return NodeChanged(at, f"pod-{number}", "a", 2, Liveness.UNREGISTERED)


def whole(topology: Topology) -> dict[str, object]:
    """All that a topology holds, but for what it derives when it is asked."""
    derived = {"_attribute_cache", "_condition_cache", "_live", "_order"}
    held = {name: each for name, each in vars(topology).items() if name not in derived}
    arrays = {name: each.tolist() for name, each in held.items() if isinstance(each, np.ndarray)}
    columns = held.pop("_tag_domains")
    assert isinstance(columns, dict)
    tags = {key: (column.tolist(), {**known}) for key, (column, known) in columns.items()}
    return deepcopy({**held, **arrays, "tags": tags, "order": topology.order().tolist()})


def fleet_of_all_kinds() -> Topology:
    topology = Topology(["site"])
    for number in range(5):
        attributes = NodeAttributes(f"/s{number}/r1", (("disk", f"d{number}"),))
        topology.upsert(f"n{number}", attributes, UP)
    topology.domain_of(Scope(tag="disk"))
    topology.forget("n4")
    topology.set_held(1, True)
    return topology


def test_an_overlay_is_a_whole_topology_and_shares_nothing_that_changes() -> None:
    topology = fleet_of_all_kinds()
    made = topology.overlay()
    assert whole(made) == whole(topology)
    assert vars(made).keys() == vars(topology).keys()
    for name, each in vars(made).items():
        if not isinstance(each, str | int | tuple):
            assert each is not vars(topology)[name], name
            assert not (
                isinstance(each, np.ndarray) and np.shares_memory(each, vars(topology)[name])
            )


def test_what_is_tried_in_an_overlay_leaves_the_topology_as_it_was() -> None:
    topology = fleet_of_all_kinds()
    before, made = whole(topology), topology.overlay()
    made.upsert("n1", NodeAttributes("/new/r9", (("disk", "other"),)), Liveness.DEAD)
    made.release(4)
    for number in range(100):
        made.upsert(f"m{number}", NodeAttributes(f"/s9/r{number}", (("cpu", "x"),)), UP)
    made.set_held(0, True)
    made.forget("n2")
    made.domain_of(Scope(tag="cpu"))
    assert whole(topology) == before
    assert whole(made) != before
