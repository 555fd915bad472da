"""The one documented model of everything that can be set.

`settings_sources.load_settings` fills it from flags, environment and file; the command line then
hands one frozen `Settings` to the application. `deploy/placer.yaml` lists every setting with its
default; a test keeps the two equal.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from schemas import limits
from streaming.errors import SettingsInvalid

if TYPE_CHECKING:
    from collections.abc import Mapping

ENV_PREFIX = "PLACER_"
ENV_DELIMITER = "__"

# Rule R9: such a value never stands in a file, an environment variable or an output.
SECRET_KEY = re.compile(r"secret|password|token|access.?key|jaas", re.IGNORECASE)
SECRET_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/.+")
SECRET_MASK = "***"

# Delivery guarantees G2 and G5 rest on these; another value would break them without a sign.
KAFKA_OPTIONS_FIXED = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.idempotence",
        "group.id",
        "isolation.level",
        "partitioner",
        "transactional.id",
    }
)

# A day: longer waits are a typing mistake in the unit (ms for s) rather than a wish.
DURATION_SECONDS_MAX = 86_400.0
# The silence clock of a partition advances by at most 3 s per record (design section 4): with
# slower ticks it would fall behind and every verdict would come late.
TICK_INTERVAL_SECONDS_MAX = 3.0


def _mapping_of_text(value: object) -> object:
    """A mapping as it came from YAML, or written as JSON in an environment variable."""
    if not isinstance(value, str):
        return value
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValueError('expected a mapping, in an environment variable as JSON: {"key": "value"}')
    return parsed


def _texts_of_scalars(value: object) -> object:
    """Option values as text: YAML reads `true` and `5000` as other types, clients take text."""
    parsed = _mapping_of_text(value)
    if not isinstance(parsed, dict):
        return parsed
    return {str(key): _text_of_scalar(option) for key, option in parsed.items()}


def _text_of_scalar(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _names_of_list(value: object) -> object:
    """A list, or names separated by commas as an environment variable gives them."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def _matching(pattern: str, expected: str) -> AfterValidator:
    """Text that fits `pattern` as a whole; `expected` says it in words, for the error message."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


Name = Annotated[str, _matching(limits.ID_PATTERN, "1 to 128 letters, digits, '_', '.' or '-'")]
Addresses = Annotated[
    str,
    _matching(r"[^\s,]+:\d{1,5}(,[^\s,]+:\d{1,5})*", "host:port, several separated by commas"),
]
TopicPrefix = Annotated[
    str,
    _matching(
        limits.TOPIC_PREFIX_PATTERN, "words of letters, digits and '-', each with a '.' behind it"
    ),
    Field(max_length=128),
]
MemorySize = Annotated[str, _matching(r"[1-9]\d*[kmgKMG]", "a number and a unit, e.g. 512m or 2g")]
DurationSeconds = Annotated[float, Field(gt=0, le=DURATION_SECONDS_MAX, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Options = Annotated[dict[str, str], BeforeValidator(_texts_of_scalars)]


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
    bootstrap_servers: Addresses = Field(
        default="localhost:9092",
        description="Addresses of the brokers, host:port separated by commas.",
    )
    options: Options = Field(
        default_factory=dict,
        description="More client settings in librdkafka's names, e.g. security.protocol. Secrets "
        "only as env:NAME or file:/path.",
    )

    @field_validator("options")
    @classmethod
    def _check_options(cls, options: dict[str, str]) -> dict[str, str]:
        fixed = sorted(KAFKA_OPTIONS_FIXED & options.keys())
        if fixed:
            raise ValueError(f"{', '.join(fixed)}: set by the application, cannot be changed")
        return _refuse_plain_secrets(options)


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
    max_out_per_node: Count = Field(default=5, description="Open moves away from one node.")
    max_open: Count = Field(default=200, description="Open moves in all.")
    max_per_batch: Count = Field(default=500, description="Moves issued by one batch.")


class PolicySettings(Section):
    default: Annotated[dict[str, JsonValue], BeforeValidator(_mapping_of_text)] = Field(
        default={"strategy": "spread"},
        description="Policy of a stream that names none.",
    )
    plugins: Annotated[list[str], BeforeValidator(_names_of_list)] = Field(
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


class Settings(BaseSettings):
    """All settings of the reconciler. Build it with `load_settings`; arguments alone in tests."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=ENV_DELIMITER,
        # An unset variable in a compose file arrives as an empty one.
        env_ignore_empty=True,
        # The validators above read mappings and lists, so that a mistake there has a field name.
        enable_decoding=False,
        extra="forbid",
        frozen=True,
    )

    cell: Name = Field(
        default="main",
        description="Name of this reconciler: part of its transactional id, its marker and of "
        "every id it issues. Changing it starts a new reconciler.",
    )
    checkpoint: Path | None = Field(
        default=None,
        description="Scratch directory of Spark; every start makes a fresh checkpoint beneath it. "
        "Empty: given by --checkpoint, or temporary with --embedded.",
    )
    levels: Annotated[list[Name], BeforeValidator(_names_of_list)] = Field(
        default_factory=list,
        description="Names of the tiers of a location, top first, e.g. [region, az, rack].",
    )
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    topics: TopicSettings = Field(default_factory=TopicSettings)
    liveness: LivenessSettings = Field(default_factory=LivenessSettings)
    moves: MoveSettings = Field(default_factory=MoveSettings)
    policy: PolicySettings = Field(default_factory=PolicySettings)
    tick: TickSettings = Field(default_factory=TickSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    trace: TraceSettings = Field(default_factory=TraceSettings)

    @field_validator("levels")
    @classmethod
    def _check_levels(cls, levels: list[str]) -> list[str]:
        if len(set(levels)) != len(levels):
            raise ValueError("expected every level once")
        return levels

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments only: `load_settings` layers the sources, mappings replaced as a whole."""
        del settings_cls, env_settings, dotenv_settings, file_secret_settings
        return (init_settings,)

    def resolved_kafka_options(self) -> dict[str, str]:
        """`kafka.options` with references to secrets replaced by the secrets: for clients only.

        Raises SettingsInvalid when a reference leads nowhere.
        """
        return _resolve(self.kafka.options, "kafka.options")

    def resolved_spark_options(self) -> dict[str, str]:
        """`spark.options` likewise."""
        return _resolve(self.spark.options, "spark.options")

    def render(self) -> str:
        """The settings in force as YAML, secrets masked, for `--print-config`."""
        values = _mask(self.model_dump(mode="json"))
        return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def _resolve(options: Mapping[str, str], where: str) -> dict[str, str]:
    resolved, problems = dict(options), []
    for key, value in options.items():
        if not SECRET_KEY.search(key):
            continue
        scheme, _, target = value.partition(":")
        try:
            secret = os.environ[target] if scheme == "env" else Path(target).read_text("utf-8")
        except KeyError:
            problems.append(f"{where}.{key}: the environment variable {target} is not set")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            problems.append(f"{where}.{key}: {target} cannot be read: {reason}")
        else:
            resolved[key] = secret.rstrip("\r\n")
    if problems:
        raise SettingsInvalid(problems)
    return resolved


def _mask(values: Any, key: str = "") -> Any:
    if values and SECRET_KEY.search(key):
        return SECRET_MASK
    if isinstance(values, dict):
        return {name: _mask(value, name) for name, value in values.items()}
    return values
