"""`placer console`: the fleet in a browser, with the query API on the same port."""

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import typer

from streaming.cli.options import connection_options, with_options
from streaming.cli.render.console import tell
from streaming.cli.serving_options import ServingOptions
from streaming.errors import StreamingError

if TYPE_CHECKING:
    from streaming.settings import Settings


class ConsoleMissing(StreamingError):
    """The packages of the console are not installed."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "console",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer console --bootstrap 127.0.0.1:9092    [dim]# reads only, on this machine[/dim]"
        "\n\n"
        "  placer console --operate --tokens tokens.yaml --no-anonymous\n\n"
        "  placer console --host 0.0.0.0 --certificate console.pem --key console.key "
        "--tokens tokens.yaml\n\n"
        "The query API answers at the same address under /api/v1. The token file is that of "
        "placer api; a browser asks for a token at /sign-in.",
    )(console)


@with_options(settings=connection_options, serving=ServingOptions)
def console(settings: "Settings", serving: ServingOptions) -> None:
    """Show the fleet in a browser, and serve the query API, until Ctrl-C."""
    from streaming.api import (
        ApiServer,
        EventHub,
        GuardRules,
        KafkaOperating,
        ProcessList,
        Service,
    )
    from streaming.cli.signals import stop_on_signals
    from streaming.observability import configure_logging
    from streaming.read_model import ModelFollower, ReadModel

    access = serving.check()
    console_package = _import_console()
    configure_logging(settings.log.level, settings.log.format)
    model = ReadModel(settings.cell, settings.topics.prefix, settings.levels)
    hub = EventHub(model)
    service = Service(
        model,
        hub,
        operating=KafkaOperating(settings) if serving.operate else None,
        processes=ProcessList(settings, model),
        stale_seconds_max=serving.stale_after_seconds,
    )
    made = console_package.Console(
        service,
        settings=settings,
        lag=console_package.InputLag(settings, model),
        access=console_package.SessionAccess(access),
    )
    rules = GuardRules(access, serving.is_loopback, serving.origins)
    follower = ModelFollower(settings, model, tell)
    with ExitStack() as owned:
        stop = owned.enter_context(stop_on_signals())
        server = ApiServer(console_package.make_console(made, rules), hub, serving.server())
        owned.enter_context(follower.running())
        owned.enter_context(server.running())
        verb = "reads and operates" if serving.operate else "reads"
        typer.echo(f"placer console ready: {verb} cell {settings.cell} at {server.address}")
        stop.wait()


def _import_console() -> Any:
    try:
        from streaming import console as package
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("nicegui"):
            raise
        raise ConsoleMissing(
            "the console needs packages that are not installed; install them with: "
            "pip install 'placement-reconciler[console]'"
        ) from error
    return package
