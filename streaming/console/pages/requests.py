"""Requests of operators: what stands; of a new one dry run, impact, consent and answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.wording import format_count, format_crossing
from schemas.requests import OperatorRequest
from streaming.api import ApiError, make_request, preview_request, send_request
from streaming.console.change_picture import (
    apply_moves,
    list_changes,
    show_changes,
    show_move_table,
)
from streaming.console.derived import CommitState
from streaming.console.elements import panel, show_fault, show_heading, show_name, show_status, tag
from streaming.console.form import Form, show_button
from streaming.console.page import Page, View, link_to
from streaming.console.times import show_time
from streaming.errors import StreamingError
from streaming.live import blocked_lines, drain_text

# A reconciler answers within a batch; one that is being replaced takes half a minute.
ANSWER_SECONDS_MAX = 30.0
_BLOCKED_SHOWN_MAX = 50


@dataclass(frozen=True, slots=True)
class Kind:
    """A request as the form offers it. `target`: the only one it can have."""

    verb: str
    about: str
    hint: str
    timed: bool = False
    target: str = ""


_PLACE = "a node's id, or a domain such as /eu/az1"
KINDS: Mapping[str, Kind] = {
    "Drain": Kind("Drain", "Move all replicas off it, and give it no new ones.", _PLACE),
    "Undrain": Kind("End a drain", "End a drain or a maintenance; what was moved stays.", _PLACE),
    "Maintenance": Kind(
        "Maintenance", "It may be away for a time; its replicas are not replaced.", _PLACE, True
    ),
    "Cordon": Kind("Cordon", "Give it no new replicas; it keeps what it has.", _PLACE, True),
    "Uncordon": Kind("End a cordon", "It may receive replicas again.", _PLACE),
    "ApproveRelocation": Kind(
        "Approve a relocation", "Let the location that a node claims take effect.", _PLACE
    ),
    "OverrideHold": Kind(
        "Override a hold",
        "Replace what a hold keeps from being replaced: its nodes are gone for good.",
        "the domain of the hold, or fleet",
    ),
    "Rebalance": Kind("Rebalance", "Even out the loads of the fleet.", "", target="fleet"),
    "CancelMove": Kind("Cancel a move", "Its replica stays; another target is tried.", "its id"),
    "ConfirmLoad": Kind(
        "Confirm a load", "Count a reported load that is held back.", "the shard: orders/3"
    ),
    "ReleaseNode": Kind("Release a node", "End the hold-down of a node that flapped.", "its id"),
    "ForgetNode": Kind("Forget a node", "Drop a node that is gone.", "its id"),
}


async def build_requests(view: View) -> None:
    """The page."""
    show_heading("Requests", "What operators have asked for, and asking for something.")

    async def read() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return await view.derive("orders", _read_orders)

    await view.live(read, lambda found: _show_orders(*found))
    with panel("Ask for something"):
        if view.may_operate:
            RequestDesk(view)
        else:
            _explain_reading(view)


def _read_orders(state: CommitState) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    snapshot = state.snapshot
    holds = snapshot.memory("hold")
    waiting = {name: hold for name, hold in holds.items() if not hold.get("overridden")}
    return waiting, snapshot.memory("request")


def _explain_reading(view: View) -> None:
    if view.console.service.operating is None:
        with tag("p"):
            tag("span", "", "This console only reads. To ask from here, start it with ")
            tag("code", "", "placer console --operate --tokens tokens.yaml")
            tag("span", "", ", or use the command line: ")
            tag("code", "", "placer drain TARGET --dry-run")
        return
    with tag("p"):
        tag("span", "", "You may read. Requests need a principal with the role operate: ")
        tag("a", "", "sign in", href="/sign-in")


def _show_orders(holds: Mapping[str, Any], orders: Mapping[str, Any]) -> None:
    with tag("div", "columns"):
        with panel("Holds"), tag("ul", "plain"):
            for name, hold in holds.items():
                with tag("li", "said"):
                    show_status("held", "hold")
                    show_name(name)
                    if "since" in hold:
                        show_time(int(hold["since"]))
                    href = link_to("requests", type="OverrideHold", target=name)
                    tag("a", "quiet", "Look at the impact of an override", href=href)
            if not holds:
                tag("li", "soft", "Repair is held nowhere.")
        with panel("Orders in force"), tag("ul", "plain"):
            for name, order in orders.items():
                _show_order(name, order)
            if not orders:
                tag("li", "soft", "Nothing is ordered.")


_ENDS = {"drain": "Undrain", "maintenance": "Undrain", "cordon": "Uncordon"}


def _show_order(name: str, order: Mapping[str, Any]) -> None:
    action = str(order.get("action", "request"))
    with tag("li", "said order"):
        show_status({"drain": "draining", "cordon": "cordoned"}.get(action, action), action)
        show_name(name, link_to("nodes", name) if not name.startswith("/") else None)
        if action == "drain":
            show_name(drain_text(order), classes="message")
        for line in blocked_lines(order):
            show_name(line, classes="message")
        if order.get("requested_by"):
            tag("span", "soft", "asked by")
            show_name(str(order["requested_by"]))
        if order.get("reason"):
            show_name(str(order["reason"]), classes="message")
        if action in _ENDS:
            tag("a", "quiet", "End it", href=link_to("requests", type=_ENDS[action], target=name))


class RequestDesk:
    """The form, the impact of what it asks for, consent, and the answer."""

    def __init__(self, view: View) -> None:
        self._view = view
        asked = view.query.get("type", "")
        self._seen: tuple[OperatorRequest, Mapping[str, Any]] | None = None
        self._form = Form(self._forget)
        words = {name: kind.verb for name, kind in KINDS.items()}
        chosen = asked if asked in KINDS else "Drain"
        self._form.choice("type", "Request", words, chosen)
        self._form.text(
            "target",
            "Target",
            view.query.get("target", "")[:2048],
            f"{_PLACE}; of a hold its domain, of a move its id; a rebalance is of the fleet",
        )
        self._form.text(
            "ttl_seconds", "For seconds", "", "of a maintenance, or of a cordon that is to end"
        )
        self._form.text("reason", "Reason", "", "for people, kept with the request")
        with tag("div", "controls"):
            self._button = show_button("Dry run", self._preview)
            tag("span", "soft", "Nothing is sent before you have seen the impact and agreed.")
        self._place = tag("div", "live", role="status", aria_live="polite")

    def _forget(self) -> None:
        """What was seen is not what is asked for any more."""
        self._seen = None
        self._form.clear_faults()
        self._place.clear()

    def _make(self) -> OperatorRequest:
        """The request as typed. Raises ApiError."""
        values = dict(self._form.values)
        name = values.pop("type")
        kind = KINDS.get(name)
        if kind is None:
            raise ApiError(400, "VALUE_INVALID", "type: choose one of the list")
        fields: dict[str, Any] = {
            "target": kind.target or values["target"],
            "reason": values["reason"] or None,
        }
        if not fields["target"]:
            raise ApiError(400, "VALUE_INVALID", f"target: name {kind.hint}")
        seconds = values["ttl_seconds"]
        if seconds:
            if not seconds.isdecimal():
                raise ApiError(400, "VALUE_INVALID", "ttl_seconds: a number of seconds is needed")
            fields["ttl_seconds"] = int(seconds[:10])
        elif name == "Maintenance":
            raise ApiError(400, "VALUE_INVALID", "ttl_seconds: say for how long it may be away")
        return make_request(name, fields, self._view.principal)

    async def _preview(self) -> None:
        self._forget()
        self._button.props["disabled"] = True
        try:
            self._require()
            asked = self._make()
            with self._place:
                tag("p", "soft", "The request is tried on a copy of the reconciler …")
            view = self._view
            impact = await preview_request(view.console.service, view.principal, asked)
        except (ApiError, StreamingError) as error:
            self._refuse(error)
            return
        finally:
            self._button.props.pop("disabled", None)
        self._place.clear()
        with self._place:
            refusal = impact.get("refusal")
            if refusal:
                if not self._form.refuse(f"target: {refusal['message']}"):
                    show_fault(refusal["message"])
                with tag("p", "said"):
                    show_status("refused", str(refusal["code"]))
                    tag("span", "", "The reconciler would refuse it; nothing was sent.")
                return
            self._seen = asked, impact
            self._show_impact(asked, impact)

    def _show_impact(self, asked: OperatorRequest, impact: Mapping[str, Any]) -> None:
        moves = list(impact.get("moves", ()))
        with tag("section", "impact", aria_label="Impact"):
            tag("h3", "", "What it would do")
            with tag("ul", "plain"):
                for sentence in impact_sentences(impact):
                    tag("li", "", sentence)
                for each in impact.get("relabelled", ()):
                    with tag("li", "said"):
                        show_name(f"{each['was'] or '(none)'} → {each['location']}")
                        tag("span", "soft", format_count(each["nodes"], "node"))
            _show_blocked(impact.get("blocked_replicas", ()))
            if moves:
                _, snapshot = self._view.console.service.model.take_snapshot()
                before, _ = snapshot.count_replicas()
                places = {each.node_id: each.attributes.location for each in snapshot.nodes}
                show_changes(list_changes(before, apply_moves(before, moves), places))
                with tag("details", "beside"):
                    tag("summary", "", f"All {format_count(len(moves), 'move')}")
                    show_move_table(moves)
            name = KINDS[type(asked).__name__].verb
            if impact.get("destructive"):
                with tag("p", "said soft"):
                    tag("span", "", "You agree to the impact with the hash")
                    tag("code", "", str(impact["impact_hash"]))
            with tag("div", "controls"):
                classes = "danger" if impact.get("destructive") else "primary"
                show_button(f"{name}: carry it out", self._send, f"{classes} carry-out")
                show_button("Not now", self._forget, "quiet")

    async def _send(self) -> None:
        if self._seen is None:
            return
        asked, impact = self._seen
        # Twice pressed is once sent.
        self._seen = None
        agreed = impact["impact_hash"] if impact.get("destructive") else None
        request = asked.model_copy(update={"expected_impact_hash": agreed})
        self._place.clear()
        with self._place:
            tag("p", "soft", "It is sent; the reconciler answers within a batch …")
        try:
            self._require()
            view = self._view
            answer = await send_request(
                view.console.service, view.principal, request, ANSWER_SECONDS_MAX
            )
        except (ApiError, StreamingError) as error:
            self._refuse(error)
            return
        self._place.clear()
        with self._place, tag("div", "notice good"):
            show_status("accepted")
            show_name(str(answer["reason"]["message"]), classes="message")

    def _require(self) -> None:
        """Raise ApiError where the viewer may not ask any more: a session ends."""
        if not self._view.may_operate:
            raise ApiError(403, "ROLE_MISSING", "your session has ended: reload the page")

    def _refuse(self, error: Exception) -> None:
        message = error.message if isinstance(error, ApiError) else str(error)
        self._place.clear()
        with self._place:
            if not self._form.refuse(message):
                show_fault(message)


def impact_sentences(impact: Mapping[str, Any]) -> list[str]:
    """The impact of a request in words."""
    touched = ", ".join(
        format_count(int(impact[name]), name.removesuffix("s"))
        for name in ("nodes", "shards", "streams")
        if name in impact
    )
    said = [f"It touches {touched}." if touched else "It touches no shard."]
    if "moves" in impact:
        moves = format_count(len(impact["moves"]), "move")
        if impact["moves"]:
            copies = format_count(impact["copies"], "copy", "copies")
            waves = format_count(impact["waves"], "wave")
            crossing = format_crossing(impact["crossing"], impact["level"])
            said.append(f"{moves} follow in {waves}: {copies}, {crossing}.")
        else:
            said.append("Nothing has to move.")
    elif "moves_at_once" in impact:
        said.append(
            f"{format_count(impact['moves_at_once'], 'move')} at once, {impact['waiting']} wait "
            f"for limits, {impact['blocked']} are blocked."
        )
    return said


def _show_blocked(blocked: Any) -> None:
    if not blocked:
        return
    with tag("div", "notice warn"):
        alone = "replica stays where it is, for the reason beside its shard"
        many = "replicas stay where they are, each for the reason beside its shard"
        tag("span", "", f"{format_count(len(blocked), alone, many)}.")
    with tag("ul", "plain"):
        for each in blocked[:_BLOCKED_SHOWN_MAX]:
            with tag("li", "said"):
                href = link_to("streams", each["stream"], "shards", each["shard"])
                show_name(f"{each['stream']}/{each['shard']}", href)
                show_name(str(each["reason"]["message"]), classes="message")
        if len(blocked) > _BLOCKED_SHOWN_MAX:
            tag("li", "soft", f"and {len(blocked) - _BLOCKED_SHOWN_MAX} more")


PAGES = (Page("/requests", "Requests", build_requests, icon="rule", group="Operate", file=False),)
