"""Sends requests to the running reconciler and waits for their answers.

Streams, nodes and operators' orders, each checked by the core's code before it is sent; dead
letters are answers too. Imports `live`, `recovery`, `outbox` and what they stand on.
"""

from streaming.requests.cluster_difference import Change, changes
from streaming.requests.dead_letters import Letter, NotRedriven, redrive
from streaming.requests.nodes import departure, known_node, names_like, send_departure, unregistered
from streaming.requests.operators import DryRun, ask, dry_run, new_id, progress, send_request
from streaming.requests.rehearsal import Rehearsal
from streaming.requests.sending import outgoing, send
from streaming.requests.streams import (
    Answer,
    StreamMessage,
    Streams,
    is_fine,
    overlaid,
    request,
    send_requests,
    spec_fields,
    streams_in_force,
)

__all__ = [
    "Answer",
    "Change",
    "DryRun",
    "Letter",
    "NotRedriven",
    "Rehearsal",
    "StreamMessage",
    "Streams",
    "ask",
    "changes",
    "departure",
    "dry_run",
    "is_fine",
    "known_node",
    "names_like",
    "new_id",
    "outgoing",
    "overlaid",
    "progress",
    "redrive",
    "request",
    "send",
    "send_departure",
    "send_request",
    "send_requests",
    "spec_fields",
    "streams_in_force",
    "unregistered",
]
