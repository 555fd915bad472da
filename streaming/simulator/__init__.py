"""Plays nodes and executors over real topics, and scenarios of what happens to them.

For trials, demos and tests; no part of the application imports it. Imports `brokers`, `client`,
`settings`, `errors`.
"""

from streaming.simulator.executor import Executor, ExecutorBehaviour
from streaming.simulator.fleet import Fleet
from streaming.simulator.loads import LoadReporter
from streaming.simulator.playing import ScenarioRun, StreamCreator, claim_lines
from streaming.simulator.processes import JudgingProgram, ProcessFleet, ProgramFailed
from streaming.simulator.scenario import (
    Programs,
    Scenario,
    ScenarioRefused,
    ScenarioStep,
    StepPlayer,
    read_scenario,
)
from streaming.simulator.world import WATCHED_TOPICS, Watcher, World

__all__ = [
    "WATCHED_TOPICS",
    "Executor",
    "ExecutorBehaviour",
    "Fleet",
    "JudgingProgram",
    "LoadReporter",
    "ProcessFleet",
    "ProgramFailed",
    "Programs",
    "Scenario",
    "ScenarioRefused",
    "ScenarioRun",
    "ScenarioStep",
    "StepPlayer",
    "StreamCreator",
    "Watcher",
    "World",
    "claim_lines",
    "read_scenario",
]
