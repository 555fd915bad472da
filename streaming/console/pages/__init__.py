"""The pages of the console, in the order of the navigation."""

from streaming.console.page import Page
from streaming.console.pages import locations, nodes, overview, plan, shards, streams

PAGES: tuple[Page, ...] = (
    *overview.PAGES,
    *nodes.PAGES,
    *locations.PAGES,
    *streams.PAGES,
    *shards.PAGES,
    *plan.PAGES,
)
