"""What becomes of moves that were called off: their executors are reminded until they confirm it.

Told again at the interval, counted, never after the confirmation, and remembered as long.
"""

from collections.abc import Iterable, Iterator

from placement.model import AckKind, Event, MoveAcked
from tests.oracle.world import Shard, Value

CALLED_OFF = ("cancelled", "superseded", "expired")
# Words by which an executor says that it does nothing for a move any more.
CONFIRM = (AckKind.STOPPED, AckKind.FAILED)


class Unmarked:
    """Moves that were called off, and whether their executors have said so. `interval_ms`: how
    long a reminder may be waited for, None where times are not judged."""

    def __init__(self, interval_ms: int | None) -> None:
        self._interval_ms = interval_ms
        # By move: its shard, and the time at which it was told last.
        self._told: dict[str, tuple[Shard, int | None]] = {}
        self._now: dict[str, Shard] = {}
        # Uids of their streams, and by what was said of a move or of a shard, the uids named there.
        self._uids: dict[str, str | None] = {}
        self._confirmed: dict[str, set[str | None]] = {}
        self._stopped: dict[Shard, set[str | None]] = {}

    def hear(self, events: Iterable[Event]) -> None:
        """Executors speak, in the batch that is fed next."""
        for event in events:
            if not isinstance(event, MoveAcked) or event.kind not in CONFIRM:
                continue
            if event.move_id is not None:
                self._confirmed.setdefault(event.move_id, set()).add(event.uid)
            elif event.kind is AckKind.STOPPED:
                shard = (event.stream, event.shard)
                self._stopped.setdefault(shard, set()).add(event.uid)
        for move_id, (shard, _) in [*self._told.items()]:
            if self._means(self._confirmed.get(move_id), move_id) or self._means(
                self._stopped.get(shard), move_id
            ):
                del self._told[move_id]

    def _means(self, named: set[str | None] | None, move_id: str) -> bool:
        """Whether one who named these uids spoke of the move: of its stream, or without a uid."""
        uid = self._uids.get(move_id)
        return named is not None and (uid is None or not named.isdisjoint((None, uid)))

    def forget(self, key: str) -> None:
        """Drop what is known of a move whose record is gone."""
        self._told.pop(key, None)
        self._now.pop(key, None)
        self._uids.pop(key, None)

    def call_off(self, move: Value) -> None:
        """Note that a move ended without its executor's word: the executor has to be told."""
        self._now[move["move_id"]] = (move["stream"], move["shard"])
        self._uids[move["move_id"]] = move.get("uid")

    def judge_reminder(self, before: Value, move: Value) -> Iterator[str]:
        """Judge a move that had ended and is published once more, as a reminder."""
        key, count = move["move_id"], (before["reminded"] or 0) + 1
        if move["state"] != before["state"] or move["reminded"] != count:
            yield f"move {key} went from {before['state']} to {move['state']}, {move['reminded']}"
        # Without the ends of batches, what was told is known of this one at least.
        if key not in self._told and key not in self._now:
            yield f"move {key} is told again, which its executor has confirmed"

    def judge(self, remembered: Iterable[str], now: int | None) -> Iterator[str]:
        """A batch ends at the time `now`; `remembered`: ids that are still to be confirmed."""
        left = set(remembered)
        for key, shard in self._now.items():
            _, told = self._told.get(key, (shard, None))
            interval = self._interval_ms
            if interval is not None and None not in (told, now) and told + interval > now:
                yield f"move {key} is told again at {now}, and was at {told}"
            # Whoever has stopped all of a shard may have said so before this one was called off.
            stopped = self._means(self._stopped.get(shard), key)
            if not self._means(self._confirmed.get(key), key) and (not stopped or key in left):
                self._told[key] = shard, now
        self._now.clear()
        self._confirmed.clear()
        self._stopped.clear()
        if self._interval_ms is None or now is None:
            return
        if left != self._told.keys():
            yield f"moves {left} are remembered as not confirmed, {self._told.keys()} are not"
        for key, (_, told) in self._told.items():
            if told is not None and told + self._interval_ms <= now:
                yield f"move {key} is not told again at {now}, and was at {told}"
