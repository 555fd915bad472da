"""Answers `place`, `check`, `plan`, `explain` and `nearest` for cluster files.

Works on values alone, without Kafka, Spark or Java: imports `codec` and `locations` only. The live
commands ask the same code about the published state.
"""

from streaming.offline.check import Checked, CheckOptions, NothingThere, checked, health_body
from streaming.offline.cluster_file import cluster_body, cluster_text, flow_text
from streaming.offline.documents import Document, DocumentFault, clusters
from streaming.offline.explain import (
    Explained,
    ExplainOptions,
    Explanation,
    Published,
    ShardExplained,
    explained,
    move_body,
    stream_body,
)
from streaming.offline.nearest import Served, served
from streaming.offline.place import Placed, placed
from streaming.offline.plan import Planned, PlanOptions, planned
from streaming.offline.reassignment import Assignments, ReassignmentInvalid, read_file
from streaming.offline.report import checked_body
from streaming.offline.saved_plan import SavedPlanInvalid, Verified, load_plan, saved_text, verified
from streaming.offline.what_if import WhatIf

__all__ = [
    "Assignments",
    "CheckOptions",
    "Checked",
    "Document",
    "DocumentFault",
    "ExplainOptions",
    "Explained",
    "Explanation",
    "NothingThere",
    "Placed",
    "PlanOptions",
    "Planned",
    "Published",
    "ReassignmentInvalid",
    "SavedPlanInvalid",
    "Served",
    "ShardExplained",
    "Verified",
    "WhatIf",
    "checked",
    "checked_body",
    "cluster_body",
    "cluster_text",
    "clusters",
    "explained",
    "flow_text",
    "health_body",
    "load_plan",
    "move_body",
    "placed",
    "planned",
    "read_file",
    "saved_text",
    "served",
    "stream_body",
    "verified",
]
