"""An import looks until two looks in a row agree, and says what differs where they never do."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from streaming.errors import BrokerUnreachable
from streaming.kafka_bridge import LooksDiffer, Observer, look_until_settled
from streaming.kafka_bridge.admin_client import DescribedTopic
from streaming.kafka_bridge.settling import find_differences
from tests.builders.kafka_cluster import SimulatedKafka

RACKS = {1: "a", 2: "b", 3: "c"}
TIMEOUT_SECONDS = 30.0
Change = Callable[[SimulatedKafka], None]


class ChangingKafka(SimulatedKafka):
    """A cluster to which something happens before each of its looks, as long as there is any."""

    def __init__(self, changes: list[Change]) -> None:
        super().__init__(RACKS)
        self.create("t", [(1, 2, 3), (2, 3, 1)])
        self.changes, self.looks = changes, 0
        self.asked: list[int | None] = []

    def turn_to(self, broker: int | None) -> None:
        """A look begins."""
        self.looks += 1
        self.asked.append(broker)
        self.unreachable = None
        if self.changes:
            self.changes.pop(0)(self)


def nothing(_: SimulatedKafka) -> None:
    """Let a look be as the one before."""


def grow(kafka: SimulatedKafka) -> None:
    kafka.extend("t", [(3, 1, 2)])


def lead(kafka: SimulatedKafka) -> None:
    topic = kafka.topics["t"]
    first, *others = topic.partitions
    other = 3 if first.leader == 2 else 2
    kafka.topics["t"] = replace(topic, partitions=(replace(first, leader=other), *others))


def make_anew(kafka: SimulatedKafka) -> None:
    kafka.delete("t")
    kafka.create("t", [(1, 2, 3), (2, 3, 1)])


def configure(kafka: SimulatedKafka) -> None:
    kafka.configs["t"]["min.insync.replicas"] = "2"


def lag(kafka: SimulatedKafka) -> None:
    """Let a replica fall out of sync, and come back with the next look."""
    topic = kafka.topics["t"]
    first, *others = topic.partitions
    kept = replace(first, in_sync=(1,) if len(first.in_sync) > 1 else (1, 2, 3))
    kafka.topics["t"] = replace(topic, partitions=(kept, *others))


def cut(kafka: SimulatedKafka) -> None:
    kafka.unreachable = "no broker answers"


def look(kafka: ChangingKafka, timeout_seconds: float = TIMEOUT_SECONDS) -> tuple[int, float]:
    """Look until it is settled; how many partitions are seen, and how long it took."""
    now = 0.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    found = look_until_settled(kafka, timeout_seconds, lambda: now, wait)
    return len(found.topics["t"].partitions), now


@pytest.mark.parametrize(
    ("changes", "partitions", "looks"),
    [
        ([], 2, 3),
        ([nothing, grow, grow], 4, 4),
        ([nothing, cut, cut], 2, 5),
        ([nothing, grow, cut], 3, 4),
        ([nothing, lag, lag, lag], 2, 3),
    ],
    ids=["at rest", "topics that grow", "a broker that dies", "both", "replicas in sync"],
)
def test_two_looks_in_a_row_agree(changes: list[Change], partitions: int, looks: int) -> None:
    kafka = ChangingKafka(changes)
    assert look(kafka)[0] == partitions
    assert kafka.looks == looks


class LaggingKafka(ChangingKafka):
    """Shows the cluster without its newest topic where one of `lagging` is asked."""

    def __init__(self, lagging: set[int | None]) -> None:
        super().__init__([])
        self.create("new", [(1, 2, 3)])
        self.lagging = lagging

    def describe_topics(self) -> list[DescribedTopic]:
        """See ClusterAdmin."""
        found = super().describe_topics()
        return found[:1] if self.asked[-1] in self.lagging else found


@pytest.mark.parametrize(
    ("lagging", "asked"),
    [({None}, [None, 1, 2]), ({None, 1}, [None, 1, 2, 3]), ({None, 2}, [None, 1, 2, 3, 1])],
)
def test_what_a_broker_that_lags_shows_is_not_imported(
    lagging: set[int | None], asked: list[int | None]
) -> None:
    kafka = LaggingKafka(lagging)
    assert "new" in look_until_settled(kafka, TIMEOUT_SECONDS, lambda: 0.0, lambda _: None).topics
    assert kafka.asked == asked


def test_a_single_broker_answers_for_itself() -> None:
    kafka = ChangingKafka([])
    kafka.fence(2)
    kafka.fence(3)
    look(kafka)
    assert kafka.asked == [None, 1]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (grow, r"topic t has \d+ partitions in one look and \d+ in the next"),
        (lead, "topic t has other replicas or leaders of partition 0 in the next look"),
        (make_anew, "topic t was made anew between two looks"),
    ],
)
def test_looks_that_never_agree_are_told_by_what_differs(change: Change, says: str) -> None:
    kafka = ChangingKafka([change] * 100)
    with pytest.raises(LooksDiffer, match=says) as refused:
        look(kafka)
    assert "did not agree for 30 s" in str(refused.value)
    assert kafka.looks <= TIMEOUT_SECONDS + 2


def test_brokers_that_do_not_answer_in_the_end_are_told() -> None:
    with pytest.raises(BrokerUnreachable, match="no broker answers"):
        look(ChangingKafka([nothing, *[cut] * 100]))
    first = ChangingKafka([cut])
    with pytest.raises(BrokerUnreachable):
        look(first)
    assert first.looks == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda kafka: kafka.fence(3), "broker 3 is fenced in one of two looks"),
        (lambda kafka: kafka.join(4, "a"), "broker 4 is in one of two looks only"),
        (lambda kafka: kafka.join(3, "z"), "broker 3 has two addresses or racks"),
        (lambda kafka: kafka.create("u", [(1,)]), "topic u is in one of two looks only"),
        (configure, "topic t has another configuration in the next look"),
        (lag, None),
    ],
)
def test_a_difference_is_named(change: Change, says: str | None) -> None:
    kafka = ChangingKafka([])
    before = Observer(kafka).look(0)
    change(kafka)
    found = [*find_differences(before, Observer(kafka).look(1))]
    assert (says in found) if says else not found


def test_many_differences_are_counted() -> None:
    def create(kafka: SimulatedKafka) -> None:
        for number in range(9):
            kafka.create(f"u{number}-{len(kafka.topics)}", [(1,)])

    with pytest.raises(LooksDiffer, match="and 4 more"):
        look(ChangingKafka([create] * 100), 3.0)
