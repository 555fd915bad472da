"""`placer demo`: the story of a cluster that is created, hurt and healed, with a live view."""

import time
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streaming.cli.render.console import Table, text_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Event

    from streaming.demo import DemoReport, Stage
    from streaming.simulator import World

EXIT_FINDINGS = 1
# Lines of the story that stay in view under the topology.
_LINES_SHOWN = 14
_BAR_WIDTH = 20
_STYLES = {"up": "green", "suspect": "yellow", "dead": "red"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "demo",
        epilog="[bold]Examples[/bold]\n\n"
        "  placer demo\n\n"
        "  placer demo --scenario deploy/examples/scenarios/zone-loss.yaml\n\n"
        "  placer demo --console    [dim]# watch it in a browser as well[/dim]\n\n"
        "  placer demo --scenario deploy/examples/store/kills.yaml    "
        "[dim]# with a real store in place of simulated nodes[/dim]\n\n"
        "Needs nothing but this installation: broker, application and nodes run here and "
        "are gone afterwards. Exit code 1: a claim of the scenario does not hold, or the closing "
        "audit found something.",
    )(demo)


def demo(
    scenario: Annotated[
        Path | None,
        typer.Option(
            "--scenario",
            help="Play this file instead, with the settings that it names, and check its "
            "claims. [dim]deploy/examples/scenarios has some[/dim]",
            show_default=False,
        ),
    ] = None,
    console: Annotated[
        bool,
        typer.Option(
            "--console/--no-console",
            help="Show the demo in a browser as well; afterwards the console stays until Ctrl-C.",
        ),
    ] = False,
) -> None:
    """Show the whole system on this machine: placement, node death, repair, kill -9, recovery."""
    from rich.live import Live

    from streaming.signals import EXIT_INTERRUPTED, stop_on_signals

    staged = _stage(scenario)
    screen = text_console()
    started = time.monotonic()
    lines: list[str] = []
    with stop_on_signals() as stop:
        view: Live | None = None

        def tell(line: str) -> None:
            stamped = f"{time.monotonic() - started:6.1f}s  {line}"
            lines.append(stamped)
            if view is None or not screen.is_terminal:
                screen.print(stamped, markup=False, soft_wrap=True)

        try:
            with staged(tell, stop) as story, _serve(story, tell) if console else nullcontext():
                scene = _Scene(story.world, lines)
                with Live(scene, console=screen, refresh_per_second=8, transient=True) as live:
                    view = live
                    report = story.play()
                view = None
                if console:
                    tell("the story has ended; the console stays until Ctrl-C")
                    stop.wait()
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if screen.is_terminal:
        for line in lines:
            screen.print(line, markup=False, soft_wrap=True)
    _close(screen, report, time.monotonic() - started)


@contextmanager
def _serve(story: "Stage", tell: "Callable[[str], None]") -> "Iterator[None]":
    """Show the demo's cell in a console of its own, which only reads."""
    from streaming.cli.commands.console import serving_console
    from streaming.cli.serving_options import ServingOptions
    from streaming.settings import load_settings

    settings = load_settings(None, {"kafka.bootstrap_servers": story.bootstrap})
    with serving_console(settings, ServingOptions(port=0)) as address:
        tell(f"watch it in a browser: {address}")
        yield


def _stage(scenario: Path | None) -> "Callable[[Callable[[str], None], Event], Stage]":
    """Make the demo's own story, or the demo of a scenario file."""
    from streaming.cli.documents import read_text

    if scenario is None:
        from streaming.demo import StoryDemo

        return StoryDemo
    from streaming.demo import ScenarioDemo
    from streaming.simulator import read_scenario

    return partial(ScenarioDemo, read_scenario(read_text(str(scenario))))


class _Scene:
    """Topology with loads above the last lines of the story; drawn anew at each refresh."""

    def __init__(self, world: "World", lines: list[str]) -> None:
        self._world, self._lines = world, lines

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        story = Text("\n".join(self._lines[-_LINES_SHOWN:]))
        return Group(_topology(self._world), "", story)


def _topology(world: "World") -> Any:
    from rich.text import Text

    replicas = [node for each in list(world.assignments.values()) for node in each["replicas"]]
    arriving = [node for each in list(world.assignments.values()) for node in each["adding"]]
    most = max((replicas.count(node) for node in set(replicas)), default=1)
    rows: list[tuple[Any, ...]] = []
    before = ""
    for view in _sort_by_location(world):
        node_id, count = view["node_id"], replicas.count(view["node_id"])
        bar = "█" * round(_BAR_WIDTH * count / most)
        coming = arriving.count(node_id)
        rows.append(
            (
                view["location"] if view["location"] != before else "",
                node_id,
                Text(view["liveness"], _STYLES.get(view["liveness"], "")),
                Text.assemble((bar, "cyan"), f" {count}"),
                Text("+" + str(coming) if coming else "", "yellow"),
            )
        )
        before = view["location"]
    return Table(("location", "node", "state", "replicas", "arriving"), rows)


def _sort_by_location(world: "World") -> list[dict[str, Any]]:
    views = list(world.nodes.values())
    return sorted(views, key=lambda view: (view["location"], view["node_id"]))


def _close(console: Any, report: "DemoReport", seconds: float) -> None:
    rows = [(what, str(count)) for what, count in report.counts.items()]
    for what, duration in report.seconds.items():
        rows.append((what, f"{duration:.2f} s" if duration >= 1 else f"{duration * 1000:.0f} ms"))
    rows.append(("the whole demo", f"{seconds:.1f} s"))
    console.print("Closing report", style="bold")
    console.print(Table(("what", "figure"), rows, right=("figure",), first_left_out=()))
    if not report.findings:
        console.print(
            "Audit of the topics: every shard has its replicas on live nodes within its policy, "
            "no id came twice, nothing is open.",
            style="green",
        )
        return
    console.print(f"Findings: {len(report.findings)}", style="red")
    for finding in report.findings:
        console.print(f"  {finding}", markup=False, soft_wrap=True)
    raise typer.Exit(EXIT_FINDINGS)
