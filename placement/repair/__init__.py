"""From what shards need to the moves that give it to them.

Which shards are looked at and in which order, what each needs, where a replica goes, and the limits
on what is under way. Imports `state`, `diagnosis` and what they stand on; knows neither streams'
answers nor rebalancing.
"""

from placement.repair.actions import Want, Wants
from placement.repair.planner import Repair
from placement.repair.throttle import Link, copy_source, link, links
from placement.repair.violations import DRAIN_RULE, Report

__all__ = [
    "DRAIN_RULE",
    "Link",
    "Repair",
    "Report",
    "Want",
    "Wants",
    "copy_source",
    "link",
    "links",
]
