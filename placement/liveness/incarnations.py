"""Incarnations: which life of a node's process holds its name, where several claim it.

A process that restarts comes with a new incarnation, usually before its earlier life is missed.
The later life waits until the earlier one has been silent for a while on the silence clock, or has
said that it goes; then it takes over. Two that go on speaking are two processes
with one name: that is told once, and the one that holds the name keeps it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from placement.liveness.clocks import NO_PARTITION, SilenceClocks, Timers
from placement.model import Code, Lives, NodeAttributes, PendingLife, Reason, RefusedLife

# Of how many lives before the present one a node's record tells. A process that crashes at each
# start goes through them quickly, and what is older has no more to say.
EARLIER_KEPT = 3


class Mark(NamedTuple):
    """A moment on the silence clock of a partition."""

    partition: int
    reading: int


@dataclass(slots=True)
class Waiting:
    """A life that waits: `sequence` and `heard` are those of its last word, `since` is when it
    began to wait."""

    life: PendingLife
    sequence: int
    since: Mark
    heard: Mark


@dataclass(slots=True)
class _Rejected:
    """A life that is refused, and when it spoke last."""

    life: RefusedLife
    heard: Mark


class Incarnations:
    """The lives besides the holders of the nodes of one liveness table, by the nodes' rows there.

    `recent` are nodes whose life has changed within the grace: what their earlier life had sent
    before it ended may still come in. `stopping` are nodes whose holder has said that it stops.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.waiting: dict[int, Waiting] = {}
        self.recent: dict[int, Mark] = {}
        self.stopping: set[int] = set()
        self._rejected: dict[int, _Rejected] = {}
        self._earlier: dict[int, tuple[str, ...]] = {}

    def of(self, node: int) -> Lives:
        """The lives besides the holder as they are published."""
        waiting, rejected = self.waiting.get(node), self._rejected.get(node)
        return Lives(
            waiting.life if waiting is not None else None,
            rejected.life if rejected is not None else None,
            self._earlier.get(node, ()),
        )

    def restore(self, node: int, lives: Lives) -> None:
        """Go on from what was published; all that are known are taken as heard just now."""
        now = Mark(NO_PARTITION, 0)
        if lives.pending is not None:
            self.waiting[node] = Waiting(lives.pending, lives.pending.sequence, now, now)
        if lives.refused is not None:
            self._rejected[node] = _Rejected(lives.refused, now)
        if lives.earlier:
            self._earlier[node], self.recent[node] = lives.earlier, now

    def forget(self, node: int) -> None:
        """Another node gets the row."""
        for known in (self.waiting, self.recent, self._rejected, self._earlier):
            known.pop(node, None)
        self.stopping.discard(node)

    def is_waiting(self, node: int, incarnation: str) -> bool:
        """Whether this life of the node waits to take over."""
        waiting = self.waiting.get(node)
        return waiting is not None and waiting.life.incarnation == incarnation

    def is_earlier(self, node: int, incarnation: str) -> bool:
        """Whether this life once held the node's name or waited for it."""
        return incarnation in self._earlier.get(node, ())

    def wait(self, node: int, life: PendingLife, at: Mark) -> bool:
        """Let a later life wait that has registered, or speaks of itself again.

        Of two that wait the one that came last goes on waiting. Returns whether that has to be
        published: an agent that registers again and again while it waits says nothing new.
        """
        known = self.waiting.get(node)
        if known is not None and known.life.incarnation == life.incarnation:
            life = replace(life, since=known.life.since, grace_ms=known.life.grace_ms)
            self.waiting[node] = Waiting(life, life.sequence, known.since, at)
            known_life = (known.life.attributes, known.life.external)
            return known_life != (life.attributes, life.external)
        if known is not None:
            self._withdraw(node, known.life.incarnation)
            self._add_earlier(node, known.life.incarnation, life.incarnation)
        self.waiting[node] = Waiting(life, life.sequence, at, at)
        return True

    def withdraw(self, node: int) -> None:
        """The life that waits is gone."""
        self._withdraw(node, self.waiting.pop(node).life.incarnation)

    def follow(self, node: int, earlier: str, later: str, at: Mark) -> None:
        """A later life takes the name over."""
        waiting = self.waiting.pop(node, None)
        if waiting is not None and waiting.life.incarnation != later:
            self._add_earlier(node, waiting.life.incarnation, later)
        self._add_earlier(node, earlier, later)
        self._rejected.pop(node, None)
        self.stopping.discard(node)
        self.recent[node] = at

    def _add_earlier(self, node: int, earlier: str, later: str) -> None:
        known = (*self._earlier.get(node, ()), earlier)
        kept = dict.fromkeys(each for each in reversed(known) if each != later)
        self._earlier[node] = tuple(reversed([*kept][:EARLIER_KEPT]))

    def _withdraw(self, node: int, incarnation: str) -> None:
        rejected = self._rejected.get(node)
        if rejected is not None and rejected.life.incarnation == incarnation:
            del self._rejected[node]

    def record_heartbeat(self, node: int, sequence: int, at: Mark) -> bool:
        """A sign of the life that waits; whether it is a new one."""
        waiting = self.waiting[node]
        if sequence <= waiting.sequence:
            return False
        waiting.sequence, waiting.heard = sequence, at
        return True

    def report_earlier_life(
        self, node: int, incarnation: str, reason: Reason, at: int, mark: Mark
    ) -> bool:
        """An earlier life has spoken; whether that is a conflict nobody has been told of. What
        comes within the grace may have been sent before the life ended."""
        if node in self.recent:
            return False
        rejected = self._rejected.get(node)
        if rejected is None:
            self._rejected[node] = _Rejected(RefusedLife(incarnation, at, reason), mark)
        elif rejected.life.incarnation == incarnation:
            rejected.heard = mark
        return rejected is None

    def apply_tick(
        self,
        silence: SilenceClocks,
        seen: Callable[[int], Mark],
        conflict: Callable[[int, str], Reason],
        at: int,
        now: Mark,
    ) -> tuple[set[int], list[int]]:
        """Look at a tick, where its partition's clock shows `now`, at all nodes whose life has
        changed or may. `seen`: when a node's holder spoke last; `conflict`: why a life is refused.
        Returns the nodes whose other lives have changed, and those whose waiting life takes over.
        """
        changed: set[int] = set()
        taken: list[int] = []
        for node, age in self._ages(self.recent.items(), silence, now):
            if age >= self._timers.incarnation_grace_ms:
                del self.recent[node]
        rejected = ((node, each.heard) for node, each in self._rejected.items())
        for node, age in self._ages(rejected, silence, now):
            if age >= self._timers.dead_after_ms:
                del self._rejected[node]
                changed.add(node)
        waiting = [*self.waiting.items()]
        holders = self._ages(((node, seen(node)) for node, _ in waiting), silence, now)
        heard = self._ages(((node, each.heard) for node, each in waiting), silence, now)
        waits = self._ages(((node, each.since) for node, each in waiting), silence, now)
        for row, (node, each) in enumerate(waiting):
            silent = holders[row][1]
            if heard[row][1] >= self._timers.suspect_after_ms:
                self.withdraw(node)
                changed.add(node)
            elif silent >= each.life.grace_ms:
                taken.append(node)
            elif self._is_conflict(node, each, (silent, heard[row][1], waits[row][1])):
                reason = conflict(node, each.life.incarnation)
                refused = RefusedLife(each.life.incarnation, at, reason)
                self._rejected[node] = _Rejected(refused, each.heard)
                changed.add(node)
        return changed, taken

    def _is_conflict(self, node: int, each: Waiting, ages: tuple[int, int, int]) -> bool:
        """Whether the holder and the life that waits have both spoken after the grace, and nobody
        has been told. `ages`: of the holder's last word, of the other's, and of its first."""
        known = self._rejected.get(node)
        if known is not None:
            if known.life.incarnation == each.life.incarnation:
                known.heard = each.heard
            return False
        return min(ages) >= 0 and ages[2] - max(ages[:2]) >= each.life.grace_ms

    def _ages(
        self, marks: Iterable[tuple[int, Mark]], silence: SilenceClocks, now: Mark
    ) -> list[tuple[int, int]]:
        """Compute the age of each mark in ms; -1 for those that another partition's ticks judge."""
        listed = list(marks)
        if not listed:
            return []
        home = np.array([mark.partition for _, mark in listed], np.int32)
        reading = np.array([mark.reading for _, mark in listed], np.int64)
        ages = silence.silence(home, reading, now.partition, now.reading).tolist()
        return [(node, age) for (node, _), age in zip(listed, ages, strict=True)]

    def unsettle(self, shown: Callable[[int], int]) -> None:
        """The number of partitions has changed: all counts from here. `shown`: what the clock of a
        partition shows."""

        def rebased(mark: Mark) -> Mark:
            return Mark(NO_PARTITION, mark.reading - shown(mark.partition))

        for each in self.waiting.values():
            each.since, each.heard = rebased(each.since), rebased(each.heard)
        for rejected in self._rejected.values():
            rejected.heard = rebased(rejected.heard)
        self.recent = {node: rebased(mark) for node, mark in self.recent.items()}

    def to_json(self) -> list[Any]:
        """As JSON has it; `read` of it behaves the same."""
        waiting = {
            node: [_life_to_json(each.life), each.sequence, each.since, each.heard]
            for node, each in sorted(self.waiting.items())
        }
        rejected = {
            node: [[each.life.incarnation, each.life.since, each.life.reason.message], each.heard]
            for node, each in sorted(self._rejected.items())
        }
        recent = dict(sorted(self.recent.items()))
        return [waiting, rejected, recent, sorted(self.stopping)]

    def earlier_to_json(self) -> dict[int, Sequence[str]]:
        """The earlier lives, as JSON has them: they change as seldom as the holders do."""
        return dict(sorted(self._earlier.items()))

    @classmethod
    def from_json(cls, to_json: Sequence[Any], earlier: Any, timers: Timers) -> "Incarnations":
        """Read what `plain` and `plain_earlier` wrote."""
        found = cls(timers)
        waiting, rejected, recent, stopping = to_json
        for node, (life, sequence, since, heard) in waiting.items():
            marks = Mark(*since), Mark(*heard)
            found.waiting[int(node)] = Waiting(_life_from_json(life), sequence, *marks)
        for node, ((incarnation, at, message), heard) in rejected.items():
            life = RefusedLife(incarnation, at, Reason(Code.INCARNATION_CONFLICT, message))
            found._rejected[int(node)] = _Rejected(life, Mark(*heard))
        found.recent = {int(node): Mark(*mark) for node, mark in recent.items()}
        found.stopping = set(stopping)
        found._earlier = {int(node): tuple(each) for node, each in earlier.items()}
        return found


def _life_to_json(life: PendingLife) -> list[Any]:
    a = life.attributes
    known_life = [a.location, a.tags, a.host, a.weight, a.capacity, a.leader, a.tokens]
    who = [life.incarnation, life.sequence, life.body_hash, life.since, life.grace_ms]
    return [*who, known_life, life.external]


def _life_from_json(to_json: Sequence[Any]) -> PendingLife:
    incarnation, sequence, body_hash, since, grace_ms, known_life, external = to_json
    who = (incarnation, sequence, body_hash, since, grace_ms)
    location, tags, host, weight, capacity, leader, tokens = known_life
    pairs = tuple((key, value) for key, value in tags)
    rest = (host, weight, capacity, leader, None if tokens is None else tuple(tokens))
    return PendingLife(*who, NodeAttributes(location, pairs, *rest), external)
