"""Decides stream events: checks the request, compiles its policy, places, names the outcome."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from placement.allocator import Placement, View, find_unmet
from placement.assignments import EMPTY
from placement.model import (
    Adoption,
    Band,
    Code,
    Decision,
    Outcome,
    Reason,
    RepairMode,
    StreamAltered,
    StreamRequested,
    StreamSpec,
)
from placement.policy import OnInfeasible, Policy, find_contradiction, parse_placement_policies
from placement.rebalance import even_out_stream
from placement.rules import (
    FeasibilityQuery,
    Rule,
    RuleContext,
    RuleSet,
    Strength,
    find_breaches,
    why_not,
)
from placement.state import ClusterState, Stream
from placement.strategies import STRATEGIES
from placement.streams.adoption import adopt, complete_shards
from placement.topology import Topology

# One typing error must not fan out into millions of records: Kafka's own controller refuses at
# 10,000 partitions per request, and no system in the sources keeps more than 64 copies.
REPLICATION_FACTOR_MAX = 64
SHARDS_MAX = 10_000
REPLICAS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Answer:
    """Holds the outcome of placing a stream.

    `shards`: node indexes by shard and slot, EMPTY where there is none. `reasons`: why replicas are
    missing, or why the request is refused.
    """

    outcome: Outcome
    shards: Sequence[Sequence[int]] = ()
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()

    @property
    def replicas_missing(self) -> int:
        """Count the replicas that found no node."""
        return sum(list(nodes).count(EMPTY) for nodes in self.shards)

    @property
    def shards_placed(self) -> int:
        """Count the shards with all their replicas."""
        return sum(EMPTY not in nodes for nodes in self.shards)


def decide(
    state: ClusterState, event: StreamRequested, known: Stream | None
) -> tuple[Decision, Policy | None, Sequence[Sequence[int]] | None]:
    """Decide a stream that has no replicas yet.

    Returns the decision; the compiled policy, None for a rejected request; and the nodes by shard
    and slot, None where nothing is placed.
    """
    policy, spec = compile_request(state, event), spec_of(state, event)
    if isinstance(policy, Reason):
        answer, compiled, strategy = Answer(Outcome.REJECTED, reasons=(policy,)), None, ""
    else:
        awaits = spec.adopt == Adoption.OBSERVED
        given = event.replicas
        answer = await_lists(state, spec, policy) if awaits else place(state, spec, policy, given)
        compiled, strategy = policy, policy.strategy
    rejected = answer.outcome is Outcome.REJECTED
    decision = Decision(
        stream=event.stream,
        sequence=event.sequence,
        revision=known.decision.revision + 1 if known else 1,
        outcome=answer.outcome,
        spec=spec,
        body_hash=event.body_hash,
        strategy=strategy,
        shards_placed=answer.shards_placed,
        replicas_missing=answer.replicas_missing,
        reasons=answer.reasons,
        warnings=answer.warnings,
        decided_at=state.now,
    )
    unplaced = rejected or answer.outcome is Outcome.WAITING
    return decision, None if rejected else compiled, None if unplaced else answer.shards


def compile_request(state: ClusterState, event: StreamRequested) -> Policy | Reason:
    """Compile the policy of a request, or return why the request is wrong."""
    policy = (
        check_counts(event.shards, event.replication_factor, event.quorum)
        or _check_labels(event)
        or check_repair_mode(event.repair)
        or state.streams.compile(event.placement_policies, event.policy)
    )
    if isinstance(policy, Reason):
        return policy
    rules = STRATEGIES[policy.strategy].rules(policy, state.topology)
    return find_contradiction(policy, rules, policy.copies(event.replication_factor)) or policy


def await_lists(state: ClusterState, spec: StreamSpec, policy: Policy) -> Answer:
    """Accept a stream whose replicas are to be observed; nothing of it is placed before that."""
    wrong = STRATEGIES[policy.strategy].find_fault(spec, policy, state.topology)
    if wrong:
        return Answer(Outcome.REJECTED, reasons=(wrong,))
    return Answer(Outcome.PARTIAL, reasons=(why_awaited(spec, spec.shards),))


def why_awaited(spec: StreamSpec, awaited: int) -> Reason:
    """Say how many shards of a stream that is being adopted have not been observed yet."""
    message = (
        f"the replicas of {awaited} of {spec.shards} shards of '{spec.stream}' are not observed yet"
    )
    return Reason(Code.REPLICAS_AWAITED, message, spec.shards, spec.shards - awaited)


def place(
    state: ClusterState,
    spec: StreamSpec,
    policy: Policy,
    given: Sequence[Sequence[str]] | None = None,
) -> Answer:
    """Place the stream, or adopt the given replicas, and name the outcome.

    `given`: node ids by shard, leader first. The outcomes are the columns of the table in
    `placement/policy/README.md`.
    """
    view = state.view()
    loads = state.loads.of_new_shards(spec)
    if RuleSet(STRATEGIES[policy.strategy].rules(policy, state.topology)).is_colocated:
        # A node takes one replica of every shard: their mean, rounded up, tells what it needs.
        loads = -(-loads.sum(axis=1, keepdims=True) // loads.shape[1])
    view.bear_each(loads)
    return place_in(view, spec, policy, given)


def place_in(
    view: View,
    spec: StreamSpec,
    policy: Policy,
    given: Sequence[Sequence[str]] | None = None,
) -> Answer:
    """Place a stream among the replicas that a view counts; see `place`."""
    topology, strategy, before = view.topology, STRATEGIES[policy.strategy], view.fork()
    wrong = strategy.find_fault(spec, policy, topology)
    if wrong:
        return Answer(Outcome.REJECTED, reasons=(wrong,))
    placed = _place_new(spec, policy, view) if given is None else adopt(spec, policy, given, view)
    if isinstance(placed, Reason) and _is_refusal(placed):
        return Answer(Outcome.REJECTED, reasons=(placed,))
    soft = policy.strength is Strength.PREFERRED
    if isinstance(placed, Reason):
        fills = policy.on_infeasible in (OnInfeasible.PARTIAL, OnInfeasible.DEGRADE)
        placed = _fill_empty_slots(placed, fills, spec, policy, before)
    elif given is None and soft and _count_missing(placed.shards):
        placed = _fill_empty_slots(placed, True, spec, policy, view)
    answer = outcome_of(placed, policy, topology, bool(given and any(given)))
    if answer.outcome in (Outcome.REJECTED, Outcome.WAITING):
        return answer
    advice = strategy.advice(spec, policy, topology)
    return replace(answer, warnings=(*answer.warnings, *advice)) if advice else answer


def _is_refusal(reason: Reason) -> bool:
    """Return whether the reason refuses the request itself.

    A domain without nodes is a shortage: nodes may come, and `on_infeasible` decides about the
    stream until then.
    """
    return reason.band is Band.CONFIG and reason.code is not Code.DOMAIN_UNKNOWN


def _warn_of_barred_leaders(placed: Placement, topology: Topology) -> Placement:
    """Add a warning for shards none of whose nodes may lead."""
    if topology.can_lead.all():
        return placed
    barred = [
        shard
        for shard, nodes in enumerate(placed.shards)
        if nodes and nodes[0] != EMPTY and not topology.can_lead[nodes[0]]
    ]
    if not barred:
        return placed
    named = ", ".join(map(str, barred[:10])) + (", …" if len(barred) > 10 else "")
    message = f"the first replica may not lead in {len(barred)} shards: {named}"
    warning = Reason(
        Code.LEADER_NOT_ALLOWED, message, len(placed.shards), len(placed.shards) - len(barred)
    )
    return replace(placed, warnings=(*placed.warnings, warning))


def outcome_of(placed: Placement, policy: Policy, topology: Topology, adopted: bool) -> Answer:
    """Name the outcome of a placement, in which replicas may be missing.

    `adopted`: the stream brought replicas, so it never waits as a whole.
    """
    placed = _warn_of_barred_leaders(placed, topology)
    missing = _count_missing(placed.shards)
    if not missing:
        outcome = Outcome.DEGRADED if placed.warnings else Outcome.PLACED
        return Answer(outcome, placed.shards, placed.reasons, placed.warnings)
    mode = policy.on_infeasible
    mode = policy.on_shortage if mode is OnInfeasible.DEGRADE else mode
    if mode is OnInfeasible.REJECT:
        return Answer(Outcome.REJECTED, reasons=placed.reasons)
    if missing == sum(map(len, placed.shards)) or (mode is OnInfeasible.WAIT and not adopted):
        nothing = [[EMPTY] * len(nodes) for nodes in placed.shards]
        return Answer(Outcome.WAITING, nothing, placed.reasons)
    return Answer(Outcome.PARTIAL, placed.shards, placed.reasons, placed.warnings)


def _place_new(spec: StreamSpec, policy: Policy, view: View) -> Placement | Reason:
    """Place with the strategy, and even out the result."""
    placed = STRATEGIES[policy.strategy].place(spec, policy, view)
    placed = _check_required_rules(placed, spec, policy, view)
    return placed if isinstance(placed, Reason) else even_out_stream(placed, spec, policy, view)


def _check_required_rules(
    placed: Placement | Reason, spec: StreamSpec, policy: Policy, view: View
) -> Placement | Reason:
    """Return the strategy's answer unless a whole shard of it breaks a required rule."""
    if isinstance(placed, Reason):
        return placed
    topology, rules = view.topology, STRATEGIES[policy.strategy].rules(policy, view.topology)
    whole = [nodes for nodes in placed.shards if EMPTY not in nodes]
    if len(whole) < spec.shards:
        rules = tuple(rule for rule in rules if not rule.needs_whole_stream)
    everywhere = policy.rule_context(spec, topology, view.load)
    for rule, broken, first in find_breaches(rules, Strength.REQUIRED, whole, everywhere):
        where = f" in {first.domain}" if first.domain else ""
        message = f"{len(broken)} of {spec.shards} shards cannot keep the required rule '{rule}': "
        message += f"{first.count} replicas{where}, limit {first.limit}"
        level, seen = everywhere.level_and_domains(rule)
        reason = Reason(Code.NO_CANDIDATE, message, first.limit, first.count, level, seen)
        return _why_lacking(rule, rules, everywhere) or reason
    return placed


def _why_lacking(rule: Rule, rules: Sequence[Rule], everywhere: RuleContext) -> Reason | None:
    """Find what the fleet lacks for a shard to keep the rule; None: nothing."""
    required = tuple(
        each for each in rules if each.strength is Strength.REQUIRED and not each.needs_whole_stream
    )
    if rule not in required:
        return None
    topology, nodes = everywhere.topology, everywhere.nodes
    allowed = topology.eligible & nodes.mask(topology)
    factor = everywhere.replication_factor
    return why_not(FeasibilityQuery(topology, factor, nodes, required, allowed), rule)


def _fill_empty_slots(
    placed: Placement | Reason, fills: bool, spec: StreamSpec, policy: Policy, view: View
) -> Placement:
    """Fill the empty slots as far as breakable rules allow.

    If `fills` and no slot stays empty, the reason why the strategy did not fill them is a warning.
    """
    if isinstance(placed, Reason):
        factor = policy.copies(spec.replication_factor)
        placed = Placement([[EMPTY] * factor for _ in range(spec.shards)], (placed,))
    shards = [list(nodes) for nodes in placed.shards]
    reasons = complete_shards(spec, policy, shards, view) if fills else ()
    rules = STRATEGIES[policy.strategy].rules(policy, view.topology)
    warnings = find_unmet(rules, shards, spec, policy, view.topology)
    if _count_missing(shards):
        return Placement(shards, placed.reasons or reasons, warnings)
    known = {reason.message for reason in warnings}
    given = (*placed.reasons, *placed.warnings)
    kept = tuple(reason for reason in given if reason.message not in known)
    return Placement(shards, (), (*kept, *warnings))


def _count_missing(shards: Sequence[Sequence[int]]) -> int:
    """Count the empty slots."""
    return sum(list(nodes).count(EMPTY) for nodes in shards)


def check_counts(shards: int, factor: int, quorum: str | int | None) -> Reason | None:
    """Return why the numbers of a request are out of range, or None."""
    if not 1 <= factor <= REPLICATION_FACTOR_MAX:
        message = f"replication_factor is {factor}, expected 1 to {REPLICATION_FACTOR_MAX}"
        return Reason(Code.REPLICATION_FACTOR_OUT_OF_RANGE, message)
    if not 1 <= shards <= SHARDS_MAX:
        return Reason(Code.SHARDS_OUT_OF_RANGE, f"shards is {shards}, expected 1 to {SHARDS_MAX}")
    if shards * factor > REPLICAS_MAX:
        message = f"{shards} shards of {factor} replicas are {shards * factor} replicas"
        return Reason(Code.REPLICAS_OUT_OF_RANGE, f"{message}, at most {REPLICAS_MAX} are allowed")
    if isinstance(quorum, int) and not 1 <= quorum <= factor:
        message = f"quorum is {quorum}, expected 1 to the replication factor {factor}"
        return Reason(Code.QUORUM_OUT_OF_RANGE, message)
    if isinstance(quorum, str) and quorum not in ("majority", "one"):
        message = f"quorum '{quorum}' is not majority, one or a number"
        return Reason(Code.QUORUM_OUT_OF_RANGE, message)
    return None


def _check_labels(event: StreamRequested) -> Reason | None:
    """Return why the range labels are not one for each shard, or None."""
    if event.ranges is None or len(event.ranges) == event.shards:
        return None
    have = len(event.ranges)
    message = f"ranges lists {have} labels, the stream has {event.shards} shards"
    return Reason(Code.SHARDS_OUT_OF_RANGE, message, event.shards, have)


def check_repair_mode(mode: str | None) -> Reason | None:
    """Return why the value of `repair` is unknown, or None."""
    if mode is None or mode in tuple(RepairMode):
        return None
    known = ", ".join(RepairMode)
    message = f"repair: unknown value '{mode}'; known are {known}"
    return Reason(Code.POLICY_UNKNOWN_VALUE, message)


def spec_of(state: ClusterState, event: StreamRequested) -> StreamSpec:
    """Make the spec of a request, with its defaults filled in.

    The Timeplus string of `placement_policies` is kept in compact form.
    """
    known, policies = state.streams.get(event.stream), event.placement_policies
    # What an alteration keeps of the creation.
    created = known.spec if known is not None and isinstance(event, StreamAltered) else None
    if policies is not None:
        parsed = parse_placement_policies(policies)
        policies = policies if isinstance(parsed, Reason) else parsed.compact()
        policy = {"strategy": "affinity"} if event.policy is None else event.policy
    else:
        policy = state.configuration.default_policy if event.policy is None else event.policy
    return StreamSpec(
        stream=event.stream,
        shards=event.shards,
        replication_factor=event.replication_factor,
        policy=dict(policy),
        placement_policies=policies,
        quorum="majority" if event.quorum is None else event.quorum,
        shard_tokens=event.shard_tokens,
        dimension=event.dimension,
        ranges=event.ranges,
        repair=event.repair,
        uid=event.uid if created is None else created.uid,
        adopt=event.adopt if created is None else created.adopt,
        expected_load=event.expected_load,
    )
