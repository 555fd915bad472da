"""`placer drain`, `undrain`, `maintenance`, `cordon`, `uncordon`, `approve`, `cancel`,
`rebalance`, `hold override`: what operators ask of the running reconciler.

What is destructive is shown first and sent with the hash of what was shown.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from streaming.cli.options import Output, connection_options, with_options
from streaming.cli.requests import AgreementOptions, HashOption, RequestOptions

if TYPE_CHECKING:
    from streaming.settings import Settings

_PANEL = "Operating"
_ENDS = "Exit code 1: refused, with the reason; 3: no answer in time."

Target = Annotated[str, typer.Argument(metavar="TARGET", help="A node's id, or a domain: /eu/az1.")]
For = Annotated[int, typer.Option("--for-seconds", min=1, help="When it ends by itself.")]
ForOrNot = Annotated[
    int | None,
    typer.Option("--for-seconds", min=1, help="When it ends by itself.", show_default=False),
]

hold = typer.Typer(name="hold", help="Holds of repair.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    examples = (
        "[bold]Examples[/bold]\n\n"
        "  placer drain /eu/az1 --dry-run\n\n"
        "  placer drain /eu/az1 --hash 35d5856802a3b143af0271de3e1ce657 --watch\n\n"
    )
    app.command("drain", rich_help_panel=_PANEL, epilog=examples + _ENDS)(drain)
    for command in _PLAIN:
        app.command(rich_help_panel=_PANEL, epilog=_ENDS)(command)
    hold.command("override", epilog=_ENDS)(override)
    app.add_typer(hold, rich_help_panel=_PANEL)


@with_options(agreement=AgreementOptions, options=RequestOptions, settings=connection_options)
def drain(
    target: Target,
    agreement: AgreementOptions,
    options: RequestOptions,
    settings: "Settings",
    watch: Annotated[
        bool, typer.Option("--watch", help="Show progress until no replica is left there.")
    ] = False,
) -> None:
    """Move all replicas off a node or a domain. With --watch, one that is drained already is
    only watched."""
    from schemas.requests import Drain

    if watch and options.dry_run:
        raise typer.BadParameter(
            "--watch follows a drain and --dry-run begins none: leave one of them out"
        )
    if watch and options.no_wait:
        raise typer.BadParameter(
            "--watch waits for the end of the drain and --no-wait does not wait: leave one of "
            "them out"
        )
    if not (watch and _is_drained(settings, target)):
        options.send(settings, Drain, agreement, target=target)
    if watch:
        _watch(settings, target, options.output)


@with_options(options=RequestOptions, settings=connection_options)
def undrain(target: Target, options: RequestOptions, settings: "Settings") -> None:
    """End a drain or a maintenance; what has not been moved stays."""
    from schemas.requests import Undrain

    options.send(settings, Undrain, target=target)


@with_options(options=RequestOptions, settings=connection_options)
def maintenance(
    target: Target,
    for_seconds: For,
    options: RequestOptions,
    settings: "Settings",
    hash: HashOption = None,  # noqa: A002 - the option's name
) -> None:
    """Let a node or a domain be away for a time. It receives no replicas, and its replicas are not
    replaced. Refused where a shard would lose its quorum."""
    from schemas.requests import Maintenance

    fields = {"ttl_seconds": for_seconds, "expected_impact_hash": hash}
    options.send(settings, Maintenance, None, target=target, **fields)


@with_options(options=RequestOptions, settings=connection_options)
def cordon(
    target: Target, options: RequestOptions, settings: "Settings", for_seconds: ForOrNot = None
) -> None:
    """Give a node or a domain no new replicas; it keeps what it has."""
    from schemas.requests import Cordon

    options.send(settings, Cordon, target=target, ttl_seconds=for_seconds)


@with_options(options=RequestOptions, settings=connection_options)
def uncordon(target: Target, options: RequestOptions, settings: "Settings") -> None:
    """End a cordon."""
    from schemas.requests import Uncordon

    options.send(settings, Uncordon, target=target)


@with_options(agreement=AgreementOptions, options=RequestOptions, settings=connection_options)
def approve(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The node that claims a new location, or a domain for all nodes in it.",
        ),
    ],
    agreement: AgreementOptions,
    options: RequestOptions,
    settings: "Settings",
) -> None:
    """Let the pending relocation of a node take effect, or together those of all nodes that stand
    in a domain."""
    from schemas.requests import ApproveRelocation

    options.send(settings, ApproveRelocation, agreement, target=target)


@with_options(options=RequestOptions, settings=connection_options)
def cancel(
    move: Annotated[str, typer.Argument(metavar="MOVE", help="The id of an open move.")],
    options: RequestOptions,
    settings: "Settings",
) -> None:
    """Cancel an open move; its replica stays where it is, and another target is tried."""
    from schemas.requests import CancelMove

    options.send(settings, CancelMove, target=move)


@with_options(options=RequestOptions, settings=connection_options)
def confirm(
    shard: Annotated[str, typer.Argument(metavar="STREAM/SHARD", help="Subject of the alert.")],
    options: RequestOptions,
    settings: "Settings",
) -> None:
    """Count the reported load of a shard that is held back (alert LOAD_SUSPECTED)."""
    from schemas.requests import ConfirmLoad

    options.send(settings, ConfirmLoad, target=shard)


@with_options(agreement=AgreementOptions, options=RequestOptions, settings=connection_options)
def override(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="Subject of the HOLD alert: a domain, or fleet.")
    ],
    agreement: AgreementOptions,
    options: RequestOptions,
    settings: "Settings",
) -> None:
    """Replace what a hold keeps from being replaced."""
    from schemas.requests import OverrideHold

    options.send(settings, OverrideHold, agreement, target=target)


@with_options(agreement=AgreementOptions, options=RequestOptions, settings=connection_options)
def rebalance(agreement: AgreementOptions, options: RequestOptions, settings: "Settings") -> None:
    """Even out the loads of the fleet, whatever the configured mode; repair goes first."""
    from schemas.requests import Rebalance

    options.send(settings, Rebalance, agreement, target="fleet")


# Commands without an example of their own.
_PLAIN = (undrain, maintenance, cordon, uncordon, approve, cancel, confirm, rebalance)


def _is_drained(settings: "Settings", target: str) -> bool:
    from streaming.requests import follow_progress

    found = next(follow_progress(settings, target))
    return found is not None and found["body"]["action"] == "drain"


def _watch(settings: "Settings", target: str, output: Output) -> None:
    """Show how far a drain has come, until it is done or ended."""
    import orjson

    from streaming.live import blocked_lines, drain_text
    from streaming.requests import follow_progress

    for found in follow_progress(settings, target):
        if found is None:
            typer.echo(f"{target}: no drain is in force; begin one with: placer drain {target}")
            return
        body = found["body"]
        if output is Output.JSON:
            typer.echo(orjson.dumps(body))
        else:
            typer.echo(f"{target}: {drain_text(body)}")
            for line in blocked_lines(body):
                typer.echo(f"  {line}")
        if body["done"]:
            return
