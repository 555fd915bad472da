"""Translates between wire and core: records to events, decisions to records, and back.

The only sub-package that knows both the messages of `schemas` and the values of `placement`. It
also has the packets in which a micro-batch carries records. Imports nothing else of `streaming`.
"""

from streaming.codec.inputs import (
    body_hash,
    cluster_events,
    event,
    no_longer_known,
    node_changed,
    operator_asked,
    statement,
)
from streaming.codec.journal import (
    configuration_body,
    journal_event,
    parse_configuration,
    parse_journal_event,
)
from streaming.codec.packets import Packed, Raw, Refused, Stretch
from streaming.codec.records import (
    OutRecord,
    log_record,
    parse_decision,
    parse_memory,
    parse_move,
    parse_node,
    parse_violations,
    published,
    ready_records,
)
from streaming.codec.values import fields_of, parse_assignment, reason_body, tags_of

__all__ = [
    "OutRecord",
    "Packed",
    "Raw",
    "Refused",
    "Stretch",
    "body_hash",
    "cluster_events",
    "configuration_body",
    "event",
    "fields_of",
    "journal_event",
    "log_record",
    "no_longer_known",
    "node_changed",
    "operator_asked",
    "parse_assignment",
    "parse_configuration",
    "parse_decision",
    "parse_journal_event",
    "parse_memory",
    "parse_move",
    "parse_node",
    "parse_violations",
    "published",
    "ready_records",
    "reason_body",
    "statement",
    "tags_of",
]
