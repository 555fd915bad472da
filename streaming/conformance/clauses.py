"""The clauses of the contract with executors, and what a run has found of each.

The contract is schemas/README.md, "Contract with consumers" (3 to 5) and "Moves"; a clause is one
obligation in it that can be judged from outside. `scenarios.py` tries them, `reporting.py` shows
the verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Clause(StrEnum):
    """Names an obligation of an executor."""

    COMMITTED = "committed"
    CREATE = "create"
    ACKNOWLEDGE = "acknowledge"
    WELL_FORMED = "well_formed"
    ORDER = "order"
    EPOCH = "epoch"
    NEWEST = "newest"
    DEADLINE = "deadline"
    ONCE = "once"
    STOP = "stop"
    REMIND = "remind"
    CLEAN = "clean"
    DELETE = "delete"
    PROGRESS = "progress"
    FAIL = "fail"
    RESTART = "restart"
    CATCH_UP = "catch_up"
    DROP = "drop"
    LEADER = "leader"


CLAUSES: dict[Clause, str] = {
    Clause.COMMITTED: "acts on committed records alone",
    Clause.CREATE: "makes the first replicas of a stream",
    Clause.ACKNOWLEDGE: "accepts each move that is valid, and completes it",
    Clause.WELL_FORMED: "its acknowledgements are messages that the reconciler takes",
    Clause.ORDER: "carries out one move of a shard at a time",
    Clause.EPOCH: "begins a move only where the assignment has its expected_epoch",
    Clause.NEWEST: "drops an assignment whose epoch it has passed",
    Clause.DEADLINE: "begins no move whose deadline is past",
    Clause.ONCE: "does once what is delivered twice",
    Clause.STOP: "stops what is called off, and says MoveStopped",
    Clause.REMIND: "answers each reminder with MoveStopped",
    Clause.CLEAN: "has removed what it copied when it says MoveStopped or MoveFailed",
    Clause.DELETE: "deletes a copy when the assignment allows it, and no sooner",
    Clause.PROGRESS: "reports the progress of a long copy before half of its time is used up",
    Clause.FAIL: "says MoveFailed, with a reason, of a copy that fails",
    Clause.RESTART: "neither forgets nor repeats a move when it is killed",
    Clause.CATCH_UP: "makes up at its start for what was decided while it was away",
    Clause.DROP: "stops and removes what belongs to a dropped stream",
    Clause.LEADER: "carries out moves of kind leader",
}


class Verdict(StrEnum):
    """Says what a run has found of a clause."""

    HELD = "held"
    BROKEN = "broken"
    NOT_TRIED = "not tried"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a scenario has seen of a clause. `records`: those of its shards where it was broken,
    commands and acknowledgements, in the order in which they were published or read; `why` a clause
    was broken or could not be tried."""

    scenario: str
    clause: Clause
    verdict: Verdict
    why: str = ""
    records: tuple[dict[str, Any], ...] = ()


@dataclass(slots=True)
class Findings:
    """Collects the evidence of a run."""

    evidence: list[Evidence] = field(default_factory=list)

    def add(self, found: Evidence) -> None:
        """Take in what a scenario has seen."""
        self.evidence.append(found)

    def of(self, clause: Clause) -> list[Evidence]:
        """Return what was seen of a clause."""
        return [each for each in self.evidence if each.clause is clause]

    def verdict(self, clause: Clause) -> Verdict:
        """Return the verdict on a clause: broken if it was broken once, held if it was tried."""
        seen = {each.verdict for each in self.of(clause)}
        return next(
            (each for each in (Verdict.BROKEN, Verdict.HELD) if each in seen), Verdict.NOT_TRIED
        )

    def why(self, clause: Clause) -> str:
        """Return the first reason for the verdict; empty where the clause was held."""
        verdict = self.verdict(clause)
        if verdict is Verdict.HELD:
            return ""
        said = [each.why for each in self.of(clause) if each.verdict is verdict and each.why]
        return said[0] if said else "no scenario that was played tries it"

    @property
    def broken(self) -> list[Clause]:
        """Return the clauses that were broken, in the order of the contract."""
        return [clause for clause in CLAUSES if self.verdict(clause) is Verdict.BROKEN]
