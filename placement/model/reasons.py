"""Reasons: why something was decided, or could not be. A value, never an exception.

Codes are stable strings that users alert on; the sentence names the rule, what was needed, what
was there and which domains were seen. Bands follow PD's plan status (normal, soft, throttled,
configuration, hard), so that a reader knows at once who has to act.
"""

from dataclasses import dataclass
from enum import StrEnum


class Band(StrEnum):
    """Class of a reason: nobody, time, the limits, the author of the policy, or the fleet's owner
    acts."""

    OK = "ok"
    SOFT = "soft"
    THROTTLED = "throttled"
    CONFIG = "config"
    REQUIRED_RULE = "required-rule"
    BUG = "bug"


class Code(StrEnum):
    """Every reason the core can give."""

    LOCATION_MALFORMED = "LOCATION_MALFORMED"
    STREAM_MALFORMED = "STREAM_MALFORMED"
    POLICY_UNKNOWN_KEY = "POLICY_UNKNOWN_KEY"
    POLICY_UNKNOWN_VALUE = "POLICY_UNKNOWN_VALUE"
    POLICY_MALFORMED = "POLICY_MALFORMED"
    POLICY_AMBIGUOUS = "POLICY_AMBIGUOUS"
    STRATEGY_UNKNOWN = "STRATEGY_UNKNOWN"
    LEVEL_UNKNOWN = "LEVEL_UNKNOWN"
    NODE_UNKNOWN = "NODE_UNKNOWN"
    DOMAIN_UNKNOWN = "DOMAIN_UNKNOWN"
    REPLICATION_FACTOR_OUT_OF_RANGE = "REPLICATION_FACTOR_OUT_OF_RANGE"
    SHARDS_OUT_OF_RANGE = "SHARDS_OUT_OF_RANGE"
    REPLICAS_OUT_OF_RANGE = "REPLICAS_OUT_OF_RANGE"
    QUORUM_OUT_OF_RANGE = "QUORUM_OUT_OF_RANGE"
    NODES_TOO_FEW = "NODES_TOO_FEW"
    DOMAINS_TOO_FEW = "DOMAINS_TOO_FEW"
    DOMAIN_TOO_SMALL = "DOMAIN_TOO_SMALL"
    NO_CANDIDATE = "NO_CANDIDATE"
    RULE_NOT_MET = "RULE_NOT_MET"
    NO_SPARE_NODE = "NO_SPARE_NODE"
    LAST_COPY = "LAST_COPY"
    QUORUM_BROKEN = "QUORUM_BROKEN"
    NODE_DEAD = "NODE_DEAD"
    NODE_UNREGISTERED = "NODE_UNREGISTERED"
    NODE_DRAINING = "NODE_DRAINING"
    NODE_FLAPPING = "NODE_FLAPPING"
    IN_MAINTENANCE = "IN_MAINTENANCE"
    REPAIR_HELD = "REPAIR_HELD"
    HOLD_ENDED = "HOLD_ENDED"
    REPLACEMENT_WANTED = "REPLACEMENT_WANTED"
    REPLICA_MISSING = "REPLICA_MISSING"
    REPLICA_SURPLUS = "REPLICA_SURPLUS"
    REPLICA_TWICE = "REPLICA_TWICE"
    LEADER_NOT_ALLOWED = "LEADER_NOT_ALLOWED"
    CAPACITY_EXCEEDED = "CAPACITY_EXCEEDED"
    COPYSETS_USED = "COPYSETS_USED"
    COST_TERMS = "COST_TERMS"
    LOAD_UNEVEN = "LOAD_UNEVEN"
    KEPT_AS_IS = "KEPT_AS_IS"
    TARGET_LOST = "TARGET_LOST"
    SOURCE_RETURNED = "SOURCE_RETURNED"
    LIMIT_REACHED = "LIMIT_REACHED"
    BACKING_OFF = "BACKING_OFF"
    NOT_CAUGHT_UP = "NOT_CAUGHT_UP"
    REPAIR_FIRST = "REPAIR_FIRST"
    PLANS_REPEAT = "PLANS_REPEAT"
    DEADLINE_PASSED = "DEADLINE_PASSED"
    EXECUTOR_FAILED = "EXECUTOR_FAILED"
    SEQUENCE_CONFLICT = "SEQUENCE_CONFLICT"
    STREAM_EXISTS = "STREAM_EXISTS"
    STREAM_UNKNOWN = "STREAM_UNKNOWN"
    STREAM_UID_DIFFERS = "STREAM_UID_DIFFERS"
    SHARD_UNKNOWN = "SHARD_UNKNOWN"
    MOVE_UNKNOWN = "MOVE_UNKNOWN"
    STREAM_DROPPED = "STREAM_DROPPED"
    SPEC_CHANGED = "SPEC_CHANGED"
    REPLICA_LOST = "REPLICA_LOST"
    REPLICAS_DIFFER = "REPLICAS_DIFFER"
    OBSERVATION_STALE = "OBSERVATION_STALE"
    REPLICAS_AWAITED = "REPLICAS_AWAITED"
    INCARNATION_CONFLICT = "INCARNATION_CONFLICT"
    INCARNATION_UNKNOWN = "INCARNATION_UNKNOWN"
    REQUEST_ACCEPTED = "REQUEST_ACCEPTED"
    REQUEST_DONE = "REQUEST_DONE"
    REQUEST_ENDED = "REQUEST_ENDED"
    REQUEST_CANCELLED = "REQUEST_CANCELLED"
    REQUEST_CONTRADICTED = "REQUEST_CONTRADICTED"
    REQUEST_MALFORMED = "REQUEST_MALFORMED"
    IMPACT_UNSEEN = "IMPACT_UNSEEN"
    NOTHING_TO_DO = "NOTHING_TO_DO"
    NODE_NOT_EXTERNAL = "NODE_NOT_EXTERNAL"
    LOCATION_UNRESOLVED = "LOCATION_UNRESOLVED"
    CLAIM_DIFFERS = "CLAIM_DIFFERS"
    LINK_SLOW = "LINK_SLOW"
    LOAD_SUSPECTED = "LOAD_SUSPECTED"
    OVER_CAPACITY = "OVER_CAPACITY"
    UNBALANCED = "UNBALANCED"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    TIERS_WRONG = "TIERS_WRONG"
    TYPO_SUSPECTED = "TYPO_SUSPECTED"
    DOMAIN_NEW = "DOMAIN_NEW"
    RELOCATION_PENDING = "RELOCATION_PENDING"
    NOTHING_PENDING = "NOTHING_PENDING"
    IMPACT_CHANGED = "IMPACT_CHANGED"


_CONFIG = (
    Code.LOCATION_MALFORMED,
    Code.STREAM_MALFORMED,
    Code.POLICY_UNKNOWN_KEY,
    Code.POLICY_UNKNOWN_VALUE,
    Code.POLICY_MALFORMED,
    Code.POLICY_AMBIGUOUS,
    Code.STRATEGY_UNKNOWN,
    Code.LEVEL_UNKNOWN,
    Code.NODE_UNKNOWN,
    Code.DOMAIN_UNKNOWN,
    Code.REPLICATION_FACTOR_OUT_OF_RANGE,
    Code.SHARDS_OUT_OF_RANGE,
    Code.REPLICAS_OUT_OF_RANGE,
    Code.QUORUM_OUT_OF_RANGE,
    Code.SEQUENCE_CONFLICT,
    Code.STREAM_EXISTS,
    Code.STREAM_UNKNOWN,
    Code.STREAM_UID_DIFFERS,
    Code.SHARD_UNKNOWN,
    Code.MOVE_UNKNOWN,
    Code.INCARNATION_CONFLICT,
    Code.INCARNATION_UNKNOWN,
    Code.REQUEST_CONTRADICTED,
    Code.REQUEST_MALFORMED,
    Code.IMPACT_UNSEEN,
    Code.NOTHING_TO_DO,
    Code.NODE_NOT_EXTERNAL,
    Code.LOCATION_UNRESOLVED,
    Code.CLAIM_DIFFERS,
    Code.TIERS_WRONG,
    Code.TYPO_SUSPECTED,
    Code.NOTHING_PENDING,
    Code.IMPACT_CHANGED,
)
_REQUIRED = (
    Code.NODES_TOO_FEW,
    Code.DOMAINS_TOO_FEW,
    Code.DOMAIN_TOO_SMALL,
    Code.NO_CANDIDATE,
    Code.LAST_COPY,
    Code.QUORUM_BROKEN,
)
_OK = (
    Code.DOMAIN_NEW,
    Code.COPYSETS_USED,
    Code.COST_TERMS,
    Code.REQUEST_ACCEPTED,
    Code.REQUEST_DONE,
    Code.REQUEST_ENDED,
)
# Of what waits for limits, for a pause to end, or for what comes first.
THROTTLED = frozenset(
    (
        Code.QUOTA_EXCEEDED,
        Code.RELOCATION_PENDING,
        Code.LIMIT_REACHED,
        Code.BACKING_OFF,
        Code.NOT_CAUGHT_UP,
        Code.REPAIR_FIRST,
    )
)

BAND_OF: dict[Code, Band] = {
    **dict.fromkeys(Code, Band.SOFT),
    **dict.fromkeys(_CONFIG, Band.CONFIG),
    **dict.fromkeys(_REQUIRED, Band.REQUIRED_RULE),
    **dict.fromkeys(THROTTLED, Band.THROTTLED),
    **dict.fromkeys(_OK, Band.OK),
    Code.PLANS_REPEAT: Band.BUG,
}


# A reason names the domains that were seen, so that a person can tell what is missing; more than
# this nobody reads, and every record has to stay below the broker's size limit.
SEEN_MAX = 50


@dataclass(frozen=True, slots=True)
class Reason:
    """A stable code, a sentence, and the numbers behind it, if any.

    `rule` is the text of the placement rule that a stream's warning is about.
    """

    code: Code
    message: str
    need: int | None = None
    have: int | None = None
    level: str | None = None
    seen: tuple[str, ...] = ()
    rule: str | None = None

    @property
    def band(self) -> Band:
        """The class of the code."""
        return BAND_OF[self.code]
