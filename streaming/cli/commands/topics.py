"""`placer topics apply|diff|acls`: holds a cluster's topics against the catalogue.

`acls` prints the least rights of each role, for brokers with an authorizer.
"""

import json
import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import (
    Bootstrap,
    Config,
    Output,
    OutputOption,
    Prefix,
    connection_options,
    load_connection,
    with_options,
)
from streaming.cli.render.console import Table, text_console

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.access import Grant
    from streaming.administration import TopicChange
    from streaming.settings import Settings


class Form(StrEnum):
    """Names the form in which rights are written out."""

    COMMANDS = "commands"
    JSON = "json"
    YAML = "yaml"


@with_options(settings=connection_options)
def acls(
    settings: "Settings",
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
) -> None:
    """Write out what each role needs on topics, transactional ids, groups and the cluster.

    Needs no broker. Roles: reconciler, administrator (topics apply), operators, nodes, detectors,
    clients (ask for streams), executors (carry out moves), inventory, readers; import, apply and
    bridge run the command of placer kafka, on the cluster that it is about.
    """
    from schemas.access import ROLES, grants

    given = _principals(principal or [], ROLES)
    unknown = sorted(set(role or ()) - set(ROLES))
    if unknown:
        raise typer.BadParameter(f"--role: expected {', '.join(ROLES)}, got {unknown[0]!r}")
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
            "pattern": grant.pattern,
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
            words += [f"--{grant.resource}"]
            words += [] if grant.resource == "cluster" else [grant.name]
            if grant.pattern != "literal":
                words += ["--resource-pattern-type", grant.pattern]
            typer.echo(shlex.join(words))


ReplicationFactor = Annotated[
    int | None,
    typer.Option(
        "--replication-factor",
        min=1,
        help="Copies of each topic. [dim]default: topics.replication_factor of the settings, else "
        "the broker's[/dim]",
        show_default=False,
    ),
]

STYLES = {
    "create": "green",
    "configure": "cyan",
    "partitions": "cyan",
    "refused": "red",
    "ok": "dim",
}

app = typer.Typer(
    name="topics",
    help="Compare the topics of a cluster with the catalogue, or correct them.",
    epilog="[bold]Examples[/bold]\n\n"
    "  placer topics diff --bootstrap 127.0.0.1:9092    [dim]# exit code 1: they differ[/dim]\n\n"
    "  placer topics apply --bootstrap 127.0.0.1:9092 --prefix staging.\n\n"
    "  placer topics acls --principal nodes=User:agents > acls.sh",
    no_args_is_help=True,
    rich_markup_mode="rich",
)


def topic_settings(
    replication_factor: ReplicationFactor = None,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> "Settings":
    """Read the settings with the options of `apply` and `diff`. Raises SettingsInvalid."""
    return load_connection(
        config, bootstrap, prefix, {"topics.replication_factor": replication_factor}
    )


@app.command()
@with_options(settings=topic_settings)
def apply(settings: "Settings", output: OutputOption = Output.TEXT) -> None:
    """Create missing topics and correct settings; nothing is ever deleted.

    Exit code 1 when a difference is left that cannot be corrected.
    """
    from streaming.administration import apply_topics

    changes = _changes(apply_topics, settings)
    _show(changes, output)
    if any(change.action == "refused" for change in changes):
        raise typer.Exit(1)


@app.command()
@with_options(settings=topic_settings)
def diff(settings: "Settings", output: OutputOption = Output.TEXT) -> None:
    """Show what apply would do, and change nothing. Exit code 1 when something differs."""
    from streaming.administration import diff_topics

    changes = _changes(diff_topics, settings)
    _show(changes, output)
    if any(change.action != "ok" for change in changes):
        raise typer.Exit(1)


app.command()(acls)


def _changes(act: "Callable[..., list[TopicChange]]", settings: "Settings") -> "list[TopicChange]":
    return act(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        settings.topics.replication_factor,
        options=settings.resolved_kafka_options(),
    )


def _show(changes: "Sequence[TopicChange]", output: Output) -> None:
    if output is Output.JSON:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps({"changes": [asdict(change) for change in changes]}))
        return
    from rich.text import Text

    rows = [
        (change.topic, Text(change.action, STYLES[change.action]), change.detail)
        for change in changes
    ]
    text_console().print(Table(("topic", "action", "detail"), rows))
