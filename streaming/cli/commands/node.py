"""`placer node forget|unregister|release`: a node that is gone, that is to go, or that has flapped.

What is asked about a node that nobody knows is refused here, with the names that are spelt nearly
so.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.options import Output, connection_options, with_options
from streaming.cli.requests import (
    EXIT_REFUSED,
    AnswerOptions,
    RequestOptions,
    confirm,
    print_requests,
)

if TYPE_CHECKING:
    from streaming.settings import Settings

_ENDS = "Exit code 1: refused, with the reason; 3: no answer in time."

app = typer.Typer(
    name="node",
    help="Forget a node that is gone, unregister one, end a hold-down.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Node = Annotated[str, typer.Argument(metavar="NODE", help="The node's id.")]


@app.command(epilog=_ENDS)
@with_options(options=RequestOptions, settings=connection_options)
def forget(node: Node, options: RequestOptions, settings: "Settings") -> None:
    """Drop a node that is dead or drained and holds nothing. It leaves every list, and holds no
    longer count it. One that registers with this id later is a new node."""
    from schemas.requests import ForgetNode
    from streaming.requests import find_node

    find_node(settings, node)
    options.send(settings, ForgetNode, target=node)


@app.command(epilog=_ENDS)
@with_options(options=RequestOptions, settings=connection_options)
def release(node: Node, options: RequestOptions, settings: "Settings") -> None:
    """End the hold-down of a node that has flapped: it may receive replicas again."""
    from schemas.requests import ReleaseNode
    from streaming.requests import find_node

    find_node(settings, node)
    options.send(settings, ReleaseNode, target=node)


@app.command(epilog=_ENDS)
@with_options(waiting=AnswerOptions, settings=connection_options)
def unregister(
    node: Node,
    waiting: AnswerOptions,
    settings: "Settings",
    yes: Annotated[
        bool, typer.Option("--yes", help="Confirm that its replicas are replaced.")
    ] = False,
) -> None:
    """Say for a node, in its present life, that it leaves for good: what it holds is replaced at
    once. To empty a node that works, drain it first."""
    from streaming.requests import preview_departure, send_departure, send_departure_and_wait

    leaving = preview_departure(settings, node)
    if leaving.replicas:
        typer.echo(f"{node} holds {leaving.count_text()}: all are replaced at once", err=True)
        for line in leaving.warnings():
            typer.echo(f"  {line}", err=True)
        confirm("Unregister it?", yes, "--yes, or drain the node first")
    if waiting.no_wait:
        print_requests(settings, [(node, send_departure(settings, leaving))], waiting.output)
        return
    refusal = send_departure_and_wait(settings, leaving, waiting.timeout)
    _print_departure(node, refusal, waiting.output)
    if refusal is not None:
        raise typer.Exit(EXIT_REFUSED)


def _print_departure(node: str, refusal: tuple[str, str] | None, output: Output) -> None:
    if output is Output.JSON:
        import orjson

        body: dict[str, Any] = {"node": node, "accepted": refusal is None}
        if refusal is not None:
            body["reason"] = {"code": refusal[0], "message": refusal[1]}
        typer.echo(orjson.dumps(body))
    elif refusal is None:
        typer.secho("accepted: ", fg=typer.colors.GREEN, nl=False)
        typer.echo(f"{node} is unregistered")
    else:
        typer.secho("refused: ", fg=typer.colors.RED, nl=False)
        typer.echo(f"{refusal[0]} {refusal[1]}")
