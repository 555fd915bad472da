"""Goal: a process that could not decide fences nobody, and a rehearsal that fails is told.

Method: the application with stand-ins for brokers and Spark.
"""

import threading
from pathlib import Path
from typing import Any

import pytest

from schemas.topics import CATALOGUE
from streaming import app
from streaming.locations.sources import LocationsUnreadable
from streaming.pipeline import queries
from streaming.settings import Settings
from streaming.spark import QueryFailed
from streaming.standby import StandbyOptions


class Untouched:
    """Fails where anything is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


@pytest.mark.parametrize("standby", [None, StandbyOptions()], ids=["alone", "standby"])
def test_a_mapping_that_cannot_be_read_fences_nobody(
    standby: StandbyOptions | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "locations.yaml"
    file.write_text("nodes: {n1: /a", "utf-8")
    monkeypatch.setattr(app, "_check_topics", lambda *_: None)
    monkeypatch.setattr(app, "count_partitions", lambda *_, **__: {t.name: 1 for t in CATALOGUE})
    monkeypatch.setattr(app, "Outbox", None)
    settings = Settings(
        checkpoint=tmp_path,
        location={"authority": "file", "file": file},  # type: ignore[arg-type]
    )
    session: Any = Untouched()
    with pytest.raises(LocationsUnreadable, match=r"locations\.yaml"):
        app.run(settings, session, on_ready=lambda: None, stop=threading.Event(), standby=standby)


class Ended:
    """A query that Spark has ended."""

    isActive = False  # noqa: N815 - as Spark calls it

    def exception(self) -> str:
        return "Timed out waiting for a node assignment\nJVM stacktrace: ..."

    def stop(self) -> None:
        pass


def test_a_rehearsal_that_spark_ends_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("start_node_query", "start_request_query"):
        monkeypatch.setattr(queries, name, lambda *_: Ended())
    nothing: Any = None
    with pytest.raises(QueryFailed) as raised:
        queries.rehearse(nothing, Settings(), {}, "", lambda: False)
    assert str(raised.value) == "Spark ended the query: Timed out waiting for a node assignment"
