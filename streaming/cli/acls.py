"""`placer topics acls`: the least rights of each role, for brokers with an authorizer."""

import json
import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import Bootstrap, Config, Prefix, connection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.access import Grant


class Form(StrEnum):
    """How rights are written out."""

    COMMANDS = "commands"
    JSON = "json"
    YAML = "yaml"


def acls(
    principal: Annotated[
        list[str] | None,
        typer.Option(
            "--principal",
            metavar="ROLE=NAME",
            help="Who has a role, for example nodes=User:agents; repeatable, also for one role. "
            "[dim]default: User: and the role's own name[/dim]",
            show_default=False,
        ),
    ] = None,
    role: Annotated[
        list[str] | None, typer.Option("--role", help="Only this role; repeatable.")
    ] = None,
    output: Annotated[
        Form, typer.Option("--output", help="commands: of kafka-acls.sh; or data.")
    ] = Form.COMMANDS,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Write out what each role needs on topics and transactional ids, and no more.

    Needs no broker. Roles: reconciler, administrator (topics apply), operators, nodes, detectors,
    clients (ask for streams), executors (carry out moves), inventory, readers.
    """
    from schemas.access import ROLES, grants

    given = _principals(principal or [], ROLES)
    unknown = sorted(set(role or ()) - set(ROLES))
    if unknown:
        raise typer.BadParameter(f"--role: expected {', '.join(ROLES)}, got {unknown[0]!r}")
    settings = connection(config, bootstrap, prefix)
    wanted = [
        grant
        for grant in grants(settings.topics.prefix, settings.cell)
        if not role or grant.role in role
    ]
    if output is Form.COMMANDS:
        _show_commands(wanted, given, settings.kafka.bootstrap_servers)
        return
    rows = [
        {
            "role": grant.role,
            "principal": name,
            "resource": grant.resource,
            "name": grant.name,
            "operations": list(grant.operations),
        }
        for grant in wanted
        for name in given[grant.role]
    ]
    if output is Form.JSON:
        typer.echo(json.dumps({"acls": rows}))
    else:
        import yaml

        typer.echo(yaml.safe_dump({"acls": rows}, sort_keys=False), nl=False)


def _principals(given: "Sequence[str]", roles: "Sequence[str]") -> "Mapping[str, list[str]]":
    found: dict[str, list[str]] = {}
    for each in given:
        role, equals, name = each.partition("=")
        if not equals or role not in roles or not name.startswith("User:"):
            raise typer.BadParameter(
                f"--principal: expected ROLE=User:NAME with a role of {', '.join(roles)}, "
                f"got {each!r}"
            )
        found.setdefault(role, []).append(name)
    return {role: found.get(role, [f"User:{role}"]) for role in roles}


def _show_commands(
    grants: "Sequence[Grant]", principals: "Mapping[str, list[str]]", bootstrap: str
) -> None:
    role = None
    for grant in grants:
        if grant.role != role:
            role = grant.role
            typer.echo(f"# {role}")
        for name in principals[grant.role]:
            words = ["kafka-acls.sh", "--bootstrap-server", bootstrap]
            words += ["--command-config", "admin.properties", "--add", "--allow-principal", name]
            for operation in grant.operations:
                words += ["--operation", operation]
            words += [f"--{grant.resource}", grant.name]
            typer.echo(shlex.join(words))
