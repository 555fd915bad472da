"""Policies: Timeplus' string and the structured form, what they compile to, and what is refused.

The grammar follows the page "Rack-aware Placements" of Timeplus' documentation.
"""

from typing import Any

import pytest

from placement.model import Band, Code, Liveness, Location, NodeAttributes, Reason, parse_location
from placement.policy import (
    Affinity,
    OnInfeasible,
    Policy,
    compile_policy,
    parse_placement_policies,
)
from placement.policy.policy import PlacementPolicies
from placement.rules import (
    AtLeastDomains,
    AtLeastIn,
    AtMost,
    Balance,
    ColocateSlots,
    Even,
    Exactly,
    ExclusiveNodes,
    LeaderPreference,
    RoleApart,
    Share,
    Strength,
    WithTags,
)
from placement.strategies import STRATEGIES
from placement.topology import LEAF, NodeFilter, Scope, Topology

BALANCED, COLOCATED, EXCLUSIVE = Affinity.BALANCED, Affinity.COLOCATED, Affinity.EXCLUSIVE
DEFAULT = {"strategy": "spread"}


@pytest.fixture
def topology() -> Topology:
    made = Topology(("region", "az"))
    made.upsert("n1", NodeAttributes(location="/eu/az1"), Liveness.UP)
    return made


def compiled(topology: Topology, policy: Any, text: str | None = None) -> Policy | Reason:
    return compile_policy(text, policy, DEFAULT, topology, STRATEGIES)


@pytest.mark.parametrize(
    ("text", "node", "shard", "preferred"),
    [
        ("", BALANCED, COLOCATED, ()),
        (" ; ;", BALANCED, COLOCATED, ()),
        ("node=exclusive", EXCLUSIVE, COLOCATED, ()),
        ("shard=exclusive;", BALANCED, EXCLUSIVE, ()),
        (" node = colocated ; shard\t=\nbalanced ", COLOCATED, BALANCED, ()),
        ("preferred_nodes=1,2,3", BALANCED, COLOCATED, ("1", "2", "3")),
        ("preferred_node=1", BALANCED, COLOCATED, ("1",)),
        ("preferred_nodes= 3 , 1 ,,3", BALANCED, COLOCATED, ("3", "1")),
        ("preferred_nodes=", BALANCED, COLOCATED, ()),
        ("node=exclusive;node=balanced", BALANCED, COLOCATED, ()),
        ("preferred_nodes=1;preferred_node=2", BALANCED, COLOCATED, ("2",)),
        ("preferred_nodes=1;preferred_node=", BALANCED, COLOCATED, ()),
    ],
)
def test_string_is_parsed(
    text: str, node: Affinity, shard: Affinity, preferred: tuple[str, ...]
) -> None:
    parsed = parse_placement_policies(text)
    assert isinstance(parsed, PlacementPolicies)
    assert (node, shard, preferred) == (parsed.node, parsed.shard, parsed.preferred_nodes)


@pytest.mark.parametrize(
    ("text", "compacted"),
    [
        # The example of the documentation, to the letter.
        (
            "preferred_nodes=1,2,3;node=exclusive;shard=balanced;preferred_node=2,3,4;node=colocated",
            "shard=balanced;preferred_node=2,3,4;node=colocated",
        ),
        ("", ""),
        ("node=balanced", "node=balanced"),
        (" node = balanced ;; shard=exclusive; ", "node=balanced;shard=exclusive"),
        ("node=balanced;shard=exclusive;node=balanced", "shard=exclusive;node=balanced"),
    ],
)
def test_string_is_compacted(text: str, compacted: str) -> None:
    parsed = parse_placement_policies(text)
    assert isinstance(parsed, PlacementPolicies)
    assert compacted == parsed.compact()
    again = parse_placement_policies(compacted)
    assert isinstance(again, PlacementPolicies)
    assert compacted == again.compact()
    for name in ("node", "shard", "preferred_nodes"):
        assert getattr(parsed, name) == getattr(again, name)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("node", Code.POLICY_MALFORMED, "'node'"),
        ("node=exclusive;nonsense", Code.POLICY_MALFORMED, "'nonsense'"),
        ("nodes=exclusive", Code.POLICY_UNKNOWN_KEY, "'nodes'"),
        ("=exclusive", Code.POLICY_UNKNOWN_KEY, "''"),
        ("Node=exclusive", Code.POLICY_UNKNOWN_KEY, "'Node'"),
        ("node=anywhere", Code.POLICY_UNKNOWN_VALUE, "'anywhere'"),
        ("node=", Code.POLICY_UNKNOWN_VALUE, "''"),
        ("node=exclusive=colocated", Code.POLICY_UNKNOWN_VALUE, "'exclusive=colocated'"),
        ("shard=Exclusive", Code.POLICY_UNKNOWN_VALUE, "'Exclusive'"),
        ("shard=even;node=odd", Code.POLICY_UNKNOWN_VALUE, "'odd'"),
    ],
)
def test_string_is_refused(text: str, code: Code, named: str) -> None:
    reason = parse_placement_policies(text)
    assert isinstance(reason, Reason)
    assert (code, Band.CONFIG) == (reason.code, reason.band)
    assert named in reason.message


def test_string_selects_affinity(topology: Topology) -> None:
    policy = compiled(topology, None, "node=exclusive;preferred_nodes=a,b")
    assert isinstance(policy, Policy)
    assert policy.strategy == "affinity"
    assert policy.parameters == {
        "node": EXCLUSIVE,
        "shard": COLOCATED,
        "preferred_nodes": ("a", "b"),
        "level": LEAF,
    }
    # Even an empty string is one.
    assert isinstance(policy := compiled(topology, None, ""), Policy)
    assert policy.strategy == "affinity"


@pytest.mark.parametrize("name", ["affinity", "timeplus"])
def test_structured_affinity_is_the_same(topology: Topology, name: str) -> None:
    structured = {"strategy": name, "node": "exclusive", "preferred_nodes": ["a", "b"]}
    text = "node=exclusive;preferred_nodes=a,b"
    assert compiled(topology, structured) == compiled(topology, None, text)


def test_default_policy_holds_where_nothing_is_given(topology: Topology) -> None:
    assert compiled(topology, None) == compiled(topology, {}) == compiled(topology, DEFAULT)
    other = compile_policy(None, None, {"strategy": "affinity"}, topology, STRATEGIES)
    assert isinstance(other, Policy)
    assert other.strategy == "affinity"


EU, US = Location(("eu",)), Location(("us",))
REGION, AZ = Scope(depth=1, name="region"), Scope(depth=2, name="az")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ({"at_most": 1, "per": "region"}, AtMost(1, REGION)),
        ({"at_most": "share", "per": "az"}, AtMost(Share.SHARE, AZ)),
        ({"at_most": "minority", "per": "az"}, AtMost(Share.MINORITY, AZ)),
        ({"at_most": "half", "per": "tag:disk"}, AtMost(Share.HALF, Scope(tag="disk"))),
        ({"even": "location"}, Even(LEAF)),
        ({"even": "3", "strength": "preferred"}, Even(Scope(3, name="3"), Strength.PREFERRED)),
        ({"at_least": 2, "domains": "az"}, AtLeastDomains(2, AZ)),
        ({"exclusive": "nodes"}, ExclusiveNodes()),
        (
            {"exclusive": "nodes", "strength": "preferred"},
            ExclusiveNodes(Strength.PREFERRED),
        ),
        ({"at_least": {"/eu": 1}}, AtLeastIn(((EU, 1),))),
        ({"exactly": {"/eu": 3, "/us": 0}}, Exactly(((EU, 3), (US, 0)))),
        ({"with_tags": {"disk": "ssd", "cpu": 8}}, WithTags((("cpu", "8"), ("disk", "ssd")))),
        ({"balance": 0.1, "per": "az"}, Balance(0.1, AZ)),
        ({"role": "cold", "count": 2, "other": "region"}, RoleApart("cold", 2, REGION)),
        ({"role": "cold", "other": "region"}, RoleApart("cold", 1, REGION)),
        ({"leader_in": ["/us", "/eu"]}, LeaderPreference((US, EU))),
        ({"colocate": "slots"}, ColocateSlots()),
    ],
)
def test_rules_are_compiled(topology: Topology, rule: Any, expected: object) -> None:
    policy = compiled(topology, {"rules": [rule]})
    assert isinstance(policy, Policy)
    assert policy.rules == (expected,)


def test_filters_are_compiled(topology: Topology) -> None:
    policy = compiled(
        topology,
        {
            "within": "/eu, /us",
            "avoid": ["/eu/az2"],
            "nodes": ["a", "b", "a"],
            "with_tags": {"disk": "ssd", "cpu": 8},
            "on_infeasible": "wait",
        },
    )
    assert isinstance(policy, Policy)
    eu, us, az2 = (parse_location(text) for text in ("/eu", "/us", "/eu/az2"))
    tags = (("cpu", "8"), ("disk", "ssd"))
    assert NodeFilter((eu, us), (az2,), ("a", "b"), tags) == policy.nodes
    assert policy.on_infeasible is OnInfeasible.WAIT


@pytest.mark.parametrize(
    ("policy", "code", "named"),
    [
        ({"strategy": "magic"}, Code.STRATEGY_UNKNOWN, "spread, striped, timeplus"),
        ({"strategy": None}, Code.STRATEGY_UNKNOWN, "'None'"),
        ({"strategy": ["spread"]}, Code.STRATEGY_UNKNOWN, "spread"),
        ({"node": "exclusive"}, Code.POLICY_UNKNOWN_KEY, "'node'"),
        ({"strategy": "affinity", "nodes_": []}, Code.POLICY_UNKNOWN_KEY, "'nodes_'"),
        ({"strategy": "affinity", "node": "near"}, Code.POLICY_UNKNOWN_VALUE, "'near'"),
        ({"strategy": "affinity", "shard": 1}, Code.POLICY_UNKNOWN_VALUE, "'1'"),
        ({"strategy": "affinity", "shard": {}}, Code.POLICY_UNKNOWN_VALUE, "'{}'"),
        ({"strategy": "affinity", "level": "rack"}, Code.LEVEL_UNKNOWN, "region, az, location"),
        ({"strategy": "affinity", "preferred_nodes": 5}, Code.POLICY_MALFORMED, "preferred_nodes"),
        ({"rules": {"even": "az"}}, Code.POLICY_MALFORMED, "'rules' must be a list"),
        ({"rules": "even"}, Code.POLICY_MALFORMED, "'rules' must be a list"),
        ({"rules": ["even"]}, Code.POLICY_MALFORMED, "rules[0]"),
        ({"rules": [{"even": "az"}, {}]}, Code.POLICY_MALFORMED, "rules[1]"),
        ({"rules": [{"evn": "az"}]}, Code.POLICY_UNKNOWN_KEY, "'evn'"),
        ({"rules": [{"even": "rack"}]}, Code.LEVEL_UNKNOWN, "'rack'"),
        ({"rules": [{"even": "0"}]}, Code.LEVEL_UNKNOWN, "'0'"),
        ({"rules": [{"even": "9"}]}, Code.LEVEL_UNKNOWN, "'9'"),
        ({"rules": [{"even": "tag:"}]}, Code.LEVEL_UNKNOWN, "'tag:'"),
        ({"rules": [{"even": None}]}, Code.LEVEL_UNKNOWN, "'None'"),
        ({"rules": [{"even": "az", "per": "region"}]}, Code.POLICY_MALFORMED, "'per'"),
        ({"rules": [{"at_most": 1}]}, Code.POLICY_MALFORMED, "at_most needs 'per'"),
        ({"rules": [{"at_least": 2, "per": "az"}]}, Code.POLICY_MALFORMED, "needs 'domains'"),
        ({"rules": [{"at_most": 1, "even": "az"}]}, Code.POLICY_MALFORMED, "exactly one"),
        (
            {"rules": [{"at_most": 1, "per": "az", "domains": "az"}]},
            Code.POLICY_MALFORMED,
            "'domains'",
        ),
        ({"rules": [{"at_most": 0, "per": "az"}]}, Code.POLICY_UNKNOWN_VALUE, "'0'"),
        ({"rules": [{"at_most": -1, "per": "az"}]}, Code.POLICY_UNKNOWN_VALUE, "'-1'"),
        ({"rules": [{"at_most": 10**30, "per": "az"}]}, Code.POLICY_UNKNOWN_VALUE, "0000"),
        ({"rules": [{"at_most": 1.5, "per": "az"}]}, Code.POLICY_UNKNOWN_VALUE, "'1.5'"),
        ({"rules": [{"at_most": True, "per": "az"}]}, Code.POLICY_UNKNOWN_VALUE, "'True'"),
        ({"rules": [{"at_most": "most", "per": "az"}]}, Code.POLICY_UNKNOWN_VALUE, "minority"),
        (
            {"rules": [{"at_least": "share", "domains": "az"}]},
            Code.POLICY_UNKNOWN_VALUE,
            "'share'",
        ),
        ({"rules": [{"exclusive": "zones"}]}, Code.POLICY_UNKNOWN_VALUE, "'zones'"),
        ({"rules": [{"colocate": "nodes"}]}, Code.POLICY_UNKNOWN_VALUE, "'nodes'"),
        ({"rules": [{"exactly": 3}]}, Code.POLICY_MALFORMED, "'exactly'"),
        ({"rules": [{"exactly": {}}]}, Code.POLICY_MALFORMED, "names no domain"),
        ({"rules": [{"exactly": {"/eu": 0}}]}, Code.POLICY_MALFORMED, "names no domain"),
        ({"rules": [{"exactly": {"/eu": -1}}]}, Code.POLICY_UNKNOWN_VALUE, "'-1'"),
        ({"rules": [{"exactly": {"/eu": 1.5}}]}, Code.POLICY_UNKNOWN_VALUE, "'1.5'"),
        ({"rules": [{"exactly": {"eu": 1}}]}, Code.LOCATION_MALFORMED, "'eu'"),
        ({"rules": [{"exactly": {"": 1}}]}, Code.POLICY_MALFORMED, "empty location"),
        (
            {"rules": [{"exactly": {"/eu": 1, "/eu/az1": 1}}]},
            Code.POLICY_AMBIGUOUS,
            "'exactly /eu' contains 'exactly /eu/az1'",
        ),
        ({"rules": [{"at_least": {"/eu": 0}}]}, Code.POLICY_UNKNOWN_VALUE, "'0'"),
        ({"rules": [{"at_least": {"/eu": 1}, "domains": "az"}]}, Code.POLICY_MALFORMED, "domains"),
        ({"rules": [{"balance": 1.5, "per": "az"}]}, Code.POLICY_UNKNOWN_VALUE, "'1.5'"),
        ({"rules": [{"balance": True, "per": "az"}]}, Code.POLICY_UNKNOWN_VALUE, "'True'"),
        ({"rules": [{"balance": 0.1}]}, Code.POLICY_MALFORMED, "balance needs 'per'"),
        (
            {"rules": [{"role": "cold", "count": 0, "other": "az"}]},
            Code.POLICY_UNKNOWN_VALUE,
            "'0'",
        ),
        ({"rules": [{"role": "cold"}]}, Code.POLICY_MALFORMED, "role needs 'other'"),
        ({"rules": [{"role": 3, "other": "az"}]}, Code.POLICY_UNKNOWN_VALUE, "'3'"),
        ({"rules": [{"leader_in": []}]}, Code.POLICY_MALFORMED, "names no domain"),
        ({"rules": [{"leader_in": ["dc1"]}]}, Code.LOCATION_MALFORMED, "'dc1'"),
        ({"rules": [{"with_tags": "ssd"}]}, Code.POLICY_MALFORMED, "'with_tags'"),
        ({"rules": [{"exclusive": "nodes", "per": "az"}]}, Code.POLICY_MALFORMED, "'per'"),
        (
            {"rules": [{"even": "az", "strength": "soft"}]},
            Code.POLICY_UNKNOWN_VALUE,
            "required, preferred",
        ),
        ({"within": "eu"}, Code.LOCATION_MALFORMED, "'eu'"),
        ({"avoid": ["/eu/"]}, Code.LOCATION_MALFORMED, "'/eu/'"),
        ({"within": 3}, Code.POLICY_MALFORMED, "'within'"),
        ({"nodes": {"a": 1}}, Code.POLICY_MALFORMED, "'nodes'"),
        ({"with_tags": ["disk=ssd"]}, Code.POLICY_MALFORMED, "'with_tags'"),
        ({"on_infeasible": "panic"}, Code.POLICY_UNKNOWN_VALUE, "degrade"),
        ({"on_infeasible": ["wait"]}, Code.POLICY_UNKNOWN_VALUE, "wait"),
    ],
)
def test_structured_is_refused(topology: Topology, policy: Any, code: Code, named: str) -> None:
    reason = compiled(topology, policy)
    assert isinstance(reason, Reason), reason
    assert (code, Band.CONFIG) == (reason.code, reason.band)
    assert named in reason.message


def test_both_forms_are_refused(topology: Topology) -> None:
    reason = compiled(topology, {"strategy": "affinity"}, "")
    assert isinstance(reason, Reason)
    assert reason.code is Code.POLICY_AMBIGUOUS
