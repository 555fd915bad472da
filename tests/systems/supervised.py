"""An application that is started again whenever it has ended, as orchestrators do it."""

import signal
from collections.abc import Mapping

from tests.integration.conftest import System
from tests.systems.waiting import until

# A fault may end the application; on a busy machine its next start takes most of this.
ANSWER_TIMEOUT_SECONDS = 480.0


class Supervised:
    """A system with its application, judged after each fault."""

    def __init__(self, system: System, settings: Mapping[str, str] | None = None) -> None:
        self.system = system
        self._settings = dict(settings or {})
        self.application = system.launch(**self._settings)

    def ask(
        self, stream: str, shards: int = 1, timeout_seconds: float = ANSWER_TIMEOUT_SECONDS
    ) -> None:
        """Ask for a stream and wait until it is answered."""
        self.system.inputs.stream(stream, shards=shards)
        self.answered(stream, shards, timeout_seconds)

    def answered(
        self, stream: str, shards: int = 1, timeout_seconds: float = ANSWER_TIMEOUT_SECONDS
    ) -> None:
        """The stream that was asked for is placed, nothing is wrong, and no node was taken for
        dead: they beat all the while."""
        outputs = self.system.outputs
        try:
            until(lambda: self._placed(stream, shards), f"{stream} placed", timeout_seconds)
        except AssertionError as error:
            error.add_note(self.application.output)
            raise
        outputs.check()
        assert self._answers(stream) == ["placed"], self._answers(stream)
        views = outputs.of("topology.v1")
        assert "dead" not in {view.value["liveness"] for view in views if view.value}

    def rest(self) -> None:
        """Stop, and hold everything that was committed against the oracle and the journal."""
        outputs = self.system.outputs
        until(lambda: not outputs.log().final_violations(), "at rest", ANSWER_TIMEOUT_SECONDS)
        self.application.send(signal.SIGTERM)
        assert self.application.wait_end() == 0, self.application.output
        outputs.check()
        report = self.system.replay()
        assert report.differences == ()
        assert report.compared == report.records

    def _placed(self, stream: str, shards: int) -> bool:
        if not self.application.running:
            self.application = self.system.launch(**self._settings)
        # Both are of one transaction, but each topic's leader shows it in its own time.
        placed = len(self.system.outputs.replicas(stream)) == shards
        return placed and bool(self._answers(stream))

    def _answers(self, stream: str) -> list[str]:
        decisions = self.system.outputs.of("decisions.v1")
        return [each.value["outcome"] for each in decisions if each.key == stream]
