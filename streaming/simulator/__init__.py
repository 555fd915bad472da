"""Plays nodes and executors over real topics, and scenarios of what happens to them.

For trials, demos and tests; no part of the application imports it. Imports `brokers`, `settings`,
`errors`.
"""

from streaming.simulator.executor import Conduct, Executor
from streaming.simulator.fleet import Fleet
from streaming.simulator.playing import Playing, StreamCreator, told_end
from streaming.simulator.scenario import Player, Scenario, Step, read_scenario
from streaming.simulator.world import SHOWN, Watcher, World

__all__ = [
    "SHOWN",
    "Conduct",
    "Executor",
    "Fleet",
    "Player",
    "Playing",
    "Scenario",
    "Step",
    "StreamCreator",
    "Watcher",
    "World",
    "read_scenario",
    "told_end",
]
