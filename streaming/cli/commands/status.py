"""`placer status`: the fleet, its streams and what is under way, as of now."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.options import Output, OutputOption, connection_options, with_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.live import CellStatus, PublishedState
    from streaming.settings import Settings

EXIT_UNHEALTHY = 1
# Reading again more often shows nothing new: the reconciler commits about once a second.
WATCH_INTERVAL_SECONDS = 1.0

Watch = Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "status",
        epilog="[bold]Examples[/bold]\n\n  placer status --bootstrap 127.0.0.1:9092\n\n  placer "
        "status --watch\n\n  placer status /eu/az1    [dim]# the whole of this "
        "branch[/dim]\n\n  placer status --output json | jq '.moves.open, "
        ".health.worst'\n\nOn a terminal the locations are folded to its height, branches "
        "with nodes that are not up last; into a pipe everything goes.\n\nExit code 1: a "
        "shard has lost copies, or a hold is in force.",
    )(status)


@with_options(settings=connection_options)
def status(
    settings: "Settings",
    path: Annotated[
        str,
        typer.Argument(metavar="[PATH]", help="Only this domain: /eu/az1.", show_default=False),
    ] = "",
    depth: Annotated[
        int | None,
        typer.Option("--depth", min=0, help="Number of location levels to show; 0: none."),
    ] = None,
    watch: Watch = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show the health of streams, nodes, holds, moves and requests, then the nodes by location with
    their load."""
    from streaming.cli.render.status import StatusScreen
    from streaming.live import CellStatus, RebalancePreview, preview_rebalance
    from streaming.live import read_status as read

    if output is Output.JSON and (path or depth is not None):
        raise typer.BadParameter("PATH and --depth fold the text only; --output json has all nodes")
    with open_state(settings, watch) as live:
        # Planned anew when the state has changed, not at each look.
        even: dict[str, RebalancePreview | None] = {}

        def read_now(live: "PublishedState") -> CellStatus:
            digest = str(live.marker["digest"])
            if digest not in even:
                even.clear()
                even[digest] = preview_rebalance(live)
            at_ms = time.time_ns() // 1_000_000
            known = (live.alerts(), even[digest], live.processes(at_ms))
            return read(live, at_ms, live.lag(), *known)

        def make_screen(found: CellStatus) -> StatusScreen:
            return StatusScreen(found, path=domain, depth=depth, fits=watch)

        found = read_now(live)
        domain = _domain(path, found)
        if watch:
            follow(live, read_now, CellStatus.body, make_screen, output)
            return
        print_view(found, CellStatus.body, make_screen, output)
        raise typer.Exit(0 if found.is_healthy else EXIT_UNHEALTHY)


def open_state(settings: "Settings", watch: bool) -> "PublishedState":
    """The live state; with `watch` it says on standard error when the brokers go and come back."""
    from streaming.brokers import Reachability
    from streaming.cli.render.console import tell
    from streaming.live import PublishedState

    address = settings.kafka.bootstrap_servers
    return PublishedState(settings, reachability=Reachability(address, tell) if watch else None)


def follow(
    live: "PublishedState",
    read: "Callable[[PublishedState], Any]",
    body: "Callable[[Any], Any]",
    make_screen: "Callable[[Any], Any]",
    output: Output,
) -> None:
    """Show a view of the live state repeatedly until Ctrl-C. It is redrawn on a terminal, repeated
    in a pipe, and one JSON line each time for programs. While no broker answers nothing is shown
    anew."""
    from contextlib import ExitStack

    from rich.live import Live as Screen

    from streaming.cli.render.console import text_console
    from streaming.errors import BrokerUnreachable
    from streaming.signals import stop_on_signals

    console = text_console()
    with stop_on_signals() as stop, ExitStack() as until_stopped:
        screen = None
        if output is Output.TEXT and console.is_terminal:
            screen = Screen(make_screen(read(live)), console=console, auto_refresh=False)
            until_stopped.enter_context(screen)
        else:
            print_view(read(live), body, make_screen, output)
        while not stop.wait(WATCH_INTERVAL_SECONDS):
            try:
                live.refresh()
                found = read(live)
            except BrokerUnreachable:
                # The live state has said so, and asks again at the next look.
                continue
            if screen is None:
                print_view(found, body, make_screen, output)
            else:
                screen.update(make_screen(found), refresh=True)


def print_view(
    found: Any, body: "Callable[[Any], Any]", make_screen: "Callable[[Any], Any]", output: Output
) -> None:
    """Print a view of the live state for people or for programs."""
    if output is Output.JSON:
        import orjson

        typer.echo(orjson.dumps(body(found)))
        return
    from streaming.cli.render.console import text_console

    text_console().print(make_screen(found))


def _domain(path: str, found: "CellStatus") -> str:
    """The domain as locations write it. Raises BadParameter where no node stands in it."""
    from streaming.cli.render.location_tree import stands_in

    domain = path.rstrip("/")
    nodes = found.cluster.nodes
    if domain and not any(stands_in(node, domain) for node in nodes):
        tops = sorted({node.location.split("/")[1] for node in nodes if node.location})
        known = f"the top level has /{', /'.join(tops)}" if tops else "no node has a location"
        raise typer.BadParameter(f"no node has a location in {path!r}; {known}", param_hint="PATH")
    return domain
