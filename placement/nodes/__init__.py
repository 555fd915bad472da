"""What concerns nodes rather than shards: admission, places, orders, holds, links.

Imports `planning` (what a relocation would move), `repair`, `state` and what they stand on.
"""

from placement.nodes.admission import Admission
from placement.nodes.hold import Hold, find_hold, lost_domains, lost_share
from placement.nodes.links import Links
from placement.nodes.location_authority import KIND, Authority
from placement.nodes.orders import Order, StandingOrders
from placement.nodes.relocation import Relocations, Stand

__all__ = [
    "KIND",
    "Admission",
    "Authority",
    "Hold",
    "Links",
    "Order",
    "Relocations",
    "Stand",
    "StandingOrders",
    "find_hold",
    "lost_domains",
    "lost_share",
]
