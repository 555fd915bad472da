"""Plain HTML elements with text and attributes as values, never as markup.

Names come from topics and files, and may hold anything: text goes into text nodes, isolated from
the direction of what surrounds it, and long text is cut with the whole on demand. Nothing here
takes HTML.
"""

from typing import Any

from nicegui import ui
from nicegui.elements.mixins.text_element import TextElement

# Names are cut on the page by its width; beyond this they would only fill the wire.
TEXT_CHARS_MAX = 300

# How a word is drawn: by colour, and by a sign for those who see none.
TONES = {
    word: tone
    for tone, words in (
        ("good", "up healthy placed active completed"),
        ("warn", "suspect degraded partial waiting rebalancing deferred pending recovering"),
        (
            "bad",
            (
                "dead unavailable under_replicated at_risk rejected failed refused quarantined "
                "held unfixable unregistered"
            ),
        ),
        ("info", "draining drained maintenance cordoned standby issued accepted fixable joining"),
    )
    for word in words.split()
}
SIGNS = {"good": "●", "warn": "▲", "bad": "■", "info": "◆", "": "○"}


def tag(name: str, /, classes: str = "", text: str | None = None, **attributes: Any) -> ui.element:
    """An element by its tag. `attributes`: by name, `_` for `-`; None is left out."""
    made = ui.element(name) if text is None else TextElement(tag=name, text=text)
    for attribute, value in attributes.items():
        if value is not None:
            made.props[attribute.strip("_").replace("_", "-")] = value
    return made.classes(classes) if classes else made


def cut(name: str) -> str:
    """A name that is no longer than is shown of one."""
    return name if len(name) <= TEXT_CHARS_MAX else f"{name[:TEXT_CHARS_MAX]}…"


def show_text(text: str, classes: str = "", of: str = "span") -> ui.element:
    """A text of the console's own."""
    return tag(of, classes, text)


def show_name(name: str, href: str | None = None, classes: str = "") -> ui.element:
    """A name from a topic or file, isolated and cut, as a link where `href` is given."""
    around = tag("span" if href is None else "a", f"name {classes}", href=href)
    with around:
        tag("bdi", "", cut(name), title=name)
    return around


def show_status(word: str, label: str | None = None) -> ui.element:
    """A word of status with its sign."""
    tone = TONES.get(word.split(" ", maxsplit=1)[0], "")
    chip = tag("span", f"status {tone}")
    with chip:
        tag("span", "sign", SIGNS[tone], aria_hidden="true")
        tag("span", "", label or word.replace("_", " "))
    return chip


def show_heading(title: str, lead: str | None = None) -> None:
    """The heading of a page, and a sentence under it."""
    with tag("div", "page-head"):
        tag("h1", "", title)
        if lead:
            tag("p", "lead", lead)


def show_fault(message: str) -> None:
    """A sentence in the place of what cannot be shown."""
    with tag("div", "panel fault", role="alert"):
        tag("span", "sign", SIGNS["bad"], aria_hidden="true")
        tag("p", "", message)


def panel(title: str | None = None, classes: str = "") -> ui.element:
    """A panel with a heading; what is made within it stands inside."""
    made = tag("section", f"panel {classes}")
    if title:
        with made:
            tag("h2", "", title)
    return made


def icon(name: str) -> ui.element:
    """An icon of Material Icons by its name, for the eye only."""
    return tag("i", "q-icon notranslate material-icons", name, aria_hidden="true")
