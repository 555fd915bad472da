"""Every code a reason can carry, with what it means and what a person should do.

Reasons are about what was decided; what is wrong with single records stands in `refusals`. The
table of this package's README is written from here; a test holds it against the core's own list.
"""

from dataclasses import dataclass

from schemas.reason import Band


@dataclass(frozen=True, slots=True)
class Advice:
    """Meaning of a code, and the action to take."""

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
                "A location is not 1 to 8 components of `[A-Za-z0-9_.-]` or `%XX`, each after `/`.",
                "Correct the node's or the policy's location.",
            ),
            "STREAM_MALFORMED": (
                "A stream of a cluster file cannot be read, or its name is taken.",
                "Correct the field that the message names.",
            ),
            "POLICY_UNKNOWN_KEY": ("The policy has an unknown key.", "Correct the spelling."),
            "POLICY_UNKNOWN_VALUE": (
                "A policy key has an illegal value.",
                "Use one of the values in the message.",
            ),
            "POLICY_MALFORMED": (
                "The policy or `placement_policies` cannot be read.",
                "Correct the part that the message quotes.",
            ),
            "POLICY_AMBIGUOUS": (
                "The policy contradicts itself, or both of its forms are given.",
                "Give one form, and remove one of the two parts that the message names.",
            ),
            "STRATEGY_UNKNOWN": (
                "No strategy has that name.",
                "Use a name that the message lists.",
            ),
            "LEVEL_UNKNOWN": (
                "A rule names a tier or tag that does not exist.",
                "Use a configured tier, a depth, `location` or `tag:KEY`.",
            ),
            "NODE_UNKNOWN": (
                "A request, or a change of location, names a node that never registered.",
                "Correct the id, or register the node and send the refused record again.",
            ),
            "DOMAIN_UNKNOWN": (
                "The policy names a domain, such as a datacenter, without any node.",
                "Correct the name, register a node there, or ask for no replica there.",
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
                "The sequence was used before with another body.",
                "Raise the sequence. Check whether two writers use one id.",
            ),
            "STREAM_EXISTS": (
                "A stream of this name exists.",
                "Nothing, if the request is a repeat; otherwise use another name or StreamAltered.",
            ),
            "STREAM_UNKNOWN": (
                "No stream of this name exists: it was never created, or it was dropped.",
                "Correct the name, or send StreamCreated.",
            ),
            "STREAM_UID_DIFFERS": (
                "A message is about a stream of this name with another `uid`.",
                "Nothing, if the stream was deleted and created anew; else correct the `uid`.",
            ),
            "SHARD_UNKNOWN": (
                "An acknowledgement names a shard that its stream does not have.",
                "Correct the number: shards are counted from 0.",
            ),
            "MOVE_UNKNOWN": (
                "An acknowledgement names a move that its shard never had, or that ended long ago.",
                "Send the `move_id` of the move's record, with its stream and shard.",
            ),
            "REQUEST_CONTRADICTED": (
                "An operator's request contradicts an order in force, or the state of its target.",
                "End the other request first.",
            ),
            "REQUEST_MALFORMED": (
                "A request lacks a field.",
                "Add the field that the message names.",
            ),
            "IMPACT_UNSEEN": (
                "A destructive request came without the hash of its impact.",
                "Look at the impact with `--dry-run`, then send the request with its hash.",
            ),
            "NOTHING_TO_DO": (
                "No such order, hold, relocation or open move exists, or nothing may move.",
                "Check the name against the message.",
            ),
            "INCARNATION_CONFLICT": (
                "Two processes use the id of one node, or a replaced process still sends records.",
                "Stop the second process, or give it an id of its own.",
            ),
            "INCARNATION_UNKNOWN": (
                "A record names an incarnation that has not registered.",
                "Use the incarnation in the message; `placer nodes --columns all` lists them.",
            ),
            "LOCATION_UNRESOLVED": (
                "The configured authority has no location for a node.",
                "Correct the inventory, mapping or command; until then the node gets no replicas.",
            ),
            "CLAIM_DIFFERS": (
                "A node claims another location than the authority gives; the authority counts.",
                "Correct the node's label, or the authority's entry.",
            ),
            "TIERS_WRONG": (
                "A node's location lacks declared tiers, or has them in another order.",
                "Correct the node's label; until then it receives no replicas.",
            ),
            "TYPO_SUSPECTED": (
                "A node claims an unknown location that is spelt nearly like a known one.",
                "Correct the node's label, or approve the location with the hash in the alert.",
            ),
            "NOTHING_PENDING": (
                "An approval names a node that has no pending location.",
                "Check `pending` in the node's record.",
            ),
            "IMPACT_CHANGED": (
                "The impact has changed since it was approved.",
                "Look at the new impact and approve that one.",
            ),
            "NODE_NOT_EXTERNAL": (
                "A detector reports on a node that sends its own heartbeats.",
                "Register the node with `liveness: external`, or stop the reports.",
            ),
        },
    ),
    **_reasons(
        Band.REQUIRED_RULE,
        {
            "NODES_TOO_FEW": (
                "Fewer nodes than replicas may receive one.",
                "Add nodes, bring dead ones back, or lower the replication factor.",
            ),
            "DOMAINS_TOO_FEW": (
                "Fewer usable domains exist than the rule needs; `seen` lists them.",
                "Add a domain, or make the rule preferred.",
            ),
            "DOMAIN_TOO_SMALL": (
                "A domain has too few nodes for its share.",
                "Add nodes to the domain.",
            ),
            "NO_CANDIDATE": (
                "No node passes the rules and filters; the message has the funnel.",
                "Loosen the filter at which the funnel ends, or add nodes that pass it.",
            ),
            "LAST_COPY": (
                "The nodes to be removed hold the last copy of these shards.",
                "Copy the shards elsewhere first: add nodes that their policies admit.",
            ),
            "QUORUM_BROKEN": (
                "These shards have no quorum without the nodes to be removed.",
                "Wait for the maintenance in progress to end, or add nodes for a drain.",
            ),
        },
    ),
    **_reasons(
        Band.THROTTLED,
        {
            "QUOTA_EXCEEDED": (
                "A new node is refused: too many nodes, too many a minute, or too many locations.",
                "Find out who registers; raise the quota, or unregister nodes that are gone.",
            ),
            "RELOCATION_PENDING": (
                "A node with replicas claims another location; the alert has the impact.",
                "Approve the location with its hash, or restore the node's old label.",
            ),
            "LIMIT_REACHED": ("A move waits for a limit on moves.", "Wait, or raise the limit."),
            "BACKING_OFF": (
                "A move of the shard has just failed on every target that is left.",
                "Look at the executor's reason; the same target is tried again after a pause.",
            ),
            "REPAIR_FIRST": (
                "Rebalancing waits for repairs that can be made.",
                "Carry out the plan of the phase `repair`, then plan again.",
            ),
            "NOT_CAUGHT_UP": (
                "Repairs wait until the input has been read to its end.",
                "Wait; if it lasts, look at the consumer lag.",
            ),
        },
    ),
    **_reasons(
        Band.OK,
        {
            "DOMAIN_NEW": (
                "A node is the first one in a domain.",
                "Nothing, if the domain is new.",
            ),
            "REQUEST_ACCEPTED": ("An operator's request is being carried out.", "Nothing."),
            "REQUEST_DONE": (
                "A drain is complete: its target holds no replicas.",
                "The nodes may be removed.",
            ),
            "REQUEST_ENDED": ("The time of a maintenance or cordon is over.", "Nothing."),
            "COPYSETS_USED": (
                "How many copysets a stream stands on, with scatter width and loss probability.",
                "Nothing; a larger `scatter_width` recovers faster and loses data more often.",
            ),
            "COST_TERMS": (
                "What the cheapest lawful placement of a stream costs, term by term.",
                "Nothing; `weights` sets what each term counts.",
            ),
        },
    ),
    **_reasons(
        Band.BUG,
        {
            "PLANS_REPEAT": (
                "The plans would bring back an earlier arrangement.",
                "Carry out the waves that are shown, and report the cluster file.",
            ),
        },
    ),
    **_reasons(
        Band.SOFT,
        {
            "RULE_NOT_MET": (
                "The stream is placed, but a rule is not kept.",
                "Nothing at once; it is repaired when the topology allows.",
            ),
            "NO_SPARE_NODE": (
                "There are only as many live nodes as replicas: a failure cannot be repaired.",
                "Add a node.",
            ),
            "NODE_DEAD": ("A replica's node is dead.", "Nothing; a move follows."),
            "NODE_UNREGISTERED": ("A replica's node has left.", "Nothing; a move follows."),
            "NODE_DRAINING": (
                "A replica stands on a draining node.",
                "Nothing; a move follows if the policy admits another node.",
            ),
            "LINK_SLOW": (
                "A link between two locations is slow or does not answer.",
                "Look at the network; the alert names the shards whose quorum needs it.",
            ),
            "LOAD_SUSPECTED": (
                "A reported load is many times the one before, and is held back.",
                "Look at the unit of what reports; if it is right, `placer confirm` it.",
            ),
            "OVER_CAPACITY": (
                "A node bears more of a resource than may be filled.",
                "Nothing if a move relieves it; otherwise add capacity where it is missing.",
            ),
            "UNBALANCED": (
                "The utilisation of a resource is outside the band around the mean.",
                "Nothing; rebalancing evens it out where the mode allows it.",
            ),
            "NODE_FLAPPING": (
                "A node comes and goes; it receives no replicas until it is stable.",
                "Look at the node and its network; see `hold_down` in its record.",
            ),
            "REQUEST_CANCELLED": (
                "An operator cancelled the move, or ended the order that it was made for.",
                "Nothing.",
            ),
            "IN_MAINTENANCE": (
                "A replica stands on a dead node in maintenance and waits for the node's return.",
                "Nothing; to have the replica replaced, end the maintenance.",
            ),
            "REPAIR_HELD": (
                "So many nodes were lost at once that their replicas are not replaced.",
                "Bring power or network back; to have them replaced, override the hold.",
            ),
            "HOLD_ENDED": (
                "Enough of the held nodes have returned.",
                "Nothing; replicas that are still missing are replaced.",
            ),
            "REPLACEMENT_WANTED": (
                "A replica was marked to be replaced, without a target.",
                "Nothing; the plan finds the target.",
            ),
            "REPLICA_SURPLUS": (
                "A shard has more replicas than its replication factor.",
                "Nothing; the plan removes the surplus.",
            ),
            "REPLICA_TWICE": (
                "A shard lists one node more than once; the repeated entries count as one copy.",
                "Correct the list, or let the plan replace the repeated entries.",
            ),
            "LEADER_NOT_ALLOWED": (
                "The leader stands on a node that may hold replicas but not lead.",
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
                "An executor reported a replica as lost although its node is alive.",
                "Look at the node; another copy is made meanwhile.",
            ),
            "REPLICAS_DIFFER": (
                "An executor found a shard's replicas elsewhere than recorded; the record follows.",
                "Nothing; find out who moves replicas besides the executor if it happens often.",
            ),
            "OBSERVATION_STALE": (
                "An observation of replicas names another epoch than the shard's assignment has.",
                "Nothing: the executor reads the assignment, looks and reports again.",
            ),
            "REPLICAS_AWAITED": (
                "A stream is being adopted, and not all its shards have been observed yet.",
                "Nothing while they come; else look at the executor that is to observe them.",
            ),
            "SPEC_CHANGED": (
                "The stream was altered, and its new spec does not need the open move.",
                "Nothing; the move is cancelled, and repair looks at the shard again.",
            ),
            "STREAM_DROPPED": (
                "The stream was dropped while the move was under way.",
                "Nothing; the move is cancelled.",
            ),
            "LOAD_UNEVEN": (
                "A domain or a node has more replicas or leaders than its share.",
                "Nothing; the plan evens it out.",
            ),
            "KEPT_AS_IS": (
                "Rebalancing leaves the stream as it is.",
                "See the message: the cause is its strategy, its spec, or an open move.",
            ),
            "TARGET_LOST": (
                "The target of a move can no longer receive replicas.",
                "Nothing; another move replaces this one.",
            ),
            "SOURCE_RETURNED": (
                "The node returned before the move away from it was accepted.",
                "Nothing; the move is cancelled.",
            ),
            "DEADLINE_PASSED": (
                "A move was not completed in time.",
                "Look at the executor; repair looks at the shard again.",
            ),
            "EXECUTOR_FAILED": (
                "The executor reported that a move failed.",
                "Look at the executor's reason; repair looks at the shard again.",
            ),
        },
    ),
}
"""Reasons by code. Consumers must expect codes they do not know, with a band they do."""
