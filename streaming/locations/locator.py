"""Asks the configured location authority at registrations; its answers are events.

Files and labels are read at once. A `location_mapping_cmd` is run beside the batch, in a thread of
its own; what it says comes with a later batch. Whatever is answered is an event of the journal, so
that a replay asks nobody.
"""

import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from placement.model import (
    Liveness,
    Location,
    LocationResolved,
    NodeChanged,
    NodeView,
    parse_location,
)
from streaming.locations.sources import (
    LocationMap,
    LocationsUnreadable,
    cloud_location,
    read_locations,
)

# Hosts of one call; a command line is far longer than that allows.
_HOSTS_MAX = 100
# A host that could not be resolved is asked for again: a script that was broken for a moment must
# not make a node unusable until it registers again, as it does in Kudu.
RETRY_SECONDS = 60.0


class Locator(Protocol):
    """Answers where registering nodes stand."""

    def locate(self, event: NodeChanged) -> LocationResolved | None:
        """Return the location of a registering node if it is known at once; else None, and it comes
        later."""

    def take_answers(self, now: int) -> Sequence[LocationResolved]:
        """Return the locations found since the last call, as of the core's time in ms."""

    def close(self) -> None:
        """Ask nobody any more."""


class FileLocator:
    """A mapping file, read again when it has changed; one that cannot be read leaves the last."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._map: LocationMap = read_locations(path)
        self._stamp = _stamp(path)

    def locate(self, event: NodeChanged) -> LocationResolved | None:
        """The file's answer."""
        if event.attributes is None:
            return None
        stamp, why = _stamp(self._path), f"not in {self._path.name}"
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._map = read_locations(self._path)
            except LocationsUnreadable as error:
                why = str(error)
        place = self._map.locate(event.node_id, event.attributes.host)
        reason = None if place else why
        return LocationResolved(event.at, event.node_id, place, "file", reason)

    def take_answers(self, now: int) -> Sequence[LocationResolved]:
        """Return nothing: a file answers at once."""
        del now
        return ()

    def close(self) -> None:
        """Do nothing: no file is held open."""


class CloudLocator:
    """Region and zone labels, in the form of a snitch."""

    def __init__(self, form: str) -> None:
        self._form = form

    def locate(self, event: NodeChanged) -> LocationResolved | None:
        """Return the location that the labels give."""
        tags = event.attributes.tags if event.attributes is not None else event.tags
        if tags is None:
            return None
        place = cloud_location(dict(tags), self._form)
        reason = None if place else "its tags have no usable region and zone"
        return LocationResolved(event.at, event.node_id, place, "cloud", reason)

    def take_answers(self, now: int) -> Sequence[LocationResolved]:
        """Return nothing: labels answer at once."""
        del now
        return ()

    def close(self) -> None:
        """Do nothing: no resource is held."""


@dataclass(slots=True)
class _PendingHost:
    """Lists the nodes that wait for the location of a host."""

    nodes: dict[str, None] = field(default_factory=dict)
    due_at: float = 0.0


class CommandLocator:
    """Runs a command that gets hosts as its last arguments and prints one location per line. Kudu's
    `location_mapping_cmd` does so for one host. Its answer holds until the node registers again."""

    def __init__(
        self,
        command: str,
        timeout_seconds: float,
        run: Callable[[Sequence[str], float], str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._command = shlex.split(command)
        self._timeout_seconds = timeout_seconds
        self._run, self._clock = run or _run, clock
        self._asked: dict[str, _PendingHost] = {}
        self._answers: dict[str, tuple[str | None, str | None]] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="locations", daemon=True)
        self._thread.start()

    def resume(self, nodes: Iterable[NodeView], placed: Mapping[str, object]) -> None:
        """Ask again for the nodes that an earlier process has not learned the place of."""
        for view in nodes:
            if view.node_id not in placed and view.liveness is not Liveness.UNREGISTERED:
                self._ask(view.node_id, view.attributes.host)

    def locate(self, event: NodeChanged) -> LocationResolved | None:
        """Queue the host for the command and return None."""
        if event.attributes is not None:
            self._ask(event.node_id, event.attributes.host)
        return None

    def take_answers(self, now: int) -> Sequence[LocationResolved]:
        """Return the locations that the command has printed since the last call."""
        with self._changed:
            answers, self._answers = self._answers, {}
        return [
            LocationResolved(now, node_id, place, "command", reason)
            for node_id, (place, reason) in sorted(answers.items())
        ]

    def close(self) -> None:
        """End the thread once the command under way has ended."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _ask(self, node_id: str, host: str | None) -> None:
        with self._changed:
            asked = self._asked.setdefault(host or node_id, _PendingHost())
            asked.nodes[node_id] = None
            asked.due_at = 0.0
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                hosts = self._due_hosts()
                while not hosts and not self._closing:
                    self._changed.wait(self._pause())
                    hosts = self._due_hosts()
                if self._closing:
                    return
                waiting = {host: self._asked.pop(host) for host in hosts}
            found = _answers_of(self._run, [*self._command, *hosts], hosts, self._timeout_seconds)
            with self._changed:
                for host, (place, reason) in found.items():
                    nodes = waiting[host].nodes
                    self._answers.update((node_id, (place, reason)) for node_id in nodes)
                    if place is None and host not in self._asked:
                        self._asked[host] = _PendingHost(nodes, self._clock() + RETRY_SECONDS)

    def _due_hosts(self) -> list[str]:
        now = self._clock()
        return [host for host, asked in self._asked.items() if asked.due_at <= now][:_HOSTS_MAX]

    def _pause(self) -> float | None:
        """Until the next host is due; None where none waits."""
        due = [asked.due_at for asked in self._asked.values()]
        return max(min(due) - self._clock(), 0.0) if due else None


def _answers_of(
    run: Callable[[Sequence[str], float], str],
    command: Sequence[str],
    hosts: Sequence[str],
    timeout_seconds: float,
) -> dict[str, tuple[str | None, str | None]]:
    """Place or reason by host."""
    try:
        lines = run(command, timeout_seconds).strip().splitlines()
    except subprocess.TimeoutExpired:
        return dict.fromkeys(hosts, (None, f"the command took longer than {timeout_seconds:g} s"))
    except subprocess.CalledProcessError as error:
        return dict.fromkeys(hosts, (None, f"the command ended with status {error.returncode}"))
    except (OSError, UnicodeDecodeError) as error:
        return dict.fromkeys(hosts, (None, f"the command cannot be run: {error}"))
    if len(lines) != len(hosts):
        reason = f"the command printed {len(lines)} lines for {len(hosts)} hosts"
        return dict.fromkeys(hosts, (None, reason))
    return {host: _answer(line.strip()) for host, line in zip(hosts, lines, strict=True)}


def _answer(line: str) -> tuple[str | None, str | None]:
    found = parse_location(line)
    if isinstance(found, Location):
        return (str(found), None) if line else (None, "the command printed an empty line")
    return None, found.message


def _run(command: Sequence[str], timeout_seconds: float) -> str:
    done = subprocess.run(
        command, capture_output=True, timeout=timeout_seconds, check=True, text=True
    )
    return done.stdout


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
