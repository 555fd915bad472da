"""Fixtures of the tests of the whole system: topics of one's own, and the application on them."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from placement.model import Configuration
from streaming.administration import apply_topics
from streaming.replay import ReplayReport, read_history, replay_history
from streaming.runtime import EmbeddedBroker
from streaming.simulator import Executor
from tests.systems.application import Application
from tests.systems.topics import Inputs, Outputs

CELL = "main"


class System:
    """Topics with both their ends, and the applications started on them, which come to the broker
    `through` another address if that is given."""

    def __init__(
        self,
        bootstrap: str,
        scratch: Path,
        replication_factor: int = 1,
        through: str | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self._through = through or bootstrap
        self.prefix = f"t{uuid.uuid4().hex[:10]}."
        self._scratch = scratch
        apply_topics(bootstrap, self.prefix, replication_factor)
        self.inputs = Inputs(bootstrap, self.prefix)
        self.outputs = Outputs(bootstrap, self.prefix)
        self._applications: list[Application] = []

    def launch(self, *flags: str, **settings: str) -> Application:
        """Start an application, which is not ready yet. All have one scratch directory, as
        processes with one configuration file do."""
        checkpoint = self._scratch / "checkpoint"
        started = Application(self._through, self.prefix, checkpoint, settings, flags)
        self._applications.append(started)
        return started

    def start(self, *flags: str, **settings: str) -> Application:
        """Start an application and wait until it is ready."""
        started = self.launch(*flags, **settings)
        started.wait_ready()
        return started

    def come_to_rest(self) -> None:
        """Carry out whatever is open until nothing is wanted any more."""
        with Executor(self.bootstrap, self.prefix, 0):
            self.outputs.wait(
                lambda: not self.outputs.open_moves and not self.outputs.latest("violations.v1"),
                "nothing is open, nothing is broken",
            )

    def replay(self) -> ReplayReport:
        """The journal through the core again, held against what is on the topics."""
        told = read_history(self.bootstrap, self.prefix, CELL, None, written=True)
        return replay_history(told, CELL, Configuration(cell=CELL), verify=True)

    def close(self) -> None:
        for application in self._applications:
            application.kill()
        self.outputs.close()


@pytest.fixture(scope="module")
def system(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Topics that all tests of a module share, in their order; nothing runs on them yet."""
    made = System(broker.bootstrap_servers, tmp_path_factory.mktemp("system"))
    yield made
    made.close()


@pytest.fixture
def own_system(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[System]:
    """Topics of one test alone."""
    made = System(broker.bootstrap_servers, tmp_path)
    yield made
    made.close()
