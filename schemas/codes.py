"""Every code a reason can carry, with what it means and what a person should do.

Reasons are about what was decided; what is wrong with single records stands in `refusals`. The
table of this package's README is written from here; a test holds it against the core's own list.
"""

from dataclasses import dataclass

from schemas.reason import Band


@dataclass(frozen=True, slots=True)
class Advice:
    """What a code means and what to do about it."""

    meaning: str
    action: str


@dataclass(frozen=True, slots=True)
class ReasonAdvice(Advice):
    """Advice on a reason, with the band its records carry."""

    band: Band


def _reasons(band: Band, rows: dict[str, tuple[str, str]]) -> dict[str, ReasonAdvice]:
    return {code: ReasonAdvice(meaning, act, band) for code, (meaning, act) in rows.items()}


REASONS: dict[str, ReasonAdvice] = {
    **_reasons(
        Band.CONFIG,
        {
            "LOCATION_MALFORMED": (
                "A location is not `/`-separated components of `[A-Za-z0-9_.-]`, 8 at most.",
                "Correct the node's or the policy's location.",
            ),
            "STREAM_MALFORMED": (
                "A stream of a cluster file cannot be read, or its name is taken.",
                "Correct the field that the message names.",
            ),
            "POLICY_UNKNOWN_KEY": ("The policy has a name nobody knows.", "Correct the spelling."),
            "POLICY_UNKNOWN_VALUE": (
                "A policy key has a value it does not take.",
                "Use one of the values in the message.",
            ),
            "POLICY_MALFORMED": (
                "The policy or `placement_policies` cannot be read.",
                "Correct it; the message quotes the place.",
            ),
            "POLICY_AMBIGUOUS": (
                "The policy contradicts itself, or both forms are given.",
                "Give one form, and drop one side of the contradiction.",
            ),
            "STRATEGY_UNKNOWN": (
                "No strategy has that name.",
                "Use a name of the message's list.",
            ),
            "LEVEL_UNKNOWN": (
                "A rule names a tier or tag that does not exist.",
                "Use a configured tier, a depth, `location` or `tag:KEY`.",
            ),
            "NODE_UNKNOWN": (
                "A request, or a change of place, names a node that never registered.",
                "Correct the id, or register the node and send what was refused again.",
            ),
            "DOMAIN_UNKNOWN": (
                "The policy names a domain, such as a datacenter, in which no node stands.",
                "Correct the name, register a node there, or ask for no replica in it.",
            ),
            "REPLICATION_FACTOR_OUT_OF_RANGE": (
                "The replication factor is not between 1 and 64.",
                "Correct it and send the stream with a new sequence.",
            ),
            "SHARDS_OUT_OF_RANGE": (
                "The number of shards is not between 1 and 10,000.",
                "Correct it and send the stream with a new sequence.",
            ),
            "REPLICAS_OUT_OF_RANGE": (
                "Shards times replication factor exceed 100,000.",
                "Split the stream.",
            ),
            "QUORUM_OUT_OF_RANGE": (
                "The quorum is not `majority`, `one` or a number up to the replication factor.",
                "Correct it.",
            ),
            "SEQUENCE_CONFLICT": (
                "A sequence was used before with another body.",
                "Raise the sequence; two writers may be at work on one id.",
            ),
            "STREAM_EXISTS": (
                "The stream was created before.",
                "Nothing, if it is a repeat; otherwise choose another name, or send StreamAltered.",
            ),
            "STREAM_UNKNOWN": (
                "No stream of this name is in force: it was never created, or it was dropped.",
                "Correct the name, or send StreamCreated.",
            ),
            "SHARD_UNKNOWN": (
                "An acknowledgement names a shard that its stream does not have.",
                "Correct the number: shards are counted from 0.",
            ),
            "MOVE_UNKNOWN": (
                "An acknowledgement names a move that its shard never had, or that ended long ago.",
                "Send the `move_id` as the move's record has it, with its stream and shard.",
            ),
            "REQUEST_CONTRADICTED": (
                "An operator's request goes against one that stands, or against how things are.",
                "End the other request first.",
            ),
            "REQUEST_MALFORMED": (
                "A request lacks what it needs.",
                "Add the field that the message names.",
            ),
            "IMPACT_UNSEEN": (
                "A destructive request came without the hash of its impact.",
                "Run it with `--dry-run`, look, and send it with the hash.",
            ),
            "NOTHING_TO_DO": (
                "There is no such order, hold, relocation or open move, or nothing that may move.",
                "Look at the names in the message.",
            ),
            "INCARNATION_CONFLICT": (
                "Two processes use the id of one node, or one speaks that another has followed.",
                "Stop the second process, or give it an id of its own.",
            ),
            "INCARNATION_UNKNOWN": (
                "A statement names an incarnation that has not registered.",
                "Name the one in the message; `placer nodes --columns all` lists them.",
            ),
            "LOCATION_UNRESOLVED": (
                "The configured authority does not say where a node stands.",
                "Correct inventory, mapping or command; until then the node receives nothing.",
            ),
            "CLAIM_DIFFERS": (
                "A node claims to stand elsewhere than the authority says, which counts.",
                "Find out which of the two is wrong.",
            ),
            "TIERS_WRONG": (
                "A node's location has not the declared tiers, or in another order.",
                "Correct its label; until then it receives nothing.",
            ),
            "TYPO_SUSPECTED": (
                "A node claims an unknown place that is spelt nearly like a known one.",
                "Correct its label, or approve the place with the hash in the alert.",
            ),
            "NOTHING_PENDING": (
                "An approval names a node that waits for none.",
                "See `pending` in the node's record.",
            ),
            "IMPACT_CHANGED": (
                "What was approved is not what would happen now.",
                "Look at the new impact and approve that.",
            ),
            "NODE_NOT_EXTERNAL": (
                "A detector reports on a node that is judged by its own heartbeats.",
                "Register the node with `liveness: external`, or stop the reports.",
            ),
        },
    ),
    **_reasons(
        Band.REQUIRED_RULE,
        {
            "NODES_TOO_FEW": (
                "Fewer usable nodes than replicas.",
                "Add nodes, bring dead ones back, or lower the replication factor.",
            ),
            "DOMAINS_TOO_FEW": (
                "Fewer usable domains than the rule needs; `seen` lists them.",
                "Add a domain, or ask for a preferred rule.",
            ),
            "DOMAIN_TOO_SMALL": (
                "A domain has too few nodes for its share.",
                "Add nodes to the domain.",
            ),
            "NO_CANDIDATE": (
                "No node passes the rules and filters; the message has the funnel.",
                "Loosen the filter the funnel stops at, or add nodes that pass it.",
            ),
            "LAST_COPY": (
                "Without the nodes that are to go no copy of these shards is left.",
                "Copy the shards elsewhere first: add nodes that their policies admit.",
            ),
            "QUORUM_BROKEN": (
                "Without the nodes that are to go these shards have no quorum.",
                "Wait for the maintenance that has begun, or add nodes for a drain.",
            ),
        },
    ),
    **_reasons(
        Band.THROTTLED,
        {
            "QUOTA_EXCEEDED": (
                "A new node is not taken in: too many, too fast, or too many places.",
                "Find out who registers; raise the quota, or unregister what is gone.",
            ),
            "RELOCATION_PENDING": (
                "A node with replicas claims another place; what that does is in the alert.",
                "Approve it with its hash, or let the node return to its old label.",
            ),
            "LIMIT_REACHED": ("A move waits for a limit on moves.", "Wait, or raise the limit."),
            "BACKING_OFF": (
                "The only targets left are those on which a move of the shard has just failed.",
                "Look at the executor's reason; the same target is tried again after a pause.",
            ),
            "REPAIR_FIRST": (
                "Rebalancing waits for repairs that are wanted and possible.",
                "Carry out the plan of the phase `repair`, then plan again.",
            ),
            "NOT_CAUGHT_UP": (
                "Repairs wait until the input has been read to its end.",
                "Wait; if it lasts, look at the lag.",
            ),
        },
    ),
    **_reasons(
        Band.OK,
        {
            "DOMAIN_NEW": (
                "The first node stands in a place that was not known.",
                "Nothing, if you have just built it.",
            ),
            "REQUEST_ACCEPTED": ("An operator's request is being carried out.", "Nothing."),
            "REQUEST_DONE": ("A drain has left nothing on its target.", "The nodes may go."),
            "REQUEST_ENDED": ("The time of a maintenance or cordon is over.", "Nothing."),
            "COPYSETS_USED": (
                "How many copysets a stream stands on, with scatter width and loss probability.",
                "Nothing; a larger `scatter_width` recovers faster and loses data more often.",
            ),
            "COST_TERMS": (
                "What the cheapest lawful placement of a stream costs, term by term.",
                "Nothing; `weights` says what each term counts.",
            ),
        },
    ),
    **_reasons(
        Band.BUG,
        {
            "PLANS_REPEAT": (
                "Plan after plan would bring back an arrangement that was there before.",
                "Carry out the waves that are shown, and report the cluster file.",
            ),
        },
    ),
    **_reasons(
        Band.SOFT,
        {
            "RULE_NOT_MET": (
                "Placed, but a rule is not met as it should be.",
                "Nothing at once; repaired when the topology allows.",
            ),
            "NO_SPARE_NODE": (
                "As many live nodes as replicas: a failure cannot be repaired.",
                "Add a node.",
            ),
            "NODE_DEAD": ("A replica's node is dead.", "Nothing; a move follows."),
            "NODE_UNREGISTERED": ("A replica's node has left.", "Nothing; a move follows."),
            "NODE_DRAINING": (
                "A replica stands on a node that is being emptied.",
                "Nothing; a move follows where the policy leaves another node.",
            ),
            "LINK_SLOW": (
                "A link between two locations is slow or does not answer.",
                "Look at the network; the alert names the shards whose quorum needs it.",
            ),
            "NODE_FLAPPING": (
                "A node comes and goes; it receives nothing until it has been quiet for a while.",
                "Look at the node and its network; see `hold_down` in its record.",
            ),
            "REQUEST_CANCELLED": (
                "An operator cancelled the move, or ended what it was made for.",
                "Nothing.",
            ),
            "IN_MAINTENANCE": (
                "A replica is on a dead node in maintenance, and waits there for its return.",
                "Nothing; end the maintenance to have it replaced.",
            ),
            "REPAIR_HELD": (
                "So much has gone at once that the replicas there are not replaced.",
                "Bring power or network back, or override the hold to have them replaced.",
            ),
            "HOLD_ENDED": (
                "Enough of what was held is back.",
                "Nothing; what is still missing is replaced.",
            ),
            "REPLACEMENT_WANTED": (
                "A replica was marked to be replaced, its target being left open.",
                "Nothing; the plan finds the target.",
            ),
            "REPLICA_SURPLUS": (
                "A shard has more replicas than its replication factor.",
                "Nothing; the plan removes the surplus.",
            ),
            "REPLICA_TWICE": (
                "A shard lists one node more than once: these count as one copy.",
                "Correct the list, or let the plan replace the repeated entry.",
            ),
            "LEADER_NOT_ALLOWED": (
                "The leader stands on a node that may hold copies but not lead.",
                "Let another replica lead.",
            ),
            "CAPACITY_EXCEEDED": (
                "A node holds more replicas than its capacity.",
                "Raise the capacity, or move replicas away.",
            ),
            "REPLICA_MISSING": (
                "A slot of the assignment is empty.",
                "Nothing; it is filled as soon as a node fits.",
            ),
            "REPLICA_LOST": (
                "An executor has reported that a replica is gone although its node lives.",
                "Look at the node; another copy is made meanwhile.",
            ),
            "SPEC_CHANGED": (
                "The stream was altered, and its open move is not what the new spec asks for.",
                "Nothing; the move is cancelled and the need is derived again.",
            ),
            "STREAM_DROPPED": (
                "The stream was dropped while the move was under way.",
                "Nothing; the move is cancelled.",
            ),
            "LOAD_UNEVEN": (
                "A domain or a node holds more than its share, or leads more.",
                "Nothing; the plan evens it out.",
            ),
            "KEPT_AS_IS": (
                "Rebalancing leaves the stream as it is.",
                "See the sentence: its strategy, its spec or moves under way say so.",
            ),
            "TARGET_LOST": (
                "The node that was to receive a replica can no longer.",
                "Nothing; another move replaces this one.",
            ),
            "SOURCE_RETURNED": (
                "The node to be replaced came back before the move was accepted.",
                "Nothing; the move is cancelled.",
            ),
            "DEADLINE_PASSED": (
                "A move was not completed in time.",
                "Look at the executor; the need is derived again.",
            ),
            "EXECUTOR_FAILED": (
                "The executor reported that a move failed.",
                "Look at its reason; the need is derived again.",
            ),
        },
    ),
}
"""Reasons by code. Consumers must expect codes they do not know, with a band they do."""
