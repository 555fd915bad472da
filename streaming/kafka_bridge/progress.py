"""Reports how far the copies of moves are, so that a long one does not expire.

A report counts what the log directories of the target hold of the partition, beside its leader's.
One that would show no more bytes than the move's record is left out: it would extend nothing, and a
copy that is stuck is to expire.
"""

from collections.abc import Collection, Iterator

from schemas.acks import MoveProgressed
from schemas.outputs import Move
from streaming.kafka_bridge.desired import AckMessage, Desired, Standing, ack_key
from streaming.kafka_bridge.memory import Memory
from streaming.kafka_bridge.snapshot import Snapshot
from streaming.kafka_bridge.tables import Tables

# The reconciler extends a lease of which a quarter is used up: of so many reports several may be
# lost. A copy that is done within a tenth of its lease, as most are, is never reported.
REPORTS_PER_LEASE = 10


def find_copying(desired: Collection[Desired]) -> list[Move]:
    """List the open moves whose copies run."""
    return [
        each.move
        for each in desired
        if each.standing is Standing.RUNNING and each.move is not None and each.move.add
    ]


def find_sizes_interval_ms(copying: Collection[Move]) -> int | None:
    """Find how old the sizes of replicas may become, for reports about these moves."""
    return min(map(_interval_ms, copying), default=None)


def find_progress(
    copying: Collection[Move], snapshot: Snapshot, tables: Tables, memory: Memory
) -> Iterator[MoveProgressed]:
    """Yield the reports that are due; `memory.copying_since` has to be that of this snapshot."""
    for move in copying:
        report = _report(move, snapshot)
        if report is None or snapshot.sized_at is None:
            continue
        since = max(memory.copying_since[move.move_id], _said_at(report, tables, memory))
        if snapshot.sized_at - since >= _interval_ms(move):
            yield report


def _said_at(report: AckMessage, tables: Tables, memory: Memory) -> int:
    return memory.said.get(ack_key(report, tables), 0)


def _interval_ms(move: Move) -> int:
    since = move.issued_at if move.renewed_at is None else move.renewed_at
    return max(1, (move.deadline - since) // REPORTS_PER_LEASE)


def _report(move: Move, snapshot: Snapshot) -> MoveProgressed | None:
    """Make the report of a copy; None where it is not known to have come any further."""
    key = (move.stream, move.shard)
    done = snapshot.sizes.get(key, {}).get(int(move.add or -1))
    if done is None or done <= (move.bytes_done or 0):
        return None
    return MoveProgressed(
        stream=move.stream,
        shard=move.shard,
        move_id=move.move_id,
        bytes_done=done,
        bytes_total=snapshot.size_of(*key),
        uid=move.uid,
    )
