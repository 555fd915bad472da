"""The pages of the console, in the order of the navigation."""

from streaming.console.page import Page
from streaming.console.pages import (
    alerts,
    dead_letters,
    locations,
    moves,
    nodes,
    overview,
    plan,
    requests,
    shards,
    streams,
    what_if,
)

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *nodes.PAGES,
    *locations.PAGES,
    *streams.PAGES,
    *shards.PAGES,
    *moves.PAGES,
    *requests.PAGES,
    *alerts.PAGES,
    *dead_letters.PAGES,
    *what_if.PAGES,
    *plan.PAGES,
)
