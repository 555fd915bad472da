"""The filter of load reports: noise is silent, changes are told, mistakes are held back."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from placement.load_reports import LoadBands, LoadReport, ReportFilter
from placement.load_reports.columns import ReportColumns
from placement.model import LoadsReported, SuspectedLoad

BANDS = LoadBands()
# How often nodes report, in the tests as in life.
EVERY_MS = 30_000
TERABYTE = 10**12

Loads = Mapping[int, int] | Sequence[int]


class Node:
    """A node that reports the disk use of shards of one stream."""

    def __init__(self, capacity: int | None = None, bands: LoadBands = BANDS) -> None:
        self.filter = ReportFilter(bands)
        self.sequence, self.at = 0, 0
        self.capacities = () if capacity is None else (("disk", capacity),)

    def report(self, loads: Loads, incarnation: str = "a", **given: int) -> LoadsReported | None:
        self.sequence = given.get("sequence", self.sequence + 1)
        self.at += given.get("after", EVERY_MS)
        pairs = loads.items() if isinstance(loads, Mapping) else enumerate(loads)
        entries = [("s", shard, None, {"disk": amount}) for shard, amount in pairs]
        life = ("n1", incarnation, self.sequence)
        return self.filter.apply(LoadReport.of(self.at, life, entries, self.capacities))

    def told(self, loads: Loads, **given: int) -> dict[int, int]:
        """What is passed on of a report, by shard."""
        event = self.report(loads, **given)
        return {} if event is None else {each.shard: each.amounts[0][1] for each in event.loads}


def test_a_first_report_is_passed_on_at_once() -> None:
    assert Node().told({0: 5, 7: 0}) == {0: 5, 7: 0}


def test_noise_is_silent() -> None:
    node, noise = Node(capacity=100 * TERABYTE), random.Random(7)
    node.told([TERABYTE // 2] * 100)
    said = [
        node.told([int(TERABYTE / 2 * noise.uniform(0.8, 1.2)) for _ in range(100)])
        for _ in range(100)
    ]
    assert sum(map(len, said)) == 0


def test_a_lasting_change_is_told_once_it_has_left_the_band() -> None:
    node = Node()
    node.told([100])
    said = [node.told([150]) for _ in range(40)]
    changes = [(number, each[0]) for number, each in enumerate(said) if each]
    # Half of the change is there after four reports, 20 % of the last word at 120 and at 144.
    assert changes == [(2, 120), (12, 145)]


def test_a_share_of_the_capacity_is_a_change_of_a_large_shard() -> None:
    node = Node(capacity=1_000)
    node.told([800])
    assert node.told([830], after=10**9) == {0: 830}
    node = Node()
    node.told([800])
    assert node.told([830], after=10**9) == {}, "no capacity, nothing depends on the share"


def test_small_drifts_of_many_shards_add_up() -> None:
    node = Node(capacity=1_000_000)
    node.told([1_000] * 100)
    # 60 shards by 100 are 6,000; from 10,000 on it is told, until at most 5,000 is left.
    assert node.told(dict.fromkeys(range(60), 1100), after=10**9) == {}
    again = Node(capacity=1_000_000)
    again.told([1_000] * 200)
    said = again.told({shard: 1_100 + shard % 2 for shard in range(150)}, after=10**6)
    assert len(said) == 100
    assert all(amount in (1_100, 1_101) for amount in said.values())
    assert sum(amount == 1_101 for amount in said.values()) == 75, "the largest first"
    assert again.told({shard: 1_100 + shard % 2 for shard in range(150)}, after=1) == {}


def test_changes_of_shards_that_are_next_to_nothing_are_none() -> None:
    node = Node(capacity=10**9)
    node.told([100])
    assert node.told([5_000], after=10**9) == {}
    assert node.told([20_000], after=10**9) == {0: 20_000}


# Mistakes


def test_a_mistaken_unit_is_held_back_until_three_agree() -> None:
    node = Node(capacity=TERABYTE)
    node.told([10**9])
    event = node.report([500 * 10**9])
    assert event is not None
    assert event.loads == ()
    assert event.suspected == (SuspectedLoad("s", 0, "disk", 500 * 10**9, 10**9),)
    assert node.report([510 * 10**9]) is None, "alerted once"
    assert node.told([505 * 10**9]) == {0: 505 * 10**9}
    assert +node.filter.ignored == {"load_suspected": 2}


@pytest.mark.parametrize("between", [10**9, 900 * 10**9])
def test_reports_that_do_not_agree_are_not_believed(between: int) -> None:
    node = Node(capacity=TERABYTE)
    node.told([10**9])
    for amount in (500 * 10**9, 500 * 10**9, between, 500 * 10**9, 500 * 10**9):
        assert 500 * 10**9 not in node.told([amount]).values()
    assert node.told([500 * 10**9]) == {0: 500 * 10**9}


def test_a_suspicion_ends_when_the_load_is_as_before() -> None:
    node = Node(capacity=TERABYTE)
    node.told([10**9])
    for _ in range(3):
        event = node.report([500 * 10**9])
        assert event is not None
        assert (len(event.loads), len(event.suspected)) == (0, 1)
        assert node.told([10**9]) == {0: 10**9}, "so that the planner forgets it too"


def test_of_a_nodes_mistake_the_largest_shards_are_named() -> None:
    node = Node(capacity=TERABYTE)
    node.told([10**8 + shard for shard in range(1_000)])
    event = node.report([(10**8 + shard) * 1_000 for shard in range(1_000)])
    assert event is not None
    assert event.loads == ()
    assert [each.shard for each in event.suspected] == [*range(999, 989, -1)]


def test_a_new_shard_that_is_filled_is_not_suspected() -> None:
    node = Node(capacity=TERABYTE)
    node.told([0, 10**9])
    assert node.told([300 * 10**9, 10**9], after=10**9) == {0: 300 * 10**9}


# What may have been ignored


def repeated(node: Node) -> dict[int, list[int]]:
    """What was said again of each shard since the last call."""
    found: dict[int, list[int]] = {}
    for event in node.filter.repeated:
        for each in event.loads:
            found.setdefault(each.shard, []).extend(amount for _, amount in each.amounts)
    node.filter.repeated.clear()
    return found


def test_each_word_is_said_again_in_its_turn() -> None:
    node, noise = Node(), random.Random(3)
    assert sum(map(len, (node.told([1_000] * 200), node.told([1_000] * 200)))) == 200
    repeated(node)
    reports = BANDS.repeat_ms // EVERY_MS
    for _ in range(3):
        most, before = 0, Counter[int]()
        for _ in range(reports):
            assert node.told([round(1_000 * noise.uniform(0.9, 1.1)) for _ in range(200)]) == {}
            now = Counter({shard: len(words) for shard, words in repeated(node).items()})
            most, before = max(most, now.total()), before + now
        assert before == dict.fromkeys(range(200), 1), "what was told, each once"
        assert most <= 2 * 200 / reports, "and evenly over time"


def test_what_is_repeated_is_what_was_told() -> None:
    node = Node()
    node.told([1_000, 1_000])
    node.told([1_100], after=BANDS.repeat_ms)
    assert repeated(node) == {0: [1_000]}, "not what has drifted since, nor shards not reported"
    assert node.told([2_000, 1_000], after=BANDS.repeat_ms) == {0: 1_999}
    assert repeated(node) == {1: [1_000]}, "what is told now is not repeated"


def test_a_figure_that_is_held_back_is_not_repeated() -> None:
    node = Node(capacity=TERABYTE)
    node.told([10**9, 10**9])
    node.report([500 * 10**9, 10**9], after=BANDS.repeat_ms)
    assert repeated(node) == {1: [10**9]}, "an operator may have confirmed the other"


# Who speaks


def test_old_and_repeated_reports_are_ignored_and_counted() -> None:
    node = Node()
    node.told([100], sequence=5)
    assert node.told([900], sequence=5) == {}
    assert node.told([900], sequence=4) == {}
    assert node.told([900], sequence=1, incarnation="b", after=10**9) == {0: 900}  # type: ignore[arg-type]
    assert node.told([100], sequence=6) == {}, "an earlier life"
    assert node.filter.ignored == Counter(load_older_sequence=2, load_earlier_incarnation=1)


def test_a_stream_with_another_uid_begins_anew() -> None:
    loads = ReportFilter(BANDS)

    def told(sequence: int, uid: str | None, amount: int) -> list[tuple[int, str | None]]:
        entries = [("s", 0, uid, {"disk": amount})]
        event = loads.apply(LoadReport.of(sequence, ("n1", "a", sequence), entries))
        return [] if event is None else [(e.amounts[0][1], e.uid) for e in event.loads]

    assert told(1, None, 100) == [(100, None)]
    assert told(2, "u1", 100) == [], "the same stream, as far as is known"
    assert told(3, "u2", 100) == [(100, "u2")]


def test_a_shard_that_is_not_reported_is_forgotten() -> None:
    node = Node()
    node.told([100, 100])
    for _ in range(50):
        node.told({0: 100})
    assert len(node.filter) == 1
    assert node.told([100, 100]) == {1: 100}


def test_resources_are_reported_apart() -> None:
    loads = ReportFilter(BANDS)
    first = [("s", 0, None, {"disk": 5, "writes": 7})]
    event = loads.apply(LoadReport.of(0, ("n1", "a", 1), first))
    assert event is not None
    assert event.loads[0].amounts == (("disk", 5), ("writes", 7))
    later = [("s", 0, None, {"writes": 50})]
    event = loads.apply(LoadReport.of(10**9, ("n1", "a", 2), later))
    assert event is not None
    assert event.loads[0].amounts == (("disk", 5), ("writes", 50))


# The state


def test_what_the_planner_knows_is_not_said_again() -> None:
    node = Node()
    node.filter.restore([("s", 0, (("disk", 100),)), ("s", 1, (("disk", 50),))], (), 0)
    assert node.told([105, 50, 30]) == {2: 30}
    assert node.told([100, 80], after=10**6) == {1: 80}


@pytest.mark.parametrize("seed", range(20))
def test_the_state_may_go_through_bytes_at_any_time(seed: int) -> None:
    chance = random.Random(seed)
    bands = LoadBands(half_life_ms=60_000, agreeing=2)
    whole, cut = Node(10_000, bands), Node(10_000, bands)
    for _ in range(60):
        scale = chance.choice([1, 1, 1, 1, 1_000])
        loads = {
            shard: scale * chance.randrange(200)
            for shard in chance.sample(range(30), chance.randrange(1, 30))
        }
        after = chance.choice([0, 1_000, EVERY_MS, 10**6])
        said = whole.report(loads, after=after)
        assert cut.report(loads, after=after) == said
        if chance.random() < 0.5:
            blob = cut.filter.to_bytes()
            cut.filter = ReportFilter.from_bytes(blob, bands)
            assert cut.filter.to_bytes() == blob


@pytest.mark.parametrize("seed", range(20))
def test_what_was_told_stays_near_what_is(seed: int) -> None:
    """The node's sum, as the planner knows it, is never off by more than the band."""
    chance = np.random.default_rng(seed)
    capacity, shards = 1_000_000, 50
    node = Node(capacity)
    loads = chance.integers(0, 10_000, shards)
    known = dict(node.told(loads.tolist()))
    for _ in range(100):
        loads = np.maximum(loads + chance.integers(-2_000, 2_100, shards), 0)
        known |= node.told(loads.tolist(), after=10**6)
        smooth = node.filter._columns.smoothed[0]
        off = np.array([known[shard] for shard in range(shards)]) - smooth
        assert abs(off.sum()) <= 0.01 * capacity + shards
        assert (np.abs(off) <= np.maximum(0.25 * smooth, 0.01 * capacity) + 11).all()


def test_nobody_fills_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placement.load_reports.columns.SHARDS_MAX", 10)
    node = Node()
    assert len(node.told([5] * 15)) == 10
    assert node.filter.ignored == {"load_beyond_shards": 5}
    assert len(node.filter) == 10


def test_columns_keep_their_places() -> None:
    columns = ReportColumns()
    columns.rows_of(["disk"])
    codes = columns.codes_of(["b", "a"], [None, None])
    columns.columns_of(codes, np.array([3, 1]))
    assert [columns.place(column) for column in range(2)] == [("b", None, 3), ("a", None, 1)]
    columns.keep(np.array([False, True]))
    columns.drop_idle_streams()
    assert columns.streams == ["a"]
    assert columns.place(0) == ("a", None, 1)
