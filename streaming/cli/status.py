"""`placer status`: the fleet, its streams and what is under way, as of now."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.options import Bootstrap, Config, Output, OutputOption, Prefix, connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from streaming.live import Live
    from streaming.status import Status

EXIT_UNHEALTHY = 1
# Reading again more often shows nothing new: the reconciler commits about once a second.
WATCH_INTERVAL_SECONDS = 1.0

Watch = Annotated[bool, typer.Option("--watch", help="Show it anew every second, until Ctrl-C.")]

_STYLES = {
    "healthy": "green",
    "up": "green",
    "placed": "green",
    "rebalancing": "cyan",
    "degraded": "yellow",
    "partial": "yellow",
    "suspect": "yellow",
    "waiting": "magenta",
    "draining": "magenta",
    "maintenance": "magenta",
}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "status",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer status --bootstrap 127.0.0.1:9092\n\n"
        "  placer status --watch\n\n"
        "  placer status --output json | jq '.moves.open, .health.worst'\n\n"
        "Exit code 1: a shard has lost copies, or a hold is on.",
    )(status)


def status(
    watch: Watch = False,
    output: OutputOption = Output.TEXT,
    bootstrap: Bootstrap = None,
    prefix: Prefix = None,
    config: Config = None,
) -> None:
    """Show the nodes by location with their load, the health of streams, moves and holds."""
    from streaming.live import Live
    from streaming.status import Status
    from streaming.status import status as read

    settings = connection(config, bootstrap, prefix)
    with Live(settings) as live:

        def now(live: Live) -> Status:
            return read(live, time.time_ns() // 1_000_000)

        if watch:
            follow(live, now, Status.body, _told, output)
            return
        found = now(live)
        _print(found.body() if output is Output.JSON else None, _told(found))
        raise typer.Exit(0 if found.healthy else EXIT_UNHEALTHY)


def follow(
    live: "Live",
    read: "Callable[[Live], Any]",
    body: "Callable[[Any], Any]",
    told: "Callable[[Any], Any]",
    output: Output,
) -> None:
    """Show a view of the live state again and again until Ctrl-C: in place for people, a JSON line
    each time for programs."""
    from rich.console import Console
    from rich.live import Live as Screen

    from streaming.cli.signals import stop_on_signals

    with stop_on_signals() as stop:
        if output is Output.JSON:
            while True:
                _print(body(read(live)), None)
                if stop.wait(WATCH_INTERVAL_SECONDS):
                    return
                live.refresh()
        with Screen(told(read(live)), console=Console(highlight=False), auto_refresh=False) as at:
            while not stop.wait(WATCH_INTERVAL_SECONDS):
                live.refresh()
                at.update(told(read(live)), refresh=True)


def _print(body: Any, told: Any) -> None:
    if body is not None:
        import orjson

        typer.echo(orjson.dumps(body))
        return
    from rich.console import Console

    Console(highlight=False, soft_wrap=True).print(told)


def _told(found: "Status") -> Any:
    """The status for people."""
    from rich.console import Group
    from rich.text import Text

    from streaming.cli.topology_text import topology_tree

    body = found.body()
    lines = [
        _counted("nodes", body["nodes"]),
        _counted("streams", body["streams"]),
        _health(body["health"]),
    ]
    if body["violations"]:
        lines.append(_counted("violations", body["violations"]))
    for domain, hold in body["holds"].items():
        lines.append(Text.assemble(("hold ", "bold red"), f"{domain}: {hold.get('reason', '')}"))
    for name, request in body["requests"].items():
        lines.append(Text.assemble(("request ", "bold"), f"{name}: {_fields(request)}"))
    if body["ignored"]:
        lines.append(Text.assemble(("ignored ", "bold"), _ignored(body["ignored"], found.at_ms)))
    return Group(
        _heading(found),
        Text(),
        topology_tree(found.cluster.nodes, found.judged.loads, found.cluster.levels),
        Text(),
        *lines,
        *_moves(body["moves"]),
    )


def _heading(found: "Status") -> Any:
    from rich.text import Text

    marker = found.marker
    waiting = {topic.removesuffix(".v1"): count for topic, count in found.lag.items() if count}
    behind = ", ".join(f"{count} {topic}" for topic, count in waiting.items()) or "nothing"
    return Text.assemble(
        (f"cell {marker['cell']}", "bold"),
        f", commit {marker['sequence']} of writer {marker['writer_epoch']} "
        f"{found.silence_seconds:.1f} s ago, waiting to be read: {behind}",
    )


def _counted(what: str, counts: dict[str, int]) -> Any:
    from rich.text import Text

    words = [Text(f"{n} {name}", _STYLES.get(name, "red")) for name, n in counts.items()]
    return Text.assemble((f"{what} ", "bold"), Text(", ").join(words) if words else "none")


def _ignored(ignored: dict[str, dict[str, int]], at_ms: int) -> str:
    """Records that changed nothing: how many, why, and how long ago the last one came."""
    return ", ".join(
        f"{each['count']} {reason} (last {max(at_ms - each['last_at'], 0) / 1000:.0f} s ago)"
        for reason, each in ignored.items()
    )


def _health(health: dict[str, Any]) -> Any:
    from rich.text import Text

    worst = health["worst"]
    critical = [f"{each['domain']} in {each['shards']}" for each in health["critical"]]
    parts = [("health ", "bold"), (worst, _STYLES.get(worst, "red"))]
    if critical:
        named = ", ".join(critical[:5]) + (", …" if len(critical) > 5 else "")
        parts.append((f", quorum of shards rests on {named}", "dim"))
    return Text.assemble(*parts)


def _moves(moves: dict[str, Any]) -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    if not moves["open"]:
        return [Text.assemble(("moves ", "bold"), "none under way")]
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    for column in ("shard", "kind", "from", "to", "state", "cause", "age"):
        table.add_column(column)
    for move in moves["oldest"]:
        table.add_row(
            f"{move['stream']}/{move['shard']}",
            move["kind"],
            move["remove"] or "-",
            move["add"] or "-",
            move["state"],
            move["cause"],
            f"{move['seconds']:.0f} s",
        )
    count = f"{moves['open']} under way, the oldest:"
    return [Text.assemble(("moves ", "bold"), count), table]


def _fields(request: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value}" for name, value in request.items() if value not in (None, [])
    )
