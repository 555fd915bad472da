"""Translates between wire and core: records to events, decisions to records, and back.

The only sub-package that knows both the messages of `schemas` and the values of `placement`. It
also has the packets in which a micro-batch carries records. Imports nothing else of `streaming`.
"""

from streaming.codec.assignments import (
    COLUMN_RECORDS_MIN,
    ParsedAssignments,
    parse_assignment,
    parse_assignments,
)
from streaming.codec.inputs import (
    event_of_message,
    event_of_order,
    event_of_tombstone,
    event_of_verdict,
    events_of_cluster,
    loads_of_stream,
    report_of_message,
    resources_of_cluster,
    statement,
)
from streaming.codec.journal import (
    configuration_body,
    journal_event,
    parse_configuration,
    parse_journal_event,
)
from streaming.codec.packets import OffsetRange, PackedPartition, RawRecord, RefusedRecord
from streaming.codec.records import (
    OutRecord,
    assignment_record,
    decision_record,
    log_record,
    parse_decision,
    parse_load,
    parse_memory,
    parse_move,
    parse_node,
    parse_published,
    parse_violations,
    ready_records,
    spec_body,
    violations_record,
)
from streaming.codec.values import fields_of, reason_body, tags_of

__all__ = [
    "COLUMN_RECORDS_MIN",
    "OffsetRange",
    "OutRecord",
    "PackedPartition",
    "ParsedAssignments",
    "RawRecord",
    "RefusedRecord",
    "assignment_record",
    "configuration_body",
    "decision_record",
    "event_of_message",
    "event_of_order",
    "event_of_tombstone",
    "event_of_verdict",
    "events_of_cluster",
    "fields_of",
    "journal_event",
    "loads_of_stream",
    "log_record",
    "parse_assignment",
    "parse_assignments",
    "parse_configuration",
    "parse_decision",
    "parse_journal_event",
    "parse_load",
    "parse_memory",
    "parse_move",
    "parse_node",
    "parse_published",
    "parse_violations",
    "ready_records",
    "reason_body",
    "report_of_message",
    "resources_of_cluster",
    "spec_body",
    "statement",
    "tags_of",
    "violations_record",
]
