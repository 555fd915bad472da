"""Policies judged anew, for the oracle: what a required policy forbids, from plain records.

Nothing of `placement` is used, so that a fault of its rules cannot hide itself. Only what can be
counted plainly is judged; shares and evenness are left to the tests of the rules.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Value = Mapping[str, Any]
UNKNOWN_NODE: Value = {"location": "", "tags": {}}
# Strategies that keep copies beside the replication factor unless `cold` says how many.
KEEPS_COLD = ("cost", "bytedance")


def copies(spec: Value) -> int:
    """Replicas of a shard that is whole."""
    beside = (
        int(spec["policy"].get("cold", 1)) if spec["policy"].get("strategy") in KEEPS_COLD else 0
    )
    return int(spec["replication_factor"]) + beside


def broken_policy(
    spec: Value,
    replicas: Sequence[Sequence[str]],
    nodes: Mapping[str, Value],
    levels: Sequence[str],
) -> Iterator[tuple[int | None, str]]:
    """(shard or None for the stream, what) for every required part of the policy that is broken."""
    policy = spec["policy"]
    if policy.get("strategy") in ("affinity", "timeplus"):
        yield from _broken_affinity(spec, replicas, nodes, levels)
    everywhere = [node for shard in replicas for node in shard]
    for node in everywhere:
        if not _passes(policy, node, nodes):
            yield None, f"{node} is none of the nodes that the policy admits"
    for rule in policy.get("rules", ()):
        if rule.get("strength", "required") != "required":
            continue
        if rule.get("exclusive") == "nodes" and len(set(everywhere)) < len(everywhere):
            yield None, "a node holds two replicas of the stream"
        for number, shard in enumerate(replicas):
            scope = rule.get("per") or rule.get("domains") or rule.get("even")
            counts = Counter(_domain(node, nodes, scope, levels) for node in shard) if scope else {}
            if isinstance(rule.get("at_most"), int) and max(counts.values()) > rule["at_most"]:
                yield number, f"{dict(counts)} is more than {rule}"
            if isinstance(rule.get("at_least"), int) and len(counts) < rule["at_least"]:
                yield number, f"{dict(counts)} is fewer than {rule}"


def _broken_affinity(
    spec: Value,
    replicas: Sequence[Sequence[str]],
    nodes: Mapping[str, Value],
    levels: Sequence[str],
) -> Iterator[tuple[int | None, str]]:
    settings = {"node": "balanced", "shard": "colocated"} | dict(spec["policy"])
    for setting in filter(None, (spec.get("placement_policies") or "").split(";")):
        key, value = setting.split("=")
        settings[key.strip()] = value.strip()
    scope = settings.get("level", "location")
    places = [[_domain(node, nodes, scope, levels) for node in shard] for shard in replicas]
    for number, shard in enumerate(places):
        if settings["node"] == "exclusive" and len(set(shard)) < len(shard):
            yield number, f"node=exclusive is broken by {replicas[number]} in {shard}"
    if settings["node"] == "colocated" and len({place for shard in places for place in shard}) > 1:
        yield None, f"node=colocated is broken by {places}"
    everywhere = [node for shard in replicas for node in shard]
    if settings["shard"] == "exclusive" and len(set(everywhere)) < len(everywhere):
        yield None, f"shard=exclusive is broken by {replicas}"
    # Replicas may be missing, but all that are there stand on the same rf nodes, or on as many as
    # the longest list has that was adopted.
    most = max([spec["replication_factor"], *map(len, replicas)])
    if settings["shard"] == "colocated" and len(set(everywhere)) > most:
        yield None, f"shard=colocated is broken by {replicas}"


def _domain(
    node_id: str, nodes: Mapping[str, Value], scope: str, levels: Sequence[str]
) -> str | None:
    node = nodes.get(node_id, UNKNOWN_NODE)
    if scope.startswith("tag:"):
        return node["tags"].get(scope.removeprefix("tag:"))
    if scope == "location":
        return str(node["location"])
    depth = levels.index(scope) + 1 if scope in levels else int(scope)
    return "/".join(node["location"].split("/")[: depth + 1])


def _passes(policy: Value, node: str, nodes: Mapping[str, Value]) -> bool:
    known = nodes.get(node, UNKNOWN_NODE)
    place, tags = known["location"] + "/", known["tags"]
    within, avoid = (
        [domain + "/" for domain in policy.get(key, ())] for key in ("within", "avoid")
    )
    return (
        (not within or place.startswith(tuple(within)))
        and not place.startswith(tuple(avoid))
        and (not policy.get("nodes") or node in policy["nodes"])
        and all(tags.get(key) == value for key, value in policy.get("with_tags", {}).items())
    )
