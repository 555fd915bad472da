"""The reconciler's memory, how each change of it becomes a record, and how it is restored.

Facts, what is published of them, and the digest that proves a rebuild. Imports `strategies`,
`moves` and what they stand on.
"""

from placement.state import violated
from placement.state.cluster_state import State
from placement.state.facts import Stream, role_rules
from placement.state.restore import rebuild

__all__ = [
    "State",
    "Stream",
    "rebuild",
    "role_rules",
    "violated",
]
