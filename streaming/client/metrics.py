"""Counts what executors and views do, as Prometheus metrics of the process.

`term.py`, `carrying.py`, `node_locks.py` and `placement_view.py` count here. The metrics are in the
default registry of `prometheus_client`, so that a program that serves its own metrics serves these
with them (`prometheus_client.start_http_server`). Amounts are in bytes, times in seconds.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge

MOVES_UNDER_WAY = Gauge("placement_client_moves_under_way", "Moves that are being carried out now.")
TASKS = Counter(
    "placement_client_tasks_total",
    "Tasks that have ended, by kind (carry_out, clear, delete, create) and ending.",
    ["kind", "ending"],
)
RETRIES = Counter(
    "placement_client_retries_total", "Attempts on the store that failed and are made again."
)
BYTES_COPIED = Counter(
    "placement_client_copied_bytes_total", "Bytes that copies have reported as done."
)
ACKNOWLEDGEMENTS = Counter(
    "placement_client_acknowledgements_total",
    "Acknowledgements sent to acks.v1, by message.",
    ["message"],
)
UNCONFIRMED = Gauge(
    "placement_client_unconfirmed_records", "Records that no broker has confirmed yet."
)
UNREADABLE = Counter(
    "placement_client_unreadable_records_total",
    "Records that were left out because this version cannot read them, by topic.",
    ["topic"],
)
LAG = Gauge(
    "placement_client_lag_records",
    "Records between the executor's reader and the end of a topic, by topic.",
    ["topic"],
)
MOVES_WITHOUT_ASSIGNMENT = Counter(
    "placement_client_moves_without_assignment_total",
    "Moves whose assignment has not come in time, so that they are not begun.",
)
BROKER_AWAY = Gauge(
    "placement_client_broker_away",
    "1 while no broker answers, by reader (executor, view).",
    ["reader"],
)
LOCK_HELD = Gauge(
    "placement_client_lock_held",
    "1 while this process holds the lock of a node and acts for it, 0 while it waits; * are all.",
    ["node"],
)
LOCKS_LOST = Counter(
    "placement_client_locks_lost_total", "Times that another executor has taken over a held lock."
)
VIEW_NEWEST_RECORD = Gauge(
    "placement_client_view_newest_record_timestamp_seconds",
    "When the newest record that the view has read was appended, since the epoch.",
)
