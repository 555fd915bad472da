"""Tells the whole system as a story on one machine: broker, application, simulated fleet.

`placer demo` plays its own story or a scenario file. Imports `simulator`, `requests`, `replay`,
`runtime` and what they stand on.
"""

from streaming.demo.stage import DemoReport, ScenarioDemo, Stage
from streaming.demo.story import StoryDemo

__all__ = ["DemoReport", "ScenarioDemo", "Stage", "StoryDemo"]
