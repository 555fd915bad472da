"""Puts actions and messages of the bridge into sentences for people: one line of a log each."""

from collections.abc import Collection, Iterable

from schemas.acks import MoveMessage, MoveProgressed, ReplicaLost, ReplicasObserved
from schemas.base import Message
from schemas.inputs import NodeLivenessReported, NodeLoadReported, NodeRegistered, NodeUnregistered
from streaming.kafka_bridge.actions import Action, ChangeEntries, Elect, Reassign, SetRates

# A line of a log.
_NAMED_MAX = 5


def describe_action(action: Action) -> str:
    """Describe what an action does, in the infinitive: `reassign 2 partitions: …`."""
    match action:
        case SetRates():
            set_ = [each for each, rates in action.rates.items() if any(rates.values())]
            verb = "set the throttle rates of" if set_ else "take back the throttle rates of"
            return f"{verb} {_count(action.rates, 'broker')}: {_names(sorted(action.rates))}"
        case ChangeEntries():
            adds = any(added for by in action.entries.values() for added, _ in by.values())
            verb = "throttle replicas of" if adds else "take back the throttled replicas of"
            return f"{verb} {_count(action.entries, 'topic')}: {_names(sorted(action.entries))}"
        case Reassign():
            lists = [
                f"{topic}-{number} to {','.join(map(str, to))}"
                for (topic, number), to in sorted(action.targets.items())
                if to is not None
            ]
            cancelled = [f"{t}-{n}" for (t, n), to in sorted(action.targets.items()) if to is None]
            parts = []
            if lists:
                parts.append(f"reassign {_count(lists, 'partition')}: {_names(lists)}")
            if cancelled:
                parts.append(
                    f"cancel the reassignment of {_count(cancelled, 'partition')}: "
                    f"{_names(cancelled)}"
                )
            return "; ".join(parts)
        case Elect():
            names = [f"{topic}-{number}" for topic, number in sorted(action.partitions)]
            return f"elect the preferred leader of {_count(names, 'partition')}: {_names(names)}"


def describe_message(message: Message) -> str:
    """Describe a message: its name, and what it is about."""
    name = type(message).__name__
    match message:
        case NodeLivenessReported():
            return f"{name}: broker {message.node_id} is {message.status}"
        case NodeRegistered():
            place = f" at {message.location}" if message.location else ""
            return f"{name}: broker {message.node_id}{place}"
        case NodeUnregistered():
            return f"{name}: broker {message.node_id}"
        case MoveProgressed():
            copied = f"{message.bytes_done} of {message.bytes_total} bytes"
            return f"{name}: move {message.move_id} of {message.stream}-{message.shard}, {copied}"
        case ReplicaLost():
            where = f"{message.stream}-{message.shard} on broker {message.node_id}"
            return f"{name}: {where} ({message.reason})"
        case MoveMessage():
            why = f" ({message.reason})" if message.reason else ""
            return f"{name}: move {message.move_id} of {message.stream}-{message.shard}{why}"
        case NodeLoadReported():
            return f"{name}: broker {message.node_id}, {_count(message.shards, 'replica')}"
        case ReplicasObserved():
            where = ", ".join(message.replicas) or "no broker"
            behind = [each for each in message.replicas if each not in (message.in_sync or ())]
            lag = f", out of sync on {', '.join(behind)}" if behind else ""
            return f"{name}: {message.stream}-{message.shard} has replicas on {where}{lag}"
        case _:
            return f"{name}: {message.record_key()}"


def _count(things: Collection[object], noun: str) -> str:
    return f"1 {noun}" if len(things) == 1 else f"{len(things)} {noun}s"


def _names(things: Iterable[object]) -> str:
    named = [str(each) for each in things]
    more = ["…"] if len(named) > _NAMED_MAX else []
    return ", ".join([*named[:_NAMED_MAX], *more])
