"""`placer package`: the archive with which executors of a Spark cluster get our code."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "package",
        epilog="[bold]Example[/bold]\n\n"
        "  placer package environment.tar.gz\n\n"
        "Then set spark.archives to environment.tar.gz#environment in spark.options; "
        "deploy/spark.md tells the rest.",
    )(package)


def package(
    file: Annotated[
        Path, typer.Argument(metavar="OUTPUT", help="Archive to write: NAME.tar.gz or NAME.tgz.")
    ],
) -> None:
    """Make the archive for executors of a Spark cluster: code, packages and Python.

    It serves machines of the same system and processor as this one. Its content is tried in another
    place first.
    """
    from streaming.environment_archive import make_environment_archive

    made = make_environment_archive(file)
    typer.echo(
        f"{made.file}: {made.size_bytes / 1e6:.0f} MB, "
        f"Python and {len(made.distributions)} packages: {', '.join(made.distributions)}"
    )
