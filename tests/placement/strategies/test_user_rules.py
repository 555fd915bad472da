"""The user's rules hold with strategies that have an order of their own."""

from collections import Counter
from typing import Any

import pytest

from placement.model import (
    Configuration,
    Decision,
    Liveness,
    NodeAttributes,
    NodeChanged,
    Outcome,
    StreamCreated,
)
from placement.reconciler import Reconciler

LEVELS = ("region", "az", "rack")
PATHS = [f"/{r}/{a}/{k}" for r in ("eu", "us") for a in ("az1", "az2") for k in ("r1", "r2")]
WHERE = {f"n{2 * at + half}": path for at, path in enumerate(PATHS) for half in (0, 1)}
STRATEGIES: dict[str, dict[str, Any]] = {
    "affinity": {},
    "ring": {},
    "network_topology": {"replication": {"eu": 2, "us": 1}},
    "hdfs": {},
    "copysets": {},
    "spread": {},
}


def place(policy: dict[str, Any], factor: int = 3) -> tuple[Decision, list[list[str]]]:
    cluster = Reconciler(Configuration(levels=LEVELS))
    tags = {n: (("disk", "sh"[int(n[1:]) % 2]),) for n in WHERE}
    attributes = {n: NodeAttributes(place, tags[n]) for n, place in WHERE.items()}
    cluster.apply([NodeChanged(0, n, "i", 1, Liveness.UP, a) for n, a in attributes.items()], 0)
    ready = cluster.apply([StreamCreated(0, "s", 1, 4, factor, None, policy)], 0)
    found = (ready.assignments.get(("s", shard)) for shard in range(4))
    return ready.decisions["s"], [list(each.replicas) for each in found if each]


def regions(nodes: list[str]) -> Counter[str]:
    return Counter(WHERE[node].split("/")[1] for node in nodes)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("strength", ["required", "preferred"])
@pytest.mark.parametrize(
    "rule",
    [
        {"at_most": 1, "per": "az"},
        {"at_least": {"/us": 1}},
        {"exactly": {"/eu": 2, "/us": 1}},
        {"leader_in": ["/us/az2", "/us"]},
        {"with_tags": {"disk": "s"}},
    ],
)
def test_they_are_kept_where_an_arrangement_keeps_them(
    strategy: str, strength: str, rule: dict[str, Any]
) -> None:
    """Goal: also where the strategy's own order would take other nodes."""
    if (strategy, strength, "with_tags" in rule) == ("copysets", "preferred", True):
        pytest.skip("sets of any nodes may be in use: a wish does not make new ones")
    if (strategy, strength, "leader_in" in rule) == ("copysets", "preferred", True):
        pytest.skip("a set in use without such a node has another leader")
    policy = {
        "strategy": strategy,
        **STRATEGIES[strategy],
        "rules": [rule | {"strength": strength}],
    }
    decision, shards = place(policy)
    told = [reason.message for reason in (*decision.reasons, *decision.warnings)]
    assert decision.outcome in (Outcome.PLACED, Outcome.DEGRADED), told
    assert not [message for message in told if str(next(iter(rule))) in message]
    assert {len(nodes) for nodes in shards} == {3}
    for nodes in shards:
        if "leader_in" in rule:
            assert WHERE[nodes[0]].startswith("/us")
        if "with_tags" in rule:
            assert all(int(node[1:]) % 2 == 0 for node in nodes)
        if "exactly" in rule:
            assert regions(nodes) == {"eu": 2, "us": 1}


def test_what_no_arrangement_keeps_is_told_as_a_required_rule() -> None:
    decision, _ = place({"strategy": "affinity", "rules": [{"at_most": 1, "per": "region"}]})
    [reason] = decision.reasons
    assert (decision.outcome, reason.code, reason.band) == (
        "rejected",
        "NO_CANDIDATE",
        "required-rule",
    )


def test_a_wish_comes_after_what_the_strategy_requires() -> None:
    """Goal: counts per datacenter are kept although another count is preferred."""
    wish = {"exactly": {"/eu": 1, "/us": 2}, "strength": "preferred"}
    replication = STRATEGIES["network_topology"]
    decision, shards = place({"strategy": "cassandra", **replication, "rules": [wish]})
    assert decision.outcome is Outcome.DEGRADED
    assert all(regions(nodes) == {"eu": 2, "us": 1} for nodes in shards)


def test_a_walk_that_runs_into_a_dead_end_looks_ahead() -> None:
    """Goal: the last replica in a region of its own, although the walk meets that region first."""
    cold = {"role": "cold", "count": 1, "other": "region"}
    replication = STRATEGIES["network_topology"]
    decision, shards = place({"strategy": "cassandra", **replication, "rules": [cold]})
    assert decision.outcome is Outcome.PLACED
    assert [[WHERE[node][:3] for node in nodes] for nodes in shards] == [["/eu", "/eu", "/us"]] * 4
