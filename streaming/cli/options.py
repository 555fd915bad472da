"""What commands that talk to Kafka have in common: their options and the settings behind them."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streaming.settings import Settings


class Output(StrEnum):
    """Who reads the output: people or programs."""

    TEXT = "text"
    JSON = "json"


class FailOn(StrEnum):
    """What makes an offline command end with exit code 1, besides its default."""

    DEGRADED = "degraded"
    FIXABLE = "fixable"
    NEVER = "never"


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        metavar="HOST:PORT",
        help="Address of the brokers. [dim]default: kafka.bootstrap_servers of the settings[/dim]",
        show_default=False,
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        help="What topic names begin with. [dim]default: topics.prefix of the settings[/dim]",
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings in YAML, also by PLACER_CONFIG; deploy/placer.yaml shows all of them.",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Output, typer.Option("--output", help="text for people, json for programs.")
]
FailOnOption = Annotated[
    FailOn | None,
    typer.Option(
        "--fail-on",
        help="What exit code 1 means: degraded: also a stream that is degraded; fixable: of "
        "violations only those that can be mended; never: nothing found is a failure.",
        show_default=False,
    ),
]

StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse a document with fields that are not known (exit code 2); without it they are "
        "named on standard error and ignored.",
    ),
]


def enable_plugins(paths: list[str] | None) -> list[str] | None:
    """Make the user's strategies known; what is wrong with one is a usage error."""
    if paths:
        from placement.plugins import enable

        for path in paths:
            wrong = enable(path)
            if wrong:
                raise typer.BadParameter(wrong.message)
    return paths


PluginOption = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="MODULE:CLASS",
        help="A strategy of your own, importable from here; then streams may name it. Repeatable.",
        callback=enable_plugins,
        show_default=False,
    ),
]


def connection(config: Path | None, bootstrap: str | None, prefix: str | None) -> "Settings":
    """The settings of a command that only needs to find the topics. Raises SettingsInvalid."""
    from streaming.settings_sources import load_settings

    return load_settings(config, {"kafka.bootstrap_servers": bootstrap, "topics.prefix": prefix})
