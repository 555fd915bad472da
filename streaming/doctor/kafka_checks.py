"""`placer doctor` at the brokers: reachability, topics, rights and transactions."""

import time

from placement.wording import format_count
from schemas.topics import CATALOGUE, NODES
from streaming.administration import connect_admin, diff_topics, find_missing_rights
from streaming.brokers import TRANSACTION_TIMEOUT_MS, CommittedReader
from streaming.doctor.findings import CheckFailure, CheckStatus
from streaming.outbox import OutboxFailed, try_transaction
from streaming.recovery import abort_command, open_transactions
from streaming.settings import Settings

# The oldest that transactions of Spark's and librdkafka's clients work with as tests show it is
# the embedded broker's 4.3; 4.0 brought the protocol they use.
VERSION_MIN = (4, 0)
# An open transaction that has not moved for so long is not just a batch being committed.
HANGING_SECONDS = 2.0
# Clocks of machines that synchronise agree far better than this.
CLOCK_AHEAD_SECONDS_MAX = 5.0


def check_broker(settings: Settings) -> str | CheckFailure:
    """Return whether the brokers answer, and what version they are."""
    with connect_admin(*_connection(settings)) as client:
        nodes = client.describe_cluster()["brokers"]
        found = client.get_broker_version_data(nodes[0]["broker_id"]).broker_version
    version = ".".join(map(str, found))
    brokers = format_count(len(nodes), "broker")
    said = f"{brokers}, Kafka {version}, at {settings.kafka.bootstrap_servers}"
    if tuple(found[:2]) < VERSION_MIN:
        return CheckFailure(
            said, "use Kafka 4.0 or newer; older versions are not tested", CheckStatus.WARN
        )
    return said


def check_topics(settings: Settings) -> str | CheckFailure:
    """The topics against the catalogue."""
    bootstrap, options = _connection(settings)
    changes = diff_topics(
        bootstrap, settings.topics.prefix, settings.topics.replication_factor, options=options
    )
    wrong = [change for change in changes if change.action != "ok"]
    if not wrong:
        return f"{len(CATALOGUE)} topics are as the catalogue says"
    listed = "; ".join(f"{each.topic}: {each.action} {each.detail}" for each in wrong)
    if any(each.action == "refused" for each in wrong):
        return CheckFailure(
            listed, "placer cannot make the refused changes; make them as the finding says"
        )
    return CheckFailure(listed, "correct them with: placer topics apply, or placer doctor --fix")


def check_authorisation(settings: Settings) -> str | CheckFailure:
    """Check the operations that the brokers allow this principal on each topic."""
    bootstrap, options = _connection(settings)
    found = find_missing_rights(bootstrap, settings.topics.prefix, options)
    if found:
        return CheckFailure(
            "; ".join(found), "grant these operations to the application's principal"
        )
    return f"{len(CATALOGUE)} topics can be read and written as needed"


def check_transactions(settings: Settings) -> str | CheckFailure:
    """A transaction of a probe, begun and aborted: nothing is written, nobody is fenced."""
    bootstrap, options = _connection(settings)
    started = time.monotonic()
    try:
        try_transaction(bootstrap, settings.topics.prefix, settings.cell, options)
    except OutboxFailed as error:
        return CheckFailure(
            str(error),
            "allow WRITE and DESCRIBE on transactional ids that begin with "
            f"{settings.topics.prefix}{settings.cell}, and check that the brokers can "
            "write __transaction_state",
        )
    return f"a test transaction took {time.monotonic() - started:.1f} s"


def check_hanging_transactions(settings: Settings) -> str | CheckFailure:
    """Transactions that hold back readers of committed records and do not move."""
    bootstrap, options = _connection(settings)
    names = [topic.name for topic in CATALOGUE]
    before = open_transactions(bootstrap, settings.topics.prefix, names, options)
    if before:
        time.sleep(HANGING_SECONDS)
    after = open_transactions(bootstrap, settings.topics.prefix, names, options) if before else {}
    stuck = [(place, offset) for place, offset in after.items() if before.get(place) == offset]
    if not stuck:
        return "none"
    (topic, partition), offset = stuck[0]
    listed = ", ".join(f"{name}-{number} at {at}" for (name, number), at in stuck)
    return CheckFailure(
        f"an open transaction holds back {listed}",
        "the transaction of a dead writer ends by itself within "
        f"{TRANSACTION_TIMEOUT_MS // 1000} s; if it remains, run: "
        + abort_command(bootstrap, topic, partition, offset),
        CheckStatus.WARN,
    )


def check_clock(settings: Settings) -> str | CheckFailure:
    """The brokers' append time, which is the time of everything, against this machine's clock."""
    bootstrap, options = _connection(settings)
    latest = -1
    with CommittedReader(
        bootstrap, settings.topics.prefix, [NODES], from_beginning=False, options=options
    ) as reader:
        ends = reader.positions[NODES]
    last = {NODES: {p: max(end - 1, 0) for p, end in ends.items()}}
    with CommittedReader(
        bootstrap, settings.topics.prefix, [NODES], positions=last, options=options
    ) as reader:
        latest = max((record.timestamp_ms for record in reader.read_to_end()), default=-1)
    if latest < 0:
        return "no record of nodes yet; append time is used (LogAppendTime)"
    ahead = latest / 1000 - time.time()
    if ahead > CLOCK_AHEAD_SECONDS_MAX:
        return CheckFailure(
            f"the newest record of nodes is {ahead:.0f} s ahead of this machine's clock",
            "synchronise the clocks of the brokers: the reconciler's time never goes "
            "back, so timers stand still until the clocks agree",
            CheckStatus.WARN,
        )
    return f"append time is used (LogAppendTime); the newest record of nodes is {-ahead:.0f} s old"


def _connection(settings: Settings) -> tuple[str, dict[str, str]]:
    return settings.kafka.bootstrap_servers, settings.resolved_kafka_options()
