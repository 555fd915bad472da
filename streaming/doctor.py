"""`placer doctor`: is everything there that the application needs, and does it work?

Each check says ok, warn or fail, what it saw, and exactly what to do. Nothing is changed but by
`mend`, which does what cannot hurt: it fetches jars, creates missing topics and mends settings. The
application may be running meanwhile; nothing here fences it.
"""

from collections.abc import Callable, Iterator

from streaming import doctor_kafka, doctor_machine, doctor_state
from streaming.admin import apply_topics
from streaming.errors import BrokerUnreachable, StreamingError
from streaming.jars import ensure
from streaming.settings import Settings
from streaming.symptoms import Finding, Health, Symptom

Check = Callable[[Settings], str | Symptom]

_MACHINE: tuple[tuple[str, Check], ...] = (
    ("packages", doctor_machine.packages),
    ("java", doctor_machine.runtime),
    ("jars", doctor_machine.pinned_jars),
    ("checkpoint", doctor_machine.checkpoint),
)
_BROKER: tuple[tuple[str, Check], ...] = (
    ("broker", doctor_kafka.broker),
    ("topics", doctor_kafka.topics),
    ("authorisation", doctor_kafka.authorisation),
    ("transactions", doctor_kafka.transactions),
    ("hanging transactions", doctor_kafka.hanging),
    ("clock", doctor_kafka.clock),
    ("input retention", doctor_state.retention),
    ("rebuild", doctor_state.rebuilt),
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
    if isinstance(doctor_machine.pinned_jars(_), Symptom):
        for name in doctor_machine.JAR_SETS:
            yield f"{len(ensure(name))} of {name} are there"


def _apply(settings: Settings) -> Iterator[str]:
    changes = apply_topics(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        settings.topics.replication_factor,
        options=settings.resolved_kafka_options(),
    )
    yield from (f"{c.topic}: {c.action} {c.detail}" for c in changes if c.action != "ok")
