"""The process from which Spark forks its Python workers, with everything they need imported.

PySpark's own daemon forks bare workers and lets each import pyarrow, pandas, pydantic and our
packages for itself: over a second of CPU for each of three workers before the first batch. It is
run by Spark (`spark.python.daemon.module`), never by hand.
"""

import gc

import pandas as pd  # noqa: F401
import pyspark.sql.streaming.proto.StateMessage_pb2
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import streaming.node_lifecycle  # noqa: F401

if __name__ == "__main__":
    # Workers run a full collection after each task: over all that was imported it takes 50 ms, and
    # writes to every page that they share.
    gc.freeze()
    manager()
