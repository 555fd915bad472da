"""`placer api`: the published state over HTTP, and requests of operators if it is told so."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import connection_options, with_options
from streaming.cli.render.console import tell

if TYPE_CHECKING:
    from streaming.api import AccessRules, GuardRules, ServerOptions
    from streaming.settings import Settings

DEFAULT_PORT = 8750


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


Host = Annotated[
    str,
    typer.Option(
        "--host", metavar="ADDRESS", help="Where it listens; another machine reaches only others."
    ),
]
Port = Annotated[int, typer.Option("--port", min=0, max=65_535, help="0: any free port.")]
AllowRemote = Annotated[
    bool,
    typer.Option("--allow-remote", help="Tokens and answers may travel unencrypted from --host."),
]
Certificate = Annotated[
    Path | None,
    typer.Option("--certificate", metavar="FILE", help="PEM: serve over TLS.", show_default=False),
]
Key = Annotated[
    Path | None,
    typer.Option("--key", metavar="FILE", help="PEM: its private key.", show_default=False),
]
Operate = Annotated[
    bool, typer.Option("--operate", help="Take requests of principals with the role operate.")
]
Tokens = Annotated[
    Path | None,
    typer.Option(
        "--tokens", metavar="FILE", help="Principals with roles and tokens.", show_default=False
    ),
]
Anonymous = Annotated[
    bool,
    typer.Option("--anonymous/--no-anonymous", help="Whether anybody may read without a token."),
]
TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="An address or network whose --proxy-header names the principal. Repeatable.",
        show_default=False,
    ),
]
ProxyHeader = Annotated[
    str, typer.Option("--proxy-header", metavar="NAME", help="Header of the trusted proxies.")
]
AllowOrigin = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-origin",
        metavar="URL",
        help="An origin whose pages may send requests, such as https://console.example. "
        "Repeatable.",
        show_default=False,
    ),
]
StaleAfter = Annotated[
    float,
    typer.Option(
        "--stale-after-seconds",
        min=1,
        help="Refuse to answer when the state was last known to be complete so long ago.",
    ),
]


@with_options(settings=connection_options)
def api(
    settings: "Settings",
    host: Host = "127.0.0.1",
    port: Port = DEFAULT_PORT,
    allow_remote: AllowRemote = False,
    certificate: Certificate = None,
    key: Key = None,
    operate: Operate = False,
    tokens: Tokens = None,
    anonymous: Anonymous = True,
    trusted_proxy: TrustedProxy = None,
    proxy_header: ProxyHeader = "X-Forwarded-User",
    allow_origin: AllowOrigin = None,
    stale_after_seconds: StaleAfter = 15.0,
) -> None:
    """Serve streams, shards, nodes, moves and events over HTTP until Ctrl-C.

    Reads the topics into memory, a million shards in some seconds, and follows them. Every answer
    names the commit at which it is true.
    """
    from streaming.api import GuardRules, ServerOptions
    from streaming.settings import LOOPBACK

    loopback = LOOPBACK.fullmatch(f"{host}:{port}") is not None
    if (certificate is None) != (key is None):
        raise typer.BadParameter("--certificate and --key belong together")
    for option, file in (("--certificate", certificate), ("--key", key)):
        if file is not None and not file.is_file():
            raise typer.BadParameter(f"{file} is no file", param_hint=option)
    if not (loopback or allow_remote or certificate is not None):
        raise typer.BadParameter(
            f"{host} is reached from other machines and the connection is not encrypted: add "
            "--certificate and --key, or --allow-remote",
            param_hint="--host",
        )
    if operate and tokens is None:
        raise typer.BadParameter("--operate needs principals who may: add --tokens FILE")
    if not anonymous and tokens is None and not trusted_proxy:
        raise typer.BadParameter(
            "--no-anonymous leaves nobody to answer: add --tokens FILE or --trusted-proxy"
        )
    rules = GuardRules(
        access=_read_rules(tokens, anonymous, trusted_proxy or [], proxy_header),
        loopback=loopback,
        origins=frozenset(each.rstrip("/") for each in allow_origin or ()),
    )
    where = ServerOptions(host, port, certificate, key)
    _serve(settings, rules, where, operate, stale_after_seconds)


def _read_rules(
    tokens: Path | None, anonymous: bool, proxies: list[str], header: str
) -> "AccessRules":
    from streaming.api import AccessRules, parse_network, read_tokens

    known, roles = ([], {}) if tokens is None else read_tokens(tokens)
    networks = []
    for text in proxies:
        try:
            networks.append(parse_network(text))
        except ValueError as error:
            message = f"'{text}' is no address or network such as 10.0.0.7 or 10.0.0.0/8"
            raise typer.BadParameter(message, param_hint="--trusted-proxy") from error
    return AccessRules(known, roles, anonymous, networks, header.lower())


def _serve(
    settings: "Settings",
    rules: "GuardRules",
    where: "ServerOptions",
    operate: bool,
    stale_seconds_max: float,
) -> None:
    from streaming.api import (
        ApiServer,
        EventHub,
        KafkaOperating,
        ProcessList,
        Service,
        make_application,
    )
    from streaming.cli.signals import stop_on_signals
    from streaming.observability import configure_logging
    from streaming.read_model import ModelFollower, ReadModel

    configure_logging(settings.log.level, settings.log.format)
    model = ReadModel(settings.cell, settings.topics.prefix, settings.levels)
    hub = EventHub(model)
    service = Service(
        model,
        hub,
        operating=KafkaOperating(settings) if operate else None,
        processes=ProcessList(settings, model),
        stale_seconds_max=stale_seconds_max,
    )
    follower = ModelFollower(settings, model, tell)
    with ExitStack() as owned:
        stop = owned.enter_context(stop_on_signals())
        server = ApiServer(make_application(service, rules), hub, where)
        owned.enter_context(follower.running())
        owned.enter_context(server.running())
        verb = "reads and operates" if operate else "reads"
        typer.echo(
            f"placer api ready: {verb} cell {settings.cell} at {server.address}/api/v1/status"
        )
        stop.wait()
