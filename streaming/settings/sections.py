"""Defines the sections of the settings, each a frozen model of one concern."""

from __future__ import annotations

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
    Options,
    TopicPrefix,
    mapping_of_text,
    names_of_list,
    off_of_false,
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
        found = client_options.faults(options)
        if found:
            raise ValueError("; ".join(found))
        return options

    @field_validator("bootstrap_servers")
    @classmethod
    def _check_plaintext(cls, bootstrap_servers: str, info: ValidationInfo) -> str:
        elsewhere = [a for a in bootstrap_servers.split(",") if not LOOPBACK.fullmatch(a)]
        allowed = info.data.get("allow_plaintext", True) or "options" not in info.data
        if elsewhere and not allowed and not client_options.encrypted(info.data["options"]):
            raise ValueError(
                f"{', '.join(elsewhere)} is another machine and the connection not encrypted: set "
                "security.protocol in kafka.options to SSL or SASL_SSL, or kafka.allow_plaintext "
                "to true"
            )
        return bootstrap_servers


class TopicSettings(Section):
    prefix: TopicPrefix = Field(
        default="placement.",
        description="Begins the name of every topic; two prefixes are two separate worlds.",
    )
    replication_factor: int | None = Field(
        default=None,
        ge=1,
        le=32_767,
        description="Copies of each topic; empty: the broker's default.replication.factor.",
    )


class LivenessSettings(Section):
    suspect_after_seconds: DurationSeconds = Field(
        default=60.0, description="Silence after which a node receives no new replicas."
    )
    dead_after_seconds: DurationSeconds = Field(
        default=300.0,
        description="Silence after which a node's replicas are rebuilt elsewhere; longer than "
        "suspect_after_seconds.",
    )
    incarnation_grace_seconds: DurationSeconds = Field(
        default=5.0,
        description="Silence of a node's process after which another one with a later incarnation "
        "takes over; three of its usual heartbeats if that is longer, at most "
        "suspect_after_seconds.",
    )

    flap_transitions: Annotated[int, Field(ge=2, le=100)] = Field(
        default=5,
        description="Changes of a node's liveness within flap_window_seconds that hold it down: "
        "it receives no replicas.",
    )
    flap_window_seconds: DurationSeconds = Field(
        default=600.0, description="Time within which changes count as flapping."
    )
    hold_down_seconds: DurationSeconds = Field(
        default=600.0, description="Length of a node's first hold-down; each next one is doubled."
    )
    hold_down_max_seconds: DurationSeconds = Field(
        default=86_400.0, description="Longest hold-down."
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
        description="acked: a move ends when its executor says so; immediate: the assignment "
        "itself is the command.",
    )
    deadline_seconds: DurationSeconds = Field(
        default=600.0, description="A move that has not ended by then expires and is derived again."
    )
    max_in_per_node: Count = Field(default=5, description="Open moves towards one node.")
    max_out_per_node: Count = Field(
        default=5,
        description="Open moves away from one node that lives, whichever node they copy from.",
    )
    max_copies_from_node: Count = Field(
        default=5, description="Open moves that copy from one node."
    )
    max_open: Count = Field(default=200, description="Open moves in all.")
    max_per_domain_pair: Count | None = Field(
        default=100,
        description="Open moves that copy between two domains of the top level; empty: no limit.",
    )
    max_per_batch: Count = Field(default=500, description="Moves issued by one batch.")
    backoff_seconds: DurationSeconds = Field(
        default=10.0,
        description="Pause before a target on which a shard's move has failed is tried again; it "
        "doubles with every failure. Other targets are tried at once.",
    )
    backoff_max_seconds: DurationSeconds = Field(
        default=600.0, description="The longest such pause."
    )
    remind_seconds: DurationSeconds = Field(
        default=60.0,
        description="Interval of reminders to an executor that a move expired, was cancelled or "
        "superseded, until it answers MoveStopped.",
    )
    rate_bytes_per_second: Count | None = Field(
        default=None,
        description="Bound on the copying of each move; it travels in the command and ends with "
        "it. Empty: none.",
    )


class RebalanceSettings(Section):
    mode: Annotated[Literal["off", "on_join", "continuous"], BeforeValidator(off_of_false)] = Field(
        default="off",
        description="When loads are evened out without a request (placer rebalance): never, when "
        "a node has joined, or whenever nodes or streams have changed. Repair always goes first.",
    )
    dwell_seconds: DurationSeconds = Field(
        default=600.0,
        le=3_600.0,
        description="For so long a replica that was moved for balance is not moved for it again.",
    )


class HoldSettings(Section):
    window_seconds: DurationSeconds = Field(
        default=600.0,
        description="More than 10 nodes and 40 % of all, or a whole domain of three nodes and "
        "more, that go within it are held: not replaced until they return.",
    )


class LocationSettings(Section):
    authority: Literal["claim", "command", "file", "inventory", "cloud"] = Field(
        default="claim",
        description="Who says where nodes stand: each node itself, location.command, "
        "location.file, the inventory topic, or its region and zone labels. A claim that differs "
        "is told and not trusted; a node that the authority does not place receives nothing.",
    )
    command: str | None = Field(
        default=None,
        description="Command for authority 'command': gets hosts as its last arguments, prints "
        "one location per line. Asked when a node registers; runs beside the batches.",
    )
    command_timeout_seconds: DurationSeconds = Field(
        default=10.0, description="Time that one call of location.command may take."
    )
    file: Path | None = Field(
        default=None,
        description="Mapping for authority 'file': YAML with nodes, hosts and default, or a "
        "cassandra-topology.properties. Read again when it has changed.",
    )
    cloud_form: Literal["kubernetes", "ec2", "ec2_legacy", "gce"] = Field(
        default="kubernetes",
        description="How authority 'cloud' writes a place: /region/zone, or as Cassandra's "
        "snitches for EC2 (standard, legacy) and Google Cloud do.",
    )
    enforce_levels: bool = Field(
        default=True,
        description="A node whose location has not exactly the tiers of levels, in their order, is "
        "registered but receives nothing. Without levels there is nothing to enforce.",
    )
    link_slow_ms: Annotated[float, Field(gt=0)] | None = Field(
        default=200.0,
        description="Round trip between two locations from which on their link is slow: three in a "
        "row raise an alert with the shards whose quorum needs it. Empty: never.",
    )
    relocate_up_to_shards: Annotated[int, Field(ge=0)] = Field(
        default=10,
        description="A node's new location takes effect by itself if no more shards than that "
        "would move or come to break a rule; otherwise it waits for approval.",
    )

    @model_validator(mode="after")
    def _check_authority(self) -> Self:
        needed = {"command": self.command, "file": self.file}
        if self.authority in needed and needed[self.authority] is None:
            raise ValueError(f"authority '{self.authority}' needs location.{self.authority}")
        return self


class QuotaSettings(Section):
    nodes: Count = Field(default=10_000, description="Nodes registered at once.")
    pending_nodes: Count = Field(
        default=1_000, description="Nodes whose location is in doubt or waits for approval."
    )
    new_nodes_per_minute: Count = Field(
        default=1_000, description="Nodes that may come in a minute, after the bootstrap."
    )
    places: Count = Field(
        default=4_096, description="Locations that are known at once, counted at every tier."
    )
    bootstrap_seconds: Annotated[float, Field(ge=0, le=86_400)] = Field(
        default=600.0,
        description="Time after its first node for which a fleet may register at any rate and "
        "with any location, without alerts.",
    )


class PolicySettings(Section):
    default: Annotated[dict[str, JsonValue], BeforeValidator(mapping_of_text)] = Field(
        default={"strategy": "spread"},
        description="Policy of a stream that names none.",
    )
    plugins: Annotated[list[str], BeforeValidator(names_of_list)] = Field(
        default_factory=list,
        description="Strategies of your own, each package.module:ClassName. Nothing else is "
        "imported: streams can only name what is listed here.",
    )

    @field_validator("default")
    @classmethod
    def _check_default(cls, policy: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if not isinstance(policy.get("strategy"), str):
            raise ValueError("expected a mapping with a strategy, e.g. {strategy: spread}")
        return policy


class TickSettings(Section):
    interval_seconds: Annotated[float, Field(gt=0, le=TICK_INTERVAL_SECONDS_MAX)] = Field(
        default=1.0, description="Longest pause between two ticks; they let the silence clocks run."
    )


class SparkSettings(Section):
    topology_shards: Annotated[int, Field(ge=1, le=4096)] = Field(
        default=1, description="Parts into which the node table is cut, spread over executors."
    )
    driver_memory: MemorySize = Field(default="512m", description="Heap of the driver's JVM.")
    max_offsets_per_trigger: Count = Field(
        default=200_000, description="Records that one micro-batch takes at most."
    )
    options: Options = Field(
        default_factory=dict,
        description="More Spark settings (spark.…). Secrets only as env:NAME or file:/path.",
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
        description="Dead letters that are written for each reason and second of append time; "
        "what is beyond is counted in a summary letter for each partition.",
    )


class MetricsSettings(Section):
    host: str = Field(
        default="127.0.0.1", description="Address that metrics and probes are served on."
    )
    port: Annotated[int, Field(ge=0, le=65_535)] | None = Field(
        default=None,
        description="Port of /metrics (Prometheus), /livez and /readyz; 0: any free one. "
        "Empty: none.",
    )


class LogSettings(Section):
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least weight of what is logged."
    )
    format: Literal["text", "json"] = Field(
        default="text", description="text for people, json: one object a line."
    )


class TraceSettings(Section):
    file: Path | None = Field(
        default=None,
        description="File that gets one JSON line per micro-batch: where its time went, by part. "
        "Empty: none.",
    )
