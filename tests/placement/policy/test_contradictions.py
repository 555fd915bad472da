"""Policies that contradict themselves are refused with both sides named; others are not."""

from typing import Any

import pytest

from placement.model import Code, Liveness, NodeAttributes
from placement.policy import Policy, compile_policy, find_contradiction
from placement.strategies import STRATEGIES
from placement.topology import Topology


def found(policy: Any, factor: int) -> str | None:
    topology = Topology(("region", "az"))
    topology.upsert("n1", NodeAttributes(location="/eu/az1"), Liveness.UP)
    compiled = compile_policy(None, policy, {}, topology, STRATEGIES)
    assert isinstance(compiled, Policy), compiled
    rules = STRATEGIES[compiled.strategy].rules(compiled, topology)
    reason = find_contradiction(compiled, rules, factor)
    assert reason is None or reason.code is Code.POLICY_AMBIGUOUS
    return None if reason is None else reason.message


AZ_1 = {"at_most": 1, "per": "az"}
ONE_SITE = {"strategy": "affinity", "node": "colocated"}
EU_3 = {"exactly": {"/eu": 3}}


@pytest.mark.parametrize(
    ("policy", "factor", "named"),
    [
        ([AZ_1, {"exactly": {"/eu/az1": 2}}], 2, ["at_most 1 per az", "exactly /eu/az1: 2"]),
        ([AZ_1, {"at_least": {"/eu/az1/r1": 1, "/eu/az1/r2": 1}}], 3, ["at_most", "at_least"]),
        ([{"exactly": {"/eu": 1, "/us": 1}}], 3, ["exactly", "replication_factor 3", "to 2"]),
        ([{"at_least": {"/eu": 2, "/us": 2}}], 3, ["at_least", "replication_factor 3"]),
        ([{"at_least": {"/eu/az1": 2, "/eu/az2": 2, "/eu": 1}}], 3, ["at_least", "to 4"]),
        ([{"at_least": 4, "domains": "az"}], 3, ["at_least 4", "replication_factor 3"]),
        ([{"at_most": "minority", "per": "az"}], 2, ["minority", "replication_factor 2"]),
        ([{"role": "cold", "count": 3, "other": "az"}], 3, ["role cold", "replication_factor"]),
        ([{"exclusive": "nodes"}, {"colocate": "slots"}], 3, ["exclusive", "colocate"]),
        (ONE_SITE | {"rules": [AZ_1]}, 2, ["at_most 1 per az", "one domain of location"]),
        (ONE_SITE | {"rules": [{"at_least": 2, "domains": "region"}]}, 2, ["at_least 2", "one"]),
        (ONE_SITE | {"rules": [{"exactly": {"/eu": 1, "/us": 1}}]}, 2, ["exactly", "one domain"]),
        (
            {
                "strategy": "cassandra",
                "replication": {"eu": 2},
                "rules": [{"exactly": {"/eu": 1, "/us": 1}}],
            },
            2,
            ["exactly /eu: 1, /us: 1", "replication /eu: 2"],
        ),
        (
            {"strategy": "cassandra", "replication": {"eu": 2}, "rules": [{"leader_in": ["/us"]}]},
            2,
            ["leader_in /us", "replication /eu: 2"],
        ),
        ([EU_3, {"exactly": {"/eu": 2, "/us": 1}}], 3, ["exactly /eu: 3", "exactly /eu: 2"]),
        ([EU_3, {"exactly": {"/us/az1": 3}}], 3, ["exactly /eu: 3", "exactly /us/az1: 3"]),
        ([EU_3, {"at_least": {"/us": 1}}], 3, ["at_least /us: 1", "exactly /eu: 3"]),
        ([EU_3, {"at_least": 2, "domains": "region"}], 3, ["at_least 2", "exactly"]),
        ([EU_3, {"role": "cold", "count": 1, "other": "region"}], 3, ["role", "exactly"]),
        ([EU_3, {"leader_in": ["/us"]}], 3, ["leader_in /us", "exactly /eu: 3"]),
        ([{"leader_in": ["/us"]}, {"leader_in": ["/eu"]}], 3, ["leader_in /us", "leader_in /eu"]),
        ([{"even": "region"}, {"exactly": {"/eu": 3, "/us": 1}}], 4, ["even", "exactly"]),
        ([{"with_tags": {"a": "1"}}, {"with_tags": {"a": "2"}}], 1, ["a=1", "a=2"]),
        ([{"with_tags": {"a": "1"}}, {"at_most": 1, "per": "tag:a"}], 2, ["a=1", "tag:a"]),
        ({"within": ["/eu"], "avoid": ["/eu"]}, 1, ["within /eu", "avoid /eu"]),
        ({"within": ["/eu/az1"], "avoid": ["/eu"]}, 1, ["within /eu/az1", "avoid /eu"]),
        ({"within": ["/eu"], "rules": [{"leader_in": ["/us"]}]}, 3, ["leader_in", "within"]),
        ({"avoid": ["/us"], "rules": [{"leader_in": ["/us/az1"]}]}, 3, ["leader_in", "avoid"]),
        ({"within": ["/eu"], "rules": [{"exactly": {"/us": 3}}]}, 3, ["exactly", "within"]),
        ({"within": ["/eu/az1"], "rules": [AZ_1]}, 2, ["at_most 1 per az", "within /eu/az1"]),
        ({"within": ["/eu"], "rules": [{"at_least": 2, "domains": "region"}]}, 2, ["within /eu"]),
        ({"with_tags": {"a": "1"}, "rules": [{"at_most": 1, "per": "tag:a"}]}, 2, ["with_tags"]),
        (
            {
                "strategy": "affinity",
                "node": "colocated",
                "rules": [{"at_most": 1, "per": "location"}],
            },
            2,
            ["at_most 1 per location", "one domain of location"],
        ),
        ({"strategy": "affinity", "rules": [{"exclusive": "nodes"}]}, 2, ["colocate", "exclusive"]),
    ],
)
def test_both_sides_are_named(policy: Any, factor: int, named: list[str]) -> None:
    message = found(policy if isinstance(policy, dict) else {"rules": policy}, factor)
    assert message is not None
    assert all(name in message for name in named), message


@pytest.mark.parametrize(
    ("policy", "factor"),
    [
        ([AZ_1, {"exactly": {"/eu": 2}}], 2),
        ([AZ_1 | {"strength": "preferred"}, {"exactly": {"/eu/az1": 2}}], 2),
        ([{"at_least": {"/eu/az1": 2, "/eu": 3}}], 3),
        ([{"exactly": {"/eu": 2, "/us": 1}}, {"exactly": {"/eu/az1": 2, "/us/az1": 1}}], 3),
        ([{"at_most": "share", "per": "az"}, {"exactly": {"/eu/az1": 2}}], 2),
        ([{"even": "region"}, {"exactly": {"/eu": 2, "/us": 1}}], 3),
        ([{"leader_in": ["/us", "/eu"]}, EU_3], 3),
        ({"within": ["/eu", "/us"], "avoid": ["/us"]}, 1),
        ({"within": ["/eu"], "avoid": ["/eu/az1"]}, 1),
        ({"within": ["/eu"], "rules": [AZ_1, {"leader_in": ["/us", "/eu/az1"]}]}, 3),
        (
            {"strategy": "affinity", "on_infeasible": "degrade", "rules": [{"exclusive": "nodes"}]},
            2,
        ),
        # On what the fleet has, nothing is said here.
        ([{"at_least": 3, "domains": "region"}], 3),
    ],
)
def test_what_can_be_kept_is_no_contradiction(policy: Any, factor: int) -> None:
    assert found(policy if isinstance(policy, dict) else {"rules": policy}, factor) is None
