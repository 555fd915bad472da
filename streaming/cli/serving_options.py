"""Options of the commands that serve over HTTP: where they listen, and who may ask for what."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from streaming.api import AccessRules, ServerOptions

DEFAULT_PORT = 8750

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


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """The options, for `with_options`."""

    host: Host = "127.0.0.1"
    port: Port = DEFAULT_PORT
    allow_remote: AllowRemote = False
    certificate: Certificate = None
    key: Key = None
    operate: Operate = False
    tokens: Tokens = None
    anonymous: Anonymous = True
    trusted_proxy: TrustedProxy = None
    proxy_header: ProxyHeader = "X-Forwarded-User"
    allow_origin: AllowOrigin = None
    stale_after_seconds: StaleAfter = 15.0

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine reaches it."""
        from streaming.settings import LOOPBACK

        return LOOPBACK.fullmatch(f"{self.host}:{self.port}") is not None

    @property
    def origins(self) -> frozenset[str]:
        """Other origins whose pages may send requests."""
        return frozenset(each.rstrip("/") for each in self.allow_origin or ())

    def server(self) -> "ServerOptions":
        """Where it listens."""
        from streaming.api import ServerOptions

        return ServerOptions(self.host, self.port, self.certificate, self.key)

    def check(self) -> "AccessRules":
        """Refuse options that do not fit each other, and read who may ask. Raises BadParameter,
        SettingsInvalid."""
        if (self.certificate is None) != (self.key is None):
            raise typer.BadParameter("--certificate and --key belong together")
        for option, file in (("--certificate", self.certificate), ("--key", self.key)):
            if file is not None and not file.is_file():
                raise typer.BadParameter(f"{file} is no file", param_hint=option)
        if not (self.is_loopback or self.allow_remote or self.certificate is not None):
            raise typer.BadParameter(
                f"{self.host} is reached from other machines and the connection is not encrypted: "
                "add --certificate and --key, or --allow-remote",
                param_hint="--host",
            )
        if self.operate and self.tokens is None:
            raise typer.BadParameter("--operate needs principals who may: add --tokens FILE")
        if not self.anonymous and self.tokens is None and not self.trusted_proxy:
            raise typer.BadParameter(
                "--no-anonymous leaves nobody to answer: add --tokens FILE or --trusted-proxy"
            )
        return self._read_rules()

    def _read_rules(self) -> "AccessRules":
        from streaming.api import AccessRules, parse_network, read_tokens

        known, roles = ([], {}) if self.tokens is None else read_tokens(self.tokens)
        networks = []
        for text in self.trusted_proxy or ():
            try:
                networks.append(parse_network(text))
            except ValueError as error:
                message = f"'{text}' is no address or network such as 10.0.0.7 or 10.0.0.0/8"
                raise typer.BadParameter(message, param_hint="--trusted-proxy") from error
        return AccessRules(known, roles, self.anonymous, networks, self.proxy_header.lower())
