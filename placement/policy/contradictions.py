"""Finds policies that contradict themselves: no fleet could satisfy both of two things they ask.

A policy that only lacks nodes does not contradict itself: nodes may join. Only required rules take
part, because a preferred one gives way. The first pair found is named, before anything is placed,
so that the stream is refused with a reason its author can act on and never waits for nodes.

The rules are told apart by kind here, unlike elsewhere: a contradiction is a statement about two
kinds (an `exactly` against an `at_most`), with a sentence of its own. Members of `Rule` for it
would have to name the other kind all the same, and would spread each pair over two classes.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from placement.model import Code, Location, Reason
from placement.policy.policy import Policy
from placement.rules import (
    AtLeastDomains,
    AtLeastIn,
    AtMost,
    ColocateSlots,
    Even,
    Exactly,
    ExclusiveNodes,
    LeaderPreference,
    RoleApart,
    Rule,
    SameDomain,
    Share,
    Strength,
    WithTags,
    missing_count,
)
from placement.topology import NodeFilter, Scope

# Two things that exclude each other, as they are written, and why.
Pair = tuple[str, str, str]


def find_contradiction(policy: Policy, rules: Sequence[Rule], factor: int) -> Reason | None:
    """Find the first two things of a policy that exclude each other, as a reason.

    `rules` are the user's followed by the strategy's own, for shards of `factor` replicas. Two
    rules of the strategy's own are not compared.
    """
    required = [rule for rule in rules if rule.strength is Strength.REQUIRED]
    for first, second, why in _pairs(policy, required, factor):
        message = f"policy: '{first}' contradicts '{second}': {why}"
        return Reason(Code.POLICY_AMBIGUOUS, message)
    return None


def _pairs(policy: Policy, required: Sequence[Rule], factor: int) -> Iterator[Pair]:
    yield from _pairs_within_filter(policy.nodes)
    users = [rule for rule in policy.rules if rule.strength is Strength.REQUIRED]
    for rule in users:
        yield from _pairs_with_factor(rule, factor)
        yield from _pairs_with_filter(rule, policy.nodes, factor)
    for position, rule in enumerate(users):
        others = [other for other in required if not any(other is user for user in users)]
        for other in (*users[position + 1 :], *others):
            yield from _pairs_of_rules(rule, other, factor)
            yield from _pairs_of_rules(other, rule, factor)
            # A strategy's own kind that says as much as 'exactly' does.
            if other.general is not other:
                for _, _, why in _pairs_of_rules(rule, other.general, factor):
                    yield str(rule), str(other), why


def _pairs_within_filter(nodes: NodeFilter) -> Iterator[Pair]:
    """Yield a pair if every place in `within` is also avoided."""
    hit = [(w, a) for w in nodes.within for a in nodes.avoid if w.is_within(a)]
    if nodes.within and {w for w, _ in hit} == set(nodes.within):
        yield f"within {hit[0][0]}", f"avoid {hit[0][1]}", "no place is left"


def _pairs_with_factor(rule: Rule, factor: int) -> Iterator[Pair]:
    wanted = f"replication_factor {factor}"
    match rule:
        case Exactly() if (total := sum(count for _, count in rule.counts)) != factor:
            yield str(rule), wanted, f"the numbers add up to {total}"
        case AtLeastIn() if (total := missing_count(rule.counts, {})) > factor:
            yield str(rule), wanted, f"the numbers add up to {total}"
        case AtLeastDomains() if rule.count > factor:
            yield str(rule), wanted, f"{factor} replicas stand in {factor} domains at most"
        case RoleApart() if rule.count >= factor:
            yield str(rule), wanted, "no replica is left without the role"
        case AtMost() if (cap := _cap_of(rule, factor)) is not None and cap < 1:
            yield str(rule), wanted, "no domain may hold even one replica"


def _pairs_with_filter(rule: Rule, nodes: NodeFilter, factor: int) -> Iterator[Pair]:
    """Yield rules that want places, domains or tags that the policy's filter excludes."""
    within = ", ".join(map(str, nodes.within))
    for places in _wanted_places(rule):
        named = ", ".join(map(str, places))
        if nodes.within and not _can_share_place(places, nodes.within):
            yield str(rule), f"within {within}", f"{named} lies outside"
        hit = [(place, a) for place in places for a in nodes.avoid if place.is_within(a)]
        if len({place for place, _ in hit}) == len(places):
            yield str(rule), f"avoid {hit[0][1]}", f"{named} lies in it"
    scope = rule.scope
    most = _count_most_domains(scope, nodes.within) if scope and nodes.within else None
    if most is not None:
        yield from _pairs_with_domains(rule, most, f"within {within}", factor)
    tags = dict(nodes.with_tags)
    if scope and scope.tag in tags:
        yield from _pairs_with_domains(rule, 1, f"with_tags {scope.tag}={tags[scope.tag]}", factor)
    for key, value in rule.tags if isinstance(rule, WithTags) else ():
        if tags.get(key, value) != value:
            yield str(rule), f"with_tags {key}={tags[key]}", f"{key} has one value"


def _pairs_with_domains(rule: Rule, most: int, said: str, factor: int) -> Iterator[Pair]:
    """Yield the rule if `most` domains can never satisfy it."""
    match rule:
        case AtMost() if (cap := _cap_of(rule, factor)) is not None and most * cap < factor:
            yield str(rule), said, f"{most} domains hold {most * cap} of {factor} replicas"
        case AtLeastDomains() if rule.count > most:
            yield str(rule), said, f"that leaves {most} domains of {rule.per}"
        case RoleApart() if most < 2:
            yield str(rule), said, f"that leaves {most} domain of {rule.per}"


def _pairs_of_rules(rule: Rule, other: Rule, factor: int) -> Iterator[Pair]:
    """Describe what `other` excludes of `rule`; called both ways."""
    if isinstance(rule, ColocateSlots) and isinstance(other, ExclusiveNodes):
        yield str(rule), str(other), "shards that share their nodes have none of their own"
    yield from _pairs_by_domains(rule, other, factor)
    if isinstance(other, Exactly):
        yield from _pairs_by_counts(rule, other)
    match rule, other:
        case LeaderPreference(), LeaderPreference() if not _can_share_place(
            rule.domains, other.domains
        ):
            yield str(rule), str(other), "a leader stands in one place"
    if isinstance(rule, WithTags):
        yield from _pairs_by_tags(rule, other, factor)


def _pairs_by_domains(rule: Rule, other: Rule, factor: int) -> Iterator[Pair]:
    """Yield rules that count domains and that the other rule's domains exclude."""
    match rule, other:
        case SameDomain(), Exactly() | AtLeastIn() if _lie_apart(rule.per, other.counts):
            yield str(rule), str(other), "its places share none"
        case SameDomain(), _ if _implies(rule.per, other.scope):
            yield from _pairs_with_domains(other, 1, str(rule), factor)
        case AtMost(), Exactly() | AtLeastIn():
            yield from _pairs_over_cap(rule, other, factor)
        case ((AtLeastDomains() | RoleApart()), Exactly()):
            domains = tuple(domain for domain, count in other.counts if count)
            most = _count_most_domains(rule.per, domains)
            if most is not None:
                yield from _pairs_with_domains(rule, most, str(other), factor)
        case Even(), Exactly():
            held = _count_per_domain(rule.per, other.counts)
            if held and max(held.values()) - min(held.values()) > 1:
                yield str(rule), str(other), "the numbers differ by more than one"


def _pairs_by_counts(rule: Rule, other: Exactly) -> Iterator[Pair]:
    """Yield rules that name places in which `exactly` leaves no replica."""
    if isinstance(rule, LeaderPreference):
        held = tuple(domain for domain, count in other.counts if count)
        if not _can_share_place(rule.domains, held):
            yield str(rule), str(other), "no replica stands where the leader belongs"
    for domain, want in rule.counts if isinstance(rule, AtLeastIn | Exactly) else ():
        inside = sum(count for each, count in other.counts if each.is_within(domain))
        around = sum(c for each, c in other.counts if each != domain and domain.is_within(each))
        if inside + around < want:
            yield str(rule), str(other), f"{domain} holds {inside + around} at most, not {want}"
        elif inside > want and isinstance(rule, Exactly):
            yield str(rule), str(other), f"{domain} holds {inside}, not {want}"


def _pairs_by_tags(rule: WithTags, other: Rule, factor: int) -> Iterator[Pair]:
    tags = dict(rule.tags)
    for key, value in other.tags if isinstance(other, WithTags) else ():
        if tags.get(key, value) != value:
            yield str(rule), str(other), f"{key} has one value"
    scope = other.scope
    if scope and scope.tag in tags:
        yield from _pairs_with_domains(other, 1, str(rule), factor)


def _implies(narrow: Scope, wide: Scope | None) -> bool:
    """Return whether nodes that share the first domain always share the second."""
    if wide is None or narrow.depth is None or wide.depth is None:
        return narrow == wide
    return wide.depth <= narrow.depth


def _lie_apart(scope: Scope, counts: Sequence[tuple[Location, int]]) -> bool:
    """Return whether two of the required places certainly lie in different domains."""
    if scope.depth is None:
        return False
    cut = [domain.prefix(min(domain.depth, scope.depth)) for domain, count in counts if count]
    return any(
        not one.is_within(two) and not two.is_within(one) for one, two in combinations(cut, 2)
    )


def _pairs_over_cap(rule: AtMost, other: Exactly | AtLeastIn, factor: int) -> Iterator[Pair]:
    """Yield places within one domain that together want more replicas than its cap."""
    cap = _cap_of(rule, factor)
    if cap is None:
        return
    for domain, count in _count_per_domain(rule.per, other.counts).items():
        if count > cap:
            yield str(rule), str(other), f"{domain} may hold {cap} replicas, not {count}"


def _can_share_place(some: Sequence[Location], others: Sequence[Location]) -> bool:
    """Return whether one place can lie in a domain of each list."""
    return any(one.is_within(other) or other.is_within(one) for one in some for other in others)


def _count_per_domain(scope: Scope, counts: Sequence[tuple[Location, int]]) -> Counter[Location]:
    """Sum the numbers of places by the domain of the level that surely contains them."""
    held: Counter[Location] = Counter()
    for domain, count in counts:
        if scope.depth is not None and domain.depth >= scope.depth:
            held[domain.prefix(scope.depth)] += count
    return held


def _cap_of(rule: AtMost, factor: int) -> int | None:
    """Return the limit in replicas; None if it depends on the fleet."""
    return None if rule.limit is Share.SHARE else rule.cap(factor, 1)


def _count_most_domains(scope: Scope, places: Sequence[Location]) -> int | None:
    """Count the domains of the level in the places, at most; None if the fleet decides."""
    if scope.depth is None or any(place.depth < scope.depth for place in places):
        return None
    return len({place.prefix(scope.depth) for place in places})


def _wanted_places(rule: Rule) -> list[tuple[Location, ...]]:
    """List the sets of places; the rule wants a replica in one of each set."""
    match rule:
        case Exactly() | AtLeastIn():
            return [(domain,) for domain, count in rule.counts if count]
        case LeaderPreference():
            return [rule.domains]
    return []
