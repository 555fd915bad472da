"""Examines executors: plays the contract with consumers to one, and judges what it says.

For whoever writes an executor, in any language. It stands in for the reconciler on topics of its
own. Imports `administration`, `brokers`, `errors`.
"""

from streaming.conformance.clauses import CLAUSES, Clause, Evidence, Findings, Verdict
from streaming.conformance.examination import Examination, examine
from streaming.conformance.reporting import to_json, to_junit
from streaming.conformance.scenarios import SCENARIOS, Scenario

__all__ = [
    "CLAUSES",
    "SCENARIOS",
    "Clause",
    "Evidence",
    "Examination",
    "Findings",
    "Scenario",
    "Verdict",
    "examine",
    "to_json",
    "to_junit",
]
