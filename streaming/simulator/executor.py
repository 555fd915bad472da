"""Simulates an executor: accepts the reconciler's moves and reports them done, copying nothing.

It stands for the system whose replicas are placed. The demo and the tests run one beside a
`Fleet`, so that moves come to their end, well or badly: its `ExecutorBehaviour` says how. It keeps
the contract with consumers (schemas/README.md, 3 to 5) as far as one can that has no data.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Protocol, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field

from placement.wording import format_count
from schemas.envelope import encode_headers
from schemas.outputs import MoveState
from schemas.topics import ACKS, ASSIGNMENTS, MOVES, full_name
from streaming.brokers import CommittedReader, make_producer
from streaming.client import Move
from streaming.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import KafkaError, Message

    from streaming.brokers import Reachability, Record

# How long the thread waits for moves before it looks whether it is to stop.
POLL_SECONDS = 0.1
# What is still unsent after so long will not be: the broker has gone.
FLUSH_TIMEOUT_SECONDS = 30.0

# The size of a copy whose move names none, which its reports are counted by.
UNKNOWN_SIZE_BYTES = 1_000_000

Share = Annotated[float, Field(ge=0, le=1)]


class ExecutorBehaviour(BaseModel):
    """How an executor behaves. Shares are of moves, drawn with `seed` and the move's id, so that
    a scenario plays alike again.

    `fail`: says that the move failed; `lose`: never says how it ended, or, of one that was called
    off, does not hear it that time; `double`: says everything twice; `lie`: speaks of a move that
    never was.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    delay_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.2
    fail: Share = 0.0
    lose: Share = 0.0
    double: Share = 0.0
    lie: Share = 0.0
    seed: int = 0

    def draw(self, move_id: str, what: str) -> bool:
        """Return whether this happens to this move."""
        share: float = getattr(self, what)
        return random.Random(f"{self.seed}:{what}:{move_id}").random() < share


class Say(Protocol):
    """Sends what is said of a move: the message's name, and the bytes done of `MoveProgressed`."""

    def __call__(self, message: str, move: Move, bytes_done: int | None = None, /) -> None: ...


def now_ms() -> int:
    """Return the time in ms since the epoch, UTC."""
    return time.time_ns() // 1_000_000


def make_acknowledgement(move: Move, bytes_done: int | None = None) -> dict[str, Any]:
    """Make the body of a message about a move."""
    said = {
        "move_id": move.move_id,
        "stream": move.stream,
        "shard": move.shard,
        "node_id": move.actor,
        "uid": move.uid,
        "bytes_done": bytes_done,
    }
    return {name: value for name, value in said.items() if value is not None}


@dataclass(slots=True)
class _Copy:
    """A move under way since `began_at`, in seconds of the clock; `bytes_done` as told last."""

    move: Move
    began_at: float
    bytes_done: int = 0


class SimulatedCopies:
    """Holds the moves that an executor has taken on, and decides its answers: the executor without
    its topics.

    `see` and `see_assignment` take records in; `advance` begins moves, reports on copies and ends
    them. The moves of a shard are carried out one at a time, in the order of their records. A copy
    takes the behaviour's delay.
    """

    def __init__(
        self,
        behaviour: ExecutorBehaviour,
        say: Say,
        clock: Callable[[], float] = time.monotonic,
        serves: Callable[[str], bool] | None = None,
        now_ms: Callable[[], int] = now_ms,
    ) -> None:
        """`say` sends an acknowledgement; `clock` counts seconds; `now_ms` is the time that
        deadlines are compared with; `serves` says whether a node is there to copy to: without it
        nothing is accepted or completed, and what waits goes on when the node is back."""
        self._behaviour, self._say, self._clock, self._now_ms = behaviour, say, clock, now_ms
        self._serves = serves or (lambda _node: True)
        self._epochs: dict[str, int] = {}
        # By shard: the moves that are open and have not ended here; the one that is under way.
        self._open: dict[str, dict[str, Move]] = {}
        self._copies: dict[str, _Copy] = {}
        self._shard_of: dict[str, str] = {}
        self._ended: set[str] = set()
        # Shards of which a move may begin now, and copies by the time when they are looked at.
        self._changed: dict[str, None] = {}
        self._due: list[tuple[float, str, str]] = []
        self.accepted = 0
        self.completed = 0
        self.failed = 0
        self.lost = 0
        self.dropped = 0
        self.stopped = 0

    @property
    def wait_seconds(self) -> float:
        """Return the seconds until the next action is due, unless a record comes."""
        until_due = self._due[0][0] - self._clock() if self._due else POLL_SECONDS
        return min(POLL_SECONDS, max(0.0, until_due))

    def see_assignment(self, shard: str, body: Mapping[str, Any] | None) -> None:
        """Take in a record of `assignments.v1`; one whose epoch was passed is old news."""
        if body is None:
            self._epochs.pop(shard, None)
        elif body["epoch"] > self._epochs.get(shard, 0):
            self._epochs[shard] = body["epoch"]
            self._changed[shard] = None

    def see(self, move_id: str, body: Mapping[str, Any] | None) -> None:
        """Take in a record of `moves.v1`: take on a move that is open, drop one that has ended, and
        say of one that was called off that it is under way no more."""
        if body is None:
            self._drop(move_id)
            self._ended.discard(move_id)
            self._shard_of.pop(move_id, None)
            return
        move = Move.parse(body)
        if move.is_open:
            self._take_on(str(move.shard_id), move)
            return
        self._drop(move_id)
        told = f"{move_id}/{move.reminded}"
        if move.is_called_off and not self._behaviour.draw(told, "lose"):
            self._say("MoveStopped", move)
            self.stopped += 1

    def advance(self) -> None:
        """End the copies whose time has come, report on others, begin the moves that may begin."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            _, shard, move_id = heapq.heappop(self._due)
            copy = self._copies.get(shard)
            if copy is None or copy.move.move_id != move_id:
                continue
            if not self._is_target_there(copy.move):
                heapq.heappush(self._due, (now + POLL_SECONDS, shard, move_id))
            elif now >= copy.began_at + self._behaviour.delay_seconds:
                self._end(shard, copy.move)
            else:
                self._report(copy, now)
                self._look_again(shard, copy, now)
        changed, self._changed = self._changed, {}
        for shard in changed:
            self._begin_next(shard, now)

    def _take_on(self, shard: str, move: Move) -> None:
        """Keep a move, or what is new of one: its deadline may have been extended."""
        if move.move_id in self._ended:
            return
        self._open.setdefault(shard, {})[move.move_id] = move
        self._shard_of[move.move_id] = shard
        self._changed[shard] = None
        copy = self._copies.get(shard)
        if copy is not None and copy.move.move_id == move.move_id:
            copy.move = move

    def _drop(self, move_id: str) -> None:
        """Leave a move alone that others have ended."""
        shard = self._shard_of.get(move_id)
        if shard is not None and self._close(shard, move_id):
            self.dropped += 1

    def _close(self, shard: str, move_id: str) -> bool:
        """Forget a move; returns whether it was open here. Another one of its shard may begin."""
        moves = self._open.get(shard, {})
        if moves.pop(move_id, None) is None:
            return False
        if not moves:
            del self._open[shard]
        copy = self._copies.get(shard)
        if copy is not None and copy.move.move_id == move_id:
            del self._copies[shard]
        self._changed[shard] = None
        return True

    def _begin_next(self, shard: str, now: float) -> None:
        """Begin the move of a shard that may begin, unless one is under way."""
        if shard in self._copies:
            return
        epoch, now_ms = self._epochs.get(shard), self._now_ms()
        moves = self._open.get(shard, {}).values()
        move = next((each for each in moves if each.may_begin(epoch, now_ms)), None)
        if move is None:
            return
        if not self._is_target_there(move):
            self._changed[shard] = None
            return
        copy = self._copies[shard] = _Copy(move, now)
        self._look_again(shard, copy, now)
        if move.state == MoveState.ISSUED:
            self._say("MoveAccepted", move)
            self.accepted += 1

    def _look_again(self, shard: str, copy: _Copy, now: float) -> None:
        """Have a copy looked at when its next report is due, or its end."""
        ends_at = copy.began_at + self._behaviour.delay_seconds
        told_at = now + copy.move.progress_interval_seconds
        heapq.heappush(self._due, (min(ends_at, told_at), shard, copy.move.move_id))

    def _report(self, copy: _Copy, now: float) -> None:
        """Say how far a copy is, always more than before; nothing of one that is to be lost."""
        move = copy.move
        if self._behaviour.draw(move.move_id, "lose"):
            return
        share = (now - copy.began_at) / self._behaviour.delay_seconds
        done = int(share * (move.size_bytes or UNKNOWN_SIZE_BYTES))
        copy.bytes_done = max(done, copy.bytes_done + 1)
        self._say("MoveProgressed", move, copy.bytes_done)

    def _is_target_there(self, move: Move) -> bool:
        """Return whether the node that a copy goes to is there; its source is only a suggestion."""
        return move.add is None or self._serves(move.add)

    def _end(self, shard: str, move: Move) -> None:
        """Say how the move ended, as the behaviour has it."""
        behaviour, move_id = self._behaviour, move.move_id
        self._ended.add(move_id)
        self._close(shard, move_id)
        if behaviour.draw(move_id, "lie"):
            self._say("MoveCompleted", replace(move, move_id=f"never-{move_id}"))
        if behaviour.draw(move_id, "lose"):
            self.lost += 1
            return
        failed = behaviour.draw(move_id, "fail")
        for _ in range(2 if behaviour.draw(move_id, "double") else 1):
            self._say("MoveFailed" if failed else "MoveCompleted", move)
        self.failed += failed
        self.completed += not failed


class Executor:
    """Accepts each move once its assignment has come, and reports it completed a while later.

    A move is acted on once, whatever is repeated. One that has ended by the time it would be
    completed is left alone, as its shard belongs to another move by then; that it was stopped is
    said whenever its end is told (superseded, cancelled, expired). Moves that were open before the
    executor came are taken on too. It runs in one thread of its own between `start` and `close`;
    `moves` counts what became of them. `behaviour` may be just the delay in seconds; `serves` says
    which nodes are there to copy to (absent: all).
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        behaviour: ExecutorBehaviour | float | None = None,
        *,
        options: Mapping[str, str] | None = None,
        serves: Callable[[str], bool] | None = None,
        reachability: Reachability | None = None,
    ) -> None:
        self._topic = full_name(ACKS, prefix)
        if isinstance(behaviour, float | int):
            behaviour = ExecutorBehaviour(delay_seconds=behaviour)
        self.moves = SimulatedCopies(
            behaviour or ExecutorBehaviour(), self._acknowledge, serves=serves
        )
        # What is said again, as after a restart, is another record: ids must not come twice.
        self._life, self._said = uuid.uuid4().hex, 0
        # Moves first: an assignment is then at least as new as the moves that were read.
        self._reader = CommittedReader(
            bootstrap, prefix, [MOVES, ASSIGNMENTS], options=options, reachability=reachability
        )
        self._producer = make_producer(bootstrap, options)
        self._ready, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="executor", daemon=True)
        self._failure: BaseException | None = None
        self._undelivered = ""

    @property
    def running(self) -> bool:
        """False before `start`, after `close`, and when its thread has failed."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin with the moves that are open now."""
        self._thread.start()

    def wait_ready(self, timeout_seconds: float) -> bool:
        """Wait until all that was on the topics at the start is read; returns whether it is."""
        return self._ready.wait(timeout_seconds)

    def close(self) -> None:
        """Stop, moves that are under way staying unfinished. Raises what went wrong meanwhile."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._reader.close()
        if self._failure is not None:
            raise self._failure
        unsent = self._producer.flush(FLUSH_TIMEOUT_SECONDS)
        if unsent or self._undelivered:
            reason = self._undelivered or format_count(unsent, "record waits", "records wait")
            raise StreamingError(f"acknowledgements do not reach the broker: {reason}")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        moves = self.moves
        try:
            # Only the last state of each move counts, not the states it went through before.
            last: dict[str | None, Record] = {}
            for record in self._reader.records_to_end():
                if record.topic == MOVES:
                    last[record.key] = record
                else:
                    self._see(record)
            for record in last.values():
                self._see(record)
            self._ready.set()
            while not self._stopping.is_set():
                moves.advance()
                for record in self._reader.poll(moves.wait_seconds):
                    self._see(record)
                self._producer.poll(0)
        except BaseException as error:  # noqa: BLE001 - shown by close(), in the caller's thread
            self._failure = error

    def _see(self, record: Record) -> None:
        see = self.moves.see if record.topic == MOVES else self.moves.see_assignment
        see(record.key or "", record.value)

    def _acknowledge(self, message: str, move: Move, bytes_done: int | None = None) -> None:
        key = str(move.shard_id)
        self._said += 1
        headers = encode_headers(
            message,
            cell="executor",
            id=f"{message}:{self._life}:{self._said}",
            subject=key,
            time_ms=now_ms(),
        )
        self._producer.produce(
            self._topic,
            orjson.dumps(make_acknowledgement(move, bytes_done)),
            key.encode(),
            headers=[*headers],
            on_delivery=self._note_delivery,
        )

    def _note_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._undelivered = error.str()
