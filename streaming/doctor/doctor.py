"""`placer doctor`: runs all checks of the surroundings in order.

Each check says ok, warn or fail, what it saw, and exactly what to do. Nothing is changed but by
`mend`, which does what cannot hurt: it fetches jars, creates missing topics and mends settings. The
application may be running meanwhile; nothing here fences it.
"""

from collections.abc import Callable, Iterator

from streaming.administration import apply_topics
from streaming.doctor import kafka_checks, machine_checks, state_checks
from streaming.doctor.findings import Finding, Health, Symptom
from streaming.errors import BrokerUnreachable, StreamingError
from streaming.runtime import ensure_jars
from streaming.settings import Settings

Check = Callable[[Settings], str | Symptom]

_MACHINE: tuple[tuple[str, Check], ...] = (
    ("packages", machine_checks.packages),
    ("java", machine_checks.runtime),
    ("jars", machine_checks.pinned_jars),
    ("checkpoint", machine_checks.checkpoint),
)
_BROKER: tuple[tuple[str, Check], ...] = (
    ("broker", kafka_checks.broker),
    ("topics", kafka_checks.topics),
    ("authorisation", kafka_checks.authorisation),
    ("transactions", kafka_checks.transactions),
    ("hanging transactions", kafka_checks.hanging),
    ("clock", kafka_checks.clock),
    ("input retention", state_checks.retention),
    ("rebuild", state_checks.rebuilt),
)
# Without these the checks behind them have nothing to look at.
_NEEDED = frozenset({"broker", "topics"})


def examine(settings: Settings) -> Iterator[Finding]:
    """The findings of all checks, one by one in their order."""
    missing = ""
    for name, check in (*_MACHINE, *_BROKER):
        if missing and (name, check) in _BROKER:
            yield Finding(name, Health.SKIPPED, f"not looked at: {missing} failed")
            continue
        found = _checked(name, check, settings)
        if found.health is Health.FAIL and name in _NEEDED:
            missing = name
        yield found


def mend(settings: Settings) -> list[str]:
    """Do the safe things; says what was done, or why it could not be."""
    done = []
    for name, act in (("jars", _fetch), ("topics", _apply)):
        try:
            done += [f"{name}: {each}" for each in act(settings)]
        except StreamingError as error:
            done.append(f"{name}: {error}")
    return done


def _checked(name: str, check: Check, settings: Settings) -> Finding:
    try:
        answer = check(settings)
    except BrokerUnreachable as error:
        answer = Symptom(str(error), "start the broker, or correct kafka.bootstrap_servers")
    except StreamingError as error:
        answer = Symptom(str(error), "see the message")
    if isinstance(answer, Symptom):
        return Finding(name, answer.health, answer.said, answer.action)
    return Finding(name, Health.OK, answer)


def _fetch(_: Settings) -> Iterator[str]:
    if isinstance(machine_checks.pinned_jars(_), Symptom):
        for name in machine_checks.JAR_SETS:
            yield f"{len(ensure_jars(name))} of {name} are there"


def _apply(settings: Settings) -> Iterator[str]:
    changes = apply_topics(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        settings.topics.replication_factor,
        options=settings.resolved_kafka_options(),
    )
    yield from (f"{c.topic}: {c.action} {c.detail}" for c in changes if c.action != "ok")
