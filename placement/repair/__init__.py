"""From what shards need to the moves that give it to them.

Which shards are looked at and in which order, what each needs, where a replica goes, and the limits
on what is under way. Imports `state`, `diagnosis` and what they stand on; knows neither streams'
answers nor rebalancing.
"""

from placement.repair.actions import ActionFinder, RepairAction
from placement.repair.planner import RepairPlanner
from placement.repair.throttle import DomainPair, copy_source, domain_pair, open_pairs
from placement.repair.violations import DRAIN_RULE, ViolationReporter

__all__ = [
    "DRAIN_RULE",
    "ActionFinder",
    "DomainPair",
    "RepairAction",
    "RepairPlanner",
    "ViolationReporter",
    "copy_source",
    "domain_pair",
    "open_pairs",
]
