"""Goal: a rerun that the broker refuses an input ends with the reason.

Method: a client of librdkafka's mock cluster, whose topics have four partitions each.
"""

import pytest

from schemas.topics import NODES
from streaming import rerun
from streaming.brokers import make_producer
from streaming.rerun import RerunFailed


def test_an_input_that_is_refused_ends_the_rerun(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = make_producer("nowhere:1", {"test.mock.num.brokers": "1"})
    monkeypatch.setattr(rerun, "make_producer", lambda *_: producer)
    writer = rerun._Writer("nowhere:1")
    writer.write(NODES, b"{}", b"n1", [], 99)
    with pytest.raises(RerunFailed, match=r"did not accept the inputs: .*Unknown partition"):
        writer.flush()
    writer = rerun._Writer("nowhere:1")
    writer.write(NODES, b"{}", b"n1", [], 0)
    writer.flush()
