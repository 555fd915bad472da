"""Carries out plans for resources wave by wave on plain rows, and checks every step by itself."""

import numpy as np

from placement.model import MoveKind
from placement.rebalance import ResourcePlan
from tests.builders.resource_fleets import Fleet


def replay(fleet: Fleet, plan: ResourcePlan) -> np.ndarray:
    """The rows after the plan.

    Checks that the moves are what they say, that the rule by racks is kept, and that no node is
    overfilled: a replica counts on its target at once and on its source until its wave ends.
    """
    rows, limits = fleet.rows.copy(), fleet.limits()
    held, waves = fleet.totals(), [move.wave for move in plan.moves]
    assert waves == sorted(waves)
    for wave in sorted(set(waves)):
        leaving, seen = np.zeros_like(held), set()
        for move in plan.moves:
            if move.wave == wave:
                assert move.shard not in seen, "one move of a shard at a time"
                seen.add(move.shard)
                borne = _carry_out(fleet, rows, move)
                after = held[:, move.add] + borne
                limit = limits[:, move.add]
                assert ((after <= limit) | (borne == 0) | (limit < 0)).all(), move
                held[:, move.add] = after
                leaving[:, move.remove] += borne
        assert (held <= plan.peak).all()
        held -= leaving
    assert held.tolist() == Fleet(**{**vars(fleet), "rows": rows}).totals().tolist()
    return rows


def _carry_out(fleet, rows, move) -> np.ndarray:
    """Make one move; what it takes from node to node."""
    row, loads = rows[move.shard], fleet.loads[:, move.shard]
    led = np.asarray([each.led for each in fleet.resources])
    if move.kind is MoveKind.LEADER:
        assert (row[0], row[move.slot], move.bytes) == (move.remove, move.add, 0)
        row[[0, move.slot]] = row[[move.slot, 0]]
        return np.where(led, loads, 0)
    assert row[move.slot] == move.remove
    assert fleet.eligible is None or fleet.eligible[move.add]
    row[move.slot] = move.add
    racks = fleet.racks[row].tolist()
    assert len(set(racks)) == len(racks), move
    return np.where(led & (move.slot != 0), 0, loads)
