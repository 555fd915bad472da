"""Fields of forms: inputs with a label, a hint, and a sentence beside the one that is wrong."""

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from streaming.console.elements import tag

# The longest that a field of a message takes.
TEXT_CHARS_MAX = 2_048


# What a field's event sends of itself: its text.
_TAKE = "(event) => emit(event.target.value)"


class Form:
    """Fields by name, and what is typed in them."""

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed`: called when something was typed."""
        self.values: dict[str, str] = {}
        self._changed = changed
        self._faults: dict[str, ui.element] = {}
        self._inputs: dict[str, ui.element] = {}
        self._box = tag("div", "form")

    def text(
        self, name: str, label: str, value: str = "", hint: str = "", kind: str = "text"
    ) -> None:
        """Add a field of text, or of another `kind` of HTML's inputs."""
        self._add(name, label, hint, "input", value)
        field = self._inputs[name]
        field.props.update({"type": kind, "value": value, "maxlength": TEXT_CHARS_MAX})
        field.on("input", lambda event: self._take(name, event), js_handler=_TAKE)

    def choice(
        self, name: str, label: str, words: Mapping[str, str], value: str, hint: str = ""
    ) -> None:
        """Add a field with words to choose from. `words`: labels by word."""
        self._add(name, label, hint, "select", value)
        field = self._inputs[name]
        with field:
            for word, said in words.items():
                option = tag("option", "", said, value=word)
                if word == value:
                    option.props["selected"] = True
        field.on("change", lambda event: self._take(name, event), js_handler=_TAKE)

    def refuse(self, message: str) -> bool:
        """Say beside a field what is wrong with it; False where the message begins with none."""
        self.clear_faults()
        name, _, said = message.partition(":")
        if name not in self._faults or not said:
            return False
        self._inputs[name].props["aria-invalid"] = "true"
        with self._faults[name]:
            tag("span", "", said.strip())
        return True

    def clear_faults(self) -> None:
        """Take back what was said beside fields."""
        for name, place in self._faults.items():
            place.clear()
            self._inputs[name].props.pop("aria-invalid", None)

    def _take(self, name: str, event: Any) -> None:
        self.values[name] = str(event.args or "").strip()
        self._changed()

    def _add(self, name: str, label: str, hint: str, element: str, value: str) -> None:
        self.values[name] = value
        with self._box, tag("div", "field"):
            tag("label", "", label, for_=f"field-{name}")
            self._inputs[name] = tag(
                element, "", id=f"field-{name}", aria_describedby=f"about-{name}", name=name
            )
            with tag("div", "about", id=f"about-{name}"):
                if hint:
                    tag("span", "soft", hint)
                self._faults[name] = tag("span", "field-fault", role="alert")


def show_button(label: str, action: Callable[[], Any], classes: str = "primary") -> ui.element:
    """A button that does something."""
    button = ui.element("button").classes(classes).on("click", action)
    button.props["type"] = "button"
    with button:
        tag("span", "", label)
    return button
