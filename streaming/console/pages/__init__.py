"""The pages of the console, in the order of the navigation."""

from streaming.console.page import Page
from streaming.console.pages import nodes

PAGES: tuple[Page, ...] = (*nodes.PAGES,)
