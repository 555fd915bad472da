"""The process from which Spark forks its Python workers, with everything they need imported.

PySpark's own daemon forks bare workers and lets each import pyarrow, pandas, pydantic and our
packages for itself: over a second of CPU for each of three workers before the first batch. It is
run by Spark (`spark.python.daemon.module`), never by hand. It stands at the top, as a module of
`streaming.ingest` would have that imported before it can choose where PySpark comes from.
"""

import gc
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path


def drop_archives(path: list[str], spark_home: str) -> list[str]:
    """The import path without the archives of Spark's distribution, where PySpark is installed too.

    Spark puts its zip of PySpark and a jar first. Modules of a zip are compiled at each start, 2 s
    of CPU, and each worker reads the directory of the zip again for each package in it: 150 ms and
    20 MiB that it keeps. A machine that has PySpark only from Spark's distribution keeps them.
    """
    kept = [
        entry
        for entry in path
        if not (Path(entry).is_relative_to(spark_home) and Path(entry).is_file())
    ]
    installed = all(PathFinder.find_spec(name, kept) for name in ("pyspark", "py4j"))
    return kept if installed else path


if __name__ == "__main__" and "SPARK_HOME" in os.environ:
    sys.path[:] = drop_archives(sys.path, os.environ["SPARK_HOME"])

import pandas as pd  # noqa: E402, F401
import pyspark.sql.streaming.proto.StateMessage_pb2  # noqa: E402
import pyspark.worker  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

import streaming.ingest  # noqa: E402, F401

if __name__ == "__main__":
    # Workers run a full collection after each task: over all that was imported it takes 50 ms, and
    # writes to every page that they share.
    gc.freeze()
    manager()
