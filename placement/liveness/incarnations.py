"""Decides which life of a node's process holds its name, where several claim it.

A process that restarts comes with a new incarnation, usually before its earlier life is missed. The
later life waits until the earlier one has been silent for the grace on the silence clock, or has
announced its end; then it takes over. Two lives that both go on speaking are two processes with one
name: the conflict is reported once, and the holder keeps the name.

- Sequences and times of two lives are never compared.
- An earlier life that registers again waits like any other: a rolled-back version may come with the
  incarnation that it had.
- Records of an earlier life are tolerated for one grace after the takeover, because they may have
  been sent before it ended. Later ones are a conflict, reported once until that life has been
  silent for `Timers.dead_after_ms`.
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
    """Marks a moment on the silence clock of a partition."""

    partition: int
    reading: int


@dataclass(slots=True)
class WaitingLife:
    """Holds a life that waits to take over.

    `sequence` and `heard` are those of its last statement, `since` is when it began to wait.
    """

    life: PendingLife
    sequence: int
    since: Mark
    heard: Mark


@dataclass(slots=True)
class _RejectedLife:
    """Holds a life that is refused, and when it spoke last."""

    life: RefusedLife
    heard: Mark


class Incarnations:
    """Holds the lives besides the holders, by the nodes' rows in one liveness table.

    `recent`: nodes whose holder has changed within the grace; statements that the earlier life sent
    before its end may still arrive. `stopping`: nodes whose holder has announced its end.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.waiting: dict[int, WaitingLife] = {}
        self.recent: dict[int, Mark] = {}
        self.stopping: set[int] = set()
        self._rejected: dict[int, _RejectedLife] = {}
        self._earlier: dict[int, tuple[str, ...]] = {}

    def of(self, node: int) -> Lives:
        """Return the lives besides the holder, as they are published."""
        waiting, rejected = self.waiting.get(node), self._rejected.get(node)
        return Lives(
            waiting.life if waiting is not None else None,
            rejected.life if rejected is not None else None,
            self._earlier.get(node, ()),
        )

    def restore(self, node: int, lives: Lives) -> None:
        """Restore published lives; all of them count as heard at this time."""
        now = Mark(NO_PARTITION, 0)
        if lives.pending is not None:
            self.waiting[node] = WaitingLife(lives.pending, lives.pending.sequence, now, now)
        if lives.refused is not None:
            self._rejected[node] = _RejectedLife(lives.refused, now)
        if lives.earlier:
            self._earlier[node], self.recent[node] = lives.earlier, now

    def forget(self, node: int) -> None:
        """Drop the lives of a row that another node gets."""
        for known in (self.waiting, self.recent, self._rejected, self._earlier):
            known.pop(node, None)
        self.stopping.discard(node)

    def is_waiting(self, node: int, incarnation: str) -> bool:
        """Return whether this life of the node waits to take over."""
        waiting = self.waiting.get(node)
        return waiting is not None and waiting.life.incarnation == incarnation

    def is_earlier(self, node: int, incarnation: str) -> bool:
        """Return whether this life once held the node's name or waited for it."""
        return incarnation in self._earlier.get(node, ())

    def wait(self, node: int, life: PendingLife, at: Mark) -> bool:
        """Queue a later life that has registered or has sent another statement about itself.

        Of two that wait, the later one stays. Returns whether that has to be published: an agent
        that registers again and again while it waits changes nothing.
        """
        known = self.waiting.get(node)
        if known is not None and known.life.incarnation == life.incarnation:
            life = replace(life, since=known.life.since, grace_ms=known.life.grace_ms)
            self.waiting[node] = WaitingLife(life, life.sequence, known.since, at)
            known_life = (known.life.attributes, known.life.external)
            return known_life != (life.attributes, life.external)
        if known is not None:
            self._withdraw(node, known.life.incarnation)
            self._add_earlier(node, known.life.incarnation, life.incarnation)
        self.waiting[node] = WaitingLife(life, life.sequence, at, at)
        return True

    def withdraw(self, node: int) -> None:
        """Drop the life that waits."""
        self._withdraw(node, self.waiting.pop(node).life.incarnation)

    def follow(self, node: int, earlier: str, later: str, at: Mark) -> None:
        """Pass the name to a later life."""
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
        """Record a heartbeat of the life that waits; returns whether it is a new one."""
        waiting = self.waiting[node]
        if sequence <= waiting.sequence:
            return False
        waiting.sequence, waiting.heard = sequence, at
        return True

    def report_earlier_life(
        self, node: int, incarnation: str, reason: Reason, at: int, mark: Mark
    ) -> bool:
        """Record that an earlier life has spoken; returns whether that is a conflict not yet
        reported.

        A statement within the grace may have been sent before the life ended: it is no conflict.
        """
        if node in self.recent:
            return False
        rejected = self._rejected.get(node)
        if rejected is None:
            self._rejected[node] = _RejectedLife(RefusedLife(incarnation, at, reason), mark)
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
        """Apply a tick, where its partition's clock shows `now`, to all lives besides the holders.

        `seen`: when a node's holder spoke last. `conflict`: why a life is refused. `at`: ms since
        the epoch. Returns the rows whose other lives have changed, and those whose waiting life
        takes over.
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
                self._rejected[node] = _RejectedLife(refused, each.heard)
                changed.add(node)
        return changed, taken

    def _is_conflict(self, node: int, each: WaitingLife, ages: tuple[int, int, int]) -> bool:
        """Return whether the holder and the waiting life both spoke after the grace, not yet
        reported.

        `ages`: ms since the holder's last statement, the other's last, and the other's first.
        """
        known = self._rejected.get(node)
        if known is not None:
            if known.life.incarnation == each.life.incarnation:
                known.heard = each.heard
            return False
        return min(ages) >= 0 and ages[2] - max(ages[:2]) >= each.life.grace_ms

    def _ages(
        self, marks: Iterable[tuple[int, Mark]], silence: SilenceClocks, now: Mark
    ) -> list[tuple[int, int]]:
        """Compute the age of each mark in ms; -1 for marks that another partition's ticks decide
        about."""
        listed = list(marks)
        if not listed:
            return []
        home = np.array([mark.partition for _, mark in listed], np.int32)
        reading = np.array([mark.reading for _, mark in listed], np.int64)
        ages = silence.silence(home, reading, now.partition, now.reading).tolist()
        return [(node, age) for (node, _), age in zip(listed, ages, strict=True)]

    def unsettle(self, shown: Callable[[int], int]) -> None:
        """Count all marks from here, as the number of partitions has changed.

        `shown`: the reading of a partition's clock.
        """

        def rebase(mark: Mark) -> Mark:
            return Mark(NO_PARTITION, mark.reading - shown(mark.partition))

        for each in self.waiting.values():
            each.since, each.heard = rebase(each.since), rebase(each.heard)
        for rejected in self._rejected.values():
            rejected.heard = rebase(rejected.heard)
        self.recent = {node: rebase(mark) for node, mark in self.recent.items()}

    def to_json(self) -> list[Any]:
        """Return the lives as JSON has them; `from_json` restores them."""
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
        """Return the earlier lives as JSON has them; they change as seldom as the holders do."""
        return dict(sorted(self._earlier.items()))

    @classmethod
    def from_json(cls, to_json: Sequence[Any], earlier: Any, timers: Timers) -> "Incarnations":
        """Read the results of `to_json` and `earlier_to_json`."""
        found = cls(timers)
        waiting, rejected, recent, stopping = to_json
        for node, (life, sequence, since, heard) in waiting.items():
            marks = Mark(*since), Mark(*heard)
            found.waiting[int(node)] = WaitingLife(_life_from_json(life), sequence, *marks)
        for node, ((incarnation, at, message), heard) in rejected.items():
            life = RefusedLife(incarnation, at, Reason(Code.INCARNATION_CONFLICT, message))
            found._rejected[int(node)] = _RejectedLife(life, Mark(*heard))
        found.recent = {int(node): Mark(*mark) for node, mark in recent.items()}
        found.stopping = set(stopping)
        found._earlier = {int(node): tuple(each) for node, each in earlier.items()}
        return found


def _life_to_json(life: PendingLife) -> list[Any]:
    a = life.attributes
    known_life = [
        a.location,
        a.tags,
        a.host,
        a.weight,
        a.capacity,
        a.leader,
        a.tokens,
        a.capacities,
    ]
    who = [life.incarnation, life.sequence, life.body_hash, life.since, life.grace_ms]
    return [*who, known_life, life.external]


def _life_from_json(to_json: Sequence[Any]) -> PendingLife:
    incarnation, sequence, body_hash, since, grace_ms, known_life, external = to_json
    who = (incarnation, sequence, body_hash, since, grace_ms)
    location, tags, host, weight, capacity, leader, tokens, capacities = known_life
    pairs = tuple((key, value) for key, value in tags)
    amounts = None if capacities is None else tuple((name, of) for name, of in capacities)
    rest = (host, weight, capacity, leader, None if tokens is None else tuple(tokens), amounts)
    return PendingLife(*who, NodeAttributes(location, pairs, *rest), external)
