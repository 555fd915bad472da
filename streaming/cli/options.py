"""Options of the commands that talk to Kafka, and the settings behind them.

A set of options that several commands share is declared once, as a function or a dataclass, and
given to a command by `with_options`.
"""

import inspect
from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streaming.settings import Settings


class Output(StrEnum):
    """Names the reader of the output: people or programs."""

    TEXT = "text"
    JSON = "json"


class FailOn(StrEnum):
    """Names the findings that make an offline command end with exit code 1, besides its default."""

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
        help="Common prefix of all topic names. [dim]default: topics.prefix of the settings[/dim]",
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
        "violations only the fixable ones; never: no finding is a failure.",
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
        from placement.strategies import enable

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


def parse_rate(text: str | None, option: str) -> int | None:
    """Parse bytes a second, such as 50MB, as the value of an option. Raises BadParameter."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    if text is None:
        return None
    try:
        rate = int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        rate = 0
    if rate < 1:
        message = f"'{text}' is no number of bytes a second, such as 50MB, 10MiB or 1000000"
        raise typer.BadParameter(message, param_hint=option)
    return rate


def load_connection(
    config: Path | None,
    bootstrap: str | None,
    prefix: str | None,
    more: "Mapping[str, Any] | None" = None,
) -> "Settings":
    """Read the settings of a command that talks to Kafka. `more`: further settings by dotted name.
    Raises SettingsInvalid."""
    from streaming.settings import load_settings

    flags = {"kafka.bootstrap_servers": bootstrap, "topics.prefix": prefix, **(more or {})}
    return load_settings(config, flags)


def connection_options(
    bootstrap: Bootstrap = None, prefix: Prefix = None, config: Config = None
) -> "Settings":
    """Read the settings with the options that find a cluster, for `with_options`."""
    return load_connection(config, bootstrap, prefix)


def with_options(
    **shared: Callable[..., Any],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options that it shares with others.

    Each name is a parameter of the command; its value is what the function (or dataclass) makes of
    the options that are its own parameters. `with_options(settings=connected)` gives a command
    that takes `settings` the options --bootstrap, --prefix and --config.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command).parameters
        offered = {name: inspect.signature(make).parameters for name, make in shared.items()}
        parameters = [each for name, each in own.items() if name not in shared]
        parameters += [each for options in offered.values() for each in options.values()]

        @wraps(command)
        def run(**values: Any) -> None:
            for name, make in shared.items():
                values[name] = make(**{option: values.pop(option) for option in offered[name]})
            command(**values)

        # The command line is made from these; the parameters that are replaced are not among them.
        keyword = inspect.Parameter.KEYWORD_ONLY
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [each.replace(kind=keyword) for each in parameters]
        )
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate
