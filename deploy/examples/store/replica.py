"""A node's replicas, as directories STREAM.SHARD: the log, and what the replica has promised.

A record counts once it is *committed*: the leader has seen it on a majority, and says so with what
it sends next. Only committed records are read.
"""

import json
import logging
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from deploy.examples.store.log import Log, LogDamaged, Place, make_line, read_line
from deploy.examples.store.wire import Refused

LOG = logging.getLogger("store")
Shard = tuple[str, int]


class LocalReplica:
    """A replica on this node's disk. Safe for threads.

    `is_complete`: it counts; an incomplete one is a copy under way. `promised`: the highest epoch
    that it has heard of; it accepts nothing of leaders of earlier ones. `follows`: it accepts
    records of a leader, as a copy does once its bulk is there. `committed`: how many records are.
    """

    def __init__(self, path: Path) -> None:
        """Open it. Raises LogDamaged."""
        self._path = path
        state = json.loads((path / "state.json").read_text("utf-8"))
        self.is_complete, self.promised = bool(state["complete"]), int(state["promised"])
        self.follows = self.is_complete
        self.log = Log(path / "log")
        self.committed = 0
        self.table: dict[str, str] = {}
        self.changed = threading.Condition()

    @property
    def committed_epoch(self) -> int:
        """The epoch of the last committed record: its leader has a majority."""
        place = self.log.place(self.committed)
        return 0 if place is None else place.epoch

    def promise(self, epoch: int) -> Place:
        """Accept nothing of earlier epochs from now on; returns where the log ends. Raises
        Refused."""
        with self.changed:
            if not self.follows:
                raise Refused("no_replica", "the copy is not there yet")
            if epoch < self.promised:
                raise Refused("fenced", f"epoch {self.promised} has a leader already")
            if epoch > self.promised:
                self.promised = epoch
                self._save()
            return self.log.last

    def accept(self, epoch: int, after: Place, lines: Sequence[str], committed: int) -> Place:
        """Take what a leader has behind a place, and what it says is committed. Records that differ
        from the leader's are replaced by them. Returns where the log ends. Raises Refused."""
        with self.changed:
            self.promise(epoch)
            if self.log.place(after.number) != after:
                known = self.log.last.number
                hint = known if known < after.number else self.committed
                raise Refused("differs", f"record {after.number} is another here", hint)
            try:
                place, new = after, [*lines]
                while new and (known_next := self.log.place(place.number + 1)) is not None:
                    following = read_line(place, new[0]).place
                    if following != known_next:
                        assert place.number >= self.committed, "what is committed stays"
                        self.log.cut(place.number)
                        break
                    place = following
                    del new[0]
                self.log.append(new)
            except LogDamaged as damage:
                raise Refused(
                    "differs", f"what came is damaged: {damage}", self.committed
                ) from None
            self.commit(min(committed, after.number + len(lines)))
            return self.log.last

    def write(self, epoch: int, key: str | None, value: str | None) -> Place:
        """Add a record as the leader of an epoch. Raises Refused."""
        with self.changed:
            self.promise(epoch)
            self.log.append([make_line(self.log.last, epoch, key, value)])
            self.changed.notify_all()
            return self.log.last

    def commit(self, number: int) -> None:
        """Take in that records up to this one are on a majority."""
        with self.changed:
            if number <= self.committed:
                return
            for record in self.log.records(self.committed, number):
                if record.key is not None:
                    self.table[record.key] = record.value or ""
            self.committed = number
            self.changed.notify_all()

    def wait_committed(self, number: int, timeout_seconds: float) -> None:
        """Wait until a record is committed here. Raises Refused."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.committed >= number, timeout_seconds):
                text = f"{self.committed} records are known to be committed, not {number}"
                raise Refused("behind", text)

    def read(self, after: Place) -> list[str]:
        """Read the next lines behind a place. Raises Refused."""
        with self.changed:
            if not self.follows or self.log.place(after.number) != after:
                raise Refused("differs", f"record {after.number} is another here, or there is none")
            return self.log.lines(after.number)

    def take(self, lines: Sequence[str]) -> None:
        """Add lines that were copied from another replica. Raises LogDamaged."""
        with self.changed:
            self.log.append(lines)

    def follow(self) -> None:
        """Accept what the leader sends from now on; a copy whose bulk is there."""
        with self.changed:
            self.follows = True

    def begin_copy(self, *, anew: bool = False) -> None:
        """Count no more until `complete`. `anew`: what there is is thrown away."""
        with self.changed:
            self.is_complete = self.follows = False
            if anew:
                self.log.cut(0)
                self.committed, self.table = 0, {}
            self._save()

    def complete(self) -> None:
        """Note, on the disk, that the copy is all there."""
        with self.changed:
            self.is_complete = True
            self._save()

    def close(self) -> None:
        """Accept nothing any more."""
        with self.changed:
            self.follows = False
            self.log.close()

    def _save(self) -> None:
        save_state(self._path, self.is_complete, self.promised)


class LocalReplicas:
    """All replicas on this node's disk. Safe for threads.

    `damaged`: shards whose log was found damaged when it was opened; what is left of it is kept
    beside, as `damaged.STREAM.SHARD`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._open: dict[Shard, LocalReplica] = {}
        self.damaged: set[Shard] = set()
        for path in sorted(root.glob("[!.]*.*[0-9]")):
            if path.name.startswith("damaged."):
                continue
            stream, _, number = path.name.rpartition(".")
            if not (path / "state.json").exists():
                # Its making or its deletion was cut off.
                shutil.rmtree(path)
                continue
            try:
                self._open[stream, int(number)] = LocalReplica(path)
            except LogDamaged as damage:
                LOG.error("the replica of %s/%s is damaged: %s", stream, number, damage)
                self.damaged.add((stream, int(number)))
                aside = root / f"damaged.{path.name}"
                shutil.rmtree(aside, ignore_errors=True)
                path.rename(aside)

    def get(self, shard: Shard) -> LocalReplica | None:
        """Return the replica of a shard, complete or not; None where there is none."""
        with self._lock:
            return self._open.get(shard)

    def list(self) -> list[tuple[Shard, LocalReplica]]:
        """List what there is."""
        with self._lock:
            return [*self._open.items()]

    def make(self, shard: Shard, *, complete: bool) -> LocalReplica:
        """Make an empty replica, or return the one that is there."""
        with self._lock:
            if shard not in self._open:
                path = self._path(shard)
                path.mkdir(exist_ok=True)
                save_state(path, complete, 0)
                self._open[shard] = LocalReplica(path)
            return self._open[shard]

    def delete(self, shard: Shard) -> None:
        """Delete the replica of a shard, if there is one."""
        with self._lock:
            replica = self._open.pop(shard, None)
            if replica is not None:
                replica.close()
                (self._path(shard) / "state.json").unlink()
                shutil.rmtree(self._path(shard))

    def _path(self, shard: Shard) -> Path:
        return self._root / f"{shard[0]}.{shard[1]}"


def save_state(path: Path, complete: bool, promised: int) -> None:
    """Write a replica's state so that a crash leaves the old one or the new one."""
    part = path / "state.part"
    with part.open("w") as file:
        json.dump({"complete": complete, "promised": promised}, file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path / "state.json")
    for each in (path, path.parent):
        directory = os.open(each, os.O_RDONLY)
        os.fsync(directory)
        os.close(directory)
