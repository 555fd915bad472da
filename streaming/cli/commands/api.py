"""`placer api`: the published state over HTTP, and requests of operators if it is told so."""

from contextlib import ExitStack
from typing import TYPE_CHECKING

import typer

from streaming.cli.options import connection_options, with_options
from streaming.cli.render.console import tell
from streaming.cli.serving_options import ServingOptions

if TYPE_CHECKING:
    from streaming.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "api",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer api --bootstrap 127.0.0.1:9092    [dim]# reads only, on this machine[/dim]\n\n"
        "  curl localhost:8750/api/v1/streams/orders/shards/3\n\n"
        "  placer api --operate --tokens tokens.yaml --no-anonymous\n\n"
        "  placer api --host 0.0.0.0 --certificate api.pem --key api.key --tokens tokens.yaml\n\n"
        "The token file is a list: [{name: alice, role: operate, token: ...}, {name: pager, role: "
        "read, sha256: ...}]. The paths are listed in /api/v1/openapi.json.",
    )(api)


@with_options(settings=connection_options, serving=ServingOptions)
def api(settings: "Settings", serving: ServingOptions) -> None:
    """Serve streams, shards, nodes, moves and events over HTTP until Ctrl-C.

    Reads the topics into memory, a million shards in some seconds, and follows them. Every answer
    names the commit at which it is true.
    """
    from streaming.api import (
        ApiServer,
        EventHub,
        GuardRules,
        KafkaOperating,
        ProcessList,
        Service,
        make_application,
    )
    from streaming.observability import configure_logging
    from streaming.read_model import ModelFollower, ReadModel
    from streaming.signals import stop_on_signals

    access = serving.check()
    rules = GuardRules(access, serving.is_loopback, serving.origins)
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
    follower = ModelFollower(settings, model, tell)
    with ExitStack() as owned:
        stop = owned.enter_context(stop_on_signals())
        server = ApiServer(make_application(service, rules), hub, serving.server())
        owned.enter_context(follower.running())
        owned.enter_context(server.running())
        verb = "reads and operates" if serving.operate else "reads"
        typer.echo(
            f"placer api ready: {verb} cell {settings.cell} at {server.address}/api/v1/status"
        )
        stop.wait()
