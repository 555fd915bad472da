"""Says which replication throttles a wave of reassignments needs, and which are to be taken back.

Kafka throttles by a rate on each broker and a list of replicas on each topic (KIP-73). Whoever sets
some has to know afterwards which were its own: a setting that was there before is left as it is.
Only live brokers are given a rate: each sets its own, and a dead one fails the whole request.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streaming.kafka_bridge.admin_client import (
    FOLLOWER_ENTRIES,
    FOLLOWER_RATE,
    LEADER_ENTRIES,
    LEADER_RATE,
    PartitionId,
)
from streaming.kafka_bridge.snapshot import Snapshot, Throttles

_EVERY_REPLICA = "*"


@dataclass(frozen=True, slots=True)
class Copying:
    """A partition that is to be copied: from its `sources` (replicas there are) to `targets`."""

    key: PartitionId
    sources: tuple[int, ...]
    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OwnThrottles:
    """Throttles of ours: rates in bytes a second by broker and configuration, and entries
    `partition:broker` by topic and configuration."""

    rates: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    entries: Mapping[str, Mapping[str, frozenset[str]]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.rates or self.entries)


def find_throttles(
    copied: Iterable[Copying], snapshot: Snapshot, own: OwnThrottles, rate: int
) -> OwnThrottles:
    """Find the throttles that are ours once `copied` runs throttled: those in `own`, and those that
    nobody has set. Rates and entries of others are kept and serve for our copies, too."""
    entries = {topic: dict(configs) for topic, configs in own.entries.items()}
    rates = {broker: dict(configs) for broker, configs in own.rates.items()}
    live = snapshot.live()
    for each in copied:
        topic, number = each.key
        for config, brokers in ((LEADER_ENTRIES, each.sources), (FOLLOWER_ENTRIES, each.targets)):
            there = entries_of(snapshot.throttles, config).get(topic, frozenset())
            wanted = {f"{number}:{broker}" for broker in brokers}
            if _EVERY_REPLICA not in there and wanted - there:
                ours = entries.setdefault(topic, {})
                ours[config] = ours.get(config, frozenset()) | (wanted - there)
        for config, brokers in ((LEADER_RATE, each.sources), (FOLLOWER_RATE, each.targets)):
            unset = live - rates_of(snapshot.throttles, config).keys()
            for broker in {*brokers} & unset:
                rates.setdefault(broker, {}).setdefault(config, rate)
    return OwnThrottles(rates, entries)


def find_missing(own: OwnThrottles, snapshot: Snapshot) -> OwnThrottles:
    """Find those of our throttles that are not set, on live brokers and topics that exist."""
    rates = {
        broker: {c: r for c, r in configs.items() if broker not in rates_of(snapshot.throttles, c)}
        for broker, configs in own.rates.items()
        if snapshot.is_live(broker)
    }
    entries = {
        topic: {
            config: ours - entries_of(snapshot.throttles, config).get(topic, frozenset())
            for config, ours in configs.items()
        }
        for topic, configs in own.entries.items()
        if topic in snapshot.topics
    }
    return _without_empty(rates, entries)


def find_removable(own: OwnThrottles, snapshot: Snapshot) -> OwnThrottles:
    """Find those of our throttles that are still set as we set them and can be taken back now."""
    rates = {
        broker: {
            config: rate
            for config, rate in configs.items()
            if rates_of(snapshot.throttles, config).get(broker) == rate
        }
        for broker, configs in own.rates.items()
    }
    entries = {
        topic: {
            config: ours & entries_of(snapshot.throttles, config).get(topic, frozenset())
            for config, ours in configs.items()
        }
        for topic, configs in own.entries.items()
        if topic in snapshot.topics
    }
    return _without_empty(rates, entries)


def find_unreachable(own: OwnThrottles, snapshot: Snapshot) -> OwnThrottles:
    """Find the rates of ours on brokers that are registered and not live: they stay set until the
    broker is back, since it alone takes them away."""
    fenced = snapshot.brokers.keys() - snapshot.live()
    return OwnThrottles({b: configs for b, configs in own.rates.items() if b in fenced})


def _without_empty(
    rates: Mapping[int, Mapping[str, int]],
    entries: Mapping[str, Mapping[str, frozenset[str]]],
) -> OwnThrottles:
    kept = {t: {c: own for c, own in configs.items() if own} for t, configs in entries.items()}
    return OwnThrottles(
        {broker: configs for broker, configs in rates.items() if configs},
        {topic: configs for topic, configs in kept.items() if configs},
    )


def rates_of(throttles: Throttles, config: str) -> Mapping[int, int]:
    """Return the rates that a broker's configuration sets now, in bytes a second by broker."""
    return throttles.leader_rates if config == LEADER_RATE else throttles.follower_rates


def entries_of(throttles: Throttles, config: str) -> Mapping[str, frozenset[str]]:
    """Return the replicas that a topic's configuration throttles now, by topic."""
    return throttles.leader_entries if config == LEADER_ENTRIES else throttles.follower_entries
