"""Sends requests to the running reconciler and waits for their answers.

Streams, nodes and operators' orders, each checked by the core's code before it is sent; dead
letters are answers too. Imports `live`, `recovery`, `outbox` and what they stand on.
"""

from streaming.requests.cluster_difference import StreamChange, diff_streams
from streaming.requests.dead_letters import (
    DeadLetter,
    Redriven,
    RedriveRefused,
    choose_letters,
    letter_bounds,
    read_letters,
    read_letters_within,
    redrive_letters,
    redriven_ids,
)
from streaming.requests.handover import HandoverDone, HandoverRefused, hand_over
from streaming.requests.nodes import (
    find_node,
    preview_departure,
    send_departure,
    send_departure_and_wait,
    suggest_names,
)
from streaming.requests.operators import (
    DryRun,
    NoAnswer,
    dry_run,
    follow_progress,
    new_request_id,
    send_request,
    send_request_and_wait,
)
from streaming.requests.rehearsal import Rehearsal
from streaming.requests.streams import (
    StreamAnswer,
    StreamMessage,
    StreamRequests,
    is_satisfied,
    overlay_spec,
    read_streams,
    send_stream_requests,
    send_stream_requests_and_wait,
    spec_fields,
)

__all__ = [
    "DeadLetter",
    "DryRun",
    "HandoverDone",
    "HandoverRefused",
    "NoAnswer",
    "RedriveRefused",
    "Redriven",
    "Rehearsal",
    "StreamAnswer",
    "StreamChange",
    "StreamMessage",
    "StreamRequests",
    "choose_letters",
    "diff_streams",
    "dry_run",
    "find_node",
    "follow_progress",
    "hand_over",
    "is_satisfied",
    "letter_bounds",
    "new_request_id",
    "overlay_spec",
    "preview_departure",
    "read_letters",
    "read_letters_within",
    "read_streams",
    "redrive_letters",
    "redriven_ids",
    "send_departure",
    "send_departure_and_wait",
    "send_request",
    "send_request_and_wait",
    "send_stream_requests",
    "send_stream_requests_and_wait",
    "spec_fields",
    "suggest_names",
]
