"""Defines the sections of the settings, each a frozen model of one concern."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from streaming.settings import client_options
from streaming.settings.types import (
    KAFKA_OPTIONS_FIXED,
    LOOPBACK,
    SECRET_KEY,
    SECRET_REFERENCE,
    TICK_INTERVAL_SECONDS_MAX,
    Addresses,
    Count,
    DurationSeconds,
    MemorySize,
    Name,
    Options,
    TopicPrefix,
    accept_false,
    accept_none,
    mapping_of_text,
    names_of_list,
)


class Section(BaseModel):
    """Part of the settings: unknown keys are refused, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


def _refuse_plain_secrets(options: dict[str, str]) -> dict[str, str]:
    plain = [
        key
        for key, value in options.items()
        if SECRET_KEY.search(key) and not SECRET_REFERENCE.fullmatch(value)
    ]
    if plain:
        raise ValueError(
            f"{', '.join(plain)}: a secret is given as env:NAME or file:/path, never as plain text"
        )
    return options


class KafkaSettings(Section):
    options: Options = Field(
        default_factory=dict,
        description="More client settings in librdkafka's names, e.g. security.protocol. Secrets "
        "only as env:NAME or file:/path.",
    )
    allow_plaintext: bool = Field(
        default=False,
        description="Whether records and passwords may travel unencrypted to another machine.",
    )
    # After what decides whether an address will do.
    bootstrap_servers: Addresses = Field(
        default="localhost:9092",
        description="Addresses of the brokers, host:port separated by commas.",
    )

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, str]) -> dict[str, str]:
        fixed = sorted(KAFKA_OPTIONS_FIXED & options.keys())
        if fixed:
            raise ValueError(f"{', '.join(fixed)}: set by the application, cannot be changed")
        _refuse_plain_secrets(options)
        found = client_options.find_faults(options)
        if found:
            raise ValueError("; ".join(found))
        return options

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_plaintext(cls, bootstrap_servers: str, info: ValidationInfo) -> str:
        elsewhere = [a for a in bootstrap_servers.split(",") if not LOOPBACK.fullmatch(a)]
        allowed = info.data.get("allow_plaintext", True) or "options" not in info.data
        if elsewhere and not allowed and not client_options.is_encrypted(info.data["options"]):
            raise ValueError(
                f"{', '.join(elsewhere)} is another machine and the connection is not "
                "encrypted: set security.protocol in kafka.options to SSL or SASL_SSL, or "
                "kafka.allow_plaintext to true"
            )
        return bootstrap_servers


class TopicSettings(Section):
    prefix: TopicPrefix = Field(
        default="placement.",
        description="First part of every topic's name; reconcilers with two prefixes share no "
        "topic.",
    )
    replication_factor: int | None = Field(
        default=None,
        ge=1,
        le=32_767,
        description="Replicas of each topic. Empty: the broker's default.replication.factor.",
    )


class LivenessSettings(Section):
    suspect_after_seconds: DurationSeconds = Field(
        default=60.0, description="Silence after which a node receives no new replicas."
    )
    dead_after_seconds: DurationSeconds = Field(
        default=300.0,
        description="Silence after which a node's replicas are rebuilt elsewhere; it has to be "
        "longer than suspect_after_seconds.",
    )
    incarnation_grace_seconds: DurationSeconds = Field(
        default=5.0,
        description="Silence of a node's process after which a process with a later incarnation "
        "takes over. Three of the node's usual heartbeat intervals if that is longer, at most "
        "suspect_after_seconds.",
    )

    flap_transitions: Annotated[int, Field(ge=2, le=100)] = Field(
        default=5,
        description="Changes of a node's liveness within flap_window_seconds after which the node "
        "is held down: it receives no replicas. A restart before dead_after_seconds is one change.",
    )
    flap_window_seconds: DurationSeconds = Field(
        default=600.0, description="Time within which flap_transitions are counted."
    )
    hold_down_seconds: DurationSeconds = Field(
        default=600.0,
        description="Length of a node's first hold-down; each further one is twice as long.",
    )
    hold_down_max_seconds: DurationSeconds = Field(
        default=86_400.0, description="Upper bound of a hold-down."
    )

    @field_validator("dead_after_seconds")
    @classmethod
    def _check_dead_after(cls, dead_after_seconds: float, info: ValidationInfo) -> float:
        suspect_after_seconds = info.data.get("suspect_after_seconds")
        if suspect_after_seconds is not None and dead_after_seconds <= suspect_after_seconds:
            raise ValueError(
                f"expected more than liveness.suspect_after_seconds ({suspect_after_seconds:g})"
            )
        return dead_after_seconds


class MoveSettings(Section):
    completion: Literal["acked", "immediate"] = Field(
        default="acked",
        description="acked: a move ends when its executor acknowledges it. immediate: the "
        "assignment itself is the command, and nothing is acknowledged.",
    )
    deadline_seconds: DurationSeconds = Field(
        default=600.0,
        description="Time after which an open move expires; repair then looks at the shard again.",
    )
    leader_moves: bool = Field(
        default=False,
        description="Whether executors acknowledge that another live replica leads, by a move of "
        "kind `leader`; otherwise the new order of the assignment is the command.",
    )
    max_in_per_node: Count = Field(default=5, description="Limit on open moves to one node.")
    max_out_per_node: Count = Field(
        default=5,
        description="Limit on open moves away from one live node, whichever node they copy from.",
    )
    max_copies_from_node: Count = Field(
        default=5, description="Limit on open moves that copy from one node."
    )
    max_open: Count = Field(default=200, description="Limit on all open moves.")
    max_per_domain_pair: Count | None = Field(
        default=100,
        description="Limit on open moves that copy between two domains of the top level. Empty: "
        "none.",
    )
    max_per_batch: Count = Field(default=500, description="Limit on moves issued by one batch.")
    backoff_seconds: DurationSeconds = Field(
        default=10.0,
        description="Pause before a shard's move to a target is tried again after it has failed "
        "there; it doubles with every failure. Other targets are tried at once.",
    )
    backoff_max_seconds: DurationSeconds = Field(
        default=600.0, description="Upper bound of backoff_seconds after several failures."
    )
    remind_seconds: DurationSeconds = Field(
        default=60.0,
        description="Interval at which a move that expired, was cancelled or superseded is "
        "published again, until its executor answers MoveStopped.",
    )
    max_bytes_per_node: Count | None = Field(
        default=None,
        description="Limit on the bytes that open moves copy to and from one node. A larger move "
        "goes alone. Empty: none.",
    )
    max_bytes_per_domain_pair: Count | None = Field(
        default=None,
        description="Limit on the bytes that open moves copy between two domains of the top "
        "level. Empty: none.",
    )
    max_bytes_open: Count | None = Field(
        default=None, description="Limit on the bytes that all open moves copy. Empty: none."
    )
    rate_bytes_per_second: Count | None = Field(
        default=None,
        description="Limit on the copy rate of each move. It is part of the command and ends with "
        "the move. Empty: none.",
    )


class RebalanceSettings(Section):
    mode: Annotated[Literal["off", "on_join", "continuous"], BeforeValidator(accept_false)] = Field(
        default="off",
        description="When loads are evened out without a request (placer rebalance). off: never; "
        "on_join: when a node has joined, a drain or cordon has ended, or a node has more weight "
        "or capacity; continuous: when nodes or streams have changed. Repair always goes first.",
    )
    dwell_seconds: DurationSeconds = Field(
        default=600.0,
        le=3_600.0,
        description="Time for which a replica that was moved for balance is not moved for it "
        "again.",
    )


class ResourceSettings(Section):
    capacity: Annotated[float, Field(gt=0, le=1)] | None = Field(
        default=None,
        description="Share of a node's capacity that may be filled. Empty: any load fits.",
    )
    balance: Annotated[Annotated[float, Field(ge=0, le=1)] | None, BeforeValidator(accept_none)] = (
        Field(
            default=None,
            description="Band around the mean utilisation in which nodes are kept. Empty: not "
            "balanced.",
        )
    )
    led: bool = Field(
        default=False,
        description="Whether only the replica that leads bears the load; otherwise each one does.",
    )


class LoadSettings(Section):
    half_life_seconds: DurationSeconds = Field(
        default=120.0,
        description="Age at which a report counts half in the smoothed load of a shard. A shard "
        "that its node no longer reports is forgotten after ten of these.",
    )
    band_relative: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.20,
        description="Change of a shard's or node's smoothed load, relative to what the planner "
        "knows, from where on the planner is told.",
    )
    band_capacity: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.01,
        description="The same as a share of the node's capacity, where that is known. What leaves "
        "one of the two bands is told.",
    )
    suspicion_factor: Annotated[float, Field(gt=1, allow_inf_nan=False)] = Field(
        default=100.0,
        description="A report so many times above what is known of the shard, and above "
        "band_capacity, is held back with an alert until agreeing_reports in a row agree.",
    )
    agreeing_reports: Annotated[int, Field(ge=1, le=100)] = Field(
        default=3, description="Reports in a row that have to agree for a suspected load to count."
    )


class HoldSettings(Section):
    window_seconds: DurationSeconds = Field(
        default=600.0,
        description="Time within which nodes have to be lost for a hold to begin: more than 10 "
        "nodes and 40 % of all, or a whole domain of at least three. Their replicas are not "
        "replaced until they return.",
    )
    levels: Annotated[list[Name] | None, BeforeValidator(names_of_list)] = Field(
        default=None,
        description="Levels whose domains begin a hold when all of their nodes, at least two, are "
        "lost. Empty: every level that has another beneath it, from three nodes on. Name the "
        "lowest one where a domain of it is an availability zone, as racks of Kafka often are.",
    )


class LocationSettings(Section):
    authority: Literal["claim", "command", "file", "inventory", "cloud"] = Field(
        default="claim",
        description="Source of a node's location: the node itself (claim), location.command, "
        "location.file, the inventory topic, or the node's region and zone labels (cloud). A claim "
        "that differs raises an alert and is ignored. A node without a location from the "
        "authority receives no replicas.",
    )
    command: str | None = Field(
        default=None,
        description="Command for authority 'command'. It gets hosts as its last arguments and "
        "prints one location per line. It runs when a node registers, beside the batches.",
    )
    command_timeout_seconds: DurationSeconds = Field(
        default=10.0, description="Time limit of one call of location.command."
    )
    file: Path | None = Field(
        default=None,
        description="Mapping for authority 'file': YAML with nodes, hosts and default, or a "
        "cassandra-topology.properties. The file is read again when it changes.",
    )
    cloud_form: Literal["kubernetes", "ec2", "ec2_legacy", "gce"] = Field(
        default="kubernetes",
        description="How authority 'cloud' writes a location: /region/zone (kubernetes), or as "
        "Cassandra's snitches for EC2 (standard, legacy) and Google Cloud write it.",
    )
    enforce_levels: bool = Field(
        default=True,
        description="Whether a location must have exactly the tiers of levels, in their order. A "
        "node whose location has not is registered and receives no replicas. Without levels "
        "nothing is enforced.",
    )
    link_slow_ms: Annotated[float, Field(gt=0)] | None = Field(
        default=200.0,
        description="Round-trip time above which a link between two locations is slow. Three slow "
        "measurements in a row raise an alert with the shards whose quorum needs the link. Empty: "
        "never.",
    )
    relocate_up_to_shards: Annotated[int, Field(ge=0)] = Field(
        default=10,
        description="Number of shards up to which a node's new location takes effect by itself: "
        "shards that would move or break a rule. With more, the location waits for approval.",
    )

    @model_validator(mode="after")
    def _check_authority(self) -> Self:
        needed = {"command": self.command, "file": self.file}
        if self.authority in needed and needed[self.authority] is None:
            raise ValueError(f"authority '{self.authority}' needs location.{self.authority}")
        asked = self.command if self.authority == "command" else None
        if asked is not None and not _split_command(asked):
            raise ValueError("location.command is empty")
        return self


def _split_command(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ValueError(f"location.command {command!r}: {error}") from error


class QuotaSettings(Section):
    nodes: Count = Field(default=10_000, description="Limit on registered nodes.")
    pending_nodes: Count = Field(
        default=1_000,
        description="Limit on nodes whose location is in doubt or waits for approval.",
    )
    new_nodes_per_minute: Count = Field(
        default=1_000, description="Limit on new nodes per minute, after bootstrap_seconds."
    )
    places: Count = Field(
        default=4_096, description="Limit on known locations, counted at every tier."
    )
    bootstrap_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=600.0,
        description="Time after the first registration during which nodes may register at any rate "
        "and with any location, without alerts.",
    )


class PolicySettings(Section):
    default: Annotated[dict[str, JsonValue], BeforeValidator(mapping_of_text)] = Field(
        default={"strategy": "spread"},
        description="Policy of a stream without a policy of its own.",
    )
    plugins: Annotated[list[str], BeforeValidator(names_of_list)] = Field(
        default_factory=list,
        description="Strategies of your own, each as package.module:ClassName. Nothing else is "
        "imported: a stream can only name what is listed here.",
    )

    @field_validator("default")
    @classmethod
    def _check_default(cls, policy: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if not isinstance(policy.get("strategy"), str):
            raise ValueError("expected a mapping with a strategy, e.g. {strategy: spread}")
        return policy


class TickSettings(Section):
    interval_seconds: Annotated[float, Field(gt=0, le=TICK_INTERVAL_SECONDS_MAX)] = Field(
        default=1.0,
        description="Longest pause between two ticks, which advance the silence clocks.",
    )


class StandbySettings(Section):
    takeover_after_seconds: Annotated[float, Field(ge=1, le=600)] = Field(
        default=5.0,
        description="Silence of the active reconciler after which a standby takes over.",
    )
    instance: Name | None = Field(
        default=None,
        description="Id of this process among those of its cell. Empty: the machine's name and the "
        "process id.",
    )


class SparkSettings(Section):
    topology_shards: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=1, description="Number of parts of the node table, spread over executors."
    )
    load_shards: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=1, description="Number of parts of the nodes' loads, spread over executors."
    )
    driver_memory: MemorySize = Field(default="512m", description="Heap of the driver's JVM.")
    max_offsets_per_trigger: Count = Field(
        default=200_000, description="Limit on the records of one micro-batch."
    )
    options: Options = Field(
        default_factory=dict,
        description="Further Spark settings (spark.…). Secrets only as env:NAME or file:/path.",
    )

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, str]) -> dict[str, str]:
        foreign = [key for key in options if not key.startswith("spark.")]
        if foreign:
            raise ValueError(f"{', '.join(foreign)}: a Spark setting begins with 'spark.'")
        return _refuse_plain_secrets(options)


class DeadLetterSettings(Section):
    per_second: Count = Field(
        default=1_000,
        description="Limit on dead letters for each reason and second of append time. Further "
        "ones are counted in a summary letter for each partition.",
    )


class MetricsSettings(Section):
    host: str = Field(
        default="127.0.0.1", description="Address on which metrics and probes are served."
    )
    port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        default=None,
        description="Port of /metrics (Prometheus), /livez and /readyz. 0: any free port. Empty: "
        "they are not served.",
    )


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged."
    )
    format: Literal["text", "json"] = Field(
        default="text", description="text: lines for people; json: one object per line."
    )


class TraceSettings(Section):
    file: Path | None = Field(
        default=None,
        description="File for one JSON line per micro-batch with the time of each part. Empty: "
        "none.",
    )
