"""A fleet of simulated nodes in a process of its own, so that it disturbs no stopwatch."""

from typing import Annotated

import typer

from streaming.signals import stop_on_signals
from streaming.simulator import Fleet
from streaming.simulator.fleet import FleetNode

ZONES, RACKS = 3, 8


def nodes(count: int, name: str) -> list[FleetNode]:
    """Nodes spread over racks and zones."""
    return [FleetNode(f"{name}{i}", f"/z{i % ZONES}/r{i // ZONES % RACKS}") for i in range(count)]


def main(
    bootstrap: Annotated[str, typer.Option()],
    prefix: Annotated[str, typer.Option()],
    count: Annotated[int, typer.Option()],
    beats_per_second: Annotated[float, typer.Option()],
) -> None:
    """Register the nodes, say ready, beat until SIGTERM."""
    with (
        stop_on_signals() as stop,
        Fleet(bootstrap, prefix, nodes(count, f"fleet{count}-"), count / beats_per_second),
    ):
        typer.echo("ready")
        stop.wait()


if __name__ == "__main__":
    typer.run(main)
