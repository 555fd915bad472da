"""Plays a scenario file on a broker and an application of its own, and judges it."""

import json
import threading
from collections.abc import Callable

from schemas.topics import DEFAULT_PREFIX
from streaming.demo.stage import Report, Stage
from streaming.settings import ENV_DELIMITER, ENV_PREFIX
from streaming.simulator import Executor, Fleet, Playing, Scenario, told_end


class Played(Stage):
    """One scenario, with the settings that it names."""

    def __init__(
        self, scenario: Scenario, tell: Callable[[str], None], stop: threading.Event
    ) -> None:
        super().__init__(tell, stop, (), _environment(scenario))
        self._scenario = scenario

    def play(self) -> Report:
        """The whole scenario; the report has the claims that do not hold, then what the audit
        found. Raises SceneFailed, NoAnswer; KeyboardInterrupt when stopped."""
        self._start()
        scenario = self._scenario
        with (
            Fleet(
                self.bootstrap, DEFAULT_PREFIX, scenario.fleet(), scenario.heartbeat_seconds
            ) as fleet,
            Executor(self.bootstrap, DEFAULT_PREFIX, scenario.executor, serves=fleet.serves),
        ):
            playing = Playing(scenario, fleet, self.world, self._create, self._tell, self._stop)
            found = playing.play()
            if self._stop.is_set():
                raise KeyboardInterrupt
            for line in told_end(scenario, found):
                self._tell(line)
            return self._report(found)


def _environment(scenario: Scenario) -> dict[str, str]:
    """The settings as variables; what is a string stays one."""
    return {
        ENV_PREFIX + name.replace(".", ENV_DELIMITER).upper(): (
            value if isinstance(value, str) else json.dumps(value)
        )
        for name, value in scenario.flags.items()
    }
