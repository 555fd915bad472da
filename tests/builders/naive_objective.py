"""The objective of rebalancing, counted anew from an arrangement with Python's integers."""

from collections import Counter
from itertools import groupby, pairwise

from placement.rebalance import RebalanceMove
from placement.rebalance.shares import Slack
from tests.builders.arrangements import Arrangement


def objective(made: Arrangement, leaders: bool = False) -> list[int]:
    """What the planner says it lowers, counted anew with Python's integers."""
    topology = made.topology
    tiers = [list(map(str, topology.domain_of(scope))) for scope in topology.tiers()]
    levels = [*pairwise([[""] * topology.size, *tiers, list(topology.ids)])]
    *first, after = families(made, leaders)
    spread = all(policy.strategy == "spread" for policy in made.policies)
    slack = Slack.ONE if leaders and spread else Slack.NONE
    terms = [
        sum(_distance(made, *each, *level, slack, kind is first[2]) for each in kind.values())
        for level in levels
        for kind in first
    ]
    return terms + [
        sum(_distance(made, *each, *level, Slack.DOUBLE) for each in after.values())
        for level in levels
    ]


def families(made: Arrangement, leaders: bool) -> list[dict[object, tuple[list[int], list[bool]]]]:
    """Nodes of the replicas of each stream or range that comes first, of each dimension of these,
    of all, and of each stream that comes after; and which nodes have a share of them."""
    topology = made.topology
    able = topology.eligible & topology.can_lead if leaders else topology.eligible
    found: list[dict[object, tuple[list[int], list[bool]]]] = [{}, {}, {}, {}]
    for spec, policy, shards in zip(made.specs, made.policies, made.shards, strict=True):
        unit = policy.strategy == "affinity" and policy.parameters["shard"] == "colocated"
        by_itself = policy.strategy != "ring" and (leaders or not unit)
        passes = (policy.nodes.mask(topology) & able).tolist()
        after = policy.strategy == "spread"
        aware = policy.parameters.get("range_aware") and spec.ranges and not leaders
        for number, shard in enumerate(shards):
            nodes = made.table.nodes(shard)[: 1 if leaders else None]
            key: object = spec.stream
            if aware and spec.ranges:
                owner = ("d", spec.dimension, policy.nodes) if spec.dimension else spec.stream
                key = owner, spec.ranges[number]
            for node in nodes:
                if able[node]:
                    found[2].setdefault("all", ([], able.tolist()))[0].append(node)
                    if spec.dimension and not (leaders or after):
                        dimension = found[1].setdefault(spec.dimension, ([], able.tolist()))
                        dimension[0].append(node)
                if by_itself and passes[node]:
                    found[3 * after].setdefault(key, ([], passes))[0].append(node)
    return found


def _distance(
    made: Arrangement,
    held: list[int],
    usable: list[bool],
    upper: list[str],
    lower: list[str],
    slack: Slack,
    scaled: bool = False,
) -> int:
    """Squared distances of a family from its shares on one level, as far as `slack` has them count;
    `scaled`: those of domains of little weight count more, in 64ths."""
    parts = [round(weight * 1e6) for weight in made.topology.weight.tolist()]
    whole: Counter[str] = Counter()
    inside: dict[str, Counter[str]] = {}
    for node, usable_node in enumerate(usable):
        if usable_node:
            whole[upper[node]] += parts[node]
            inside.setdefault(upper[node], Counter())[lower[node]] += parts[node]
    have = Counter(upper[node] for node in held)
    counts = Counter(lower[node] for node in held)
    total = 0
    for parent, domains in inside.items():
        for domain, weight in domains.items():
            count = counts[domain]
            exact = have[parent] * weight
            least, most = exact // whole[parent], -(-exact // whole[parent])
            near = max(min(most, (have[parent] - most) // 2), 1)
            below, above = {
                Slack.NONE: (0, 0),
                Slack.ONE: (int(least > 1), 1),
                Slack.DOUBLE: (near, near),
            }[slack]
            scale = max(whole[parent] // len(domains) * 64 // weight, 1) if scaled else 1
            total += max(count - most - above, least - below - count, 0) ** 2 * scale
    return total


def steps(moves: tuple[RebalanceMove, ...]) -> list[list[RebalanceMove]]:
    """Moves that improve together."""
    return [list(step) for _, step in groupby(moves, lambda move: move.step)]
