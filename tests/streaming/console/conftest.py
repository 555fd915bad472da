"""What the tests of the console share: the faults that its server has met."""

import logging
from collections.abc import Iterator

import pytest


class _Faults(logging.Handler):
    """Keeps what is logged as an error, as the log would show it."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(self.format(record))


@pytest.fixture
def faults() -> Iterator[list[str]]:
    """The errors in the log of a server in this process; a browser hears of none of them."""
    handler = _Faults()
    logging.getLogger().addHandler(handler)
    try:
        yield handler.seen
    finally:
        logging.getLogger().removeHandler(handler)
