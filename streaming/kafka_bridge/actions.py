"""Changes of a cluster as values, and the one place that carries them out in their order.

Copies start only where their throttles could be set; what a failure leaves undone is derived again
from the next look.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from streaming.errors import AccessRefused, BrokerUnreachable
from streaming.kafka_bridge.admin_client import ClusterAdmin, PartitionId
from streaming.kafka_bridge.pacing import Entries, Rates


@dataclass(frozen=True, slots=True)
class SetRates:
    """Set or remove throttle rates of brokers. `guards`: copies need it."""

    rates: Rates
    guards: bool = True


@dataclass(frozen=True, slots=True)
class ChangeEntries:
    """Add or remove throttled replicas of topics. `guards`: copies need it."""

    entries: Entries
    guards: bool = True


@dataclass(frozen=True, slots=True)
class Reassign:
    """Ask for lists of replicas; None cancels the reassignment that runs."""

    targets: Mapping[PartitionId, Sequence[int] | None]


@dataclass(frozen=True, slots=True)
class Elect:
    """Let the preferred leaders lead."""

    partitions: Collection[PartitionId]


Action = SetRates | ChangeEntries | Reassign | Elect


@dataclass(slots=True)
class Carried:
    """How the actions went. `refused`: Kafka's error by partition, of reassignments; `failures`:
    sentences for people; `unguarded`: a throttle could not be set, so no copy was started."""

    refused: dict[PartitionId, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    unguarded: bool = False


def carry_out(actions: Sequence[Action], admin: ClusterAdmin) -> Carried:
    """Carry out actions in their order; an error of Kafka ends up in the answer.

    After a call that fails as a whole nothing more is tried.
    """
    carried = Carried()
    for action in actions:
        try:
            _carry_out(action, admin, carried)
        except (BrokerUnreachable, AccessRefused) as error:
            carried.failures.append(str(error))
            break
    return carried


def _carry_out(action: Action, admin: ClusterAdmin, carried: Carried) -> None:
    match action:
        case SetRates():
            answers = admin.alter_broker_rates(action.rates)
            failed = [f"broker {broker}: {said}" for broker, said in answers.items() if said]
            _note_throttle_failures(failed, action.guards, carried)
        case ChangeEntries():
            changed = admin.alter_topic_entries(action.entries)
            failed = [f"topic {topic}: {said}" for topic, said in changed.items() if said]
            _note_throttle_failures(failed, action.guards, carried)
        case Reassign():
            _reassign(action, admin, carried)
        case Elect():
            elected = admin.elect_preferred(action.partitions)
            carried.failures += [
                f"leader of {topic}-{number} was not elected: {said}"
                for (topic, number), said in elected.items()
                if said
            ]


def _note_throttle_failures(failed: Sequence[str], guards: bool, carried: Carried) -> None:
    carried.failures += [f"throttle was not changed, {each}" for each in failed]
    carried.unguarded |= guards and bool(failed)


def _reassign(action: Reassign, admin: ClusterAdmin, carried: Carried) -> None:
    # What ends copies needs no throttle.
    targets = {
        key: target
        for key, target in action.targets.items()
        if target is None or not carried.unguarded
    }
    if not targets:
        return
    for key, said in admin.alter_reassignments(targets).items():
        if said is not None:
            carried.refused[key] = said
            carried.failures.append(f"{key[0]}-{key[1]} is not reassigned: {said}")
