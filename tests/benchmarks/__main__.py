"""`make bench`: how fast and evenly we place and plan beside our peers, and the latency.

`python -m tests.benchmarks placement`, `planning`, `resources`, `offline`, `latency`, `loads`,
`saturation`, `recovery`, `reassignment`, `healing`, `api`, `console` or `events` measures one part.
The first three run in this process and in those of the peers, the fourth runs the command line. For
latency the application and the floor beneath it run as processes of their own, one after the other,
on one embedded broker; the last five start brokers.
"""

import dataclasses
import signal
import sys
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.progress import Progress

from streaming.cli.options import Output, OutputOption
from streaming.errors import StreamingError
from streaming.runtime import EmbeddedBroker
from tests.benchmarks import (
    browsing,
    healing,
    listening,
    machine,
    offline,
    peers,
    placing,
    placing_report,
    planning,
    planning_peers,
    planning_report,
    reassigning,
    recovering,
    recovering_report,
    report,
    reporting,
    resources,
    saturating,
    serving,
)
from tests.benchmarks.measure import FLOOR, PLACER, Load, Plan, measure
from tests.benchmarks.processes import BenchmarkFailed

# Spark compiles its hot paths during the first hundred batches.
LOADS = (Load(nodes=2_500, heartbeats_per_second=5_000), Load(10_000, 20_000))
FULL = Plan(events=200, warm_up=100, loads=LOADS, minutes=10)
QUICK = dataclasses.replace(FULL, events=30, warm_up=15, minutes=0)

QuickOption = Annotated[bool, typer.Option("--quick", help="A short run, for trying it.")]

app = typer.Typer(add_completion=False)


@app.callback(invoke_without_command=True)
def everything(
    context: typer.Context, quick: QuickOption = False, output: OutputOption = Output.TEXT
) -> None:
    """Measure placement, plans, large files, then latency, unless one of them is named."""
    signal.signal(signal.SIGTERM, _interrupt)
    if context.invoked_subcommand is not None:
        if quick or output is not Output.TEXT:
            name = context.invoked_subcommand
            raise typer.BadParameter(f"--quick and --output stand behind the name: {name} --quick")
        return
    about, plan = machine.describe(), QUICK if quick else FULL
    extent = placing.QUICK if quick else placing.FULL
    placed = _placement(extent)
    if output is Output.TEXT:
        placing_report.show(Console(), extent, placed)
    amount = planning.QUICK if quick else planning.FULL
    planned = _planning(amount)
    if output is Output.TEXT:
        planning_report.show(Console(), amount, planned)
    fleets = resources.QUICK if quick else resources.FULL
    evened = _resources(fleets)
    if output is Output.TEXT:
        resources.show(Console(), fleets, evened)
    size = offline.QUICK if quick else offline.FULL
    files = _offline(size)
    if output is Output.TEXT:
        offline.show(Console(), size, files)
    answered = _latency(plan, None)
    if output is Output.TEXT:
        report.show(Console(), about, answered)
        return
    latency_found = report.as_json(about, dataclasses.asdict(plan), answered)
    found = {"placement": placing_report.as_json(extent, placed)}
    found["planning"] = planning_report.as_json(amount, planned)
    found["resources"] = dataclasses.asdict(evened)
    found["offline"] = [dataclasses.asdict(each) for each in files]
    _write(found | {"latency": latency_found})


@app.command()
def placement(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Measure placements a second and the balance reached, in one run with CRUSH and Kafka."""
    about, extent = machine.describe(), placing.QUICK if quick else placing.FULL
    placed = _placement(extent)
    found = placing_report.as_json(extent, placed)
    _report_part(output, about, found, partial(placing_report.show, extent=extent, results=placed))


@app.command("planning")
def planned(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Measure what plans cost and how little they move, in one run with Kafka and osdmaptool."""
    about, amount = machine.describe(), planning.QUICK if quick else planning.FULL
    results = _planning(amount)
    found = planning_report.as_json(amount, results)
    show = partial(planning_report.show, amount=amount, found=results)
    _report_part(output, about, found, show)


@app.command("resources")
def evening(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Measure plans for resources beside the least bytes (CP-SAT) and beside lower bounds."""
    about, extent = machine.describe(), resources.QUICK if quick else resources.FULL
    found = _resources(extent)
    taken = {"resources": dataclasses.asdict(found)}
    _report_part(output, about, taken, partial(resources.show, extent=extent, found=found))


@app.command()
def latency(
    quick: QuickOption = False,
    output: OutputOption = Output.TEXT,
    only: Annotated[
        str | None, typer.Option(metavar="placer|floor", help="Measure one of the two.")
    ] = None,
    events: Annotated[int | None, typer.Option(min=2, help="Events counted per case.")] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0, help="How long the driver's memory is watched.")
    ] = None,
) -> None:
    """Measure from an event's append to its decision, in one run with its floor."""
    plan = QUICK if quick else FULL
    plan = dataclasses.replace(
        plan,
        events=plan.events if events is None else events,
        minutes=plan.minutes if minutes is None else minutes,
    )
    if only not in (None, PLACER.name, FLOOR.name):
        raise typer.BadParameter("--only takes placer or floor")
    about = machine.describe()
    answered = _latency(plan, only)
    if output is Output.JSON:
        _write(report.as_json(about, dataclasses.asdict(plan), answered))
    else:
        report.show(Console(), about, answered)


@app.command("loads")
def reported(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Measure decisions while all nodes report the loads of their replicas, and while none does."""
    about, extent = machine.describe(), reporting.QUICK if quick else reporting.FULL
    with (
        EmbeddedBroker() as broker,
        TemporaryDirectory(prefix="placer-bench-") as scratch,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        tell = partial(_describe, progress, progress.add_task("", total=None))
        found = reporting.measure(extent, broker, Path(scratch), tell)
    taken = {"loads": reporting.body(found)}
    _report_part(output, about, taken, partial(reporting.show, extent=extent, found=found))


@app.command()
def saturation(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Measure how much of each kind of input one reconciler takes."""
    about, extent = machine.describe(), saturating.QUICK if quick else saturating.FULL
    with (
        TemporaryDirectory(prefix="placer-bench-") as scratch,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        tell = partial(_describe, progress, progress.add_task("", total=None))
        found = saturating.measure(extent, Path(scratch), tell)
    taken = {"saturation": [dataclasses.asdict(each) for each in found]}
    _report_part(output, about, taken, partial(saturating.show, taken=found))


@app.command()
def recovery(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Measure writing a million assignments and rebuilding from them, beside the client alone."""
    about, extent = machine.describe(), recovering.QUICK if quick else recovering.FULL
    with (
        EmbeddedBroker() as broker,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        bar = progress.add_task("", total=None)
        found = recovering.measure(
            extent, broker, "bench.", lambda what: progress.update(bar, description=what)
        )
    show = partial(recovering_report.show, found=found)
    _report_part(output, about, recovering_report.as_json(found), show)


@app.command("offline")
def large_files(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Measure place, check, plan and explain on a file of 100,000 shards on 2,000 nodes."""
    about, extent = machine.describe(), offline.QUICK if quick else offline.FULL
    found = _offline(extent)
    taken = {"offline": [dataclasses.asdict(each) for each in found]}
    _report_part(output, about, taken, partial(offline.show, extent=extent, found=found))


@app.command()
def reassignment(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Count the copies of plans for a Kafka cluster beside Kafka's own tool and the least."""
    about, extent = machine.describe(), reassigning.QUICK if quick else reassigning.FULL
    with (
        TemporaryDirectory(prefix="placer-bench-") as scratch,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        tell = partial(_describe, progress, progress.add_task("", total=None))
        found = list(reassigning.measure(extent, Path(scratch), tell))
    taken = {"reassignment": [dataclasses.asdict(each) for each in found]}
    _report_part(output, about, taken, partial(reassigning.show, extent=extent, found=found))


@app.command("healing")
def heal(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Time how a live Kafka cluster heals beside Kafka's own tool with the same copies."""
    about, extent = machine.describe(), healing.QUICK if quick else healing.FULL
    with (
        TemporaryDirectory(prefix="placer-bench-") as scratch,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        tell = partial(_describe, progress, progress.add_task("", total=None))
        found = healing.measure(extent, Path(scratch), tell)
    taken = {"healing": healing.body(found)}
    _report_part(output, about, taken, partial(healing.show, extent=extent, found=found))


def _measure_served(measure: Callable[..., Any], quick: bool) -> Any:
    """Measure a server on a broker of its own."""
    with (
        EmbeddedBroker() as broker,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        tell = partial(_describe, progress, progress.add_task("", total=None))
        return measure(serving.QUICK if quick else serving.FULL, broker, tell)


@app.command("api")
def served(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Measure how soon the HTTP interface answers on a million shards, and how fast."""
    about, found = machine.describe(), _measure_served(serving.measure, quick)
    _report_part(output, about, {"api": serving.body(found)}, partial(serving.show, found=found))


@app.command("console")
def browsed(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Measure how soon the console's pages answer on a million shards, and with 50 viewers."""
    about, found = machine.describe(), _measure_served(browsing.measure, quick)
    taken = {"console": browsing.body(found)}
    _report_part(output, about, taken, partial(browsing.show, found=found))


@app.command("events")
def heard(quick: QuickOption = False, output: OutputOption = Output.TEXT) -> None:
    """Measure how soon a commit is on 10,000 open streams of events."""
    streams = listening.STREAMS_QUICK if quick else listening.STREAMS
    with (
        EmbeddedBroker() as broker,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        tell = partial(_describe, progress, progress.add_task("", total=None))
        found = listening.measure(streams, broker, tell)
    about, taken = machine.describe(), {"events": listening.body(found)}
    _report_part(output, about, taken, partial(listening.show, found=found))


def _report_part(
    output: Output, about: dict[str, str], found: dict[str, Any], show: Callable[[Console], None]
) -> None:
    """Write one part's results as JSON, or the machine and its tables."""
    if output is Output.JSON:
        _write({"machine": about, **found})
        return
    report.show_machine(Console(), about)
    show(Console())


def _offline(extent: offline.Extent) -> list[offline.Taken]:
    """Every offline command on large files."""
    with (
        TemporaryDirectory(prefix="placer-bench-") as scratch,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        bar = progress.add_task("", total=None)
        tell = partial(_describe, progress, bar)
        return list(offline.measure(extent, Path(scratch), tell))


def _resources(extent: resources.Extent) -> resources.Found:
    """Small fleets beside CP-SAT, then large ones."""
    with Progress(console=Console(stderr=True), transient=True) as progress:
        return resources.measure(extent, partial(_describe, progress, progress.add_task("")))


def _describe(progress: Progress, bar: Any, what: str) -> None:
    progress.update(bar, description=what)


def _placement(extent: placing.Extent) -> placing_report.Results:
    """Every placer on every fleet, peers first."""
    results: placing_report.Results = {}
    with (
        TemporaryDirectory(prefix="placer-bench-") as scratch,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        placing.compile_into(Path(scratch))
        bar = progress.add_task("", total=None)
        for tree in placing.TREES:
            placed: dict[str, placing.Placed | str] = {}
            progress.update(bar, description=f"{tree.size} nodes: peers")
            placed[placing_report.CRUSH] = peers.crush(tree, extent)
            placed[placing_report.KAFKA] = peers.kafka(tree, extent)
            for strategy in placing.STRATEGIES_MEASURED:
                progress.update(bar, description=f"{tree.size} nodes: {strategy}")
                placed[strategy] = placing.measure(strategy, tree, extent)
            for each in placed.values():
                if isinstance(each, placing.Placed):
                    each.weigh(tree)
            results[tree.size] = placed
    return results


def _planning(amount: planning.Amount) -> planning_report.Results:
    """Deaths on both fleets, the large one, then the changes, ours first."""
    found = planning_report.Results()
    with (
        TemporaryDirectory(prefix="placer-bench-") as scratch,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        placing.compile_into(Path(scratch))
        bar = progress.add_task("", total=None)
        for tree in placing.TREES:
            progress.update(bar, description=f"{tree.size} nodes: a node dies")
            found.deaths.append(planning.deaths(tree, amount))
        progress.update(bar, description="the large fleet")
        found.large = planning.large(amount)
        for name, measured in (
            (planning_report.OURS, planning.changes),
            (planning_report.KAFKA, planning_peers.kafka),
            (planning_report.CEPH, planning_peers.ceph),
        ):
            progress.update(bar, description=f"fleets that change: {name}")
            changed = (measured(nodes) for nodes in amount.fleets)
            found.changes[name] = list(chain.from_iterable(changed))
    return found


def _latency(plan: Plan, only: str | None) -> report.Results:
    """The application and its floor, or one of them."""
    results: report.Results = {}
    with (
        TemporaryDirectory(prefix="placer-bench-") as scratch,
        EmbeddedBroker() as broker,
        Progress(console=Console(stderr=True), transient=True) as progress,
    ):
        bar = progress.add_task("")

        def tell(what: str, done: int, total: int) -> None:
            progress.update(bar, description=what, completed=done, total=total)

        for subject in (PLACER, FLOOR):
            if only in (None, subject.name):
                tell(f"{subject.name}: start", 0, 1)
                results[subject.name] = measure(subject, plan, broker, Path(scratch), tell)
    return results


def _write(found: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        app()
    except (BenchmarkFailed, StreamingError) as error:
        Console(stderr=True).print(f"[red]{error}[/red]")
        sys.exit(3)
