"""Policies judged anew, for the oracle: what a required policy forbids, from plain records.

Nothing of `placement` is used, so that a fault of its rules cannot hide itself. Only what can be
counted plainly is judged: the user's own rules and filters, and the rules of those strategies that
count replicas by domain.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import ceil
from typing import Any

Value = Mapping[str, Any]
Lists = Sequence[Sequence[str]]
UNLOCATED = ""
UNKNOWN_NODE: Value = {"location": "", "tags": {}}
# Strategies that keep copies beside the replication factor unless `cold` says how many.
KEEPS_COLD = ("cost", "bytedance")
# Strategies whose own rules are required by default and are judged here, or that have none.
JUDGED = ("affinity", "timeplus", "awareness", "elasticsearch", "simple")
SOFT = ("spread", "location_majority", "kudu", "hdfs", "client_tags", "kafka_streams")
# A level of which every path is a domain by itself.
LEAF = "location"


@dataclass(frozen=True, slots=True)
class Breach:
    """One part of a required policy that is broken: by the shard (None: by the stream as a whole),
    by how many replicas or domains, and in words."""

    shard: int | None
    part: str
    amount: int
    words: str


def copies(spec: Value) -> int:
    """Replicas of a shard that is whole."""
    policy = spec["policy"]
    beside = int(policy.get("cold", 1)) if policy.get("strategy") in KEEPS_COLD else 0
    return int(spec["replication_factor"]) + beside


def is_judged(spec: Value) -> bool:
    """Whether everything that the policy requires is judged here."""
    policy = spec["policy"]
    strategy, mode = policy.get("strategy", "spread"), policy.get("on_infeasible")
    kinds = {key for rule in policy.get("rules", ()) for key in rule}
    if kinds & {"role", "balance", "leader_in"}:
        return False
    return strategy in JUDGED or mode == "degrade" or (strategy in SOFT and mode is None)


def minds_load(spec: Value) -> bool:
    """Whether a rule asks how much there is in a domain, which depends on other streams."""
    policy = spec["policy"]
    rules = policy.get("rules", ())
    return policy.get("strategy") in KEEPS_COLD or any("balance" in rule for rule in rules)


def moves_together(spec: Value) -> bool:
    """Whether replica r of all shards stands on one node, so that no shard moves by itself."""
    rules = spec["policy"].get("rules", ())
    if spec["policy"].get("strategy") in ("affinity", "timeplus"):
        return affinities(spec)["shard"] == "colocated"
    return any("colocate" in rule for rule in rules)


def keeps_apart(spec: Value) -> bool:
    """Whether a node is to hold one replica of the stream only."""
    rules = spec["policy"].get("rules", ())
    if spec["policy"].get("strategy") in ("affinity", "timeplus"):
        return "exclusive" in affinities(spec).values()
    return any("exclusive" in rule for rule in rules)


def affinities(spec: Value) -> dict[str, Any]:
    """Timeplus' settings, defaults filled in."""
    settings = {"node": "balanced", "shard": "colocated"} | dict(spec["policy"])
    for setting in filter(None, (spec.get("placement_policies") or "").split(";")):
        key, value = setting.split("=")
        settings[key.strip()] = value.strip()
    return settings


class Judge:
    """One stream's required policy, over the fleet as it stands. `counts` says whether a node
    makes its domains count."""

    def __init__(
        self,
        spec: Value,
        nodes: Mapping[str, Value],
        levels: Sequence[str],
        counts: Callable[[str], bool],
    ) -> None:
        self._spec = spec
        self._counts = counts
        self._policy = spec["policy"]
        self._nodes = nodes
        self._levels = tuple(levels)
        self._live: dict[str, set[str | None]] = {}

    def breaches(self, replicas: Lists) -> Iterator[Breach]:
        """What is broken by these lists, one for each shard."""
        everywhere = [node for shard in replicas for node in shard]
        yield from self._affinity(replicas, everywhere)
        for node in everywhere:
            if not self.admits(node):
                words = f"{node} is none of the nodes that the policy admits"
                yield Breach(None, "filter", 1, words)
        for place, rule in enumerate(self._policy.get("rules", ())):
            if rule.get("strength", "required") != "required":
                continue
            twice = len(everywhere) - len(set(everywhere))
            if rule.get("exclusive") == "nodes" and twice:
                words = "a node holds two replicas of the stream"
                yield Breach(None, f"{place}", twice, words)
            for number, shard in enumerate(replicas):
                amount, words = self._rule(rule, shard)
                if amount > 0:
                    yield Breach(number, f"{place}", amount, words)
        for number, shard in enumerate(replicas):
            yield from self._awareness(number, shard)

    def admits(self, node: str) -> bool:
        """Whether the policy's filters let the node hold replicas."""
        policy, known = self._policy, self._nodes.get(node, UNKNOWN_NODE)
        place = known["location"] + "/"
        within, avoid = (
            tuple(domain + "/" for domain in policy.get(key, ())) for key in ("within", "avoid")
        )
        return (
            (not within or place.startswith(within))
            and not place.startswith(avoid)
            and (not policy.get("nodes") or node in policy["nodes"])
            and _has_tags(known, policy.get("with_tags", {}))
        )

    def _rule(self, rule: Value, shard: Sequence[str]) -> tuple[int, str]:
        """How far the shard is from a rule of the user, and in words."""
        if "with_tags" in rule:
            nodes = [self._nodes.get(node, UNKNOWN_NODE) for node in shard]
            wrong = sum(not _has_tags(node, rule["with_tags"]) for node in nodes)
            return wrong, f"{wrong} of {shard} have not {rule}"
        for kind in ("at_least", "exactly"):
            if isinstance(rule.get(kind), Mapping):
                return self._listed(kind, rule[kind], shard)
        scope = rule.get("per") or rule.get("domains") or rule.get("even")
        if not scope:
            return 0, ""
        counts = Counter(self._domain(node, scope) for node in shard)
        if counts.pop(None, 0) and "at_least" not in rule:
            return len(shard), f"some of {shard} have no domain for {rule}"
        if "at_most" in rule:
            return self._over(counts, rule["at_most"], scope), f"{dict(counts)} is more than {rule}"
        if isinstance(rule.get("at_least"), int):
            short = rule["at_least"] - len(counts) - self._free(shard)
            return short, f"{dict(counts)} is fewer than {rule}"
        if "even" in rule:
            return self._uneven(counts, scope), f"{dict(counts)} is less even than {rule}"
        return 0, ""

    def keeps(self, rule: str, shard: Sequence[str]) -> bool | None:
        """Whether a list keeps a rule in its published words, where it counts by domain."""
        kind, _, scope = rule.partition(" per ")
        if scope not in (*self._levels, LEAF) and not scope.isdigit():
            return None
        counts = Counter(self._domain(node, scope) for node in shard)
        match kind.split():
            case ["even"]:
                if not self._located_first(scope):
                    return not self._uneven(counts, scope)
                if any(each.get("even") == scope for each in self._policy.get("rules", ())):
                    return None  # a rule of the user counts them all and has the same words
                del counts[UNLOCATED]
                return not self._uneven(counts, scope, {UNLOCATED})
            case ["at_most", limit]:
                return not self._over(counts, int(limit) if limit.isdigit() else limit, scope)
        return None

    def _over(self, counts: Counter[str | None], limit: int | str, scope: str) -> int:
        cap = self._cap(limit, scope)
        return sum(max(count - cap, 0) for count in counts.values())

    def _located_first(self, scope: str) -> bool:
        """Whether nodes without a location are left out, because others have one."""
        if self._policy.get("strategy", "spread") != "spread":
            return False
        mixed = any(not node["location"] for node in self._nodes.values())
        return mixed and bool(self._live_domains(scope) - {UNLOCATED})

    def _uneven(
        self, counts: Counter[str | None], scope: str, aside: AbstractSet[str | None] = frozenset()
    ) -> int:
        live = self._live_domains(scope) - aside
        least = min((counts[domain] for domain in live), default=counts.total())
        return sum(max(count - least - 1, 0) for count in counts.values())

    def _listed(
        self, kind: str, wanted: Mapping[str, int], shard: Sequence[str]
    ) -> tuple[int, str]:
        """`at_least` and `exactly` with domains by name."""
        short = over = 0
        places = [self._nodes.get(node, UNKNOWN_NODE)["location"] + "/" for node in shard]
        for domain, count in wanted.items():
            there = sum(place.startswith(domain + "/") for place in places)
            short += max(count - there, 0)
            over += max(there - count, 0) if kind == "exactly" else 0
        if kind == "exactly":
            # Where the rule has no place for it, a replica is worse than in any crowd.
            outside = sum(not any(p.startswith(f"{d}/") for d in wanted) for p in places)
            over += outside * copies(self._spec)
        return max(short - self._free(shard), 0) + over, f"{places} is not {kind} {dict(wanted)}"

    def _free(self, shard: Sequence[str]) -> int:
        """Replicas that are still to come, and may mend what is too little."""
        return max(copies(self._spec) - len(shard), 0)

    def _cap(self, limit: int | str, scope: str) -> int:
        factor = copies(self._spec)
        match limit:
            case "share":
                return ceil(factor / max(len(self._live_domains(scope)), 1))
            case "minority":
                return (factor - 1) // 2
            case "half":
                return factor // 2
        return int(limit)

    def _awareness(self, number: int, shard: Sequence[str]) -> Iterator[Breach]:
        policy = self._policy
        if policy.get("strategy") not in ("awareness", "elasticsearch"):
            return
        if policy.get("on_infeasible") == "degrade":
            return
        for key in policy["attributes"]:
            values = self._live_domains(f"tag:{key}") - {None} | {
                *policy.get("forced", {}).get(key, ())
            }
            cap = ceil(copies(self._spec) / max(len(values), 1))
            counts = Counter(self._domain(node, f"tag:{key}") for node in shard)
            # Where there is no value at all, no replica may be: worse than any crowd.
            nowhere = counts.pop(None, 0) * copies(self._spec)
            over = sum(max(count - cap, 0) for count in counts.values()) + nowhere
            if over:
                words = f"{dict(counts)} of {key} is more than {cap} each, or not all"
                yield Breach(number, f"awareness {key}", over, words)

    def _affinity(self, replicas: Lists, everywhere: Sequence[str]) -> Iterator[Breach]:
        if self._policy.get("strategy") not in ("affinity", "timeplus"):
            return
        if self._policy.get("on_infeasible") == "degrade":
            return
        settings = affinities(self._spec)
        scope = settings.get("level", LEAF)
        places = [[self._domain(node, scope) for node in shard] for shard in replicas]
        for number, shard in enumerate(places):
            twice = len(shard) - len(set(shard))
            if settings["node"] == "exclusive" and twice:
                words = f"node=exclusive is broken by {replicas[number]} in {shard}"
                yield Breach(number, "node=exclusive", twice, words)
        used = Counter(place for shard in places for place in shard)
        astray = used.total() - max(used.values(), default=0)
        if settings["node"] == "colocated" and astray:
            yield Breach(None, "node=colocated", astray, f"node=colocated is broken by {places}")
        twice = len(everywhere) - len(set(everywhere))
        if settings["shard"] == "exclusive" and twice:
            words = f"shard=exclusive is broken by {replicas}"
            yield Breach(None, "shard=exclusive", twice, words)
        # Replicas may be missing, but all that are there stand on the same rf nodes, or on as many
        # as the longest list has that was adopted.
        most = max([self._spec["replication_factor"], *map(len, replicas)])
        apart = len(set(everywhere)) - most
        if settings["shard"] == "colocated" and apart > 0:
            words = f"shard=colocated is broken by {replicas}"
            yield Breach(None, "shard=colocated", apart, words)

    def _live_domains(self, scope: str) -> set[str | None]:
        """Domains with a node that counts and that the policy admits."""
        if scope not in self._live:
            usable = (node for node in self._nodes if self._counts(node) and self.admits(node))
            self._live[scope] = {self._domain(node, scope) for node in usable}
        return self._live[scope]

    def _domain(self, node_id: str, scope: str) -> str | None:
        node = self._nodes.get(node_id, UNKNOWN_NODE)
        if scope.startswith("tag:"):
            value = node["tags"].get(scope.removeprefix("tag:"))
            return None if value is None else str(value)
        if scope == LEAF:
            return str(node["location"])
        depth = self._levels.index(scope) + 1 if scope in self._levels else int(scope)
        return "/".join(node["location"].split("/")[: depth + 1])


def _has_tags(node: Value, wanted: Mapping[str, str]) -> bool:
    return all(node["tags"].get(key) == value for key, value in wanted.items())
