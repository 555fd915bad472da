"""Answers `place`, `check`, `plan`, `explain` and `nearest` for cluster files.

Works on values alone, without Kafka, Spark or Java: imports `codec` and `locations` only. The live
commands ask the same code about the published state.
"""

from streaming.offline.check import (
    CheckOptions,
    CheckResult,
    NoMatchingNode,
    check_cluster,
    health_body,
    lost_nodes,
)
from streaming.offline.cluster_file import cluster_body, cluster_text, flow_text
from streaming.offline.documents import Document, DocumentFault, parse_documents
from streaming.offline.explain import (
    ExplainOptions,
    ExplainResult,
    PublishedStream,
    ShardExplanation,
    StreamExplanation,
    advice_body,
    advise_stream,
    explain_streams,
    move_body,
    stream_body,
)
from streaming.offline.nearest import (
    NearestResult,
    choose_nearest,
    choose_replica,
    locate_reader,
)
from streaming.offline.place import PlaceResult, place_streams
from streaming.offline.plan import PlanOptions, PlanResult, plan_moves
from streaming.offline.reassignment import (
    Assignments,
    AssignmentsUnfit,
    ReassignmentInvalid,
    read_reassignment,
)
from streaming.offline.reassignment_files import (
    ReassignmentFiles,
    ReassignmentFilesRefused,
    reassignment_files,
    refuse_foreign_files,
)
from streaming.offline.report import check_body
from streaming.offline.saved_plan import (
    SavedPlan,
    SavedPlanInvalid,
    VerifyResult,
    load_plan,
    saved_plan_text,
    verify_plan,
)
from streaming.offline.what_if import WhatIf, assign_document, unlisted_topics

__all__ = [
    "Assignments",
    "AssignmentsUnfit",
    "CheckOptions",
    "CheckResult",
    "Document",
    "DocumentFault",
    "ExplainOptions",
    "ExplainResult",
    "NearestResult",
    "NoMatchingNode",
    "PlaceResult",
    "PlanOptions",
    "PlanResult",
    "PublishedStream",
    "ReassignmentFiles",
    "ReassignmentFilesRefused",
    "ReassignmentInvalid",
    "SavedPlan",
    "SavedPlanInvalid",
    "ShardExplanation",
    "StreamExplanation",
    "VerifyResult",
    "WhatIf",
    "advice_body",
    "advise_stream",
    "assign_document",
    "check_body",
    "check_cluster",
    "choose_nearest",
    "choose_replica",
    "cluster_body",
    "cluster_text",
    "explain_streams",
    "flow_text",
    "health_body",
    "load_plan",
    "locate_reader",
    "lost_nodes",
    "move_body",
    "parse_documents",
    "place_streams",
    "plan_moves",
    "read_reassignment",
    "reassignment_files",
    "refuse_foreign_files",
    "saved_plan_text",
    "stream_body",
    "unlisted_topics",
    "verify_plan",
]
