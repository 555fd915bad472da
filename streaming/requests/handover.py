"""Asks the active reconciler to hand over to a standby, and waits until one has taken over."""

import time
from dataclasses import dataclass

from placement.wording import format_count
from schemas.inputs import STANDBY
from schemas.requests import Handover
from schemas.topics import COMMITS
from streaming.brokers import CommittedReader, parse_json_object
from streaming.errors import StreamingError
from streaming.presence import ProcessSeen, read_processes
from streaming.requests.operators import POLL_SECONDS, new_request_id, send_request_and_wait
from streaming.settings import Settings

# Every process of a cell ticks once a second or more often.
WATCH_SECONDS = 2.5


class HandoverRefused(StreamingError):
    """There is nobody to hand over to, or nobody has taken over."""


@dataclass(frozen=True, slots=True)
class HandoverDone:
    """Describes a handover: the writer epochs, the process that is active now, and the seconds
    between the last commit of one writer and the first of the other."""

    before: int
    after: int
    instance: str | None
    seconds: float


def hand_over(settings: Settings, reason: str | None, timeout_seconds: float) -> HandoverDone:
    """Hand over to whichever standby takes over first.

    Raises HandoverRefused, NoAnswer, BrokerUnreachable, TopicMissing.
    """
    options = settings.resolved_kafka_options()
    at = (settings.kafka.bootstrap_servers, settings.topics.prefix)
    with CommittedReader(*at, [COMMITS], options=options) as reader:
        value = reader.read_latest()[COMMITS].get(settings.cell.encode())
        marker = parse_json_object(value)
        if marker is None:
            raise HandoverRefused(f"no reconciler of cell '{settings.cell}' runs under {at[1]}")
        before = int(marker["writer_epoch"])
        now_ms = time.time_ns() // 1_000_000
        seen = read_processes(*at, options, before, now_ms, WATCH_SECONDS)
        _require_standby(seen, settings.cell)
        request = Handover(request_id=new_request_id(), target=settings.cell, reason=reason)
        answer = send_request_and_wait(settings, request, timeout_seconds)
        if answer["outcome"] != "accepted":
            raise HandoverRefused(answer["reason"]["message"])
        deadline = time.monotonic() + timeout_seconds
        last_ms = 0
        while time.monotonic() < deadline:
            for record in reader.poll(POLL_SECONDS):
                if record.key != settings.cell or record.value is None:
                    continue
                after = int(record.value["writer_epoch"])
                if after > before:
                    seconds = max(record.timestamp_ms - last_ms, 0) / 1000
                    return HandoverDone(before, after, record.value.get("instance"), seconds)
                last_ms = record.timestamp_ms
    raise HandoverRefused(
        f"the active one gave up its role, and nobody has taken over within {timeout_seconds:g} s; "
        "see: placer status"
    )


def _require_standby(processes: list[ProcessSeen], cell: str) -> None:
    standbys = [each for each in processes if each.role == STANDBY]
    if not standbys:
        raise HandoverRefused(
            f"cell '{cell}' has no standby ({format_count(len(processes), 'process')} seen): start "
            "one with: placer run --standby"
        )
    if all(each.proven is None for each in standbys):
        names = ", ".join(each.instance for each in standbys)
        raise HandoverRefused(
            f"no standby has proven the state yet ({names}): wait until placer status shows a "
            "commit for one of them"
        )
