"""The assignment table against a plain dictionary: random operations, everything compared."""

from collections import Counter
from itertools import chain

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from placement.assignments import EMPTY, AssignmentTable
from placement.assignments.table import Extents
from tests.builders.drawn import examples

# Enough to outgrow the columns (256 entries at first) and the slot lists of a node (8 at first).
STREAMS = st.tuples(st.integers(1, 60), st.integers(1, 5))
LED = (False, True)
LOAD = st.none() | st.integers(0, 1_000)
NODES = st.one_of(st.integers(0, 4), st.integers(250, 600))


class TableAgainstDict(RuleBasedStateMachine):
    """`model` maps (stream, number, slot) to a node; what the table derives is counted from it."""

    @initialize(stream=STREAMS)
    def begin(self, stream: tuple[int, int]) -> None:
        self.table = AssignmentTable(led=LED)
        self.model: dict[tuple[int, int, int], int] = {}
        self.loads: dict[tuple[int, int], tuple[int | None, ...]] = {}
        self.mean = (0, 0)
        self.extents: dict[int, list[int]] = {}
        self.nodes = 1
        self.streams = 0
        self.add_stream(stream)

    @rule(stream=STREAMS)
    def add_stream(self, stream: tuple[int, int]) -> None:
        count, factor = stream
        added = self.table.add_shards(self.streams, count, factor)
        assert self.table.shards_of(self.streams) == added
        self.extents[self.streams] = [count, factor]
        self.streams += 1
        self.fit()

    @rule(stream=STREAMS, row=st.lists(NODES | st.just(EMPTY), max_size=5))
    def add_placed(self, stream: tuple[int, int], row: list[int]) -> None:
        """Lists of all lengths, with gaps."""
        index, (count, factor) = self.streams, stream
        self.add_stream(stream)
        rows = [row[:factor][number % 6 :] for number in range(count)]
        self.table.fill(
            np.asarray(self.table.shards_of(index), np.int64),
            np.array([*map(len, rows)], np.int64),
            np.array([*chain(*rows)], np.int64),
        )
        for number, nodes in enumerate(rows):
            for slot, node in enumerate(nodes):
                self.model[index, number, slot] = node
                self.nodes = max(self.nodes, node + 1)

    @rule(data=st.data(), more=st.integers(1, 9))
    def add_shards(self, data: st.DataObject, more: int) -> None:
        stream = data.draw(st.sampled_from(sorted(self.extents)))
        before = [*self.table.shards_of(stream)]
        added = self.table.add_shards(stream, more, self.extents[stream][1])
        assert [*self.table.shards_of(stream)] == [*before, *added]
        self.extents[stream][0] += more
        self.fit()

    @rule(data=st.data(), more=st.integers(0, 3))
    def widen(self, data: st.DataObject, more: int) -> None:
        stream = data.draw(st.sampled_from(sorted(self.extents)))
        self.extents[stream][1] += more
        self.table.widen(stream, self.extents[stream][1])
        self.fit()

    @precondition(lambda self: len(self.extents) > 1)
    @rule(data=st.data())
    def drop_stream(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from(sorted(self.extents)))
        self.table.drop_stream(stream)
        assert not self.table.shards_of(stream)
        del self.extents[stream]
        self.loads = {key: load for key, load in self.loads.items() if key[0] != stream}
        self.model = {key: node for key, node in self.model.items() if key[0] != stream}

    def fit(self) -> None:
        """Slots that are new are empty."""
        for stream, (count, factor) in self.extents.items():
            for number in range(count):
                for slot in range(factor):
                    self.model.setdefault((stream, number, slot), EMPTY)

    def shard(self, stream: int, number: int) -> int:
        return self.table.shards_of(stream)[number]

    @rule(data=st.data(), node=NODES)
    def put(self, data: st.DataObject, node: int) -> None:
        stream, number, slot = data.draw(st.sampled_from(sorted(self.model)))
        self.table.set(self.shard(stream, number), slot, node)
        self.model[stream, number, slot] = node
        self.nodes = max(self.nodes, node + 1)

    @rule(data=st.data(), node=NODES)
    def fill(self, data: st.DataObject, node: int) -> None:
        """The same node in many shards, as a big node has it."""
        slot = data.draw(st.integers(0, 1))
        for stream, number, place in self.model:
            if place == slot:
                self.table.set(self.shard(stream, number), slot, node)
                self.model[stream, number, slot] = node
        self.nodes = max(self.nodes, node + 1)

    @rule(data=st.data())
    def clear(self, data: st.DataObject) -> None:
        stream, number, slot = data.draw(st.sampled_from(sorted(self.model)))
        self.table.set(self.shard(stream, number), slot, EMPTY)
        self.model[stream, number, slot] = EMPTY

    @precondition(lambda self: any(factor > 1 for _, factor in self.extents.values()))
    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        wide = [stream for stream, (_, factor) in self.extents.items() if factor > 1]
        stream = data.draw(st.sampled_from(wide))
        number = data.draw(st.integers(0, self.extents[stream][0] - 1))
        slots = st.integers(0, self.extents[stream][1] - 1)
        one, other = data.draw(slots), data.draw(slots)
        self.table.swap(self.shard(stream, number), one, other)
        first, second = (stream, number, one), (stream, number, other)
        self.model[first], self.model[second] = self.model[second], self.model[first]

    @rule(data=st.data(), one=LOAD, other=LOAD, shards=st.integers(1, 9))
    def change_loads(
        self, data: st.DataObject, one: int | None, other: int | None, shards: int
    ) -> None:
        """None stands for a load that is not known, which is the mean."""
        known = sorted({key[:2] for key in self.model})
        changed = data.draw(st.lists(st.sampled_from(known), max_size=shards, unique=True))
        loads = np.array([[one or 0], [other or 0]]).repeat(len(changed), axis=1)
        unknown = np.array([[one is None], [other is None]]).repeat(len(changed), axis=1)
        shard = np.array([self.shard(*key) for key in changed], np.int64)
        self.table.change_loads(shard, loads, unknown.astype(np.int64))
        self.loads |= dict.fromkeys(changed, (one, other))

    @rule(one=st.integers(0, 9), other=st.integers(0, 9))
    def change_mean(self, one: int, other: int) -> None:
        assert self.table.loads is not None
        self.table.loads.mean = np.array([one, other])
        self.mean = one, other

    def load_of(self, stream: int, number: int) -> list[int]:
        known = self.loads.get((stream, number), (None, None))
        pairs = zip(known, self.mean, strict=True)
        return [mean if load is None else load for load, mean in pairs]

    @invariant()
    def loads_agree(self) -> None:
        columns = self.table.loads
        assert columns is not None
        sums = np.zeros((2, self.nodes), np.int64)
        for (stream, number, slot), node in self.model.items():
            if node != EMPTY:
                borne = [slot == 0 or not led for led in LED]
                sums[:, node] += np.array(self.load_of(stream, number)) * borne
        assert columns.on_nodes(self.nodes).tolist() == sums.tolist()
        assert columns.on_node(self.nodes - 1).tolist() == sums[:, -1].tolist()
        for stream, number in {key[:2] for key in self.model}:
            shard = self.shard(stream, number)
            assert columns.of_shard(shard).tolist() == self.load_of(stream, number)

    @invariant()
    def agrees(self) -> None:
        table = self.table
        held: dict[int, set[int]] = {}
        load: Counter[int] = Counter()
        leaders: Counter[int] = Counter()
        indexes: list[int] = []
        for stream, (count, factor) in self.extents.items():
            indexes += table.shards_of(stream)
            for number in range(count):
                shard = self.shard(stream, number)
                nodes = [self.model[stream, number, slot] for slot in range(factor)]
                assert table.nodes(shard) == nodes
                assert table.replicas(shard) == [node for node in nodes if node != EMPTY]
                described = table.stream_of(shard), table.number_of(shard), table.factor(shard)
                assert described == (stream, number, factor)
                for slot, node in enumerate(nodes):
                    if node != EMPTY:
                        held.setdefault(node, set()).add(shard)
                        load[node] += 1
                        leaders[node] += slot == 0
        assert len(indexes) == len(set(indexes))
        assert table.shards == max(indexes) + 1
        width = max((factor for _, factor in self.extents.values()), default=0)
        assert table.padded_rows(np.array(indexes[::-1])).tolist() == [
            [*table.nodes(shard), *[EMPTY] * (width - table.factor(shard))]
            for shard in indexes[::-1]
        ]
        rows = {stream: nodes.tolist() for stream, nodes in table.streams()}
        assert rows == {
            stream: [table.nodes(self.shard(stream, number)) for number in range(count)]
            for stream, (count, _) in self.extents.items()
        }
        assert table.load(self.nodes).tolist() == [load[node] for node in range(self.nodes)]
        assert table.leaders(self.nodes).tolist() == [leaders[node] for node in range(self.nodes)]
        for node in {*held, 0, self.nodes - 1}:
            assert table.shards_on(node) == sorted(held.get(node, ()))


TestTableAgainstDict = TableAgainstDict.TestCase
TestTableAgainstDict.settings = examples(40, stateful_step_count=20)


def test_a_new_table_knows_nothing() -> None:
    table = AssignmentTable()
    assert table.shards == 0
    assert table.load(0).tolist() == []
    assert table.load(3).tolist() == [0, 0, 0]
    assert table.shards_on(1_000) == []


def test_what_a_dropped_stream_leaves_is_used_again() -> None:
    table = AssignmentTable()
    for stream in range(3):
        table.add_shards(stream, 4, 3)
    table.drop_stream(1)
    again = table.add_shards(3, 4, 3)
    assert again == range(4, 8)
    assert table.shards == 12
    for stream in (0, 2, 3):
        table.drop_stream(stream)
    assert table.shards == 0


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), min_size=1, max_size=40))
def test_extents_never_overlap(steps: list[tuple[int, int]]) -> None:
    """Stretches are taken, and one of them is given back after some of the steps."""
    extents = Extents()
    taken: list[tuple[int, int]] = []
    for count, gone in steps:
        taken.append((extents.take(count), count))
        if gone < len(taken):
            extents.give(*taken.pop(gone))
        places = [place for first, length in taken for place in range(first, first + length)]
        assert len(places) == len(set(places))
        assert extents.end == max(places, default=-1) + 1
    assert extents.end <= sum(count for count, _ in steps)
