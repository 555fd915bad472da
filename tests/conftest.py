"""Fixtures shared by all tests: one embedded broker for the session, and names of one's own in it.

The broker starts with the first test that asks for it, so unit tests never wait for it.
"""

import os
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import settings

from streaming.broker import EmbeddedBroker

# How long an example takes says nothing on a machine that does other work beside. The examples of a
# run are the same for everyone; EXAMPLES=random looks for others.
settings.register_profile(
    "untimed", deadline=None, derandomize=os.environ.get("EXAMPLES") != "random"
)
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: see tests/datadriven.py."""
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write the answers of the code into the data-driven text cases; read the diff",
    )


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    """A running single-node Kafka with empty topics at the start of the session."""
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def prefix() -> str:
    """A topic prefix no other test uses, of the form of the default `placement.`."""
    return f"t{uuid.uuid4().hex[:10]}."
