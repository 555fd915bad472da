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


def connection(config: Path | None, bootstrap: str | None, prefix: str | None) -> "Settings":
    """The settings of a command that only needs to find the topics. Raises SettingsInvalid."""
    from streaming.settings_sources import load_settings

    return load_settings(config, {"kafka.bootstrap_servers": bootstrap, "topics.prefix": prefix})
