"""From what shards need to the moves that give it to them.

Which shards are looked at and in which order, what each needs, where a replica goes, and the limits
on what is under way. Imports `state`, `diagnosis` and what they stand on; knows neither streams'
answers nor rebalancing.
"""

from placement.repair.actions import RepairAction
from placement.repair.needs import RepairScope
from placement.repair.planner import RepairPlanner
from placement.repair.throttle import Copy, Throttle, copy_source
from placement.repair.violations import ViolationReporter

__all__ = [
    "Copy",
    "RepairAction",
    "RepairPlanner",
    "RepairScope",
    "Throttle",
    "ViolationReporter",
    "copy_source",
]
