"""Simulates an executor: accepts the reconciler's moves and reports them done, copying nothing.

It stands for the system whose replicas are placed. The demo and the tests run one beside a
`Fleet`, so that moves come to their end, well or badly: its `ExecutorBehaviour` says how.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field

from placement.wording import format_count
from schemas.envelope import encode_headers
from schemas.topics import ACKS, MOVES, full_name
from streaming.brokers import CommittedReader, make_producer
from streaming.errors import StreamingError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import KafkaError, Message

    from streaming.brokers import Reachability

# How long the thread waits for moves before it looks whether it is to stop.
POLL_SECONDS = 0.1
# What is still unsent after so long will not be: the broker has gone.
FLUSH_TIMEOUT_SECONDS = 30.0

OPEN_STATES = frozenset({"issued", "accepted"})
# States of moves that the reconciler has ended, and tells until it hears that they were stopped.
CALLED_OFF = frozenset({"cancelled", "superseded", "expired"})

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


# Who hears what is said of a move: the message's name, and the move.
Say = Callable[[str, "Mapping[str, Any]"], None]


class SimulatedCopies:
    """Holds the moves that an executor has taken on, and decides its answers: the executor without
    its topics. `say` sends an acknowledgement; `clock` counts seconds; `serves` says whether a node
    is there to copy to: without it nothing is accepted or completed, and what waits goes on when
    the node is back."""

    def __init__(
        self,
        conduct: ExecutorBehaviour,
        say: Say,
        clock: Callable[[], float] = time.monotonic,
        serves: Callable[[str], bool] | None = None,
    ) -> None:
        self._conduct, self._say, self._clock = conduct, say, clock
        self._serves = serves or (lambda _node: True)
        self._taken: set[str] = set()
        self._running: dict[str, Mapping[str, Any]] = {}
        self._due: list[tuple[float, str]] = []
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

    def see(self, move_id: str, move: Mapping[str, Any] | None) -> None:
        """Take on a move that is open, and drop one that has ended."""
        if move is None or move["state"] not in OPEN_STATES:
            if self._running.pop(move_id, None) is not None:
                self.dropped += 1
        elif move_id not in self._taken:
            self._taken.add(move_id)
            self._running[move_id] = move
            heapq.heappush(self._due, (self._clock() + self._conduct.delay_seconds, move_id))
            if move["state"] == "issued" and self._may_copy(move):
                self._say("MoveAccepted", move)
                self.accepted += 1

    def stop(self, move_id: str, move: Mapping[str, Any] | None) -> None:
        """Say that a move which was called off is under way no more."""
        if move is None or move["state"] not in CALLED_OFF:
            return
        if self._conduct.draw(f"{move_id}/{move.get('reminded', 0)}", "lose"):
            return
        self._say("MoveStopped", move)
        self.stopped += 1

    def complete_due(self) -> None:
        """End the moves whose time has come."""
        now = self._clock()
        while self._due and self._due[0][0] <= now:
            _, move_id = heapq.heappop(self._due)
            move = self._running.get(move_id)
            if move is not None and not self._may_copy(move):
                heapq.heappush(self._due, (now + POLL_SECONDS, move_id))
            elif move is not None:
                del self._running[move_id]
                self._end(move_id, move)

    def _may_copy(self, move: Mapping[str, Any]) -> bool:
        """Return whether the node that a copy goes to is there; its source is only a suggestion."""
        return move.get("add") is None or self._serves(move["add"])

    def _end(self, move_id: str, move: Mapping[str, Any]) -> None:
        """Say how the move ended, as the conduct has it."""
        conduct = self._conduct
        if conduct.draw(move_id, "lie"):
            self._say("MoveCompleted", {**move, "move_id": f"never-{move_id}"})
        if conduct.draw(move_id, "lose"):
            self.lost += 1
            return
        failed = conduct.draw(move_id, "fail")
        for _ in range(2 if conduct.draw(move_id, "double") else 1):
            self._say("MoveFailed" if failed else "MoveCompleted", move)
        self.failed += failed
        self.completed += not failed


class Executor:
    """Acknowledges each move at once and reports it completed a while later.

    A move is acted on once, whatever is repeated. One that has ended by the time it would be
    completed is left alone, as its shard belongs to another move by then; that it was stopped is
    said whenever its end is told (superseded, cancelled, expired). Moves that were open before the
    executor came are taken on too; of what ended before it hears with the next reminder. It runs in
    one thread of its own between `start` and `close`; `moves` counts what became of them. `conduct`
    may be just the delay in seconds; `serves` says which nodes are there to copy to (absent: all).
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        conduct: ExecutorBehaviour | float | None = None,
        *,
        options: Mapping[str, str] | None = None,
        serves: Callable[[str], bool] | None = None,
        reachability: Reachability | None = None,
    ) -> None:
        self._topic = full_name(ACKS, prefix)
        if isinstance(conduct, float | int):
            conduct = ExecutorBehaviour(delay_seconds=conduct)
        self.moves = SimulatedCopies(
            conduct or ExecutorBehaviour(), self._acknowledge, serves=serves
        )
        self._reader = CommittedReader(
            bootstrap, prefix, [MOVES], options=options, reachability=reachability
        )
        self._producer = make_producer(bootstrap, options)
        self._stopping = threading.Event()
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
            last = {record.key or "": record.value for record in self._reader.read_to_end()}
            for move_id, move in last.items():
                moves.see(move_id, move)
            while not self._stopping.is_set():
                for record in self._reader.poll(moves.wait_seconds):
                    moves.see(record.key or "", record.value)
                    moves.stop(record.key or "", record.value)
                moves.complete_due()
                self._producer.poll(0)
        except BaseException as error:  # noqa: BLE001 - shown by close(), in the caller's thread
            self._failure = error

    def _acknowledge(self, message: str, move: Mapping[str, Any]) -> None:
        key = f"{move['stream']}/{move['shard']}"
        said = {
            "move_id": move["move_id"],
            "stream": move["stream"],
            "shard": move["shard"],
            "node_id": move.get("add") or move.get("remove"),
        }
        headers = encode_headers(
            message,
            cell="executor",
            id=f"{message}:{move['move_id']}:{move.get('reminded', 0)}",
            subject=key,
            time_ms=time.time_ns() // 1_000_000,
        )
        self._producer.produce(
            self._topic,
            orjson.dumps({name: value for name, value in said.items() if value is not None}),
            key.encode(),
            headers=[*headers],
            on_delivery=self._note_delivery,
        )

    def _note_delivery(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._undelivered = error.str()
