"""The assignment table against a plain dictionary: random operations, everything compared."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from placement.assignments import EMPTY, AssignmentTable

# Enough to outgrow the columns (256 entries at first) and the slot lists of a node (8 at first).
STREAMS = st.tuples(st.integers(1, 60), st.integers(1, 5))
NODES = st.one_of(st.integers(0, 4), st.integers(250, 600))


class TableAgainstDict(RuleBasedStateMachine):
    """`model` maps (shard, slot) to a node; what the table derives is counted from it."""

    @initialize(stream=STREAMS)
    def begin(self, stream: tuple[int, int]) -> None:
        self.table = AssignmentTable()
        self.model: dict[tuple[int, int], int] = {}
        self.shards: list[tuple[int, int, int]] = []
        self.nodes = 1
        self.streams = 0
        self.add_stream(stream)

    @rule(stream=STREAMS)
    def add_stream(self, stream: tuple[int, int]) -> None:
        count, factor = stream
        added = self.table.add_stream(self.streams, count, factor)
        assert added == range(len(self.shards), len(self.shards) + count)
        self.shards += [(self.streams, number, factor) for number in range(count)]
        self.model |= {(shard, slot): EMPTY for shard in added for slot in range(factor)}
        self.streams += 1

    @rule(data=st.data(), node=NODES)
    def put(self, data: st.DataObject, node: int) -> None:
        shard, slot = data.draw(st.sampled_from(sorted(self.model)))
        self.table.set(shard, slot, node)
        self.model[shard, slot] = node
        self.nodes = max(self.nodes, node + 1)

    @rule(data=st.data(), node=NODES)
    def fill(self, data: st.DataObject, node: int) -> None:
        """The same node in many shards, as a big node has it."""
        slot = data.draw(st.integers(0, 1))
        for shard in range(len(self.shards)):
            if (shard, slot) in self.model:
                self.table.set(shard, slot, node)
                self.model[shard, slot] = node
        self.nodes = max(self.nodes, node + 1)

    @rule(data=st.data())
    def clear(self, data: st.DataObject) -> None:
        shard, slot = data.draw(st.sampled_from(sorted(self.model)))
        self.table.set(shard, slot, EMPTY)
        self.model[shard, slot] = EMPTY

    @precondition(lambda self: any(factor > 1 for _, _, factor in self.shards))
    @rule(data=st.data())
    def swap(self, data: st.DataObject) -> None:
        wide = [shard for shard, (_, _, factor) in enumerate(self.shards) if factor > 1]
        shard = data.draw(st.sampled_from(wide))
        slots = st.integers(0, self.shards[shard][2] - 1)
        one, other = data.draw(slots), data.draw(slots)
        self.table.swap(shard, one, other)
        before = self.model[shard, one], self.model[shard, other]
        self.model[shard, other], self.model[shard, one] = before

    @invariant()
    def agrees(self) -> None:
        table = self.table
        assert table.shards == len(self.shards)
        held: dict[int, set[int]] = {}
        load: Counter[int] = Counter()
        leaders: Counter[int] = Counter()
        for shard, (stream, number, factor) in enumerate(self.shards):
            nodes = [self.model[shard, slot] for slot in range(factor)]
            assert table.nodes(shard) == nodes
            assert table.replicas(shard) == [node for node in nodes if node != EMPTY]
            described = table.stream_of(shard), table.number_of(shard), table.factor(shard)
            assert described == (stream, number, factor)
            for slot, node in enumerate(nodes):
                if node != EMPTY:
                    held.setdefault(node, set()).add(shard)
                    load[node] += 1
                    leaders[node] += slot == 0
        assert table.load(self.nodes).tolist() == [load[node] for node in range(self.nodes)]
        assert table.leaders(self.nodes).tolist() == [leaders[node] for node in range(self.nodes)]
        for node in {*held, 0, self.nodes - 1}:
            assert table.shards_on(node) == sorted(held.get(node, ()))


TestTableAgainstDict = TableAgainstDict.TestCase
TestTableAgainstDict.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


def test_a_new_table_knows_nothing() -> None:
    table = AssignmentTable()
    assert table.shards == 0
    assert table.load(0).tolist() == []
    assert table.load(3).tolist() == [0, 0, 0]
    assert table.shards_on(1_000) == []
