"""The answer to a stream event: checks, compilation, placement, outcome with reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

from placement.adopt import adopt
from placement.assignments import EMPTY
from placement.model import Decision, Outcome, StreamCreated, StreamSpec
from placement.policy import OnInfeasible, Policy, parse_placement_policies
from placement.reasons import Band, Code, Reason
from placement.state import State, Stream
from placement.strategies import STRATEGIES
from placement.strategies.base import View

# One typing error must not fan out into millions of records: Kafka's own controller refuses at
# 10,000 partitions per request, and no system in the sources keeps more than 64 copies.
REPLICATION_FACTOR_MAX = 64
SHARDS_MAX = 10_000
REPLICAS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of placing a stream: nodes of every slot (EMPTY where none), and why."""

    outcome: Outcome
    shards: Sequence[Sequence[int]] = ()
    reasons: tuple[Reason, ...] = ()
    warnings: tuple[Reason, ...] = ()

    @property
    def replicas_missing(self) -> int:
        """Replicas that found no node."""
        return sum(list(nodes).count(EMPTY) for nodes in self.shards)

    @property
    def shards_placed(self) -> int:
        """Shards with all their replicas."""
        return sum(EMPTY not in nodes for nodes in self.shards)


def decide(
    state: State, event: StreamCreated, known: Stream | None
) -> tuple[Decision, Policy | None, Sequence[Sequence[int]] | None]:
    """Decide a stream creation: the record, the compiled policy, and the placement if any."""
    policy = out_of_range(event.shards, event.replication_factor, event.quorum) or state.compile(
        event.placement_policies, event.policy
    )
    spec = _spec(state, event)
    if isinstance(policy, Reason):
        answer, compiled, strategy = Answer(Outcome.REJECTED, reasons=(policy,)), None, ""
    else:
        answer = place(state, spec, policy, event.replicas)
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


def place(
    state: State,
    spec: StreamSpec,
    policy: Policy,
    given: Sequence[Sequence[str]] | None = None,
) -> Answer:
    """Ask the strategy, or adopt the given replicas, and name the outcome."""
    strategy = STRATEGIES[policy.strategy]
    view = View(state.topology, state.table)
    if given is None:
        placed = strategy.place(spec, policy, view)
    else:
        placed = adopt(spec, policy, given, view)
    if isinstance(placed, Reason):
        waits = (policy.on_infeasible or strategy.on_infeasible) is OnInfeasible.WAIT
        waits = waits and placed.band is not Band.CONFIG
        outcome = Outcome.WAITING if waits else Outcome.REJECTED
        return Answer(outcome, _unplaced(spec) if waits else (), (placed,))
    holds = sum(node != EMPTY for nodes in placed.shards for node in nodes)
    missing = spec.shards * spec.replication_factor - holds
    if not holds:
        return Answer(Outcome.WAITING, placed.shards, placed.reasons)
    if missing:
        outcome = Outcome.PARTIAL
    else:
        outcome = Outcome.DEGRADED if placed.warnings else Outcome.PLACED
    return Answer(outcome, placed.shards, placed.reasons, placed.warnings)


def _unplaced(spec: StreamSpec) -> list[list[int]]:
    return [[EMPTY] * spec.replication_factor] * spec.shards


def out_of_range(shards: int, factor: int, quorum: str | int | None) -> Reason | None:
    """Counts that no fleet could mean."""
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


def _spec(state: State, event: StreamCreated) -> StreamSpec:
    """The request with defaults filled in; the Timeplus string is echoed compacted."""
    policies = event.placement_policies
    if policies is not None:
        parsed = parse_placement_policies(policies)
        policies = policies if isinstance(parsed, Reason) else parsed.compacted()
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
    )
