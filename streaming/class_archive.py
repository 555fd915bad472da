"""Makes the archive of the JVM's classes, with which Spark starts in two thirds of the time.

`python -m streaming.class_archive`, as `make setup` and the image do it: a session runs the query
over an embedded broker, and its JVM writes at its end which classes it had. Java passes over an
archive that does not fit; so without one, or with another Java, everything only starts later.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

from schemas.inputs import STANDBY
from schemas.topics import DECIDING_TOPICS, NODES
from streaming.administration import apply_topics
from streaming.errors import StreamingError
from streaming.pipeline import rehearse
from streaming.presence import PARTITION, TickAuthor, TickLog
from streaming.runtime import EmbeddedBroker
from streaming.settings import Settings, load_settings
from streaming.spark import close_session, start_session

# Each is for another Java or other jars, and has 180 MB.
KEPT_MAX = 3
# The second one runs through what the first has made.
_REHEARSALS = 2


def make_archive() -> Path | None:
    """Make the archive for the Java and the jars in use; None where this Java makes none.

    Raises StreamingError where Spark or the broker do not run.
    """
    with tempfile.TemporaryDirectory(prefix="placer-archive-") as place, EmbeddedBroker() as broker:
        given = {"kafka.bootstrap_servers": broker.bootstrap_servers, "checkpoint": Path(place)}
        settings = load_settings(None, given)
        made = Path(place) / "classes.jsa"
        options = [f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        session = start_session(settings, options)
        try:
            apply_topics(broker.bootstrap_servers, settings.topics.prefix, 1)
            _run_query(settings, session.finish())
        finally:
            session.abandon()
        if not made.is_file():
            return None
        session.archive.parent.mkdir(parents=True, exist_ok=True)
        # On the same file system, so that nobody sees half of it.
        beside = session.archive.with_suffix(f".{os.getpid()}")
        beside.write_bytes(made.read_bytes())
        beside.rename(session.archive)
    _remove_old(session.archive.parent)
    return session.archive


def _run_query(settings: Settings, spark: object) -> None:
    from pyspark.sql import SparkSession

    assert isinstance(spark, SparkSession)
    bootstrap, prefix = settings.kafka.bootstrap_servers, settings.topics.prefix
    log = TickLog(bootstrap, prefix, TickAuthor(settings.cell, "archive"), 1, {})
    try:
        first, _ = log.write_and_wait(STANDBY, None)
        positions = {topic: {PARTITION: 0} for topic in DECIDING_TOPICS}
        positions[NODES] = {PARTITION: first}
        for number in range(_REHEARSALS):
            scratch = f"{settings.checkpoint}/rehearsal-{number}"
            rehearse(spark, settings, positions, scratch, lambda: False)
    finally:
        log.close()
        close_session(spark)


def _remove_old(directory: Path) -> None:
    """Remove all but the archives that were made last."""
    found = sorted(directory.glob("*.jsa"), key=lambda each: each.stat().st_mtime)
    for old in found[:-KEPT_MAX]:
        old.unlink(missing_ok=True)


def main() -> int:
    """Make the archive and say so; a machine that cannot have one goes without."""
    began = time.monotonic()
    try:
        archive = make_archive()
    except StreamingError as error:
        print(f"no class archive, Spark starts slower without it: {error}", file=sys.stderr)
        return 0
    if archive is None:
        print("no class archive: this Java makes none; Spark starts slower without it")
        return 0
    size = archive.stat().st_size / 1e6
    print(f"class archive: {archive}, {size:.0f} MB ({time.monotonic() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
