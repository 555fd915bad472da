"""Shows what the application does: metrics, probes, log and the trace of batches.

Fed by the pipeline with values; knows nothing of Kafka or Spark. Imports `errors` only.
"""

from streaming.observability.batch_trace import BatchTrace
from streaming.observability.endpoint import Endpoint
from streaming.observability.logs import LogEvent, configure_logging, log_event
from streaming.observability.metrics import CommitSummary
from streaming.observability.observer import Observer

__all__ = [
    "BatchTrace",
    "CommitSummary",
    "Endpoint",
    "LogEvent",
    "Observer",
    "configure_logging",
    "log_event",
]
