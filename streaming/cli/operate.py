"""`placer drain`, `undrain`, `maintenance`, `cordon`, `uncordon`, `approve`, `cancel`,
`rebalance`, `hold override`: what operators ask of the running reconciler.

What is destructive is shown first and sent with the hash of what was shown.
"""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.options import Bootstrap, Config, Output, OutputOption, Prefix, connection

if TYPE_CHECKING:
    from schemas.requests import OperatorRequest
    from streaming.asking import DryRun
    from streaming.settings import Settings

EXIT_REFUSED = 1
_PANEL = "Operating"
_HASHES = "Exit code 1: refused, with the reason; 3: no answer in time."

Target = Annotated[str, typer.Argument(metavar="TARGET", help="A node's id, or a domain: /eu/az1.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only show what it would touch, and the hash.")
]
HashOption = Annotated[
    str | None,
    typer.Option("--hash", metavar="H", help="Of the impact that was seen.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", help="Agree to what the dry run shows now.")]
Why = Annotated[str | None, typer.Option("--reason", help="For people.", show_default=False)]
Timeout = Annotated[
    float, typer.Option("--timeout-seconds", min=0.1, help="How long to wait for the answer.")
]
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
    app.command("drain", rich_help_panel=_PANEL, epilog=examples + _HASHES)(drain)
    for command in (undrain, maintenance, cordon, uncordon, approve, cancel, rebalance):
        app.command(rich_help_panel=_PANEL, epilog=_HASHES)(command)
    hold.command("override", epilog=_HASHES)(override)
    app.add_typer(hold, rich_help_panel=_PANEL)


def drain(
    target: Target,
    dry_run: DryRunOption = False,
    hash: HashOption = None,  # noqa: A002 - the option's name
    yes: Yes = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show progress until nothing is left there.")
    ] = False,
    reason: Why = None,
    timeout_seconds: Timeout = 30.0,
    output: OutputOption = Output.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Move all replicas off a node or a domain. With --watch, one that is drained already is
    only watched."""
    from schemas.requests import Drain

    if watch and dry_run:
        raise typer.BadParameter("--dry-run changes nothing that --watch could follow")
    settings = connection(config, bootstrap, prefix)
    if not (watch and _is_drained(settings, target)):
        fields = {"target": target, "reason": reason}
        _ask(settings, Drain, fields, dry_run, hash, yes, timeout_seconds, output)
    if watch:
        _watch(settings, target, output)


def undrain(
    target: Target,
    dry_run: DryRunOption = False,
    reason: Why = None,
    timeout_seconds: Timeout = 30.0,
    output: OutputOption = Output.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """End a drain or a maintenance; what has not been moved stays."""
    from schemas.requests import Undrain

    settings = connection(config, bootstrap, prefix)
    fields = {"target": target, "reason": reason}
    _ask(settings, Undrain, fields, dry_run, None, False, timeout_seconds, output)


def maintenance(
    target: Target,
    for_seconds: For,
    dry_run: DryRunOption = False,
    hash: HashOption = None,  # noqa: A002 - the option's name
    reason: Why = None,
    timeout_seconds: Timeout = 30.0,
    output: OutputOption = Output.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Let a node or a domain be away for a time: nothing is put there, and nothing of it is
    replaced. Refused where a shard would lose its quorum."""
    from schemas.requests import Maintenance

    settings = connection(config, bootstrap, prefix)
    fields = {"target": target, "ttl_seconds": for_seconds, "reason": reason}
    _ask(settings, Maintenance, fields, dry_run, hash, False, timeout_seconds, output)


def cordon(
    target: Target,
    for_seconds: ForOrNot = None,
    dry_run: DryRunOption = False,
    reason: Why = None,
    timeout_seconds: Timeout = 30.0,
    output: OutputOption = Output.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Give a node or a domain no new replicas; it keeps what it has."""
    from schemas.requests import Cordon

    settings = connection(config, bootstrap, prefix)
    fields = {"target": target, "ttl_seconds": for_seconds, "reason": reason}
    _ask(settings, Cordon, fields, dry_run, None, False, timeout_seconds, output)


def uncordon(
    target: Target,
    dry_run: DryRunOption = False,
    reason: Why = None,
    timeout_seconds: Timeout = 30.0,
    output: OutputOption = Output.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """End a cordon."""
    from schemas.requests import Uncordon

    settings = connection(config, bootstrap, prefix)
    fields = {"target": target, "reason": reason}
    _ask(settings, Uncordon, fields, dry_run, None, False, timeout_seconds, output)


def approve(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="The node that claims a new place, or all in a domain."
        ),
    ],
    dry_run: DryRunOption = False,
    hash: HashOption = None,  # noqa: A002 - the option's name
    yes: Yes = False,
    reason: Why = None,
    timeout_seconds: Timeout = 30.0,
    output: OutputOption = Output.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Let the pending relocation of a node take effect, or together those of all nodes that stand
    in a domain."""
    from schemas.requests import ApproveRelocation

    settings = connection(config, bootstrap, prefix)
    fields = {"target": target, "reason": reason}
    _ask(settings, ApproveRelocation, fields, dry_run, hash, yes, timeout_seconds, output)


def cancel(
    move: Annotated[str, typer.Argument(metavar="MOVE", help="The id of an open move.")],
    dry_run: DryRunOption = False,
    reason: Why = None,
    timeout_seconds: Timeout = 30.0,
    output: OutputOption = Output.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Cancel an open move; its replica stays where it is, and another target is tried."""
    from schemas.requests import CancelMove

    settings = connection(config, bootstrap, prefix)
    fields = {"target": move, "reason": reason}
    _ask(settings, CancelMove, fields, dry_run, None, False, timeout_seconds, output)


def override(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="What the HOLD alert names: a domain, or fleet.")
    ],
    dry_run: DryRunOption = False,
    hash: HashOption = None,  # noqa: A002 - the option's name
    yes: Yes = False,
    reason: Why = None,
    timeout_seconds: Timeout = 30.0,
    output: OutputOption = Output.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Replace what a hold keeps from being replaced."""
    from schemas.requests import OverrideHold

    settings = connection(config, bootstrap, prefix)
    fields = {"target": target, "reason": reason}
    _ask(settings, OverrideHold, fields, dry_run, hash, yes, timeout_seconds, output)


def rebalance(
    dry_run: DryRunOption = False,
    hash: HashOption = None,  # noqa: A002 - the option's name
    yes: Yes = False,
    reason: Why = None,
    timeout_seconds: Timeout = 30.0,
    output: OutputOption = Output.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Even out the loads of the fleet, whatever the configured mode; repair goes first."""
    from schemas.requests import Rebalance

    settings = connection(config, bootstrap, prefix)
    fields = {"target": "fleet", "reason": reason}
    _ask(settings, Rebalance, fields, dry_run, hash, yes, timeout_seconds, output)


def _ask(
    settings: "Settings",
    message: "type[OperatorRequest]",
    fields: dict[str, Any],
    dry: bool,
    agreed: str | None,
    yes: bool,
    timeout_seconds: float,
    output: Output,
) -> None:
    """Show what a request would do where that has to be seen, then send it and show the answer."""
    from pydantic import ValidationError

    from streaming.asking import ask, dry_run, new_id

    given = {name: value for name, value in fields.items() if value is not None}
    given |= {"request_id": new_id()} | ({"expected_impact_hash": agreed} if agreed else {})
    try:
        request = message(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise typer.BadParameter(f"{first['loc'][0]}: {first['msg']}") from error
    shows = dry or (agreed is None and message.__name__ in _SHOWN_FIRST)
    if shows:
        shown = dry_run(settings, request)
        _show(shown, str(fields["target"]), output if dry else Output.TEXT, err=not dry)
        if shown.seen.refusal is not None:
            raise typer.Exit(EXIT_REFUSED)
        if dry:
            return
        if shown.seen.destructive:
            if not yes and not (sys.stdin.isatty() and typer.confirm("Carry it out?", err=True)):
                raise typer.BadParameter("look at the impact, then add --yes or --hash")
            request = request.model_copy(update={"expected_impact_hash": shown.seen.hash})
    answer = ask(settings, request, timeout_seconds)
    accepted = answer["outcome"] == "accepted"
    _print_answer(answer, output)
    if not accepted:
        raise typer.Exit(EXIT_REFUSED)


# Their impact is shown before they are sent.
_SHOWN_FIRST = ("Drain", "ApproveRelocation", "OverrideHold", "Rebalance")


def _show(shown: "DryRun", target: str, output: Output, err: bool) -> None:
    summary = shown.summary
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps({"target": target, **summary}))
        return
    refusal = summary["refusal"]
    if refusal is not None:
        typer.secho(f"{refusal['code']} {refusal['message']}", fg=typer.colors.RED, err=err)
        return
    typer.echo(f"{target}: {shown.seen}", err=err)
    for each in shown.seen.relabelled:
        typer.echo(f"  {each}", err=err)
    if shown.rehearsal is not None:
        from streaming.cli.console import text_console
        from streaming.cli.plan_text import show_rehearsal

        show_rehearsal(text_console(stderr=err), shown.rehearsal)
    else:
        first = "{moves_at_once} moves at once, {waiting} wait for limits, {blocked} blocked"
        typer.echo(first.format(**summary), err=err)
    if shown.seen.destructive:
        typer.echo(f"hash {shown.seen.hash}", err=err)


def _print_answer(answer: Any, output: Output) -> None:
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(answer))
        return
    accepted, reason = answer["outcome"] == "accepted", answer["reason"]
    colour = typer.colors.GREEN if accepted else typer.colors.RED
    typer.secho(f"{'accepted' if accepted else 'refused'}: ", fg=colour, nl=False)
    typer.echo(f"{reason['code']} {reason['message']}")


def _is_drained(settings: "Settings", target: str) -> bool:
    from streaming.asking import progress

    found = next(progress(settings, target))
    return found is not None and found["body"]["action"] == "drain"


def _watch(settings: "Settings", target: str, output: Output) -> None:
    """Show how far a drain has come, until it is done or ended."""
    import orjson

    from streaming.asking import progress

    for found in progress(settings, target):
        if found is None:
            typer.echo(f"{target}: no drain stands")
            return
        body = found["body"]
        if output is Output.JSON:
            typer.echo(orjson.dumps(body))
        else:
            counted = "{remaining} remaining, {in_flight} in flight, {blocked_total} blocked"
            typer.echo(f"{target}: {counted.format(**body)}")
            for each in body["blocked"]:
                typer.echo(f"  {each['shard']} on {each['node']}: {each['code']}")
        if body["done"]:
            return
