"""Decides whether an arrangement exists that keeps a rule and every required one.

A rule counts replicas by domain, so that nodes in the same domains are interchangeable: the search
runs over classes of nodes, not over nodes, and skips states that differ only in the names of
domains. It is exact up to a bound on the number of states.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import ceil

import numpy as np

from placement.model import Code, Reason
from placement.rules.domains import AtLeastDomains, Even, live_domains
from placement.rules.rule import Mask, Rule, RuleContext
from placement.rules.rule_set import RuleSet
from placement.rules.supply import allowed_step, supply_of
from placement.topology import NO_DOMAIN, NodeFilter, Scope, Topology, classify_nodes
from placement.wording import are, format_count

# Small fleets and single-level rules need fewer than a hundred states; a fleet on which more than
# this are needed has so many domains that an arrangement is found at once or does not exist.
_STATES_MAX = 2000
# Orders of one arrangement that are tried for rules that ask who leads: all of them up to rf 4.
_ORDERS_MAX = 24


@dataclass(frozen=True, slots=True)
class FeasibilityQuery:
    """The question whether a rule and all of `required` can hold for one shard.

    - `topology`: as diagnosis sees it, so that the answer agrees with diagnosis.
    - `factor`: the number of replicas.
    - `nodes`: the filter of the policy.
    - `allowed`: mask of the nodes that may hold a replica.
    """

    topology: Topology
    factor: int
    nodes: NodeFilter
    required: tuple[Rule, ...]
    allowed: Mask

    def rule_context(self, replicas: Sequence[int]) -> RuleContext:
        """Make the context of rules for an arrangement."""
        return RuleContext(self.topology, self.factor, replicas, (), self.nodes)


def why_not(question: FeasibilityQuery, rule: Rule | None = None) -> Reason | None:
    """Explain why no arrangement exists, or None where one does."""
    have = int(question.allowed.sum())
    if have < question.factor:
        return _nodes_too_few(question, have)
    rules = [each for each in question.required if each != rule]
    if _admits(question, [*rules, rule] if rule else rules):
        return None
    return _explain(question, rule, rules)


def _nodes_too_few(question: FeasibilityQuery, have: int) -> Reason:
    """Explain what excludes the other nodes: their condition, the policy's filters, or capacity."""
    found = supply_of(question.topology, question.nodes, question.allowed)
    need = f"{question.factor} replicas of a shard need {question.factor} usable nodes"
    message = f"{need}: {found.describe(allowed_step(have))}"
    return Reason(found.code, message, question.factor, have)


def _admits(question: FeasibilityQuery, rules: Sequence[Rule]) -> bool:
    """Return whether some arrangement breaks none of the rules."""
    classes = _classes(question, rules)
    ordered = RuleSet(rules).orders_slots
    seen: set[tuple[int, ...]] = set()
    pending: list[tuple[int, ...]] = [(0,) * len(classes)]
    looked_at = 0
    # One dive to a whole arrangement is always made, however many states lie beside its path.
    while pending and (len(seen) < _STATES_MAX or looked_at <= question.factor):
        looked_at += 1
        used = pending.pop()
        replicas = _replicas(used, classes)
        if len(replicas) == question.factor:
            if any(_obeys(question, rules, each) for each in _orders(replicas, ordered)):
                return True
            continue
        if not _may_grow(question, rules, replicas):
            continue
        colours = _colours(question, rules, classes, used)
        steps: dict[int, tuple[int, ...]] = {}
        for position, members in enumerate(classes):
            if used[position] < len(members):
                more = (*used[:position], used[position] + 1, *used[position + 1 :])
                steps.setdefault(colours[position], more)
        ranked = sorted(
            steps.values(), key=lambda state: _search_rank(question, rules, classes, state)
        )
        for state in reversed(ranked):
            key = tuple(sorted(_colours(question, rules, classes, state)))
            if key not in seen:
                seen.add(key)
                pending.append(state)
    return False


def _classes(question: FeasibilityQuery, rules: Sequence[Rule]) -> list[list[int]]:
    """Group the allowed nodes that the rules cannot distinguish, by the natural order of ids."""
    topology = question.topology
    coarse = RuleSet(rules).sees_domains_only
    classes = classify_nodes(topology, _scopes(rules), by_attributes=not coarse)
    rank = topology.order()
    found: dict[int, list[int]] = {}
    for node in sorted(np.flatnonzero(question.allowed).tolist(), key=lambda n: int(rank[n])):
        members = found.setdefault(int(classes[node]), [])
        if len(members) < question.factor or coarse:
            members.append(node)
    return list(found.values())


def _scopes(rules: Sequence[Rule]) -> list[Scope]:
    return list(dict.fromkeys(scope for rule in rules for scope in rule.scopes))


def _replicas(used: Sequence[int], classes: Sequence[Sequence[int]]) -> list[int]:
    return [node for count, members in zip(used, classes, strict=True) for node in members[:count]]


def _orders(replicas: list[int], ordered: bool) -> Iterator[Sequence[int]]:
    if not ordered:
        yield replicas
        return
    # Whoever leads first, then as many other orders as the bound allows.
    for leader in range(len(replicas)):
        yield [replicas[leader], *replicas[:leader], *replicas[leader + 1 :]]
    for number, order in enumerate(permutations(replicas)):
        if number == _ORDERS_MAX:
            return
        yield order


def _obeys(question: FeasibilityQuery, rules: Sequence[Rule], replicas: Sequence[int]) -> bool:
    context = question.rule_context(replicas)
    return not any(rule.violations(context) for rule in rules)


def _may_grow(question: FeasibilityQuery, rules: Sequence[Rule], replicas: list[int]) -> bool:
    """Return whether no limit is exceeded; more replicas cannot undo an exceeded limit."""
    context = question.rule_context(replicas)
    return not any(
        rule.domain_cap(context) is not None and rule.violations(context) for rule in rules
    )


def _search_rank(
    question: FeasibilityQuery,
    rules: Sequence[Rule],
    classes: Sequence[Sequence[int]],
    state: Sequence[int],
) -> tuple[int, ...]:
    """Rank a state for the search: the fewer replicas share a domain, the sooner."""
    replicas = np.asarray(_replicas(state, classes), np.int64)
    shared = []
    for scope in _scopes(rules):
        counts = np.unique(question.topology.domain_of(scope)[replicas], return_counts=True)[1]
        shared.append(int((counts**2).sum()))
    return tuple(shared)


def _colours(
    question: FeasibilityQuery,
    rules: Sequence[Rule],
    classes: Sequence[Sequence[int]],
    used: Sequence[int],
) -> list[int]:
    """Colour classes alike that are interchangeable: equal in size, use, and kind of domains.

    Colour refinement over classes and their domains; on nested domains it distinguishes exactly
    what is different. If rules see more than domains, or which domain it is, every class has its
    own colour.
    """
    if not RuleSet(rules).domains_interchangeable:
        return [hash((position, count)) for position, count in enumerate(used)]
    columns = [question.topology.domain_of(scope) for scope in _scopes(rules)]
    where = [[int(column[members[0]]) for column in columns] for members in classes]
    colours = [hash((len(m), u)) for m, u in zip(classes, used, strict=True)]
    apart = {NO_DOMAIN}
    if any(rule.leaves_out_unlocated for rule in rules):
        apart.add(question.topology.unlocated)
    for _ in range(2 * len(columns)):
        inside: dict[tuple[int, int], list[int]] = {}
        for colour, domains in zip(colours, where, strict=True):
            for depth, domain in enumerate(domains):
                inside.setdefault((depth, domain), []).append(colour)
        made = {
            place: hash((place[1] in apart, place[1] < 0, tuple(sorted(colours_in))))
            for place, colours_in in inside.items()
        }
        colours = [
            hash((colour, *(made[depth, domain] for depth, domain in enumerate(domains))))
            for colour, domains in zip(colours, where, strict=True)
        ]
    return colours


def _explain(question: FeasibilityQuery, rule: Rule | None, required: Sequence[Rule]) -> Reason:
    """Explain what is missing, for the first rule that alone is impossible."""
    for each in (rule, *required) if rule else required:
        if each is not None and not _admits(question, [each]):
            return _explain_rule(question, each)
    names = ", ".join(f"'{each}'" for each in required)
    what = f"rule '{rule}' together with {names}" if rule else f"all of the rules {names}"
    message = f"no placement on the {int(question.allowed.sum())} usable nodes keeps {what}"
    return Reason(Code.NO_CANDIDATE, message, 1, 0)


def _explain_rule(question: FeasibilityQuery, rule: Rule) -> Reason:
    """Explain why one rule cannot be kept by itself."""
    topology, factor = question.topology, question.factor
    scope = rule.scope
    if scope is None:
        message = f"rule '{rule}': no placement on the usable nodes keeps it"
        return Reason(Code.NO_CANDIDATE, message, 1, 0)
    domains = topology.domain_of(scope)[question.allowed]
    names, sizes = np.unique(domains[domains != NO_DOMAIN], return_counts=True)
    if rule.leaves_out_unlocated and len(names) > 1:
        told = names != topology.unlocated
        names, sizes = names[told], sizes[told]
    seen, level = topology.names_for_reason(scope, names.tolist()), scope.level
    have = len(names)
    if isinstance(rule, AtLeastDomains):
        cap, need = factor, rule.count
    else:
        cap = _cap(rule, question, scope)
        need = ceil(factor / cap) if cap else factor
    if need > have or not cap:
        wanted = format_count(factor, "replica needs", "replicas need")
        message = (
            f"rule '{rule}': {wanted} {format_count(need, 'domain')}, {have} {are(have)} usable"
        )
        if not cap:
            message = f"rule '{rule}': no domain may hold any of {factor} replicas"
        return Reason(Code.DOMAINS_TOO_FEW, message, need, have, level, seen)
    share = factor // max(have, 1)
    small = names[sizes < min(cap, max(share, 1))] if isinstance(rule, Even) else names[sizes < cap]
    listed = ", ".join(topology.domain_names(scope, small.tolist()))
    message = f"rule '{rule}': {listed or 'the domains'} have too few usable nodes for their share"
    return Reason(
        Code.DOMAIN_TOO_SMALL, message, factor, int(np.minimum(sizes, cap).sum()), level, seen
    )


def _cap(rule: Rule, question: FeasibilityQuery, scope: Scope) -> int:
    """Find the most replicas that the rule lets one domain hold, by trying the fullest domain.

    Of equally full domains the first by name: the numbers of domains and nodes depend on their
    history.
    """
    if isinstance(rule, Even):
        live = live_domains(rule, question.rule_context(()))
        return ceil(question.factor / max(len(live), 1))
    topology = question.topology
    domains, rank = topology.domain_of(scope), topology.order()
    usable = np.flatnonzero(question.allowed & (domains != NO_DOMAIN))
    if not len(usable):
        return question.factor
    counts = np.bincount(domains[usable])
    full = np.flatnonzero(counts == counts.max()).tolist()
    fullest = min(full, key=lambda domain: topology.domain_name(scope, domain))
    members = sorted(usable[domains[usable] == fullest].tolist(), key=lambda node: int(rank[node]))
    members = members[: question.factor]
    held = range(len(members), 0, -1)
    return next((n for n in held if not rule.violations(question.rule_context(members[:n]))), 0)
