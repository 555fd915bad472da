"""Defines everything that can be set, in one documented model.

`loader.load_settings` fills it from flags, environment and file; the command line then
hands one frozen `Settings` to the application. `deploy/placer.yaml` lists every setting with its
default; a test keeps the two equal.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import (
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from placement.model import Configuration, Limits, Quotas, Rebalance, Resource
from schemas import limits
from streaming.errors import SettingsInvalid
from streaming.settings.sections import (
    DeadLetterSettings,
    HoldSettings,
    KafkaSettings,
    LivenessSettings,
    LoadSettings,
    LocationSettings,
    LogSettings,
    MetricsSettings,
    MoveSettings,
    PolicySettings,
    QuotaSettings,
    RebalanceSettings,
    ResourceSettings,
    SparkSettings,
    StandbySettings,
    TickSettings,
    TopicSettings,
    TraceSettings,
)
from streaming.settings.types import (
    SECRET_KEY,
    SECRET_MASK,
    Name,
    mapping_of_text,
    names_of_list,
    path_or_uri,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

ENV_PREFIX = "PLACER_"
ENV_DELIMITER = "__"
# As long as the name of a host may be by POSIX; with a process id it is an id of ours.
_HOST_CHARS_MAX = 64


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
    checkpoint: Annotated[Path | str | None, BeforeValidator(path_or_uri)] = Field(
        default=None,
        description="Scratch directory of Spark; every start makes a fresh checkpoint beneath it. "
        "On a cluster a URI (hdfs://…, s3a://…, file:///…). Processes of a cell may share it. "
        "Empty: given by --checkpoint, or temporary with --embedded.",
    )
    levels: Annotated[list[Name], BeforeValidator(names_of_list)] = Field(
        default_factory=list,
        description="Names of the tiers of a location, top first, e.g. [region, az, rack].",
    )
    kafka: KafkaSettings = Field(default_factory=KafkaSettings)
    topics: TopicSettings = Field(default_factory=TopicSettings)
    liveness: LivenessSettings = Field(default_factory=LivenessSettings)
    moves: MoveSettings = Field(default_factory=MoveSettings)
    hold: HoldSettings = Field(default_factory=HoldSettings)
    rebalance: RebalanceSettings = Field(default_factory=RebalanceSettings)
    resources: Annotated[dict[str, ResourceSettings], BeforeValidator(mapping_of_text)] = Field(
        default_factory=dict,
        description="What shards use of their nodes beside a place, by name: "
        "{disk_bytes: {capacity: 0.85, balance: 0.1}}.",
    )
    loads: LoadSettings = Field(default_factory=LoadSettings)
    location: LocationSettings = Field(default_factory=LocationSettings)
    quotas: QuotaSettings = Field(default_factory=QuotaSettings)
    policy: PolicySettings = Field(default_factory=PolicySettings)
    dead_letters: DeadLetterSettings = Field(default_factory=DeadLetterSettings)
    tick: TickSettings = Field(default_factory=TickSettings)
    standby: StandbySettings = Field(default_factory=StandbySettings)
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

    @field_validator("resources")
    @classmethod
    def _check_resources(
        cls, resources: dict[str, ResourceSettings]
    ) -> dict[str, ResourceSettings]:
        for name in resources:
            if not limits.RESOURCE.match(name):
                raise ValueError(
                    f"'{name}' is no name of a resource: expected a small letter, then at most 62 "
                    "small letters, digits or '_'"
                )
            if name in limits.RESOURCE_NAMES_RESERVED:
                raise ValueError(f"'{name}' is a field of reported shards, choose another name")
        return resources

    @field_validator("standby")
    @classmethod
    def _check_patience(cls, standby: StandbySettings, info: ValidationInfo) -> StandbySettings:
        tick = info.data.get("tick")
        least = 2 * tick.interval_seconds if tick else 0.0
        if standby.takeover_after_seconds < least:
            raise ValueError(
                f"standby.takeover_after_seconds is {standby.takeover_after_seconds:g}, expected "
                f"at least {least:g}: twice tick.interval_seconds, as a tick may come late"
            )
        return standby

    @field_validator("hold")
    @classmethod
    def _check_hold_levels(cls, hold: HoldSettings, info: ValidationInfo) -> HoldSettings:
        # Levels that were refused themselves are not there.
        known = info.data.get("levels", hold.levels or ())
        unknown = [name for name in hold.levels or () if name not in known]
        if unknown:
            raise ValueError(
                f"hold.levels has '{unknown[0]}', expected names from levels "
                f"({', '.join(known) or 'which has none'})"
            )
        return hold

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


def core_configuration(settings: Settings) -> Configuration:
    """The core's configuration from the settings."""
    moves, quotas = settings.moves, settings.quotas
    return Configuration(
        cell=settings.cell,
        levels=tuple(settings.levels),
        default_policy=settings.policy.default,
        limits=Limits(
            max_in_per_node=moves.max_in_per_node,
            max_out_per_node=moves.max_out_per_node,
            max_copies_from_node=moves.max_copies_from_node,
            max_open=moves.max_open,
            max_per_batch=moves.max_per_batch,
            max_per_domain_pair=moves.max_per_domain_pair,
            max_bytes_per_node=moves.max_bytes_per_node,
            max_bytes_per_domain_pair=moves.max_bytes_per_domain_pair,
            max_bytes_open=moves.max_bytes_open,
        ),
        acked=moves.completion == "acked",
        deadline_ms=round(moves.deadline_seconds * 1000),
        backoff_ms=round(moves.backoff_seconds * 1000),
        backoff_max_ms=round(moves.backoff_max_seconds * 1000),
        remind_ms=round(moves.remind_seconds * 1000),
        leader_moves=moves.leader_moves,
        rate_bytes_per_second=moves.rate_bytes_per_second,
        rebalance=Rebalance(settings.rebalance.mode),
        dwell_ms=round(settings.rebalance.dwell_seconds * 1000),
        hold_window_ms=round(settings.hold.window_seconds * 1000),
        hold_levels=None if settings.hold.levels is None else tuple(settings.hold.levels),
        quotas=Quotas(
            quotas.nodes,
            quotas.pending_nodes,
            quotas.new_nodes_per_minute,
            quotas.places,
            round(quotas.bootstrap_seconds * 1000),
        ),
        relocate_up_to=settings.location.relocate_up_to_shards,
        enforce_levels=settings.location.enforce_levels,
        authority=settings.location.authority,
        link_slow_ms=settings.location.link_slow_ms,
        resources=tuple(
            Resource(name, each.capacity, each.balance, each.led)
            for name, each in sorted(settings.resources.items())
        ),
    )


def name_instance(settings: Settings) -> str:
    """Name this process among those of its cell."""
    given = settings.standby.instance
    return given or f"{socket.gethostname()[:_HOST_CHARS_MAX]}-{os.getpid()}"


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
