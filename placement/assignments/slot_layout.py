"""Lays out a shard's slots: plain replicas, copies with a role, and surplus.

A replica's role follows from its slot, so slots are laid out anew when a replica goes or the spec
changes; no data moves for it. When the replication factor falls, repair chooses the copies that go;
when it rises, the strategy chooses the nodes; copies with a role stay in the last slots.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from placement.assignments.table import EMPTY


def resize_slots(nodes: Sequence[int], before: int, after: int, role_copies: int) -> list[int]:
    """Lay out `before` copies in `after` slots.

    If the shard had all its copies, the new slots are empty and come before the last `role_copies`,
    which keep their role.
    """
    if after <= before or not role_copies or len(nodes) < before:
        return list(nodes)
    plain = before - role_copies
    return [*nodes[:plain], *[EMPTY] * (after - before), *nodes[plain:]]


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Divides a shard's slots: plain copies, copies with a role, surplus.

    `copies` are asked for; the last `role_copies` of these have a role; slots behind them are a
    surplus.
    """

    copies: int
    role_copies: int

    def lay_out(self, plain: Sequence[int], kept: Sequence[int]) -> list[int]:
        """Lay out nodes by slot: `plain` ones in front, `kept` ones in a role behind them.

        A node that finds no place in one part takes one in the other. Slots in between that nobody
        takes stay EMPTY.
        """
        first = self.copies - self.role_copies
        rest = [*plain, *kept[self.role_copies :]]
        behind = [*kept[: self.role_copies], *rest[first:]]
        if not behind:
            return rest
        front = rest[:first]
        return [*front, *[EMPTY] * (first - len(front)), *behind]

    def split(self, nodes: Sequence[int]) -> tuple[list[int], list[int]]:
        """Split a shard's nodes into plain replicas and those in a role, without empty slots."""
        first = self.copies - self.role_copies
        plain = [*nodes[:first], *nodes[self.copies :]]
        kept = nodes[first : self.copies]
        return [n for n in plain if n != EMPTY], [n for n in kept if n != EMPTY]

    def without_slot(self, nodes: Sequence[int], slot: int) -> list[int]:
        """Lay out the nodes by slot after the replica in one of them is gone."""
        plain, kept = self.split([EMPTY if at == slot else n for at, n in enumerate(nodes)])
        return self.lay_out(plain, kept)
