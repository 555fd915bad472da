"""What all tests share: stories as tests, the processes that play them, one embedded broker.

Every `testdata/*.txt` of the core is a test, so that `pytest tests/placement/repair` runs the tests
of a part and its stories. The broker starts with the first test that asks for it, so unit tests
never wait for it. Where tests are played by several processes, as `make test` does, each has a
broker of its own.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling, Scheduling

from streaming.runtime import EmbeddedBroker
from tests.builders.drawn import share
from tests.stories.datadriven import is_core_story, run_file

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# Where the tests are that start the application.
SYSTEMS = "tests/integration/"

# How long an example takes says nothing on a machine that does other work beside. The examples of a
# run are the same for everyone; EXAMPLES=random looks for others, EXAMPLES=few draws a share.
settings.register_profile(
    "untimed",
    deadline=None,
    derandomize=os.environ.get("EXAMPLES") != "random",
    max_examples=share(settings.default.max_examples),
)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: see tests/stories/datadriven.py."""
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the answers of the code into the data-driven text cases; read the diff",
    )


class StoryFile(pytest.File):
    """A file that tells a story of the core in the language of tests/stories/story.py."""

    def collect(self) -> Iterator[pytest.Item]:
        """The story is one test."""
        yield StoryItem.from_parent(self, name=self.path.stem)


class StoryItem(pytest.Item):
    """A story, whose answers have to be those of its file."""

    def runtest(self) -> None:
        """Tell the story from its first command on."""
        from tests.stories.story import Story

        run_file(self.path, Story().answer, self.config.getoption("--rewrite"))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the test stands, for reports."""
        return self.path, 0, f"story {self.name}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Make a test of every story of the core."""
    return StoryFile.from_parent(parent, path=file_path) if is_core_story(file_path) else None


class SystemsTogether(LoadFileScheduling):
    """Which process plays what: the tests of a file stay together, those of whole systems all.

    Systems wait half of the time, in which other processes play all else. Two systems at once
    would keep each other from answering within the seconds that their tests' timers leave.
    """

    def _split_scope(self, nodeid: str) -> str:
        return SYSTEMS if nodeid.startswith(SYSTEMS) else super()._split_scope(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    """With `-n`; without it one process plays everything in order."""
    return SystemsTogether(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Sum up the `seeds` of simulated histories that tests recorded."""
    reports = terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
    properties = [pair for report in reports for pair in report.user_properties]
    seeds = sum(int(str(value)) for name, value in properties if name == "seeds")
    if seeds:
        terminalreporter.write_line(f"simulation: {seeds} seeds; make simulate plays thousands")


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """A running single-node Kafka with empty topics at the start of the session."""
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """A topic prefix no other test uses, of the form of the default `placement.`."""
    return f"t{uuid.uuid4().hex[:10]}."


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    """A headless Chromium, of one module: while it is there no `asyncio.run` works beside it."""
    from tests.systems.browser import start_browser

    with start_browser() as running:
        yield running
