"""`make bench`: latency, its parts and the memory, of the application and of the floor beneath it.

Both run as processes of their own, one after the other, on one embedded broker.
"""

import dataclasses
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.progress import Progress

from streaming.broker import EmbeddedBroker
from streaming.cli.options import Output, OutputOption
from streaming.errors import StreamingError
from tests.benchmarks import machine, report
from tests.benchmarks.measure import FLOOR, PLACER, Plan, measure
from tests.benchmarks.processes import BenchmarkFailed

# Spark compiles its hot paths during the first hundred batches.
FULL = Plan(events=200, warm_up=100, heartbeats_per_second=5_000, nodes=2_500)
QUICK = dataclasses.replace(FULL, events=30, warm_up=15)


def main(
    quick: Annotated[bool, typer.Option("--quick", help="A short run, for trying it.")] = False,
    output: OutputOption = Output.TEXT,
    only: Annotated[
        str | None, typer.Option(metavar="placer|floor", help="Measure one of the two.")
    ] = None,
    events: Annotated[int | None, typer.Option(min=2, help="Events counted per case.")] = None,
    heartbeats_per_second: Annotated[
        int | None, typer.Option(min=0, help="Beside the second case; 0 leaves it out.")
    ] = None,
) -> None:
    """Measure from an event's append to its decision, in one run with its floor."""
    plan = QUICK if quick else FULL
    chosen = {"events": events, "heartbeats_per_second": heartbeats_per_second}
    plan = dataclasses.replace(plan, **{k: v for k, v in chosen.items() if v is not None})
    subjects = [subject for subject in (PLACER, FLOOR) if only in (None, subject.name)]
    if not subjects:
        raise typer.BadParameter("--only takes placer or floor")
    signal.signal(signal.SIGTERM, _interrupt)
    about = machine.describe()
    results: report.Results = {}
    shown = Console(stderr=True)
    with (
        TemporaryDirectory(prefix="placer-bench-") as scratch,
        EmbeddedBroker() as broker,
        Progress(console=shown, transient=True) as progress,
    ):
        bar = progress.add_task("")

        def tell(what: str, done: int, total: int) -> None:
            progress.update(bar, description=what, completed=done, total=total)

        for subject in subjects:
            tell(f"{subject.name}: start", 0, 1)
            results[subject.name] = measure(subject, plan, broker, Path(scratch), tell)
    if output is Output.JSON:
        found = report.as_json(about, dataclasses.asdict(plan), results)
        sys.stdout.buffer.write(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
    else:
        report.show(Console(), about, results)


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        typer.run(main)
    except (BenchmarkFailed, StreamingError) as error:
        Console(stderr=True).print(f"[red]{error}[/red]")
        sys.exit(3)
