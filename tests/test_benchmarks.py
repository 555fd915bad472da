"""The command of the benchmarks: options are honoured or refused wherever they stand; what opens
pages or streams runs to its end."""

import pytest
from rich.console import Console
from typer.testing import CliRunner

from streaming.runtime import EmbeddedBroker
from tests.benchmarks import browsing, listening, serving
from tests.benchmarks.__main__ import app


@pytest.mark.parametrize("benchmark", ["placement", "planning", "resources", "latency", "recovery"])
@pytest.mark.parametrize("option", [("--quick",), ("--output", "json")])
def test_an_option_before_the_name_is_refused(option: tuple[str, ...], benchmark: str) -> None:
    """Goal: `--quick planning` does not run the whole of it."""
    result = CliRunner().invoke(app, [*option, benchmark])
    assert (result.exit_code, f"{benchmark} --quick" in result.stderr) == (2, True)


# With the streams and nodes that the benchmark opens the pages of.
SMALL = serving.Extent(40_000, 200, 2.0)


@pytest.mark.long
def test_pages_are_opened_and_told_of_commits() -> None:
    """Goal: the benchmark of the console runs as its pages change."""
    with EmbeddedBroker() as broker:
        found = browsing.measure(SMALL, broker, lambda _: None)
    assert {each.page for each in found.looks} == {*browsing.PAGES}
    for shown in found.shown:
        assert shown.commits == int(SMALL.seconds / browsing.COMMIT_SECONDS)
        assert shown.told >= browsing.VIEWERS, "each page has shown the last commit"
    browsing.show(Console(quiet=True), found)


@pytest.mark.long
def test_streams_of_events_are_opened_and_told_of_commits() -> None:
    """Goal: the benchmark of events runs, with as many streams as two principals may have."""
    with EmbeddedBroker() as broker:
        found = listening.measure(2 * listening.STREAMS_EACH, broker, lambda _: None)
    assert (found.principals, found.commits) == (2, listening.COMMITS)
    assert found.told >= found.streams, "each stream was told of the last commit"
    listening.show(Console(quiet=True), found)
