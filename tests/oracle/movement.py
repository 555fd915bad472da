"""Copies made while a fleet settles, held against the fewest that could have been made.

A shard settles from one change of what it rests on to the next: of a node, a hold, its spec, a node
that it left alone after a failure. The bound on what is issued meanwhile, asserted with factor 1:

    copies issued <= replicas that stand elsewhere in the end + copies under way + retries

A retry is a copy that was not to blame for its end: it failed, came past its deadline, was
cancelled by an operator or along with another one of its stream that failed, gave way to what is
more urgent or to a loss, or went on under another leader; or its replica was lost after it had
come, or rebalanced after it was given back, or brought by rebalancing or a drain to where another
one stood. A wish (a preferred rule, balance) may move a replica on that has just come to a node
that could not take it then, or, for balance, that others have left since; or where the strategy's
own order counts for more than wishes.
Hence no replica moves twice for what a rule requires, and none comes back to where it was. At rest
each of the moves has to have been needed besides: none can be left out without the policy being
kept worse, as the others stood before they moved for wishes. What moved for a preferred rule is
judged in `steady_state` where that can be judged at all. Streams with a rule on load are left out:
what other streams do meanwhile changes what they ask for. A colocated stream whose shards stand
apart, or were on their way apart when the fleet changed, is brought together step by step, with a
factor of 2.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.oracle.loads import full_nodes
from tests.oracle.moves import can_be_led, more_broken
from tests.oracle.policy import can_judge, keeps_apart, minds_load, moves_together
from tests.oracle.world import OPEN_STATES, Shard, Value, World

# Ends of a move that ask for another try: by its executor, by its deadline.
RETRIED = ("failed", "expired")
# Why else a move ends without being to blame: an operator wants it, a replica of its shard is lost.
EXCUSES = ("REQUEST_CANCELLED", "REPLICA_LOST")
# How the move of another shard ended, along with which one for balance is cancelled.
ALONG_WITH = ("EXECUTOR_FAILED", "DEADLINE_PASSED")
# Causes of moves whose need is judged here; for lack of replicas and for drains, `moves`
# has seen that what they replace may not stay.
JUDGED_CAUSES = ("under_replicated", "required_rule", "drain")

# A copyset's member and the walk's next node are taken first, whatever a wish makes of them.
OWN_ORDER = ("copysets", "ring")
# Causes of moves that no rule requires.
WISHES = ("preferred_rule", "balance")

# The nodes that a torn stream is brought together on are chosen step by step, not foreseen.
TORN_FACTOR = 2
# Causes, the most urgent first: a move gives way to one for an earlier cause only.
URGENCY = ("under_replicated", "required_rule", "drain", "preferred_rule", "surplus", "balance")


@dataclass(slots=True)
class ShardMovement:
    """One shard since the fleet last changed: the nodes it stood on, whether apart from others of a
    stream that moves as one, the copies issued for it, the nodes that an earlier copy took it from,
    and those whose replica executors said was lost."""

    started: frozenset[str]
    torn: bool = False
    issued: dict[str, Value] = field(default_factory=dict)
    left_before: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)


class MovementBound:
    """All shards of a world since the fleet last changed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._shards: dict[Shard, ShardMovement] = {}
        # Streams that move as one, some shard of which was on its way when the fleet last changed.
        self._begun: set[str] = set()
        # By copy, as it was issued: nodes that could not have taken it instead, and all loads.
        self._closed: dict[str, set[str]] = {}
        self._loads: dict[str, Counter[str]] = {}
        # Replicas moved, and the fewest that had to be, of all that has ended.
        self.copies = self.fewest = 0

    def begin(self, shard: Shard, replicas: Iterable[str]) -> ShardMovement:
        """The shard has these replicas, some of which may just have been lost; where it stood first
        counts."""
        if shard not in self._shards:
            here = frozenset(replicas) - self._world.lost.get(shard, set())
            self._shards[shard] = ShardMovement(here, self._is_torn(shard, here))
        return self._shards[shard]

    def _is_torn(self, shard: Shard, here: frozenset[str]) -> bool:
        stream, number = shard
        if stream not in self._world.decisions or not moves_together(self._world.spec(stream)):
            return False
        others = self._world.lists(stream)
        return stream in self._begun or any(
            here != {*nodes} for other, nodes in others.items() if other != number
        )

    def issue(self, shard: Shard, move: Value) -> None:
        """A copy is issued; what is completed at once stands in the list already."""
        self._closed[move["move_id"]] = self._closed_nodes(shard)
        self._loads[move["move_id"]] = self._world.load()
        replicas = set(self._world.assignments.get(shard, {}).get("replicas", ()))
        movement = self.begin(shard, replicas - {move["add"]})
        # One that goes on under another leader was issued when the one before was.
        if not self._world.renews(move) or move["supersedes"] in movement.issued:
            movement.issued[move["move_id"]] = move

    def complete(self, shard: Shard, move: Value) -> None:
        """A copy is completed, which may have been issued before the fleet changed."""
        movement = self._shards.get(shard)
        if movement is not None and move["move_id"] not in movement.issued:
            movement.left_before.add(move["remove"])

    def lose(self, shard: Shard, node_id: str) -> None:
        """Executors say that the replica is gone."""
        replicas = self._world.assignments.get(shard, {}).get("replicas", ())
        self.begin(shard, replicas).lost.append(node_id)

    def end(self, stream: str | None = None, number: int | None = None) -> list[str]:
        """All shards, those of a stream or one of them begin anew; what is wrong so far."""
        ended = [s for s in self._shards if stream in (None, s[0]) and number in (None, s[1])]
        found = []
        for shard in ended:
            movement = self._shards.pop(shard)
            if shard in self._world.assignments:
                states = [self._world.all_moves[move_id]["state"] for move_id in movement.issued]
                self.copies += states.count("completed")
                self.fewest += len(self._gained_nodes(shard, movement))
                found += self._judge_bound(shard, movement)
        if stream is None:
            self._begun = {name for name in self._world.decisions if self._is_apart(name)}
        return found

    def _is_apart(self, stream: str) -> bool:
        """Whether the moves under way take some shards of the stream to other nodes than others."""
        if not moves_together(self._world.spec(stream)):
            return False
        planned = self._world.planned(stream).values()
        return len({frozenset(nodes) for nodes in planned}) > 1

    def judge(self) -> Iterator[str]:
        """The bound at rest, and copies without which the policy would be kept as well."""
        for shard, movement in self._shards.items():
            if shard in self._world.assignments:
                yield from self._judge_bound(shard, movement)
                yield from self._judge_needless(shard, movement)

    def _judge_bound(self, shard: Shard, movement: ShardMovement) -> Iterator[str]:
        if minds_load(self._world.spec(shard[0])):
            return
        moves = [self._world.all_moves[move_id] for move_id in movement.issued]
        successors = {move["supersedes"]: move for move in moves if move["supersedes"]}
        excused = sum(self._is_retried(m, successors.get(m["move_id"])) for m in moves)
        under_way = sum(move["state"] in OPEN_STATES for move in moves)
        gained = self._gained_nodes(shard, movement)
        # What repair gave back, rebalancing may move on.
        moved_on = {move["remove"] for move in moves if _is_for_balance(move)}
        fresh = [m["add"] for m in moves if m["state"] == "completed" and not _is_for_balance(m)]
        # It may also fill a place that a rule took a replica from, and so may a drain, whose turn
        # comes after the rule's.
        late = ("balance", "drain")
        done = [m for m in moves if m["state"] == "completed" and m["cause"] in late]
        filled = sum(move["add"] in movement.started for move in done)
        allowed = under_way + excused + filled + sum(node in moved_on for node in fresh)
        allowed += sum(self._is_called_on(move, moves) for move in moves)
        lost = sum(move["state"] == "completed" and move["add"] in movement.lost for move in moves)
        most = len(gained) * (TORN_FACTOR if movement.torn else 1)
        if len(moves) > most + allowed + lost:
            told = [(m["remove"], m["add"], m["cause"], m["state"]) for m in moves]
            ends = f"{sorted(movement.started)} to {self._world.assignments[shard]['replicas']}"
            yield f"{shard} went from {ends}, for which too many copies were issued: {told}"

    def _is_called_on(self, move: Value, moves: Iterable[Value]) -> bool:
        """Whether a wish takes on what one of the moves has brought, and could not be known of
        when that was issued."""
        brought = [m for m in moves if m["add"] == move["remove"]]
        wishes = {"preferred_rule": brought, "balance": [m for m in brought if _is_for_balance(m)]}
        if not wishes.get(move["cause"]):
            return False
        if self.follows_order(move):
            return True
        ids = [m["move_id"] for m in brought]
        if any(move["add"] in self._closed[each] for each in ids):
            return True
        # Its own replica is counted on the node since.
        now = self._loads[move["move_id"]][move["add"]] - 1
        return _is_for_balance(move) and any(now < self._loads[each][move["add"]] for each in ids)

    def follows_order(self, move: Value) -> bool:
        """Whether a strategy's own order may bring for a wish what a wish took elsewhere."""
        strategy = self._world.decisions[move["stream"]].get("strategy")
        return move["cause"] == "preferred_rule" and strategy in OWN_ORDER

    def _closed_nodes(self, shard: Shard) -> set[str]:
        """Nodes that are full, with what is about to leave, or that a shard of a stream whose
        shards share no node has."""
        stream, world = shard[0], self._world
        held: dict[str, Counter[str]] = {}
        for (name, _), each in world.assignments.items():
            held.setdefault(name, Counter()).update({*each["replicas"], *each["adding"]})
        load = sum(held.values(), Counter[str]())
        limits = {name: node.get("capacity") for name, node in world.nodes.items()}
        full = {name for name, most in limits.items() if most is not None and load[name] >= most}
        full |= full_nodes(world, shard) if world.resources else set()
        return full | {*held.get(stream, ())} if keeps_apart(world.spec(stream)) else full

    def _is_retried(self, move: Value, successor: Value | None) -> bool:
        """Whether a copy ended by what is no fault of the plan's."""
        if move["reason"]["code"] in EXCUSES or move["state"] in RETRIED:
            return move["state"] not in ("completed", *OPEN_STATES)
        if move["state"] == "cancelled" and move["reason"]["code"] in ALONG_WITH:
            known = move["stream"] in self._world.decisions
            together = not known or moves_together(self._world.spec(move["stream"]))
            return bool(move["cause"] == "balance" and together)
        if move["state"] == "superseded" and successor is not None:
            return self._world.renews(successor) or _is_more_urgent(successor, move)
        return False

    def _gained_nodes(self, shard: Shard, movement: ShardMovement) -> set[str]:
        """Nodes that hold what was copied to them since, and that did not when it began."""
        added = {self._world.all_moves[move_id]["add"] for move_id in movement.issued}
        stood = movement.started - movement.left_before - set(movement.lost)
        return (added & set(self._world.assignments[shard]["replicas"])) - stood

    def _is_better(self, shard: Shard, nodes: list[str], others: list[str]) -> bool:
        """Whether the nodes keep a rule that the others break, or may lead where those may not."""
        world = self._world
        if can_be_led(world, nodes) and not can_be_led(world, others):
            return True
        return bool(more_broken(world, shard, nodes, others))

    def _judge_needless(self, shard: Shard, movement: ShardMovement) -> Iterator[str]:
        world, spec = self._world, self._world.spec(shard[0])
        if not can_judge(spec) or moves_together(spec):
            return
        final, closed = world.assignments[shard]["replicas"], full_nodes(world, shard)
        moves = [world.all_moves[move_id] for move_id in movement.issued]
        done = [move for move in moves if move["state"] == "completed"]
        moves = [move for move in done if move["cause"] in JUDGED_CAUSES]
        # A replica at a doubtful place counts, and may have to leave as well.
        views = [_undo_wishes(stands(final), done) for stands in (world.staying, world.settled)]
        for old in {move["remove"] for move in moves} - {None, *final, *movement.lost}:
            if old in closed or not world.may_receive(old) or not world.judge(shard[0]).admits(old):
                continue
            for new in {move["add"] for move in moves} & set(views[0]):
                undone = [[old if node == new else node for node in held] for held in views]
                pairs = list(zip(views, undone, strict=True))
                if not any(self._is_better(shard, held, after) for held, after in pairs):
                    there, here = undone[0], views[0]
                    yield f"{shard} left {old} for {new}, though {there} is as good as {here}"


def _undo_wishes(replicas: list[str], done: list[Value]) -> list[str]:
    """Where the replicas stood before they moved for wishes: what was needed then may look
    needless where a wish took others since."""
    for move in reversed(done):
        if move["cause"] in WISHES and move["remove"] not in replicas:
            replicas = [move["remove"] if node == move["add"] else node for node in replicas]
    return replicas


def _is_more_urgent(move: Value, before: Value) -> bool:
    """Whether a move for the one cause supersedes one for the other."""
    return URGENCY.index(move["cause"]) < URGENCY.index(before["cause"])


def _is_for_balance(move: Value) -> bool:
    return bool(move["cause"] == "balance")
