"""LoadFilter, the stateful operator that tells changes of loads from noise.

A row-based `transformWithState` keyed by load shard. Its state is a map of one value to a node, so
that a batch touches only nodes that have reported; the pure `placement.load_reports` does the work,
this class only carries it. It uses no timer: a node that has been silent for long is forgotten when
another one of its shard reports.
"""

import json
import pickle
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from placement.load_reports import LoadBands, ReportFilter, split_event
from placement.model import Amounts
from streaming.ingest.node_lifecycle import ShardOutput
from streaming.ingest.source import shard_of

if TYPE_CHECKING:
    from streaming.ingest.load_reports import PackedLoads

LOAD_STATE_SCHEMA = "load_shard int, node string, loads binary"
# Nodes whose loads are kept in one load shard: twice as many as may register by default. Whoever
# makes up ids cannot fill the state; the one that has been silent for longest makes room.
NODES_MAX = 20_000


class LoadFilter(StatefulProcessor):
    """Carries the loads of nodes from batch to batch."""

    def __init__(self, bands: LoadBands) -> None:
        self._bands = bands

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state: the loads by node, and when each node was heard of last."""
        self._nodes = handle.getMapState("nodes", "node string", "loads binary")
        self._heard = handle.getValueState("heard", "heard binary")

    def handleInitialState(self, key: Any, initialState: Row, timerValues: Any) -> None:  # noqa: N802, N803
        """Take what the planner knows of a node's shards."""
        del key, timerValues
        self._nodes.updateValue((initialState.node,), (zlib.decompress(initialState.loads),))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterable[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        """Apply the packed reports of a batch, partition by partition."""
        del key, timerValues
        packed: list[PackedLoads] = [pickle.loads(row.payload) for row in rows]
        packed.sort(key=lambda each: each.partition)
        output, loads = ShardOutput(), dict[str, ReportFilter]()
        heard: dict[str, int] = {}
        for each in packed:
            output.stretches += [each.stretch] if each.stretch else []
            output.refused += each.refused
            output.ignored += each.ignored
            for offset, report in each.reports:
                node = loads.get(report.node_id)
                if node is None:
                    node = loads[report.node_id] = self._get(report.node_id)
                event = node.apply(report)
                heard[report.node_id] = max(report.at, heard.get(report.node_id, 0))
                if event is not None:
                    parts = split_event(event)
                    output.loads += [(each.partition, offset, part) for part in parts]
        for name, node in loads.items():
            self._nodes.updateValue((name,), (node.to_bytes(),))
            output.ignored += node.ignored
            output.repeated += [part for event in node.repeated for part in split_event(event)]
        if heard:
            self._forget_silent(heard)
        yield Row(payload=pickle.dumps(output, pickle.HIGHEST_PROTOCOL))

    def close(self) -> None:
        """Do nothing: the operator holds no resource."""

    def _get(self, node_id: str) -> ReportFilter:
        stored = self._nodes.getValue((node_id,))
        if stored is None:
            return ReportFilter(self._bands)
        return ReportFilter.from_bytes(bytes(stored[0]), self._bands)

    def _forget_silent(self, heard: Mapping[str, int]) -> None:
        """Note when nodes were heard of; forget those that were not for long, or are too many."""
        stored = self._heard.get()
        known: dict[str, int] = {} if stored is None else json.loads(bytes(stored[0]))
        known |= {name: max(at, known.get(name, 0)) for name, at in heard.items()}
        oldest = max(heard.values()) - self._bands.expiry_ms
        ordered = sorted(known, key=lambda name: (-known[name], name))
        kept = {name: known[name] for name in ordered[:NODES_MAX] if known[name] >= oldest}
        for name in known.keys() - kept.keys():
            self._nodes.removeKey((name,))
        self._heard.update((json.dumps(kept).encode(),))


def initial_node_loads(
    known: Mapping[str, Iterable[tuple[str, int, Amounts]]],
    capacities: Mapping[str, Amounts],
    bands: LoadBands,
    load_shards: int,
    now: int,
) -> list[tuple[int, str, bytes]]:
    """The operator's initial state: what the planner knows of each node's shards, by node."""
    rows = []
    for name in sorted(known.keys() | capacities.keys()):
        node = ReportFilter(bands)
        node.restore(known.get(name, ()), capacities.get(name, ()), now)
        rows.append((shard_of(name, load_shards), name, zlib.compress(node.to_bytes(), 1)))
    return rows
