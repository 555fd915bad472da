"""Makes the core's configuration from the settings."""

from placement.model import Configuration, Limits, Quotas, Rebalance
from streaming.settings.settings import Settings


def configuration(settings: Settings) -> Configuration:
    """The core's configuration from the settings."""
    moves, quotas = settings.moves, settings.quotas
    return Configuration(
        cell=settings.cell,
        levels=tuple(settings.levels),
        default_policy=settings.policy.default,
        limits=Limits(
            max_in_per_node=moves.max_in_per_node,
            max_out_per_node=moves.max_out_per_node,
            max_copies_from_node=moves.max_copies_from_node,
            max_open=moves.max_open,
            max_per_batch=moves.max_per_batch,
            max_per_domain_pair=moves.max_per_domain_pair,
        ),
        acked=moves.completion == "acked",
        deadline_ms=round(moves.deadline_seconds * 1000),
        backoff_ms=round(moves.backoff_seconds * 1000),
        backoff_max_ms=round(moves.backoff_max_seconds * 1000),
        remind_ms=round(moves.remind_seconds * 1000),
        rate_bytes_per_second=moves.rate_bytes_per_second,
        rebalance=Rebalance(settings.rebalance.mode),
        dwell_ms=round(settings.rebalance.dwell_seconds * 1000),
        hold_window_ms=round(settings.hold.window_seconds * 1000),
        quotas=Quotas(
            quotas.nodes,
            quotas.pending_nodes,
            quotas.new_nodes_per_minute,
            quotas.places,
            round(quotas.bootstrap_seconds * 1000),
        ),
        relocate_up_to=settings.location.relocate_up_to_shards,
        enforce_levels=settings.location.enforce_levels,
        authority=settings.location.authority,
        link_slow_ms=settings.location.link_slow_ms,
    )
