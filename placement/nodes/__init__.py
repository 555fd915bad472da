"""Handles nodes rather than shards: admission, locations, orders, holds, links.

Imports `planning` (what a relocation would move), `repair`, `state` and what they stand on.
"""

from placement.nodes.admission import Admission
from placement.nodes.hold import HoldTrigger, find_hold, lost_domains, lost_share
from placement.nodes.links import Links
from placement.nodes.location_authority import KIND, LocationAuthority
from placement.nodes.orders import AdministrativeOrders, Order
from placement.nodes.relocation import LocationDecision, Relocations, why_nothing_pending

__all__ = [
    "KIND",
    "AdministrativeOrders",
    "Admission",
    "HoldTrigger",
    "Links",
    "LocationAuthority",
    "LocationDecision",
    "Order",
    "Relocations",
    "find_hold",
    "lost_domains",
    "lost_share",
    "why_nothing_pending",
]
