"""Records of several topics held against each other by epoch and id: true however they are read."""

from collections.abc import Iterator, Sequence

from tests.oracle.world import Value, World


def judge_step(
    world: World, before: Value | None, after: Value, completed: Sequence[Value]
) -> Iterator[str]:
    """A shard's replicas change by a completed move only, and shown moves are known."""
    name = f"{after['stream']}/{after['shard']} at epoch {after['epoch']}"
    shown = world.all_moves.get(after["move_id"])
    if after["move_id"] and (shown is None or shown["expected_epoch"] != after["epoch"]):
        yield f"{name} shows a move of another epoch: {shown}"
    changes = bool(after["adding"] or after["removing"])
    if shown is not None and changes == (shown["kind"] == "leader"):
        yield f"{name} adds {after['adding']} and removes {after['removing']} by {shown}"
    if before is None:
        return
    gone = world.lost.get((after["stream"], after["shard"]), set())
    was, held = set(before["replicas"]), set(after["replicas"])
    epochs = (before["epoch"], after["epoch"])
    done = [move for move in completed if move["expected_epoch"] in epochs]
    # What executors have found is where moves of the same batch go on from.
    starts = [was, *world.observed.get((after["stream"], after["shard"]), ())]
    ends = [*starts]
    for start in starts:
        ends += [(start - {move["remove"]}) | ({move["add"]} - {None}) for move in done]
    if not any(held <= end and end - held <= gone for end in ends):
        lost, gained = sorted(was - held), sorted(held - was)
        yield f"{name} lost {lost} and gained {gained} without a completed move"


def judge_epoch(move: Value, history: Sequence[Value]) -> Iterator[str]:
    """A move is valid at the epoch that its issue published, where the shard shows it."""
    at = [a for a in history if a["epoch"] == move["expected_epoch"]]
    if move["kind"] == "leader":
        shown = [a for a in at if a["move_id"] == move["move_id"]]
        shown = [a for a in shown if move["leader"] in a["replicas"][1:]]
    elif move["add"]:
        shown = [a for a in at if a["move_id"] == move["move_id"]]
        shown = [a for a in shown if move["add"] in a["adding"]]
        shown += [a for a in at if move["add"] in a["replicas"] and not a["move_id"]]
    else:
        old = move["remove"]
        shown = [a for a in at if a["move_id"] == move["move_id"] and old in a["removing"]]
        shown += [a for a in at if old not in a["replicas"] and not a["move_id"]]
    if not shown:
        yield f"no assignment shows move {move}, only {at}"
    elif move["source"] and move["source"] not in {*shown[0]["replicas"], move["remove"]}:
        yield f"move {move} copies from a node that has no replica: {shown}"
