"""`placer console`: the fleet in a browser, with the query API on the same port."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.options import PluginOption, connection_options, with_options
from streaming.cli.render.console import tell
from streaming.cli.serving_options import ServingOptions

if TYPE_CHECKING:
    from streaming.api import AccessRules
    from streaming.console import Console
    from streaming.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "console",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer console --bootstrap 127.0.0.1:9092    [dim]# reads only, on this machine[/dim]"
        "\n\n"
        "  placer console cluster.yaml    [dim]# a cluster file, without Kafka[/dim]\n\n"
        "  placer console --operate --tokens tokens.yaml --no-anonymous\n\n"
        "  placer console --host 0.0.0.0 --certificate console.pem --key console.key "
        "--tokens tokens.yaml\n\n"
        "The query API answers at the same address under /api/v1. The token file is that of "
        "placer api; a browser asks for a token at /sign-in.",
    )(console)


File = Annotated[
    str | None,
    typer.Argument(
        metavar="FILE",
        help="Cluster file in YAML or JSON, shown in place of a running reconciler; - reads stdin.",
        show_default=False,
    ),
]


@with_options(settings=connection_options, serving=ServingOptions)
def console(
    settings: "Settings",
    serving: ServingOptions,
    file: File = None,
    _plugin: PluginOption = None,
) -> None:
    """Show the fleet in a browser, and serve the query API, until Ctrl-C."""
    from streaming.observability import configure_logging
    from streaming.signals import stop_on_signals

    if file is not None and serving.operate:
        raise typer.BadParameter("a file takes no requests: leave --operate out")
    configure_logging(settings.log.level, settings.log.format)
    with stop_on_signals() as stop, serving_console(settings, serving, file) as address:
        verb = "reads and operates" if serving.operate else "reads"
        shown = f"cell {settings.cell}" if file is None else file
        typer.echo(f"placer console ready: {verb} {shown} at {address}")
        stop.wait()


@contextmanager
def serving_console(
    settings: "Settings", serving: ServingOptions, file: str | None = None
) -> Iterator[str]:
    """Serve while the block runs; gives the address. Raises BadParameter, AddressRefused."""
    access = serving.check()
    from streaming import console as package
    from streaming.api import ApiServer, GuardRules

    following: AbstractContextManager[None] = nullcontext()
    if file is None:
        made, following = _show_cell(package, settings, serving, access)
    else:
        made = _show_file(package, file, access)
    rules = GuardRules(access, serving.is_loopback, serving.origins)
    server = ApiServer(package.make_console(made, rules), made.service.hub, serving.server())
    with following, server.running():
        yield server.address


def _show_cell(
    package: Any, settings: "Settings", serving: ServingOptions, access: "AccessRules"
) -> "tuple[Console, AbstractContextManager[None]]":
    """The console of a running reconciler, and what keeps it current."""
    from streaming.api import EventHub, KafkaOperating, ProcessList, Service
    from streaming.read_model import ModelFollower, ReadModel

    model = ReadModel(settings.cell, settings.topics.prefix, settings.levels)
    service = Service(
        model,
        EventHub(model),
        operating=KafkaOperating(settings) if serving.operate else None,
        processes=ProcessList(settings, model),
        stale_seconds_max=serving.stale_after_seconds,
    )
    made = package.Console(
        service,
        settings=settings,
        lag=package.InputLag(settings, model),
        letters=package.KafkaLetters(settings),
        access=package.SessionAccess(access),
    )
    return made, ModelFollower(settings, model, tell).running()


def _show_file(package: Any, file: str, access: "AccessRules") -> "Console":
    """The console of the first document of a cluster file."""
    import time

    from streaming.api import EventHub, Service
    from streaming.cli.documents import check_unknown_fields, read_text
    from streaming.offline import CheckOptions, DocumentFault, check_cluster, parse_documents

    first = next(parse_documents(read_text(file)), None)
    if first is None:
        raise typer.BadParameter(f"{file} holds no document", param_hint="FILE")
    document = check_unknown_fields(first, file, strict=False)
    if isinstance(document, DocumentFault):
        where = "" if document.line is None else f" line {document.line}:"
        raise typer.BadParameter(f"{file}:{where} {document.message}", param_hint="FILE")
    check = check_cluster(document, CheckOptions())
    model = package.make_file_model(document, check, time.time_ns() // 1_000_000)
    service = Service(model, EventHub(model))
    made: Console = package.Console(
        service, document=document, access=package.SessionAccess(access)
    )
    return made
