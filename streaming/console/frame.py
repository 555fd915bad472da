"""What surrounds every page: skip link, header, navigation, banners.

On a narrow screen the navigation is a drawer behind a button; `assets/console.js` opens it.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nicegui import ui

from streaming.api import Role
from streaming.console.elements import icon, show_name, tag
from streaming.console.page import Page, View
from streaming.console.sign_in import SIGN_IN, SIGN_OUT
from streaming.console.times import show_time
from streaming.read_model import Marker

THEME_COOKIE = "placer-theme"
_THEMES = {"light": False, "dark": True}


@contextmanager
def show_frame(view: View, pages: Sequence[Page]) -> Iterator[None]:
    """Make the surroundings; what is made in the block is the page's content."""
    theme = view.cookies.get(THEME_COOKIE, "auto")
    ui.dark_mode(_THEMES.get(theme))
    # Quasar's page is a <main> around all of it; the content alone is to be one.
    around = view.client.content.parent_slot
    if around is not None:
        around.parent.props["role"] = "none"
    tag("a", "skip", "Skip to content", href="#main")
    _show_header(view)
    with tag("div", "body"):
        _show_navigation(view, pages)
        with tag("main", "main", id="main", tabindex="-1"):
            _show_banner(view)
            with _gate(view), tag("div", "content"):
                yield


def _gate(view: View) -> ui.element:
    """Keeps fields and buttons disabled until the browser's socket is there: what is typed before
    reaches nobody. Links work without it."""
    gate = tag("fieldset", "gate", role="presentation", disabled=True)
    view.client.on_connect(lambda: gate.props.pop("disabled", None))
    return gate


def _show_header(view: View) -> None:
    with tag("header", "top"):
        with tag(
            "button",
            "icon-button menu",
            type="button",
            aria_label="Navigation",
            aria_controls="navigation",
            aria_expanded="false",
        ):
            icon("menu")
        with tag("a", "brand", href="/"):
            tag("img", "", src="/assets/icon.svg", alt="", width="24", height="24")
            tag("span", "", "placer")
        with tag("span", "what"):
            show_name(view.console.title)
        tag("span", "grow")
        _show_freshness(view)
        _show_viewer(view)
        with tag("button", "icon-button theme", type="button", aria_label="Colours"):
            icon("contrast")


class _Freshness(ui.element, component="assets/freshness.js"):
    """The commit that the page shows, and its age."""

    def show(self, marker: Marker | None) -> None:
        """Show a commit; None before the first."""
        shown = None if marker is None else {"sequence": marker.sequence, "at": marker.now}
        if self.props.get("commit") != shown:
            self.props["commit"] = shown


def _show_freshness(view: View) -> None:
    if view.console.is_file:
        return

    element = _Freshness()

    def look() -> None:
        marker = view.console.freshness().marker
        element.show(marker)

    view.mark(look)


def _show_viewer(view: View) -> None:
    operates = view.may_operate
    word = "operating" if operates else "read-only"
    with tag("span", f"mode {word}", title=_explain_mode(view)):
        icon("edit" if operates else "visibility")
        tag("span", "wide-only", word)
    name = view.principal.name
    if name is None:
        if view.console.access.rules.tokens:
            tag("a", "quiet", "Sign in", href=SIGN_IN)
        return
    show_name(name, classes="viewer wide-only")
    if view.has_session:
        with tag("form", "", method="post", action=SIGN_OUT):
            tag("button", "quiet", "Sign out", type="submit")


def _explain_mode(view: View) -> str:
    if view.console.is_file:
        return "A file is shown; nothing can be asked for."
    if view.console.service.operating is None:
        return "This console only reads; start it with --operate to take requests."
    if view.principal.role < Role.OPERATE:
        return "You may read; requests need a principal with the role operate."
    return "Requests are sent in your name."


def _show_navigation(view: View, pages: Sequence[Page]) -> None:
    current = view.page.path
    with tag("nav", "side", id="navigation", aria_label="Pages"):
        group = None
        for page in pages:
            if page.icon is None or not page.is_for(view.console):
                continue
            if page.group != group:
                group = page.group
                if group:
                    tag("h2", "group", group)
            here = page.path == current or page.title == view.page.parent
            with tag("a", "item", href=page.path, aria_current="page" if here else None):
                icon(page.icon)
                tag("span", "", page.title)


def _show_banner(view: View) -> None:
    began: list[int] = []

    def read() -> str | None:
        fresh = view.console.freshness()
        if not fresh.is_doubtful:
            began.clear()
            return None
        if not began:
            began.append(view.console.now_ms() - int((fresh.stale_seconds or 0) * 1000))
        what = "" if fresh.marker is None else f" What is shown is commit {fresh.marker.sequence}."
        return f"{fresh.fault or 'Nothing is heard of them'}.{what}"

    def render(said: str | None) -> None:
        if said is None:
            return
        with tag("div", "banner"):
            icon("cloud_off")
            with tag("p"):
                tag("strong", "", "The topics cannot be read")
                tag("span", "", " since ")
                show_time(began[0])
                tag("span", "", f": {said}")

    view.watch(read, tag("div", "banner-holder", role="status"), render)
