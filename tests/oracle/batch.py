"""What holds after every batch: leaders, counts, limits, leases, and that nothing is lost."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from placement.model import Answer, OperatorAsked
from tests.oracle.world import Shard, Value, World


def judge_shard(world: World, shard: Shard, caught_up: bool) -> Iterator[str]:
    """The shard as it stands, with what is said of it."""
    assignment = world.assignments[shard]
    replicas = assignment["replicas"]
    live = world.live(replicas)
    if live and live[0] != replicas[0] and caught_up:
        yield f"{shard} is led by {replicas[0]}, which is dead, though {live[0]} lives"
    said = [v for v in world.open_violations.get(shard, ()) if v["rule"] == "replicas"]
    factor = world.copies(shard[0])
    if [v["count"] for v in said] != ([len(live)] if len(live) < factor else []):
        yield f"{shard} has {len(live)} of {factor} replicas, its violations are {said}"
    if (world.open_moves.get(shard) or None) != assignment["move_id"]:
        yield f"{shard} shows move {assignment['move_id']}, not {world.open_moves.get(shard)}"


def judge_counts(world: World, stream: str, lists: list[list[str]]) -> Iterator[str]:
    """What a decision says of its stream."""
    decision = world.decisions[stream]
    spec, outcome, factor = decision["spec"], decision["outcome"], world.copies(stream)
    placed = sum(map(len, lists))
    whole = sum(len(replicas) >= factor for replicas in lists)
    missing = spec["shards"] * factor - sum(min(len(replicas), factor) for replicas in lists)
    unknown = 0
    if outcome in ("rejected", "dropped"):
        missing = 0
    elif spec.get("adopt") == "observed":
        # What has not been observed is not known to be missing.
        unknown = spec["shards"] - len(lists)
        missing -= unknown * factor
        yield from _judge_awaited(world, decision, unknown)
    said = (decision["shards_placed"], decision["replicas_missing"])
    if said != (whole, missing):
        yield f"{stream}: shards placed, replicas missing {said} are {whole, missing}"
    wanted = {
        "placed": missing == unknown == 0,
        "degraded": missing == unknown == 0,
        # The last copy of a stream may be lost: its shards are there without any.
        "partial": (missing > 0 and bool(lists)) or unknown > 0,
        "waiting": placed == 0,
        "dropped": not lists,
    }
    if not wanted.get(outcome, True):
        yield f"{stream} is {outcome} with {placed} replicas, {missing} missing"


def _judge_awaited(world: World, decision: Value, unknown: int) -> Iterator[str]:
    """Nothing is done or said about shards that have not been observed; how many is told."""
    stream, told = (
        decision["stream"],
        [r for r in decision["reasons"] if r["code"] == "REPLICAS_AWAITED"],
    )
    if [r["need"] - r["have"] for r in told] != ([unknown] if unknown else []):
        yield f"{stream}: {unknown} shards are not observed, its decision says {told}"
    for shard in (*world.open_moves, *world.open_violations):
        if shard[0] == stream and shard not in world.assignments:
            yield f"{shard} has not been observed, and has a move or a violation"


def judge_open(world: World, caught_up: bool, now: int | None) -> Iterator[str]:
    """What is under way still makes sense: targets may receive, leases run, and no copy that is
    needed is given up, unless its executor has begun."""
    for shard, move_id in world.open_moves.items():
        move = world.all_moves[move_id]
        new = move["add"]
        if new and not world.may_receive(new) and not world.may_be_fenced(move):
            yield f"move {move_id} of {shard} is open, its target {new} may not receive replicas"
        held = world.live(world.assignments[shard]["replicas"])
        needed = move["remove"] in held and len(held) <= world.copies(shard[0])
        if move["kind"] == "remove" and move["state"] == "issued" and needed and caught_up:
            yield f"move {move_id} of {shard} gives up {move['remove']}, one of {held} that live"
        if now is not None and move["deadline"] <= now:
            yield f"move {move_id} of {shard} is open at {now}, past its deadline"


def judge_sync(world: World) -> Iterator[str]:
    """What is remembered to be out of sync is a replica of a shard that is there."""
    for name, body in world.memory.get("out_of_sync", {}).items():
        stream, _, number = name.rpartition("/")
        held = world.assignments.get((stream, int(number)), {}).get("replicas", ())
        for node_id in sorted({*body["nodes"]} - {*held}):
            yield f"{name} remembers {node_id} to be out of sync, of {held}"


def judge_forgotten(world: World, nodes: Collection[str]) -> Iterator[str]:
    """Nothing stands on nodes that were forgotten, and nothing is on its way to or from them."""
    if not nodes:
        return
    for shard, assignment in world.assignments.items():
        named = (*assignment["replicas"], *assignment["adding"], *assignment["removing"])
        for node_id in sorted({*named} & {*nodes}):
            yield f"node {node_id} was forgotten, and {shard} names it"


def judge_limits(world: World, limits: Any, issued: list[Value]) -> Iterator[str]:
    """Open moves in total, by node in and out, and new ones in this batch. A move that goes on
    under another leader is none of these."""
    new = [move for move in issued if not world.renews(move)]
    if len(new) > limits.max_per_batch:
        yield f"{len(new)} moves in one batch, {limits.max_per_batch} are allowed"
    moves = [world.all_moves[move_id] for move_id in world.open_moves.values()]
    if len(moves) > limits.max_open and new:
        yield f"{len(moves)} moves are open, {limits.max_open} are allowed"
    into = Counter(move["add"] for move in moves if move["add"])
    away = Counter(move["remove"] for move in moves if move["remove"] and move["add"])
    copied = Counter(move["source"] for move in moves if move["source"])
    links = Counter(filter(None, (_link(world, move) for move in moves)))
    for move in new:
        if move["state"] != "issued":
            continue
        link, most = _link(world, move), limits.max_per_domain_pair
        if most is not None and link and links[link] > most:
            yield f"{links[link]} moves between {' and '.join(sorted(link))} are open"
        if move["add"] and into[move["add"]] > limits.max_in_per_node:
            yield f"{into[move['add']]} moves towards {move['add']} are open"
        if world.alive(move["remove"]) and away[move["remove"]] > limits.max_out_per_node:
            yield f"{away[move['remove']]} moves away from {move['remove']} are open"
        if move["source"] and copied[move["source"]] > limits.max_copies_from_node:
            yield f"{copied[move['source']]} moves copying from {move['source']} are open"


def judge_answers(
    asked: Sequence[OperatorAsked], answers: Sequence[Answer], standing: set[str]
) -> Iterator[str]:
    """Every request of a batch has one answer; what else is said is of one that was accepted
    earlier. `standing`: ids of those, to which the accepted ones are added."""
    first = [answer for answer in answers if answer.outcome in ("accepted", "refused")]
    wanted = [(each.request_id, each.action, each.target) for each in asked]
    given = [(each.request_id, each.action, each.target) for each in first]
    if wanted != given:
        yield f"requests {wanted} were answered by {given}"
    standing |= {each.request_id for each in first if each.outcome == "accepted"}
    for answer in answers:
        if answer not in first and answer.request_id not in standing:
            yield f"{answer.outcome} is said of {answer.request_id}, which was not accepted"
        accepts = answer.reason.code == "REQUEST_ACCEPTED"
        if accepts != (answer.outcome == "accepted"):
            yield f"{answer.request_id} is {answer.outcome} with {answer.reason.code}"


def _link(world: World, move: Value) -> frozenset[str]:
    """The two domains of the top level between which the move copies; empty if it does not."""
    ends = (world.nodes.get(move[end], {}) for end in ("source", "add") if move[end])
    tops = frozenset("/".join(node.get("location", "").split("/")[:2]) for node in ends)
    return tops if len(tops) == 2 else frozenset()
