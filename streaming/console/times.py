"""Times as the viewer's browser writes them: in the viewer's zone, with UTC beside it."""

from nicegui import ui

from streaming.console.elements import tag


class _Time(ui.element, component="assets/time.js"):
    """A time; the server knows no zone but UTC, so the browser writes it."""

    def __init__(self, at_ms: int, relative: bool) -> None:
        super().__init__()
        self.props["at"], self.props["relative"] = at_ms, relative


def show_time(at_ms: int | None, *, relative: bool = False) -> ui.element:
    """A time in ms since the epoch; a dash for None. `relative`: its age, counted on."""
    return tag("span", "none", "–") if at_ms is None else _Time(at_ms, relative)
