"""Words beside the codes, with their meaning: health, rules, causes of moves, kinds of alerts.

The tables of this package's README are written from here; tests hold them against what is said.
"""

from dataclasses import dataclass

from schemas.acks import MoveKind
from schemas.alerts import AlertKind, Severity
from schemas.codes import Advice

HEALTH: dict[str, Advice] = {
    "healthy": Advice("All replicas are live and every rule is kept.", "Nothing."),
    "rebalancing": Advice(
        "All replicas are live, every rule is kept, and a move is open.", "Nothing."
    ),
    "degraded": Advice(
        "All replicas are live, but a rule is broken.", "Look at the violation's class and reason."
    ),
    "under_replicated": Advice(
        "Fewer live replicas than the replication factor.",
        "Nothing, if it is fixable; otherwise add nodes.",
    ),
    "at_risk": Advice("One live replica is left, which the quorum allows.", "Repair it first."),
    "unavailable": Advice(
        "Fewer live replicas than the quorum needs.", "Bring a node back, or restore the data."
    ),
}
"""Words for a shard's or a stream's health, from best to worst."""

RULES: dict[str, Advice] = {
    "replicas": Advice(
        "As many live replicas as the replication factor.", "See the reason: it names the node."
    ),
    "surplus": Advice(
        "No more replicas than the replication factor.", "The plan removes the surplus."
    ),
    "distinct nodes": Advice("No node holds two copies of a shard.", "Correct the list."),
    "drain": Advice("A draining node holds no replicas.", "If it is unfixable, add nodes first."),
    "nodes": Advice(
        "Replicas stand on nodes that `within`, `avoid`, `nodes` and `with_tags` admit.",
        "Nothing, if it is fixable; a node was relabelled or the policy was changed.",
    ),
    "leader": Advice("The leader's node may lead.", "Let another replica lead."),
    "capacity": Advice(
        "No node holds more than its capacity.", "Add nodes, or raise the capacity."
    ),
    "at_most": Advice(
        "At most this number of a shard's replicas per domain (or share, minority, half).",
        "If it is unfixable, the reason says how many domains or nodes are missing.",
    ),
    "at_least": Advice(
        "At least this number of domains, or of replicas in the named domains.", "See the reason."
    ),
    "exactly": Advice("Exactly this number of replicas in each named domain.", "See the reason."),
    "even": Advice("Replicas of a shard per domain differ by at most one.", "See the reason."),
    "span": Advice("As many domains as the fleet has, up to a number.", "See the reason."),
    "balance": Advice(
        "The stream's replicas per domain stay near the domain's share of the weight.",
        "See the reason.",
    ),
    "load balance": Advice(
        "The cluster's replicas per domain stay near the domain's share of the weight.",
        "See the reason.",
    ),
    "voters": Advice(
        "The replicas that vote stand in at least this number of domains.", "See the reason."
    ),
    "replication": Advice("This number of replicas in each datacenter.", "See the reason."),
    "aware of": Advice("No value of the attribute holds more than its share.", "See the reason."),
    "upgrade domains": Advice(
        "Replicas stand in this number of upgrade domains.", "See the reason."
    ),
    "racks of a datacenter": Advice(
        "A datacenter's replicas stand in as many of its racks as there are.", "See the reason."
    ),
    "one domain": Advice("All replicas of the stream stand in one domain.", "See the reason."),
    "exclusive nodes": Advice("A node holds at most one replica of the stream.", "Add nodes."),
    "colocate slots": Advice(
        "Replica r of every shard stands on one node.", "Nothing; the others follow."
    ),
    "with_tags": Advice("Replicas stand on nodes with these tags.", "See the reason."),
    "leader_in": Advice("The leader stands in one of the listed domains.", "See the reason."),
    "role": Advice("The replicas with a role stand apart from the others.", "See the reason."),
}
"""What a violation's rule is called; the rest of its text is the rule as it was written."""

CAUSES: dict[str, Advice] = {
    "under_replicated": Advice(
        "Replicas are dead, lost or were never placed; fewest live ones first.", "Nothing."
    ),
    "leader": Advice("Another replica has to lead; no data moves.", "Nothing."),
    "required_rule": Advice("A required rule, or a node filter, is broken.", "Nothing."),
    "drain": Advice("A node is draining, or a replica was marked to be replaced.", "Nothing."),
    "preferred_rule": Advice("A preferred rule is broken and can be kept better.", "Nothing."),
    "surplus": Advice("More replicas than the replication factor.", "Nothing."),
    "balance": Advice("Nodes or domains have more or fewer replicas than their share.", "Nothing."),
}
"""Why a shard gets a move, the most urgent first."""


@dataclass(frozen=True, slots=True)
class AlertAdvice(Advice):
    """Advice on a kind of alert, with the severity its records carry."""

    severity: Severity


ALERTS: dict[AlertKind, AlertAdvice] = {
    AlertKind.HOLD: AlertAdvice(
        "So many nodes of a domain, or of the fleet, were lost at once that their replicas are not "
        "replaced. That the hold has ended, or was overridden, is reported with severity `info`.",
        "Bring the nodes back; if they are gone for good, `placer hold override`.",
        Severity.CRITICAL,
    ),
    AlertKind.HELD_DOWN: AlertAdvice(
        "A node came and went several times and receives no replicas for a while.",
        "Find out why it restarts or loses its connection.",
        Severity.WARNING,
    ),
    AlertKind.INCARNATION_CONFLICT: AlertAdvice(
        "Two processes use the id of one node; `detail` names the incarnation that holds it and "
        "the one that is refused.",
        "Stop the second process, or give it an id of its own.",
        Severity.WARNING,
    ),
    AlertKind.LINK_SLOW: AlertAdvice(
        "Round trips between two locations took longer than `location.link_slow_ms`, or got no "
        "answer, three times in a row.",
        "Look at the network; `detail` names the shards whose quorum needs the link.",
        Severity.WARNING,
    ),
    AlertKind.QUOTA: AlertAdvice(
        "New nodes are refused because a limit of `quotas` is reached.",
        "Raise the quota, or find out who registers so many nodes.",
        Severity.WARNING,
    ),
    AlertKind.NEW_DOMAIN: AlertAdvice(
        "A node is the first one in a domain.", "Nothing, if the domain is new.", Severity.INFO
    ),
    AlertKind.TYPO_SUSPECTED: AlertAdvice(
        "A node claims a location that is spelt nearly like a known one; it receives no replicas.",
        "Correct its label, or `placer approve` the location.",
        Severity.WARNING,
    ),
    AlertKind.RELOCATION_PENDING: AlertAdvice(
        "A node that holds replicas claims another location, and more shards depend on it than "
        "`location.relocate_up_to_shards` allows.",
        "Look at the impact in `detail`, then `placer approve` it or correct the label.",
        Severity.WARNING,
    ),
    AlertKind.LOCATION_REFUSED: AlertAdvice(
        "A node claims a location that does not have the configured levels.",
        "Correct its label, or the setting `levels`.",
        Severity.WARNING,
    ),
    AlertKind.CLAIM_DIFFERS: AlertAdvice(
        "A node claims another location than the configured authority gives for it; the authority "
        "is right.",
        "Correct the node's label, or the entry of the authority.",
        Severity.WARNING,
    ),
    AlertKind.LOAD_SUSPECTED: AlertAdvice(
        "A node reports a load of a shard that is `loads.suspicion_factor` times the one before. "
        "The report is held back until `loads.agreeing_reports` in a row agree.",
        "Look at the unit of what reports. If the load is right, `placer confirm` it at once.",
        Severity.WARNING,
    ),
    AlertKind.OVER_CAPACITY: AlertAdvice(
        "A node bears more of a resource than may be filled.",
        "Nothing if a move relieves it; the node's violations say what is missing otherwise.",
        Severity.WARNING,
    ),
}
"""Kinds of alerts; the severities are those of the core."""


@dataclass(frozen=True, slots=True)
class MoveAdvice(Advice):
    """Meaning of a kind of move, the executor's task, and when the old copy may be deleted.

    `removes` and `adds` say whether the record has `remove` and `add`.
    """

    removes: bool
    adds: bool
    old_copy: str


MOVES: dict[MoveKind, MoveAdvice] = {
    MoveKind.REPLACE: MoveAdvice(
        "A replica moves from one node to another.",
        "Copy from `source` to `add`. When the copy is complete, let it replace the one on "
        "`remove`.",
        removes=True,
        adds=True,
        old_copy="When the assignment comes without `remove`.",
    ),
    MoveKind.ADD: MoveAdvice(
        "The shard gets one more replica.",
        "Copy from `source` to `add`, and let the copy join the others.",
        removes=False,
        adds=True,
        old_copy="There is no old copy.",
    ),
    MoveKind.REMOVE: MoveAdvice(
        "The shard gives up a replica.",
        "Stop serving from the replica on `remove`.",
        removes=True,
        adds=False,
        old_copy="When the assignment comes without `remove`.",
    ),
    MoveKind.LEADER: MoveAdvice(
        "Another replica leads. Such a move stands in plans and cluster files, never on the topic.",
        "Follow the order of the assignment.",
        removes=False,
        adds=False,
        old_copy="All copies stay.",
    ),
}
"""The four kinds of moves, as their records have them."""
