"""`placer doctor` on the state: whether a restart could rebuild it, and has time enough."""

import time
from typing import Any

from placement.wording import format_count
from schemas.topics import BY_NAME, COMMITS, full_name
from streaming.brokers import CommittedReader
from streaming.doctor.findings import CheckFailure, CheckStatus
from streaming.recovery import UPGRADE, Gap, NoSnapshot, StateTooNew, take_snapshot
from streaming.settings import Settings, core_configuration

# With less than half of the retention left an outage of as long again would lose input.
LAG_SHARE_MAX = 0.5
# The oldest record that is not applied is there at once, if there is one.
POLL_SECONDS = 0.5
# Compacted topics keep the last of each key.
_FOR_EVER_MS = 2**63


def check_retention(settings: Settings) -> str | CheckFailure:
    """Compare the age of input that is not applied yet with the topics' retention."""
    prefix, options = settings.topics.prefix, settings.resolved_kafka_options()
    bootstrap = settings.kafka.bootstrap_servers
    marker = _marker(settings)
    if marker is None:
        return "no input was applied yet"
    worst, where = 0.0, ""
    for topic, places in marker["positions"].items():
        positions = {topic: {int(p): offset for p, offset in places.items()}}
        with CommittedReader(
            bootstrap, prefix, [topic], positions=positions, options=options
        ) as reader:
            bounds = reader.bounds(topic)
            record = next(iter(reader.poll(POLL_SECONDS)), None)
        for partition, offset in positions[topic].items():
            first, end = bounds.get(partition, (0, 0))
            if not first <= offset <= end:
                gap = Gap(full_name(topic, prefix), partition, offset, first, end)
                return CheckFailure(
                    str(gap),
                    "start with: placer run --accept-gap; its log names the lost offsets",
                )
        if record is None:
            continue
        kept_ms = int(BY_NAME[topic].configs.get("retention.ms", _FOR_EVER_MS))
        share = (time.time() * 1000 - record.timestamp_ms) / kept_ms
        if share > worst:
            worst, where = share, full_name(topic, prefix)
    if worst > LAG_SHARE_MAX:
        return CheckFailure(
            f"the oldest input of {where} that is not applied is {worst:.0%} of its "
            "retention old; at 100% it is lost",
            "start the application, or raise retention.ms of this topic",
            CheckStatus.WARN,
        )
    return f"the oldest input that is not applied is {worst:.1%} of its retention old"


def check_rebuild(settings: Settings) -> str | CheckFailure:
    """A rebuild as at a start, without fencing anyone, and its digest."""
    if _marker(settings) is None:
        return "no commit marker yet: the first start begins with an empty state"
    started = time.monotonic()
    try:
        taken = take_snapshot(
            settings.kafka.bootstrap_servers,
            settings.topics.prefix,
            core_configuration(settings),
            settings.resolved_kafka_options(),
        )
    except StateTooNew as error:
        return CheckFailure(f"a newer version of placer wrote the state: {error.found}", UPGRADE)
    except NoSnapshot as error:
        return CheckFailure(
            str(error),
            "see what differs: placer replay --from-topic --verify; it names topic and key",
        )
    return (
        f"{format_count(len(taken.records), 'record')} in {time.monotonic() - started:.1f} s, "
        f"sequence {taken.sequence}, digest {taken.digest}"
    )


def _marker(settings: Settings) -> dict[str, Any] | None:
    with CommittedReader(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        [COMMITS],
        options=settings.resolved_kafka_options(),
    ) as reader:
        markers = [r.value for r in reader.read_to_end() if r.key == settings.cell]
    return markers[-1] if markers else None
