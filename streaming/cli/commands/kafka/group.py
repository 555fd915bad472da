"""The group `placer kafka`, to which each of its commands adds itself."""

import typer

app = typer.Typer(
    name="kafka",
    help="Import a running Kafka cluster for check, plan and explain; carry a plan out on it.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
