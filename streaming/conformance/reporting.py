"""Shows the findings of an examination: as JSON for programs, as JUnit XML for build servers.

The table for people is made by `streaming/cli/commands/conformance.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import orjson

from streaming.conformance.clauses import CLAUSES, Verdict

if TYPE_CHECKING:
    from streaming.conformance.clauses import Findings


def to_json(findings: Findings) -> dict[str, Any]:
    """Return the findings by clause; what was broken with the records that show it."""
    return {
        "conforms": not findings.broken,
        "clauses": [
            {
                "clause": clause.value,
                "says": says,
                "verdict": findings.verdict(clause).value,
                "why": findings.why(clause),
                "scenarios": sorted({each.scenario for each in findings.of(clause)}),
                "broken": [
                    {"scenario": each.scenario, "why": each.why, "records": [*each.records]}
                    for each in findings.of(clause)
                    if each.verdict is Verdict.BROKEN
                ],
            }
            for clause, says in CLAUSES.items()
        ],
    }


def to_junit(findings: Findings) -> bytes:
    """Return the findings as JUnit XML: a test case for each clause."""
    verdicts = {clause: findings.verdict(clause) for clause in CLAUSES}
    counts = {word: [*verdicts.values()].count(word) for word in Verdict}
    suite = ET.Element(
        "testsuite",
        name="placer conformance",
        tests=str(len(CLAUSES)),
        failures=str(counts[Verdict.BROKEN]),
        skipped=str(counts[Verdict.NOT_TRIED]),
    )
    for clause, says in CLAUSES.items():
        case = ET.SubElement(suite, "testcase", classname="conformance", name=f"{clause}: {says}")
        why = findings.why(clause)
        if verdicts[clause] is Verdict.NOT_TRIED:
            ET.SubElement(case, "skipped", message=why)
        elif verdicts[clause] is Verdict.BROKEN:
            failure = ET.SubElement(case, "failure", message=why)
            shown = [
                orjson.dumps(record).decode()
                for each in findings.of(clause)
                if each.verdict is Verdict.BROKEN
                for record in each.records
            ]
            failure.text = "\n".join(shown)
    ET.indent(suite)
    return ET.tostring(suite, encoding="utf-8", xml_declaration=True)
