"""Limits on what may be under way at once: per node, between domains, and in total.

A need above a limit is not queued: it stays a violation and is derived again (guarantee G3).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Open moves at once. The per-node figures are those of Kudu's rebalancer tool (5 in and 5
    out, `max_moves_per_server`); the total keeps a dead node from loading the whole network; the
    batch bound keeps one batch, and so one transaction, short.

    `max_out_per_node` bounds the moves that take a replica off a node which lives and put it
    elsewhere, whichever node they copy from; a dead node gives nothing, and its replicas are
    replaced without this bound. `max_copies_from_node` bounds the moves that read their copy from
    the node, whoever gives up the replica. `max_touching_per_node` bounds the moves towards and
    away from a node together, as Kudu's option does; it is for plans. `max_per_domain_pair` bounds
    the copies between two domains of the top level, whose link is the narrowest."""

    max_in_per_node: int = 5
    max_out_per_node: int = 5
    max_copies_from_node: int = 5
    max_open: int = 200
    max_per_batch: int = 500
    max_touching_per_node: int | None = None
    max_per_domain_pair: int | None = None
