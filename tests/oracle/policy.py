"""Policies judged anew, for the oracle: what a required policy forbids, from plain records.

Nothing of `placement` is used, so that a fault of its rules cannot hide itself. Judged are the
user's own rules and filters and what strategies require (`tests.oracle.promises`), which says of
the rest why it is not.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from tests.oracle.promises import LEAF, Value, own_rules

Lists = Sequence[Sequence[str]]
UNLOCATED = ""
UNKNOWN_NODE: Value = {"location": "", "tags": {}}
# Strategies that keep copies beside the replication factor unless `cold` says how many.
KEEPS_COLD = ("cost", "bytedance")
# Strategies whose own rules are required by default and are judged here, or that have none.
JUDGED = ("affinity", "timeplus", "awareness", "elasticsearch", "simple")
SOFT = ("spread", "location_majority", "kudu", "hdfs", "client_tags", "kafka_streams")
# Every kind of rule that users may ask for, all judged while no replica is missing, with examples
# for fleets whose first level is `site`; places are those of `tests/simulation/fleets.py`.
KINDS: Mapping[str, tuple[Value, ...]] = {
    "at_most": (
        {"at_most": 1, "per": "site"},
        {"at_most": "share", "per": "tag:disk"},
        {"at_most": "minority", "per": "location"},
    ),
    "even": ({"even": "site"}, {"even": "tag:disk"}),
    "at_least": ({"at_least": 2, "domains": "site"}, {"at_least": {"/s1": 1, "/s2": 1}}),
    "exactly": ({"exactly": {"/s1": 1, "/s2": 1}},),
    "with_tags": ({"with_tags": {"disk": "ssd"}},),
    "balance": ({"balance": 0.1, "per": "site"},),
    "role": ({"role": "cold", "count": 1, "other": "site"},),
    "leader_in": ({"leader_in": ["/s2", "/s1"]},),
    "colocate": ({"colocate": "slots"},),
    "exclusive": ({"exclusive": "nodes"},),
}
# Kinds of which no single move can be said to mend or to break them.
NOT_BY_MOVES = {"role", "balance", "leader_in"}


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


def can_judge(spec: Value) -> bool:
    """Whether everything that the policy requires is judged here."""
    policy = spec["policy"]
    strategy, mode = policy.get("strategy", "spread"), policy.get("on_infeasible")
    kinds = {key for rule in policy.get("rules", ()) for key in rule}
    if kinds & NOT_BY_MOVES:
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
        deepest = max((_depth(node) for node in nodes.values()), default=0)
        # Nodes that may be full, which makes them no place for one replica more.
        self._limited = {n for n, node in nodes.items() if _is_limited(node)}
        self._own = list(own_rules(spec, self._levels, deepest))

    def breaches(self, replicas: Lists) -> Iterator[Breach]:
        """What is broken by these lists, one for each shard."""
        everywhere = [node for shard in replicas for node in shard]
        yield from self._affinity(replicas, everywhere)
        for node in everywhere:
            if not self.admits(node):
                words = f"{node} is none of the nodes that the policy admits"
                yield Breach(None, "filter", 1, words)
        for place, rule in enumerate(self._policy.get("rules", ())):
            if rule.get("strength", "required") == "required":
                yield from self._of_stream(f"{place}", rule, replicas)
                yield from self._of_shards(f"{place}", rule, replicas, self._rule)
        for number, shard in enumerate(replicas):
            yield from self._awareness(number, shard)
        for rule in self._own:
            yield from self._of_shards(f"own {rule}", rule, replicas, self._own_rule)

    def _of_shards(
        self, part: str, rule: Value, replicas: Lists, count: Callable[..., tuple[int, str]]
    ) -> Iterator[Breach]:
        for number, shard in enumerate(replicas):
            amount, words = count(rule, shard)
            if amount > 0:
                yield Breach(number, part, amount, words)

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

    def _of_stream(self, part: str, rule: Value, replicas: Lists) -> Iterator[Breach]:
        """Rules about the stream as a whole."""
        everywhere = [node for shard in replicas for node in shard]
        twice = len(everywhere) - len(set(everywhere))
        if rule.get("exclusive") == "nodes" and twice:
            yield Breach(None, part, twice, "a node holds two replicas of the stream")
        if rule.get("colocate") == "slots":
            most = max([copies(self._spec), *map(len, replicas)])
            apart = len(set(everywhere)) - most
            if apart > 0:
                yield Breach(None, part, apart, f"shards share no nodes: {replicas}")
        whole = all(len(shard) == copies(self._spec) for shard in replicas)
        if "balance" in rule and whole:
            yield from self._balance(part, rule, everywhere)

    def _balance(self, part: str, rule: Value, nodes: Sequence[str]) -> Iterator[Breach]:
        """Every domain with a usable node holds its part by weight, give or take the fraction of
        it, or one replica."""
        scope = rule["per"]
        weights: Counter[str | None] = Counter()
        for node_id, node in self._nodes.items():
            if self._counts(node_id) and self.admits(node_id):
                weights[self._domain(node_id, scope)] += node.get("weight", 1.0)
        del weights[None]
        held = Counter(self._domain(node, scope) for node in nodes)
        total = sum(held[domain] for domain in weights)
        for domain, weight in weights.items():
            share = total * weight / sum(weights.values())
            slack = max(rule["balance"] * share, 1)
            over = held[domain] - floor(share + slack + 1e-6)
            under = ceil(share - slack - 1e-6) - held[domain]
            if max(over, under) > 0:
                words = f"{held[domain]} of {total} in {domain} is out of {rule}"
                yield Breach(None, f"{part} {domain}", max(over, under), words)

    def _rule(self, rule: Value, shard: Sequence[str]) -> tuple[int, str]:
        """How far the shard is from a rule of the user, and in words."""
        kind = next(kind for kind in KINDS if kind in rule)
        match kind:
            case "colocate" | "exclusive":
                return 0, ""
            case "role" | "leader_in":
                whole = len(shard) == copies(self._spec)
                return self._by_slot(rule, shard) if whole else (0, "")
            case "with_tags":
                nodes = [self._nodes.get(node, UNKNOWN_NODE) for node in shard]
                wrong = sum(not _has_tags(node, rule["with_tags"]) for node in nodes)
                return wrong, f"{wrong} of {shard} have not {rule}"
            case "at_least" | "exactly" if isinstance(rule[kind], Mapping):
                return self._listed(kind, rule[kind], shard)
        return self._by_domain(kind, rule, shard)

    def _by_domain(self, kind: str, rule: Value, shard: Sequence[str]) -> tuple[int, str]:
        """Rules about how many replicas the domains of one scope hold."""
        scope = rule.get("per") or rule.get("domains") or rule["even"]
        counts = Counter(self._domain(node, scope) for node in shard)
        if counts.pop(None, 0) and kind != "at_least" and rule.get("without") != "allowed":
            return len(shard), f"some of {shard} have no domain for {rule}"
        match kind:
            case "at_most":
                over = self._over(counts, rule["at_most"], scope)
                return over, f"{dict(counts)} is more than {rule}"
            case "at_least":
                short = rule["at_least"] - len(counts) - self._free(shard)
                return short, f"{dict(counts)} is fewer than {rule}"
            case "even":
                return self._uneven(counts, scope), f"{dict(counts)} is less even than {rule}"
        return 0, ""

    def _own_rule(self, rule: Value, shard: Sequence[str]) -> tuple[int, str]:
        """How far the shard is from a rule of the strategy, and in words."""
        if "even_within" in rule:
            return self._uneven_within(rule, shard)
        if "voters" in rule:
            return self._near_voters(rule, shard)
        if "role" in rule:
            return self._rule(rule, shard)
        scope = rule.get("per") or rule["even"]
        counts = Counter(self._domain(node, scope) for node in shard)
        live = self._live_domains(scope)
        if rule.get("without") == "allowed":
            del counts[None]
        if "span" in rule:
            need = min(len(shard), len(live | {*counts}), rule["span"] or len(shard))
            return need - len(counts), f"{dict(counts)} spans fewer than {rule}"
        if "datacenters" in rule:
            return self._counted(rule["datacenters"], counts, shard)
        if rule.get("if_several") and min(len(live), copies(self._spec)) < 2:
            return 0, ""
        if "even" in rule:
            aside = {UNLOCATED} if self._located_first(scope) else set()
            for domain in aside:
                del counts[domain]
            return self._uneven(counts, scope, aside), f"{dict(counts)} is uneven per {scope}"
        return self._over(counts, rule["at_most"], scope), f"{dict(counts)} is more than {rule}"

    def _near_voters(self, rule: Value, shard: Sequence[str]) -> tuple[int, str]:
        """Zones that the voters of a whole shard are short of."""
        if len(shard) != copies(self._spec):
            return 0, ""
        voters = shard[: len(shard) - rule["cold"]]
        zones = {self._domain(node, rule["per"]) for node in voters}
        return min(rule["voters"], len(voters)) - len(zones), f"{voters} are too near: {rule}"

    def _by_slot(self, rule: Value, shard: Sequence[str]) -> tuple[int, str]:
        """Rules about what a replica is for: the first leads, the last hold a role."""
        if "leader_in" in rule:
            leader = self._nodes.get(shard[0], UNKNOWN_NODE)
            place = leader["location"] + "/"
            inside = any(place.startswith(f"{domain}/") for domain in _listed(rule["leader_in"]))
            wrong = not (inside and leader.get("leader", True))
            return int(wrong), f"{shard[0]}, which leads, is not {rule}"
        count = rule.get("count", 1)
        parts = shard[:-count], shard[-count:]
        plain, kept = ({self._domain(node, rule["other"]) for node in part} for part in parts)
        return len(plain & kept - {None}), f"{shard[-count:]} of {shard} are not {rule}"

    def _uneven_within(self, rule: Value, shard: Sequence[str]) -> tuple[int, str]:
        """Replicas in a domain two ahead of one inside the same that has a free node."""
        admitted = [node_id for node_id in self._nodes if self.admits(node_id)]
        if rule.get("if_located") and not any(self._nodes[n]["location"] for n in admitted):
            return 0, ""
        scope, inside = rule["even_within"], rule["inside"]
        counts = Counter(self._domain(node, scope) for node in shard)
        free = {
            (inside and self._domain(node, inside), self._domain(node, scope))
            for node in admitted
            if self._counts(node) and node not in shard and node not in self._limited
        }
        ahead = 0
        for node in shard:
            parent = inside and self._domain(node, inside)
            least = min((counts[domain] for above, domain in free if above == parent), default=None)
            if least is not None:
                ahead += counts[self._domain(node, scope)] > least + 1
        return ahead, f"{dict(counts)} is less {rule} than nodes allow"

    def _counted(
        self, wanted: Mapping[str, int], counts: Counter[str | None], shard: Sequence[str]
    ) -> tuple[int, str]:
        """Datacenters with other numbers of replicas than they are to have."""
        found = {str(domain).strip("/"): count for domain, count in counts.items()}
        over = sum(max(count - wanted.get(name, 0), 0) for name, count in found.items())
        short = sum(max(count - found.get(name, 0), 0) for name, count in wanted.items())
        missing = max(short - self._free(shard), 0)
        return over + missing, f"{found} is not what {dict(wanted)} asks for"

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
            values = self._live_domains(f"tag:{key}") | {*policy.get("forced", {}).get(key, ())}
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
            self._live[scope] = {self._domain(node, scope) for node in usable} - {None}
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


def _depth(node: Value) -> int:
    """Components of the node's path."""
    return int(node["location"].count("/"))


def _listed(places: str | Sequence[str]) -> Sequence[str]:
    return places.split(",") if isinstance(places, str) else places


def _has_tags(node: Value, wanted: Mapping[str, str]) -> bool:
    return all(node["tags"].get(key) == value for key, value in wanted.items())


def _is_limited(node: Value) -> bool:
    """Whether the node may be full, of replicas or of a resource."""
    return node.get("capacity") is not None or bool(node.get("capacities"))
