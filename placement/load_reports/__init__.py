"""Smooths what nodes report of their shards' loads, and passes on changes that matter.

Runs inside a Spark operator, before anything is decided; imports `model` only.
"""

from placement.load_reports.columns import ReportColumns
from placement.load_reports.report import UNSAID, LoadBands, LoadReport, split_event
from placement.load_reports.report_filter import ReportFilter

__all__ = ["UNSAID", "LoadBands", "LoadReport", "ReportColumns", "ReportFilter", "split_event"]
