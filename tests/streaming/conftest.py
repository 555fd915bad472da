"""Fixtures of the tests around Kafka: topics of one's own, and the `placer` command.

Settings of the machine the tests run on are kept away from all of them.
"""

import os
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from streaming.administration import apply_topics
from streaming.cli.main import app
from streaming.runtime import EmbeddedBroker

# Where the jars are cached and Java is found is the machine's business, not a setting.
KEPT = ("PLACER_CACHE_DIR",)


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.upper().startswith("PLACER_") and name not in KEPT:
            monkeypatch.delenv(name)


@pytest.fixture
def bootstrap(broker: EmbeddedBroker, prefix: str) -> str:
    """Address of a broker with our topics under `prefix`."""
    apply_topics(broker.bootstrap_servers, prefix)
    return broker.bootstrap_servers


@pytest.fixture
def placer() -> Callable[..., Result]:
    """Runs a command in this process: words, and `at` = (bootstrap, prefix) where it applies."""

    def run(*words: str, at: tuple[str, str] | None = None) -> Result:
        place = ["--bootstrap", at[0], "--prefix", at[1]] if at else []
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*words, *place])

    return run
