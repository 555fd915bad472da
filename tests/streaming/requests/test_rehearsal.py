"""What `drain --dry-run` lists is what a drain does, and its waves are those of the limits."""

from dataclasses import replace
from io import StringIO
from random import Random
from typing import Any

import pytest

from placement.model import (
    AckKind,
    Action,
    Configuration,
    Limits,
    Liveness,
    Move,
    MoveAcked,
    NodeAttributes,
    NodeChanged,
    OperatorAsked,
    Ready,
    StreamCreated,
)
from placement.reconciler import Reconciler
from streaming.cli.render.console import text_console
from streaming.cli.render.plan import show_rehearsal
from streaming.requests.rehearsal import Rehearsal, rehearse, rehearse_request

NOW = 5_000


def fleet(places: dict[str, str], limits: Limits, *streams: StreamCreated) -> Reconciler:
    made = Reconciler(Configuration(limits=limits, levels=("region",)))
    events: list[Any] = [
        NodeChanged(1, name, "a", 1, Liveness.UP, NodeAttributes(place))
        for name, place in places.items()
    ]
    made.apply([*events, *streams], 1_000)
    return made


def drain(made: Reconciler, target: str) -> Ready:
    asked = OperatorAsked(NOW, "r1", Action.DRAIN, target)
    seen = made.preview(asked)
    assert seen.refusal is None
    assert seen.shards, "the target holds something"
    return made.apply([replace(asked, expected_hash=seen.hash)], NOW)


def rehearsed(made: Reconciler, target: str, under_way: list[Move] | None = None) -> Rehearsal:
    return rehearse(made, drain(made, target), under_way or [], target, "region")


def carried_out(made: Reconciler, target: str, random: Random) -> set[tuple[str, int]]:
    """The shards whose replicas a drain moves, executors finishing in any order."""
    ready, opened, moved = drain(made, target), {}, set()
    while True:
        for move, _ in ready.moves.values():
            moved.add((move.stream, move.shard))
            opened.pop(move.move_id, None)
            if move.state.is_open:
                opened[move.move_id] = move
        if not opened:
            return moved
        done = opened[random.choice(sorted(opened))]
        ack = MoveAcked(NOW, AckKind.COMPLETED, done.move_id, done.stream, done.shard)
        ready = made.apply([ack], NOW)


SIX = {f"n{n}": f"/z{n % 3}" for n in range(6)}


@pytest.mark.parametrize("seed", range(20))
def test_a_rehearsal_lists_what_a_drain_moves(seed: int) -> None:
    random = Random(seed)
    places = {f"n{n}": f"/z{random.randrange(3)}" for n in range(random.randint(4, 9))}
    limits = Limits(max_in_per_node=random.randint(1, 3), max_out_per_node=random.randint(1, 4))
    streams = [
        StreamCreated(2, f"s{n}", 1, random.randint(1, 9), random.randint(1, 3)) for n in range(4)
    ]
    target = random.choice([*places, "/z0"] if "/z0" in places.values() else [*places])
    found = rehearsed(fleet(places, limits, *streams), target)
    shards = [(each.move.stream, each.move.shard) for each in found.moves]
    assert {*shards} == carried_out(fleet(places, limits, *streams), target, random)
    waves = [each.wave for each in found.moves]
    assert waves == sorted(waves)
    inside = {name for name, place in places.items() if target in (name, place)}
    for wave in set(waves):
        going = [each.move for each in found.moves if each.wave == wave]
        for node in places:
            assert sum(move.remove == node for move in going) <= limits.max_out_per_node
            assert sum(move.add == node for move in going) <= limits.max_in_per_node
    assert all(each.move.remove in inside and each.move.add not in inside for each in found.moves)


def test_waves_are_rounds_of_copies_not_batches() -> None:
    """Method: a batch issues one move, the limits let all four replicas leave n0 at once."""
    limits = Limits(max_out_per_node=4, max_copies_from_node=12, max_per_batch=1)
    found = rehearsed(fleet(SIX, limits, StreamCreated(2, "s", 1, 12, 2)), "n0")
    assert (len(found.moves), found.waves) == (4, 1)


RACKS = {f"n{n}": f"/z{n // 4}/r{n // 2}" for n in range(12)}


def asked(made: Reconciler, action: Action, target: str) -> Rehearsal | None:
    """The rehearsal of a request, as a dry run has it."""
    event = OperatorAsked(NOW, "r1", action, target)
    seen = made.preview(event)
    assert seen.refusal is None
    first = made.apply([replace(event, expected_hash=seen.hash or None)], NOW)
    return rehearse_request(made, first, [], action, target, seen.shards, "region")


def test_an_override_lists_all_that_the_hold_kept_from_being_replaced() -> None:
    made = fleet(RACKS, Limits(max_in_per_node=1))
    placed = made.apply([StreamCreated(1_001, "s", 1, 12, 3)], 1_001).assignments.values()
    lost = {name for name, place in RACKS.items() if place.startswith("/z0/")}
    held = sum(len(lost & {*each.replicas}) for each in placed)
    assert held >= 4
    dead = [NodeChanged(NOW, name, "a", 2, Liveness.DEAD) for name in sorted(lost)]
    assert not [move for move, _ in made.apply(dead, NOW).moves.values()]
    found = asked(made, Action.OVERRIDE_HOLD, "/z0")
    assert {each.move.remove for each in found.moves if each.move.remove} <= lost
    copied = [each for each in found.moves if each.move.add is not None]
    assert (len(copied), found.blocked) == (held, ())
    assert found.waves > 1, "a node takes one copy at a time"


def test_a_rebalance_lists_the_moves_to_all_that_have_joined() -> None:
    made = fleet(SIX, Limits(), StreamCreated(2, "s", 1, 12, 2))
    joined = [
        NodeChanged(NOW, f"m{n}", "a", 1, Liveness.UP, NodeAttributes(f"/z{n}")) for n in range(3)
    ]
    made.apply(joined, NOW)
    found = asked(made, Action.REBALANCE, "fleet")
    assert found.moves
    assert all(each.move.cause == "balance" for each in found.moves)
    gained = [each.move.add for each in found.moves if each.move.add is not None]
    assert {*gained} == {"m0", "m1", "m2"}


def test_what_moves_nothing_has_no_rehearsal() -> None:
    made = fleet(SIX, Limits(), StreamCreated(2, "s", 1, 2, 2))
    assert asked(made, Action.CORDON, "n0") is None


def text(found: Rehearsal, width: int) -> str:
    file = StringIO()
    show_rehearsal(text_console(width, file), found)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def test_what_people_see() -> None:
    kept = {"strategy": "spread", "nodes": ["n0", "n1"]}
    made = fleet(
        SIX,
        Limits(max_out_per_node=1),
        StreamCreated(2, "orders", 1, 4, 3),
        StreamCreated(3, "pinned", 1, 1, 2, policy=kept, quorum="one"),
    )
    limits = "as the limits of moves allow"
    *moves, stays = text(rehearsed(made, "n0"), 200).splitlines()
    assert moves == [
        "wave  shard     kind     from  to  leads  cause  why",
        "   1  orders/0  replace  n0    n3         drain  node n0 is draining",
        "   2  orders/2  replace  n0    n3         drain  node n0 is draining",
        f"2 moves in 2 waves of at most 1, {limits}: 2 copies, 0 of them from another region",
    ]
    assert stays.startswith(
        "blocked pinned/0 stays on n0: 2 replicas of a shard need 2 usable nodes"
    )
