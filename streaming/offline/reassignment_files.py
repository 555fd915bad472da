"""Writes a plan as the files that Kafka's tools read: one a wave, and the elections behind them.

`kafka-reassign-partitions` reads the first JSON document of a file and silently ignores the others,
so that each wave needs a file of its own. It changes lists; who leads is changed by an election.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streaming.offline.plan import PlanResult
from streaming.offline.reassignment import Listed, election_json, reassignment_json

ELECTION_FILE = "leader-election.json"


class ReassignmentFilesRefused(Exception):
    """A directory that files of another plan lie in; the message names one."""


@dataclass(frozen=True, slots=True)
class ReassignmentFiles:
    """The reassignments in their order, the partitions whose preferred leader they change, and the
    replicas that they copy in all. `squashed`: one reassignment states all waves."""

    waves: tuple[str, ...]
    elections: tuple[tuple[str, int], ...]
    copies: int
    squashed: bool = False
    directory: Path | None = None

    def texts(self) -> dict[Path, str]:
        """The files by path in the order in which they are to be carried out."""
        directory = self.directory or Path()
        width = len(str(len(self.waves)))
        found = {
            directory / f"wave-{number:0{width}}.json": text + "\n"
            for number, text in enumerate(self.waves, 1)
        }
        if self.elections:
            found[directory / ELECTION_FILE] = election_json(self.elections) + "\n"
        return found

    def commands(self) -> list[str]:
        """List the commands that carry the files out, in their order."""
        return [*self._commands()]

    def _commands(self) -> Iterator[str]:
        for path in self.texts():
            if path.name == ELECTION_FILE:
                yield f"{_ELECT} --path-to-json-file {path}"
            else:
                yield f"{_REASSIGN} --execute --reassignment-json-file {path}"
                yield f"{_REASSIGN} --verify --reassignment-json-file {path}"

    def body(self) -> dict[str, Any]:
        """The part `kafka` of the answer of `plan`."""
        return {
            "files": [str(path) for path in self.texts()],
            "squashed": self.squashed,
            "copies": self.copies,
            "elections": [{"stream": topic, "shard": number} for topic, number in self.elections],
            "commands": self.commands(),
        }


_REASSIGN = "kafka-reassign-partitions --bootstrap-server HOST:PORT"
_ELECT = "kafka-leader-election --bootstrap-server HOST:PORT --election-type preferred"


def reassignment_files(
    planned: PlanResult, directory: Path | None = None, *, squash: bool = False
) -> ReassignmentFiles:
    """Make the files of a plan: a reassignment for each wave with moves, or with `squash` one that
    states the net change of all. Raises ReassignmentInvalid."""
    changed = planned.net_changes()
    if squash:
        waves = _net_wave({key: after for key, (_, after) in changed.items()})
        copies = sum(len({*after} - {*before}) for before, after in changed.values())
    else:
        waves = tuple(planned.reassignments()) if planned.plan.moves else ()
        copies = planned.impact.copies
    elections = (key for key, (before, after) in changed.items() if before[:1] != after[:1])
    return ReassignmentFiles(waves, tuple(sorted(elections)), copies, squash, directory)


def refuse_foreign_files(directory: Path) -> None:
    """Raise ReassignmentFilesRefused where files of an earlier plan lie in the directory: a wave
    that this plan does not have would be carried out with it. Raises OSError."""
    if not directory.exists():
        return
    found = [*directory.glob("wave-*.json"), *directory.glob(ELECTION_FILE)]
    if found:
        message = f"{min(found)} is of an earlier plan: name an empty directory"
        raise ReassignmentFilesRefused(message)


def _net_wave(lists: Mapping[tuple[str, int], tuple[str, ...]]) -> tuple[str, ...]:
    if not lists:
        return ()
    return (reassignment_json({key: Listed(nodes) for key, nodes in lists.items()}),)
