"""`placer doctor`: runs all checks of the surroundings in order.

Each check says ok, warn or fail, what it saw, and exactly what to do. Nothing is changed but by
`mend`, which does what cannot hurt: it fetches jars, creates missing topics and mends settings. The
application may be running meanwhile; nothing here fences it.
"""

from collections.abc import Callable, Iterator

from streaming.administration import apply_topics
from streaming.doctor import kafka_checks, machine_checks, state_checks
from streaming.doctor.findings import CheckFailure, CheckStatus, DoctorResult
from streaming.errors import BrokerUnreachable, StreamingError
from streaming.runtime import ensure_jars
from streaming.settings import Settings

Check = Callable[[Settings], str | CheckFailure]

_MACHINE: tuple[tuple[str, Check], ...] = (
    ("packages", machine_checks.check_packages),
    ("java", machine_checks.check_java),
    ("jars", machine_checks.check_jars),
    ("checkpoint", machine_checks.check_checkpoint),
)
_BROKER: tuple[tuple[str, Check], ...] = (
    ("broker", kafka_checks.check_broker),
    ("topics", kafka_checks.check_topics),
    ("authorisation", kafka_checks.check_authorisation),
    ("transactions", kafka_checks.check_transactions),
    ("hanging transactions", kafka_checks.check_hanging_transactions),
    ("clock", kafka_checks.check_clock),
    ("input retention", state_checks.check_retention),
    ("rebuild", state_checks.check_rebuild),
)
# Without these the checks behind them have nothing to look at.
_NEEDED = frozenset({"broker", "topics"})


def run_checks(settings: Settings) -> Iterator[DoctorResult]:
    """The findings of all checks, one by one in their order."""
    missing = ""
    for name, check in (*_MACHINE, *_BROKER):
        if missing and (name, check) in _BROKER:
            yield DoctorResult(name, CheckStatus.SKIPPED, f"skipped: the check '{missing}' failed")
            continue
        found = _run_check(name, check, settings)
        if found.health is CheckStatus.FAIL and name in _NEEDED:
            missing = name
        yield found


def apply_fixes(settings: Settings) -> list[str]:
    """Do the safe things; says what was done, or why it could not be."""
    done = []
    for name, act in (("jars", _fetch), ("topics", _apply)):
        try:
            done += [f"{name}: {each}" for each in act(settings)]
        except StreamingError as error:
            done.append(f"{name}: {error}")
    return done


def _run_check(name: str, check: Check, settings: Settings) -> DoctorResult:
    try:
        answer = check(settings)
    except BrokerUnreachable as error:
        answer = CheckFailure(str(error), "start the broker, or correct kafka.bootstrap_servers")
    except StreamingError as error:
        answer = CheckFailure(str(error), "do what the finding says")
    if isinstance(answer, CheckFailure):
        return DoctorResult(name, answer.health, answer.said, answer.action)
    return DoctorResult(name, CheckStatus.OK, answer)


def _fetch(_: Settings) -> Iterator[str]:
    if isinstance(machine_checks.check_jars(_), CheckFailure):
        for name in machine_checks.JAR_SETS:
            yield f"{len(ensure_jars(name))} of {name} are in the cache"


def _apply(settings: Settings) -> Iterator[str]:
    changes = apply_topics(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        settings.topics.replication_factor,
        options=settings.resolved_kafka_options(),
    )
    yield from (f"{c.topic}: {c.action} {c.detail}" for c in changes if c.action != "ok")
