"""The alerts, the newest first: what each means, what to do, and where in the console to do it."""

from collections.abc import Mapping
from typing import Any

from schemas.alerts import AlertKind
from schemas.words import ALERTS
from streaming.console.derived import CommitState
from streaming.console.elements import show_heading, show_name, show_status, tag
from streaming.console.page import Page, View, link_to
from streaming.console.times import show_time

_SHOWN_MAX = 200
# Requests that answer an alert, with what the button says.
_ANSWERS = {
    AlertKind.HOLD: ("OverrideHold", "Look at the impact of an override"),
    AlertKind.RELOCATION_PENDING: ("ApproveRelocation", "Look at the impact of an approval"),
    AlertKind.TYPO_SUSPECTED: ("ApproveRelocation", "Look at the impact of an approval"),
    AlertKind.HELD_DOWN: ("ReleaseNode", "Release the node"),
    AlertKind.LOAD_SUSPECTED: ("ConfirmLoad", "Confirm the load"),
}
_STATUS = {"info": "issued", "warning": "degraded", "critical": "unavailable"}
_TONES = {"info": "info", "warning": "warn", "critical": "bad"}


def list_alerts(state: CommitState) -> list[Mapping[str, Any]]:
    """The latest alerts, the newest first."""
    return [*reversed(state.snapshot.alerts)][:_SHOWN_MAX]


async def build_alerts(view: View) -> None:
    """The page."""
    show_heading("Alerts", "What the reconciler told people, the newest first, and what to do.")

    async def read() -> list[Mapping[str, Any]]:
        return await view.derive("alerts", list_alerts)

    async def read_none() -> bool:
        return not await read()

    await view.live(read_none, _show_none)
    await view.live_items(read, _show_alert, tag("div", "live"), "div")


def _show_none(none: bool) -> None:
    if none:
        with tag("section", "panel"):
            tag("p", "empty", "Nothing was told yet.")


def _show_alert(alert: Mapping[str, Any]) -> None:
    tone = _TONES.get(str(alert.get("severity")), "")
    with tag("article", f"panel alert {tone}"):
        with tag("div", "said"):
            severity = str(alert.get("severity"))
            show_status(_STATUS.get(severity, "issued"), severity)
            with tag("h2"):
                show_name(str(alert["kind"]))
            show_name(str(alert["subject"]))
            show_time(int(alert["at"]))
        show_name(str(alert["reason"]["message"]), classes="message")
        try:
            kind = AlertKind(alert["kind"])
        except ValueError:
            tag("p", "soft", "This version does not know alerts of this kind.")
            return
        advice = ALERTS[kind]
        if alert.get("severity") == "info" and advice.severity != "info":
            return
        with tag("dl", "facts"):
            tag("dt", "", "Meaning")
            tag("dd", "", advice.meaning.replace("`", ""))
            tag("dt", "", "What to do")
            tag("dd", "", advice.action.replace("`", ""))
        if kind in _ANSWERS:
            request, words = _ANSWERS[kind]
            tag(
                "a", "quiet", words, href=link_to("requests", type=request, target=alert["subject"])
            )


PAGES = (
    Page("/alerts", "Alerts", build_alerts, icon="notifications", group="Operate", file=False),
)
