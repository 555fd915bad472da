"""Lists of facts, and histories: parts that the pages of nodes, streams and shards share."""

from collections.abc import Callable, Iterable

from nicegui import ui

from streaming.api import ApiError
from streaming.console.elements import show_fault, show_name, tag
from streaming.console.page import View
from streaming.console.times import show_time
from streaming.errors import StreamingError
from streaming.replay import Timeline, TimelineItem, read_timeline

# Of a longer history the latest are shown; `placer history` has all.
ITEMS_SHOWN_MAX = 200


def show_facts(facts: Iterable[tuple[str, str | int | None]]) -> None:
    """Names with their values; numbers are times in ms, what is None is left out."""
    with tag("dl", "facts"):
        for label, value in facts:
            if value is None:
                continue
            tag("dt", "", label)
            with tag("dd"):
                if isinstance(value, int):
                    show_time(value)
                else:
                    show_name(value)


class HistoryPanel:
    """Reads a history when it is asked for: it takes all topics in, as `placer history` does."""

    def __init__(self, view: View, timeline: Callable[[], Timeline], command: str) -> None:
        """`timeline`: makes an empty one; `command`: that shows the same in a terminal."""
        self._view, self._timeline = view, timeline
        with tag("p", "soft"):
            tag("span", "", "From the journal and the topics, as far back as they go. The same as ")
            tag("code", "", command)
        self._button = ui.element("button").classes("quiet").on("click", self._read)
        self._button.props["type"] = "button"
        with self._button:
            tag("span", "", "Read the history")
        self._place = tag("div", "live", role="status")

    async def _read(self) -> None:
        view, console = self._view, self._view.console
        settings = console.settings
        if settings is None:
            return
        self._button.props["disabled"] = True
        timeline = self._timeline()
        try:
            console.service.limits.details.take(view.principal.rate_key, 10)
            with console.histories.counted(view.principal.rate_key):
                await console.derived.run_long(
                    lambda: read_timeline(settings, timeline, again=False)
                )
            self._show(timeline)
        except ApiError as error:
            self._show_fault(error.message)
        except StreamingError as error:
            self._show_fault(str(error))
        finally:
            self._button.props["disabled"] = False

    def _show(self, timeline: Timeline) -> None:
        items = timeline.items()
        self._place.clear()
        with self._place:
            if not items:
                tag("p", "empty", "The topics hold no record of it.")
                return
            _show_items(items[-ITEMS_SHOWN_MAX:])
            left = len(items) - ITEMS_SHOWN_MAX
            if left > 0:
                tag("p", "soft", f"{left} earlier ones are not shown.")

    def _show_fault(self, message: str) -> None:
        self._place.clear()
        with self._place:
            show_fault(message)


def _show_items(items: list[TimelineItem]) -> None:
    with tag("ol", "timeline"):
        for each in reversed(items):
            with tag("li"):
                show_time(each.at)
                show_name(each.said, classes="message")
                tag("span", "soft", each.topic)
