"""The log of a replica: a file with one record in each line, which only grows at its end.

A line is the checksum of all lines up to it, as eight hexadecimal digits, and JSON: the epoch of
the leader that wrote the record, the key and the value. Two logs in which the records of one number
have the same epoch and checksum are therefore equal up to there.
"""

import json
import logging
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

LOG = logging.getLogger("store")
# How a process ends whose disk has failed (sysexits.h: EX_IOERR): nobody knows then what is on it.
# The next start reads what is there, and gives up what is damaged.
EXIT_DISK_FAILED = 74
BLOCK_BYTES = 1024 * 1024


class LogDamaged(Exception):
    """A line is not what was written; the text says which."""


class Place(NamedTuple):
    """Where a log ends, or a place in it: the record's number from 1, its leader's epoch, and the
    checksum of everything up to it."""

    number: int
    epoch: int
    checksum: int


ORIGIN = Place(0, 0, 0)


class Record(NamedTuple):
    """A line as it is read. A leader's first record in its epoch has no key."""

    place: Place
    key: str | None
    value: str | None


def make_line(before: Place, epoch: int, key: str | None, value: str | None) -> str:
    """Write the line that follows."""
    body = json.dumps([epoch, key, value])
    return f"{zlib.crc32(body.encode(), before.checksum):08x} {body}\n"


def read_line(before: Place, line: str) -> Record:
    """Read the line that follows. Raises LogDamaged where its checksum says that it does not."""
    written, _, body = line.rstrip("\n").partition(" ")
    checksum = zlib.crc32(body.encode(), before.checksum)
    if written != f"{checksum:08x}":
        raise LogDamaged(f"record {before.number + 1} does not have the checksum {written}")
    epoch, key, value = json.loads(body)
    return Record(Place(before.number + 1, epoch, checksum), key, value)


class Log:
    """An open log. What `append` has returned from is on the disk. Not safe for threads."""

    def __init__(self, path: Path) -> None:
        """Open or make it. A last line that was cut off in the middle of its writing is removed;
        nobody was told that it is there. Raises LogDamaged."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._places, self._ends = [ORIGIN], [0]
        with path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                place = read_line(self.last, line.decode("utf-8", "replace")).place
                self._places.append(place)
                self._ends.append(self._ends[-1] + len(line))
        os.ftruncate(self._file, self.size_bytes)

    @property
    def last(self) -> Place:
        """The place of the last record."""
        return self._places[-1]

    @property
    def size_bytes(self) -> int:
        """The size of the file."""
        return self._ends[-1]

    def place(self, number: int) -> Place | None:
        """Return the place of a record; None where there is none."""
        return self._places[number] if number < len(self._places) else None

    def append(self, lines: Sequence[str]) -> None:
        """Add lines, on the disk. Raises LogDamaged, with nothing written, where they do not
        follow."""
        if not lines:
            return
        places, ends = [self.last], [self.size_bytes]
        for line in lines:
            places.append(read_line(places[-1], line).place)
            ends.append(ends[-1] + len(line.encode()))
        rest = "".join(lines).encode()
        try:
            while rest:
                rest = rest[os.pwrite(self._file, rest, ends[-1] - len(rest)) :]
            os.fdatasync(self._file)
        except OSError as error:
            _end(f"the log cannot be written: {error}")
        self._places += places[1:]
        self._ends += ends[1:]

    def cut(self, number: int) -> None:
        """Remove all records behind one."""
        del self._places[number + 1 :], self._ends[number + 1 :]
        os.ftruncate(self._file, self.size_bytes)

    def lines(self, after: int, bytes_max: int = BLOCK_BYTES) -> list[str]:
        """Read lines behind a record: about so many bytes, and one line at least if there is one.
        They are checked as they come from the disk, and again by whoever receives them."""
        begin, end = self._ends[after], after
        while end < self.last.number and (end == after or self._ends[end + 1] - begin <= bytes_max):
            end += 1
        try:
            block = os.pread(self._file, self._ends[end] - begin, begin)
            lines = block.decode("utf-8", "replace").splitlines(keepends=True)
            for before, line in zip(self._places[after:end], lines, strict=True):
                read_line(before, line)
        except (OSError, ValueError, LogDamaged) as error:
            _end(f"the log cannot be read: {error}")
        return lines

    def records(self, after: int, up_to: int) -> Iterator[Record]:
        """Read the records behind one, up to another."""
        while after < up_to:
            for line in self.lines(after)[: up_to - after]:
                yield read_line(self._places[after], line)
                after += 1

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def _end(why: str) -> NoReturn:
    LOG.critical("this process ends: %s", why)
    os._exit(EXIT_DISK_FAILED)
