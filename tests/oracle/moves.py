"""Moves judged as they are issued: is it needed, may it be, does it keep what was kept."""

from collections.abc import Iterator, Sequence
from typing import Any

from tests.oracle.policy import can_judge, moves_together
from tests.oracle.world import Shard, Value, World

# States that a move takes on by the word of its executor.
EXECUTORS_SAY = ("accepted", "completed", "failed")
# The most urgent first.
CAUSES = (
    "under_replicated",
    "leader",
    "required_rule",
    "drain",
    "preferred_rule",
    "surplus",
    "balance",
)
# Why moves are issued; one that ended with another reason was not outranked.
WANTED = (
    "NODE_DEAD",
    "NODE_UNREGISTERED",
    "NODE_DRAINING",
    "REPLICA_MISSING",
    "RULE_NOT_MET",
    "LOAD_UNEVEN",
    "OVER_CAPACITY",
    "UNBALANCED",
)


# Reasons of moves that even out replicas or resources.
UNEVEN = ("LOAD_UNEVEN", "OVER_CAPACITY", "UNBALANCED")


def judge_form(world: World, key: str, move: Value) -> Iterator[str]:
    """A move that is seen for the first time; `completed` at once is the immediate mode."""
    if move["state"] not in ("issued", "completed"):
        yield f"move {key} began as {move['state']}"
    lacks, leads = (move["remove"] is None, move["add"] is None), move["kind"] == "leader"
    if lacks != (leads or move["kind"] == "add", leads or move["kind"] == "remove"):
        told = f"adds {move['add']} and removes {move['remove']}"
        yield f"move {key} of kind {move['kind']} {told}"
    if move["deadline"] <= move["issued_at"]:
        yield f"move {key} was late when it was issued"
    superseded = world.all_moves.get(move["supersedes"])
    if move["supersedes"] and (superseded is None or superseded["state"] != "superseded"):
        yield f"move {key} supersedes {superseded}"
    elif superseded and superseded["reason"]["code"] in WANTED and not world.renews(move):
        before, after = superseded["cause"], move["cause"]
        if CAUSES.index(after) >= CAUSES.index(before):
            yield f"move {key} for {after} supersedes one for {before}"


def judge_need(world: World, key: str, move: Value) -> Iterator[str]:
    """Is the move needed, may its target receive a replica, and what does it do to the policy."""
    old, new = move["remove"], move["add"]
    if new and not world.may_receive(new) and not world.may_be_fenced(move):
        yield f"move {key} aims at {new}, which may not receive replicas"
    if move["source"] and not world.alive(move["source"]):
        yield f"move {key} copies from {move['source']}, which does not live"
    if move["kind"] == "leader":
        yield from _judge_hand_over(world, key, move)
    elif move["kind"] == "remove":
        yield from _judge_removal(world, key, move)
    elif world.alive(old) and not move["supersedes"]:
        why = move["reason"]["code"]
        drains = why == "NODE_DRAINING" and world.is_draining(old)
        if why not in ("RULE_NOT_MET", *UNEVEN) and not drains:
            yield f"move {key} replaces the replica on {old}, which lives"
    waits = world.memory.get("backoff", {}).get(f"{move['stream']}/{move['shard']}/{new}")
    if waits and waits["until"] > move["issued_at"] and not world.renews(move):
        yield f"move {key} aims at {new}, which is to be left alone until {waits['until']}"
    if old and world.is_away(old) and not world.renews(move):
        yield f"move {key} takes the replica from {old}, which is away and may return"
    if new and not world.renews(move):
        yield from _judge_target(world, key, move)


def _judge_hand_over(world: World, key: str, move: Value) -> Iterator[str]:
    """A live leader is succeeded by another replica whose node is up, on which that has not failed
    just now."""
    shard, heir = (move["stream"], move["shard"]), move["leader"]
    first, *others = world.assignments[shard]["replicas"]
    if not world.alive(first):
        yield f"move {key} asks that {heir} follows {first}, which is dead: that is told at once"
    if heir not in others or not world.may_receive(heir):
        yield f"move {key} lets {heir} lead, of {[first, *others]}"
    waits = world.memory.get("backoff", {}).get(f"{move['stream']}/{move['shard']}/{heir}")
    if waits and waits["until"] > move["issued_at"]:
        yield f"move {key} lets {heir} lead, which is to be left alone until {waits['until']}"


def _judge_removal(world: World, key: str, move: Value) -> Iterator[str]:
    """Only a surplus is removed, and nothing healthy while something else remains."""
    shard, old = (move["stream"], move["shard"]), move["remove"]
    held = [*world.assignments[shard]["replicas"]]
    # A move that is completed at once is in no list any more.
    held += [] if old in held else [old]
    factor = world.copies(shard[0])
    if len(held) <= factor:
        yield f"move {key} removes {old} of {held}, {factor} are asked for"
    live = world.live(held)
    needed = len(live) <= factor or len(live) < len(held)
    if needed and world.alive(old):
        yield f"move {key} removes the live replica on {old}, with {live} of {held}"
    behind = world.out_of_sync(shard) & {*live}
    in_sync = [node for node in live if node not in behind]
    if behind and old in in_sync and len(in_sync) <= world.quorum(shard[0]):
        yield f"move {key} removes {old}, of {in_sync} in sync, though {sorted(behind)} are not"


def _judge_target(world: World, key: str, move: Value) -> Iterator[str]:
    """A target has room, and breaks nothing that the policy requires and that was kept before."""
    shard, old, new = (move["stream"], move["shard"]), move["remove"], move["add"]
    capacity = world.nodes[new].get("capacity")
    if capacity is not None and world.load()[new] > capacity:
        yield f"move {key} puts {world.load()[new]} replicas on {new}, which takes {capacity}"
    spec = world.spec(shard[0])
    if moves_together(spec) or not can_judge(spec):
        return
    assignment = world.assignments[shard]
    held = {*assignment["replicas"], *assignment["adding"]}
    lists = sorted({*held, old or new} - {new}), sorted({*held, new} - {old})
    # What is to leave may count while it is there: its own replacement keeps the rule again.
    kept = more_broken(world, shard, *map(world.kept, lists))
    before, after = map(world.staying, lists)
    worse = more_broken(world, shard, before, after)
    if worse and kept:
        yield f"move {key} of {shard} from {before} to {after} breaks a rule: {worse}"


def more_broken(
    world: World, shard: Shard, before: Sequence[str], after: Sequence[str]
) -> list[str]:
    """Breaches of the stream's policy that another list of one shard makes worse."""
    old, new = (broken_with(world, shard, nodes) for nodes in (before, after))
    return [words for part, (amount, words) in new.items() if amount > old.get(part, (0, ""))[0]]


def broken_with(world: World, shard: Shard, nodes: Sequence[str]) -> dict[Any, tuple[int, str]]:
    """Breaches by (shard, part) had one shard of the stream these replicas. The others stand where
    their moves take them; replicas that are lost or are to leave do not count."""
    stream, number = shard
    lists = {n: world.staying(replicas) for n, replicas in world.planned(stream).items()}
    lists[number] = list(nodes)
    found: dict[Any, tuple[int, str]] = {}
    for breach in world.judge(stream).breaches([lists[n] for n in sorted(lists)]):
        amount, _ = found.get((breach.shard, breach.part), (0, ""))
        found[breach.shard, breach.part] = amount + breach.amount, breach.words
    return found


def can_be_led(world: World, nodes: Sequence[str]) -> bool:
    """Whether one of the nodes may lead."""
    return any(world.nodes[node].get("leader", True) for node in nodes)


def judge_words(ended: Sequence[Value], words: set[tuple[str, str]]) -> Iterator[str]:
    """Moves are accepted, completed and failed by their executor's word only: `words` are what was
    said in the batch, as (kind, move id), or as (kind, stream/shard) of no move in particular."""
    for move in ended:
        said = {(move["state"], move["move_id"])}
        said.add((move["state"], f"{move['stream']}/{move['shard']}"))
        if move["state"] in EXECUTORS_SAY and not said & words:
            yield f"move {move['move_id']} is {move['state']}, which nobody said"
