"""What the core is configured with, from the settings: for the application, audits and replays."""

from placement.limits import Limits
from placement.state import Configuration
from streaming.settings import Settings


def configuration(settings: Settings) -> Configuration:
    """The core's configuration from the settings."""
    moves = settings.moves
    return Configuration(
        cell=settings.cell,
        levels=tuple(settings.levels),
        default_policy=settings.policy.default,
        limits=Limits(
            max_in_per_node=moves.max_in_per_node,
            max_out_per_node=moves.max_out_per_node,
            max_open=moves.max_open,
            max_per_batch=moves.max_per_batch,
        ),
        acked=moves.completion == "acked",
        deadline_ms=round(moves.deadline_seconds * 1000),
        hold_window_ms=round(settings.hold.window_seconds * 1000),
    )
