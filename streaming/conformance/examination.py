"""Examines an executor: plays all scenarios with it, and gathers what was found.

`placer conformance` calls `examine`; topics under a prefix of their own are made here, and removed
with the broker where that is the embedded one.
"""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from schemas.topics import ACKS
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader
from streaming.conformance.acknowledgements import find_overlap, find_refused
from streaming.conformance.clauses import Clause, Evidence, Findings, Verdict
from streaming.conformance.reconciler import StandIn
from streaming.conformance.scenarios import (
    FAILING,
    LEADING,
    LONG_COPIES,
    QUICK,
    SCENARIOS,
    SLOW,
    Scenario,
    play_long_copy,
)
from streaming.conformance.stage import Scene, SceneEnded, Stage
from streaming.conformance.subject import BOOTSTRAP, COPY_FAILS, COPY_SECONDS, PREFIX, Subject
from streaming.errors import SettingsInvalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Examination:
    """What is examined, and how.

    `command`: the words that start the executor; `probe`: those of a command that tells what a node
    holds, a line as a shell has it, or empty. `only`: names of scenarios, none for all.
    """

    command: Sequence[str]
    bootstrap: str
    prefix: str
    log: Path
    probe: str = ""
    nodes: tuple[str, str, str] = ("node-a", "node-b", "node-c")
    has_leader_moves: bool = False
    only: frozenset[str] = frozenset()
    patience_seconds: float = 10.0
    copy_seconds: float = 3.0
    options: Mapping[str, str] = field(default_factory=dict)

    def chosen(self, scenarios: Iterable[Scenario]) -> list[Scenario]:
        """Return those of the scenarios that are to be played."""
        return [each for each in scenarios if not self.only or each.name in self.only]


def examine(asked: Examination, tell: Callable[[str], None]) -> Findings:
    """Play the scenarios; `tell` takes the name of each as it begins. Raises SettingsInvalid,
    SubjectFailed, BrokerUnreachable."""
    known = {each.name for each in SCENARIOS}
    if asked.only - known:
        names = ", ".join(sorted(asked.only - known))
        listed = ", ".join(sorted(known))
        problem = f"there is no scenario {names}; there are {listed} (--list says what each plays)"
        raise SettingsInvalid([problem])
    apply_topics(asked.bootstrap, asked.prefix, options=asked.options)
    environment = {BOOTSTRAP: asked.bootstrap, PREFIX: asked.prefix}
    subject = Subject(asked.command, environment, asked.log, shlex.split(asked.probe))
    stand_in = StandIn(asked.bootstrap, asked.prefix, asked.options)
    stand_in.start()
    with ExitStack() as opened:
        reader = opened.enter_context(
            CommittedReader(asked.bootstrap, asked.prefix, [ACKS], options=asked.options)
        )
        opened.callback(subject.kill)
        stage = Stage(
            stand_in, subject, reader, asked.nodes, asked.patience_seconds, asked.copy_seconds
        )
        _play_groups(stage, asked, tell)
        _judge_all(stage)
        return stage.findings


def _play_groups(stage: Stage, asked: Examination, tell: Callable[[str], None]) -> None:
    """Play the scenarios of each group with an executor of its own."""
    quick = asked.chosen(QUICK) + (asked.chosen(LEADING) if asked.has_leader_moves else [])
    if not asked.has_leader_moves:
        why = "moves of kind leader are not shipped; --leader-moves tries them"
        _leave_out(stage, LEADING, why)
    if quick:
        stage.begin({})
        _play(stage, quick, tell)
    slow = asked.chosen(SLOW)
    if slow:
        stage.begin({COPY_SECONDS: f"{stage.copy_seconds:g}"})
        if _has_long_copies(stage):
            _play(stage, slow, tell)
        else:
            _leave_out(stage, slow, LONG_COPIES)
    failing = asked.chosen(FAILING)
    if failing:
        stage.begin({COPY_FAILS: "1"})
        _play(stage, failing, tell)


def _play(stage: Stage, scenarios: Sequence[Scenario], tell: Callable[[str], None]) -> None:
    for scenario in scenarios:
        tell(scenario.name)
        try:
            scenario.play(Scene(stage, scenario.name))
        except SceneEnded:
            # The evidence is noted; the next scenario has a stream of its own.
            continue


def _has_long_copies(stage: Stage) -> bool:
    try:
        return play_long_copy(Scene(stage, "long-copy"))
    except SceneEnded:
        return False


def _leave_out(stage: Stage, scenarios: Iterable[Scenario], why: str) -> None:
    for scenario in scenarios:
        for clause in scenario.clauses:
            stage.findings.add(Evidence(scenario.name, clause, Verdict.NOT_TRIED, why))


def _judge_all(stage: Stage) -> None:
    """Judge what was said in the whole run."""
    scene = Scene(stage, "all")
    if not stage.said:
        return
    refused = find_refused(stage.said)
    if refused is not None:
        scene.show(refused.key)
    why = "" if refused is None else f"offset {refused.offset} of acks.v1: {refused.refusal}"
    scene.note(Clause.WELL_FORMED, refused is None, why)
    overlap = find_overlap(stage.said)
    if overlap is not None:
        first, second = overlap
        scene.show(second.key)
        said = f"{second.move_id} of {second.key} was accepted while {first.move_id} was under way"
        scene.note(Clause.ORDER, False, said)
