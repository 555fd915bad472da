"""`placer suggest` and `placer export`: the live state as input of the offline tool.

`suggest` is KIP-879's placement suggestion: where a stream would go, asked of the running state and
changing nothing. `export` writes that state as a cluster file, for every offline command.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.options import (
    Output,
    OutputOption,
    connection_options,
    enable_plugins,
    with_options,
)
from streaming.cli.render.console import text_console

if TYPE_CHECKING:
    from collections.abc import Collection

    from streaming.settings import Settings

EXIT_UNANSWERED = 1


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        "suggest",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer suggest --shards 12 --rf 3 --bootstrap 127.0.0.1:9092\n\n"
        "  placer suggest --shards 4 --rf 2 --nodes n1,n2,n5 --simple\n\n"
        "  placer suggest --shards 4 --load disk_bytes=400GB    "
        "[dim]# what would have to be added?[/dim]\n\n"
        "  placer suggest --rf 3 --policies node=exclusive --output json\n\n"
        "Exit code 1: it would be rejected, would wait or lack replicas.",
    )(suggest)
    app.command(
        "export",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer export > cluster.yaml\n\n"
        "  placer export | placer check - --lose /eu/az1    [dim]# what if, as of now[/dim]\n\n"
        "  placer export | placer plan - --drain n7",
    )(export)


@with_options(settings=connection_options)
def suggest(
    settings: "Settings",
    shards: Annotated[int, typer.Option("--shards", help="Shards of the stream.")] = 1,
    rf: Annotated[int, typer.Option("--rf", help="Replicas of each shard.")] = 3,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            metavar="N1,N2,…",
            help="Only these nodes are candidates.",
            show_default=False,
        ),
    ] = None,
    simple: Annotated[
        bool, typer.Option("--simple", help="Round robin that knows no racks (strategy simple).")
    ] = False,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="YAML", help="A structured policy.", show_default=False),
    ] = None,
    policies: Annotated[
        str | None,
        typer.Option("--policies", metavar="TEXT", help="placement_policies.", show_default=False),
    ] = None,
    load: Annotated[
        list[str] | None,
        typer.Option(
            "--load",
            metavar="RESOURCE=AMOUNT",
            help="What each shard is expected to use, such as disk_bytes=400GB; repeatable. "
            "Without it the mean of the shards that are known.",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Suggest where a new stream would be placed beside what is there; nothing is changed."""
    from pydantic import ValidationError

    from streaming.live import PublishedState, suggest_placement

    if sum((simple, policy is not None, policies is not None)) > 1:
        raise typer.BadParameter("--simple, --policy and --policies exclude each other")
    if nodes is not None and policies is not None:
        raise typer.BadParameter("--nodes needs a structured policy: leave out --policies")
    asked: dict[str, Any] = {"shards": shards, "replication_factor": rf}
    if policies is not None:
        asked["placement_policies"] = policies
    else:
        asked["policy"] = _policy(policy, simple)
    enable_plugins(settings.policy.plugins)
    with PublishedState(settings) as live:
        if policies is None and asked["policy"] is None:
            asked["policy"] = live.default_policy() or settings.policy.default
        if nodes is not None:
            named = [name.strip() for name in nodes.split(",")]
            asked["policy"] = {**asked["policy"], "nodes": named}
        cluster = live.cluster()
        if load:
            asked["expected_load"] = dict(_parse_load(each, cluster.resources) for each in load)
        try:
            answer, whole = suggest_placement(cluster, asked)
        except ValidationError as error:
            raise typer.BadParameter(error.errors()[0]["msg"]) from error
    _print(answer, output)
    raise typer.Exit(EXIT_UNANSWERED if whole.has_unanswered else 0)


def _print(answer: dict[str, Any], output: Output) -> None:
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(answer))
        return
    from streaming.cli.render.place import show_advice, show_decision

    show_decision(text_console(), answer, None)
    show_advice(text_console(), [each["message"] for each in answer.get("advice", ())])


@with_options(settings=connection_options)
def export(
    settings: "Settings",
    output: Annotated[
        Output,
        typer.Option("--output", help="text: a cluster file in YAML; json: the same on one line."),
    ] = Output.TEXT,
) -> None:
    """Write the live state as a cluster file: nodes, streams with replicas, moves under way."""
    from streaming.live import PublishedState
    from streaming.offline import cluster_body, cluster_text

    with PublishedState(settings) as live:
        body = cluster_body(live.cluster())
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(body))
    else:
        typer.echo(cluster_text(body), nl=False)


def _parse_load(text: str, resources: "Collection[str]") -> tuple[str, int]:
    """Read `disk_bytes=400GB`; a unit stands for powers of 1,000, `GiB` for those of 1,024."""
    from pydantic import ByteSize, TypeAdapter, ValidationError

    name, _, amount = text.partition("=")
    if name not in resources:
        known = ", ".join(resources) or "none"
        message = f"'{name}' is no resource that the reconciler counts; it counts: {known}"
        raise typer.BadParameter(message, param_hint="--load")
    try:
        return name, int(TypeAdapter(ByteSize).validate_python(amount))
    except ValidationError as error:
        message = f"'{text}' is not RESOURCE=AMOUNT, such as disk_bytes=400GB"
        raise typer.BadParameter(message, param_hint="--load") from error


def _policy(text: str | None, simple: bool) -> dict[str, Any] | None:
    """Read the policy that is asked for; None for the reconciler's default."""
    import yaml

    if simple:
        return {"strategy": "simple"}
    if text is None:
        return None
    try:
        read = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise typer.BadParameter(f"not YAML: {error}", param_hint="--policy") from error
    if not isinstance(read, dict):
        raise typer.BadParameter("expected a mapping: {strategy: …}", param_hint="--policy")
    return read
