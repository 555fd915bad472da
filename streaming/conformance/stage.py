"""What a scenario plays on: the stand-in, the executor, and what it says, with waits and verdicts.

A `Stage` belongs to a run. A scenario gets a `Scene`, which names its streams and notes evidence.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from schemas.topics import MOVES
from streaming.conformance.acknowledgements import (
    ACCEPTED,
    COMPLETED,
    Acknowledgement,
    find_refused,
    read_acknowledgement,
    says,
)
from streaming.conformance.clauses import Clause, Evidence, Findings, Verdict
from streaming.conformance.reconciler import PlayedShard, StandIn, number_shards
from streaming.conformance.subject import SubjectFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streaming.brokers import CommittedReader
    from streaming.conformance.reconciler import Output
    from streaming.conformance.subject import Subject

POLL_SECONDS = 0.05
# How long an executor may take to read the topics when it starts.
START_PATIENCE_SECONDS = 60.0


class SceneEnded(Exception):
    """A scenario cannot go on: what it waits for has not come."""


@dataclass(slots=True)
class Stage:
    """All of a run. `patience_seconds`: how long an answer may take; `copy_seconds`: how long slow
    copies take."""

    stand_in: StandIn
    subject: Subject
    reader: CommittedReader
    nodes: tuple[str, str, str]
    patience_seconds: float
    copy_seconds: float
    findings: Findings = field(default_factory=Findings)
    said: list[Acknowledgement] = field(default_factory=list)
    # By shard what both sides have written, as it was published or read.
    story: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    _shard_of: dict[str, str] = field(default_factory=dict)
    _fences: Iterator[PlayedShard] | None = None

    def __post_init__(self) -> None:
        self.stand_in.heard = self._note_published

    def look(self) -> None:
        """Take in what the executor has said meanwhile. Raises SubjectFailed where it has ended."""
        for said in map(read_acknowledgement, self.reader.poll(POLL_SECONDS)):
            self.said.append(said)
            self.story.append((said.key, said.to_json()))
        self.subject.check()

    def _note_published(self, output: Output, is_aborted: bool) -> None:
        """Keep a record of the stand-in; one of a move by its shard."""
        if output.topic == MOVES and output.value is not None:
            self._shard_of[output.key] = f"{output.value['stream']}/{output.value['shard']}"
        shard = self._shard_of.get(output.key, output.key)
        self.story.append((shard, output.to_json(is_aborted)))

    def wait(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Look until the condition holds, or the time is over; returns whether it holds."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                return False
            self.look()
        return True

    def begin(self, behaviour: dict[str, str]) -> None:
        """Have the executor run with these variables; it is ready when this returns."""
        self.subject.stop()
        self.subject.start(behaviour)
        if not self.fence(START_PATIENCE_SECONDS):
            raise SubjectFailed(
                f"the executor has carried out no removal within {START_PATIENCE_SECONDS:g} s of "
                "its start; look whether it uses the address and the prefix that it is given\n"
                f"{self._describe_said()}\nthe last lines it wrote:\n{self.subject.last_lines()}"
            )

    def _describe_said(self) -> str:
        """Tell what the executor has said on `acks.v1` so far, and what of it is refused."""
        refused = find_refused(self.said)
        if refused is not None:
            return f"offset {refused.offset} of acks.v1 is refused: {refused.refusal}"
        return f"it has written {len(self.said)} records to acks.v1"

    def fence(self, seconds: float) -> bool:
        """Wait until the executor has carried out a removal that is published now: whatever was
        published before is read by then. Returns whether it has."""
        if self._fences is None:
            self._fences = number_shards("fence", self.nodes)
        shard = next(self._fences)
        self.stand_in.create(shard)
        move = self.stand_in.issue(shard, "remove", remove=shard.replicas[-1])
        came = self.wait(lambda: self.find(COMPLETED, shard, move) is not None, seconds)
        self.stand_in.complete(shard, move)
        return came

    def find(
        self, message: str, shard: PlayedShard, move: dict[str, Any], since: int = 0
    ) -> Acknowledgement | None:
        """Find the executor's first such word on a move, from the record of that index on."""
        wanted = (message, shard.key, move["move_id"])
        return next((each for each in self.said[since:] if says(each, *wanted)), None)


class Scene:
    """A scenario's hold on the stage."""

    def __init__(self, stage: Stage, name: str) -> None:
        self.stage, self.name = stage, name
        self.stand_in = stage.stand_in
        self._shards = number_shards(name, stage.nodes[:2])
        self._keys: set[str] = set()

    @property
    def spare(self) -> str:
        """The node that holds nothing at first."""
        return self.stage.nodes[2]

    def shard(self) -> PlayedShard:
        """Publish another shard of the scenario's stream on the first two nodes."""
        shard = next(self._shards)
        self.show(shard.key)
        self.stand_in.create(shard)
        return shard

    def show(self, key: str) -> None:
        """Have the evidence show the records of a shard."""
        self._keys.add(key)

    def replace(self, shard: PlayedShard, **fields: Any) -> dict[str, Any]:
        """Issue the replacement of the first replica by one on the spare node."""
        moved = {"remove": shard.replicas[0], "add": self.spare}
        return self.stand_in.issue(shard, "replace", **(moved | fields))

    def take_on(
        self, shard: PlayedShard, move: dict[str, Any], clause: Clause = Clause.ACKNOWLEDGE
    ) -> None:
        """Play a move from its issue to where it is known to be accepted. Raises SceneEnded."""
        self.expect(clause, ACCEPTED, shard, move)
        self.stand_in.tell(move, "accepted")

    def carry_out(
        self, shard: PlayedShard, move: dict[str, Any], clause: Clause = Clause.ACKNOWLEDGE
    ) -> None:
        """Play a move from its issue to its completion, which is not answered yet. Raises
        SceneEnded."""
        allowed = self.stage.patience_seconds + self.stage.copy_seconds
        self.take_on(shard, move, clause)
        self.expect(clause, COMPLETED, shard, move, seconds=allowed)

    def restart(self) -> None:
        """Kill the executor and start it again; it has read the topics when this returns."""
        self.stage.subject.kill()
        self.stage.subject.start()
        self.stage.fence(START_PATIENCE_SECONDS)

    def expect(
        self,
        clause: Clause,
        message: str,
        shard: PlayedShard,
        move: dict[str, Any],
        *,
        since: int = 0,
        seconds: float | None = None,
    ) -> Acknowledgement:
        """Wait for the executor's word on a move; the clause is held when it comes. Raises
        SceneEnded."""
        allowed = self.stage.patience_seconds if seconds is None else seconds
        self.stage.wait(lambda: self.stage.find(message, shard, move, since) is not None, allowed)
        found = self.stage.find(message, shard, move, since)
        self.note(clause, found is not None, f"no {message} came within {allowed:g} s")
        if found is None:
            raise SceneEnded
        return found

    def expect_none(
        self, clause: Clause, messages: Sequence[str], shard: PlayedShard, move: dict[str, Any]
    ) -> None:
        """Wait until the executor has read all that is published; the clause is held where it has
        not said any of this of the move."""
        if not self.stage.fence(self.stage.patience_seconds):
            self.leave_out(clause, "the executor did not go on with other shards")
            return
        found = [each for each in messages if self.stage.find(each, shard, move)]
        self.note(clause, not found, f"it said {' and '.join(found)} of a move that is not valid")

    def expect_holds(self, clause: Clause, shard: PlayedShard, node_id: str, holds: bool) -> None:
        """Ask the probe until it says what is expected; the clause is held when it does."""
        subject, replica = self.stage.subject, (shard.stream, shard.number, node_id)
        if subject.holds(*replica) is None:
            self.leave_out(clause, "it needs a probe: give its command with --holds")
            return
        came = self.stage.wait(
            lambda: subject.holds(*replica) is holds, self.stage.patience_seconds
        )
        wrong = f"{node_id} {'holds no' if holds else 'still holds a'} replica of {shard.key}"
        self.note(clause, came, wrong)

    def check_holds(self, clause: Clause, shard: PlayedShard, node_id: str, holds: bool) -> None:
        """Ask the probe once; the clause is held where it says what is expected."""
        found = self.stage.subject.holds(shard.stream, shard.number, node_id)
        if found is None:
            self.leave_out(clause, "it needs a probe: give its command with --holds")
            return
        wrong = f"{node_id} {'holds no' if holds else 'still holds a'} replica of {shard.key}"
        self.note(clause, found is holds, wrong)

    def note(self, clause: Clause, is_held: bool, why: str) -> None:
        """Note that a clause was held, or broken and why, with the records of the scenario."""
        verdict = Verdict.HELD if is_held else Verdict.BROKEN
        records = () if is_held else tuple(self.records())
        said = "" if is_held else f"{self.name}: {why}"
        self.stage.findings.add(Evidence(self.name, clause, verdict, said, records))

    def leave_out(self, clause: Clause, why: str) -> None:
        """Note that a clause could not be tried."""
        self.stage.findings.add(Evidence(self.name, clause, Verdict.NOT_TRIED, why))

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield what both sides have written of the scenario's shards."""
        return (record for key, record in self.stage.story if key in self._keys)
