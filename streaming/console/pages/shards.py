"""The shards: those of a stream as a table; one with its replicas, its story, and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nicegui import ui

from placement.model import Move, Violation, natural_key
from schemas.topics import DECISIONS
from streaming.api import ApiError
from streaming.console.derived import CommitState
from streaming.console.elements import (
    panel,
    show_fault,
    show_heading,
    show_name,
    show_status,
    tag,
)
from streaming.console.facts import HistoryPanel, show_facts
from streaming.console.page import Page, View, link_to
from streaming.console.replica_map import PlacedReplica, show_replica_map
from streaming.console.shard_table import show_shard_table
from streaming.console.times import show_time
from streaming.errors import StreamingError
from streaming.live import NotInLiveState, condition_text, explain_live, next_steps
from streaming.read_model import RUNGS
from streaming.replay import ShardTimeline

# Explaining judges the whole stream by all nodes.
_EXPLANATION_COST = 10
# More streams than a person scrolls through are searched on their own page.
_STREAMS_LISTED_MAX = 500


async def build_shards(view: View) -> None:
    """The shards of the stream that the address names, else of the first."""
    show_heading("Shards", "Where the replicas of a stream's shards are, and how they are.")
    names = await view.derive(
        "stream names",
        lambda state: sorted(state.snapshot.latest[DECISIONS], key=natural_key),
    )
    if not names:
        tag("p", "empty", "No stream was asked for yet.")
        return
    given = view.query.get("stream")
    stream = given if given in names else names[0]
    with tag("form", "controls", method="get", action="/shards"):
        with tag("label", "filter"):
            tag("span", "", "Stream")
            with tag("select", "", name="stream"):
                for name in names[:_STREAMS_LISTED_MAX]:
                    tag("option", "", name, value=name, selected=True if name == stream else None)
                if stream not in names[:_STREAMS_LISTED_MAX]:
                    tag("option", "", stream, value=stream, selected=True)
        tag("button", "quiet", "Show", type="submit")
        tag("a", "quiet", "The stream", href=link_to("streams", stream))
    await show_shard_table(view, stream)


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What the page of a shard shows. `places`: every domain of the first two levels."""

    health: str | None
    epoch: int
    decided_at: int
    factor: int
    replicas: tuple[PlacedReplica, ...]
    places: tuple[str, ...]
    move: Move | None
    broken: tuple[Violation, ...]
    then: tuple[str, ...]


def read_shard(state: CommitState, stream: str, shard: int) -> ShardFacts:
    """Read what is known of a shard. Raises NotInLiveState."""
    _, found = state.model.find_shard(stream, shard)
    if found.shards is None:
        raise NotInLiveState(f"there is no stream '{stream}'")
    if found.assignment is None:
        placed = "is not placed" if shard < found.shards else f"has {found.shards} shards, from 0"
        raise NotInLiveState(f"there is no shard {stream}/{shard}: the stream {placed}")
    snapshot, views = state.snapshot, state.views
    body = found.assignment
    roles = body.get("roles") or ["replica"] * len(body["replicas"])
    adding, removing = set(body["adding"]), set(body["removing"])
    replicas = []
    for slot, (node, role) in enumerate(zip(body["replicas"], roles, strict=False)):
        view = views.get(node)
        where = "" if view is None else view.attributes.location
        said = "coming" if node in adding else "going" if node in removing else ""
        condition = "unknown" if view is None else condition_text(view)
        replicas.append(PlacedReplica(node, where, role, slot == 0, condition, said))
    listed = {*body["replicas"]}
    for node in [each for each in body["adding"] if each not in listed]:
        view = views.get(node)
        where = "" if view is None else view.attributes.location
        condition = "unknown" if view is None else condition_text(view)
        replicas.append(PlacedReplica(node, where, "replica", False, condition, "coming"))
    moves = [m for m in snapshot.open_moves if (m.stream, m.shard) == (stream, shard)]
    broken = tuple(v for v in snapshot.violations if (v.stream, v.shard) == (stream, shard))
    judged = state.judged.get(stream)
    move = moves[0] if moves else None
    return ShardFacts(
        health=None if judged is None or shard >= len(judged) else str(RUNGS[judged[shard]]),
        epoch=body["epoch"],
        decided_at=body["decided_at"],
        factor=snapshot.latest[DECISIONS][stream]["spec"]["replication_factor"],
        replicas=tuple(replicas),
        places=state.part("places", _list_places),
        move=move,
        broken=broken,
        then=tuple(next_steps(move, broken)),
    )


def _list_places(state: CommitState) -> tuple[str, ...]:
    """Every domain of the first two levels."""
    places = (row["location"] for row in state.list_rows("locations"))
    return tuple(place for place in places if place.count("/") <= 2)


async def build_shard(view: View) -> None:
    """The page of one shard."""
    stream, number = view.parameters["stream"], view.parameters["shard"]
    if not (number.isdecimal() and len(number) < 10):
        raise NotInLiveState("a shard is a number, counted from 0")
    shard = int(number)

    async def read() -> ShardFacts:
        key = ("shard", stream, shard)
        return await view.derive(key, lambda state: read_shard(state, stream, shard))

    await view.live(read, lambda facts: _show_shard(stream, shard, facts))
    with panel("Why here, and why not elsewhere"):
        Explanation(view, stream, shard)
    if not view.console.is_file:
        with panel("Its story"):
            command = f"placer history shard {stream}/{shard}"
            HistoryPanel(view, lambda: ShardTimeline(stream, shard), command)


def _show_shard(stream: str, shard: int, facts: ShardFacts) -> None:
    with tag("div", "page-head"):
        with tag("nav", "crumbs", aria_label="Breadcrumb"):
            tag("a", "", "Streams", href="/streams")
            tag("span", "", "/", aria_hidden="true")
            show_name(stream, link_to("streams", stream))
        with tag("div", "title"):
            with tag("h1"):
                show_name(f"{stream}/{shard}")
            if facts.health:
                show_status(facts.health)
    with panel("Replicas in the topology"):
        show_replica_map(facts.replicas, facts.places)
    with tag("div", "columns"):
        with panel("Assignment"):
            show_facts(
                [
                    ("Epoch", str(facts.epoch)),
                    ("Decided", facts.decided_at),
                    ("Replication factor", str(facts.factor)),
                    ("Leader", next((r.node for r in facts.replicas if r.leads), None)),
                ]
            )
        with panel("What happens next"), tag("ul", "plain"):
            for sentence in facts.then:
                with tag("li", "said"):
                    show_name(sentence, classes="message")
            if facts.move is not None:
                with tag("li", "said"):
                    show_status(str(facts.move.state))
                    tag("span", "", f"move {facts.move.kind} ({facts.move.cause}), issued")
                    show_time(facts.move.issued_at)
                    tag("span", "", "expires")
                    show_time(facts.move.deadline)


class Explanation:
    """Says why the replicas are where they are, and of a node why it holds none."""

    def __init__(self, view: View, stream: str, shard: int) -> None:
        self._view, self._stream, self._shard = view, stream, shard
        with tag("div", "controls"):
            with tag("label", "filter"):
                tag("span", "", "Node")
                self._input = ui.element("input")
                self._input.props.update(
                    {"type": "text", "maxlength": 249, "placeholder": "any other node"}
                )
                take = "(event) => emit(event.target.value)"
                self._input.on("input", self._type, js_handler=take)
                self._input.on("keydown.enter", self._explain)
            button = ui.element("button").classes("quiet").on("click", self._explain)
            button.props["type"] = "button"
            with button:
                tag("span", "", "Explain")
        self._node = ""
        self._place = tag("div", "live", role="status")

    def _type(self, event: Any) -> None:
        self._node = str(event.args or "").strip()

    async def _explain(self) -> None:
        view, stream, shard, node = self._view, self._stream, self._shard, self._node or None

        def work() -> Mapping[str, Any]:
            _, snapshot = view.console.service.model.take_snapshot(stream=stream)
            return explain_live(snapshot, stream, shard, node).body()

        try:
            view.console.service.limits.details.take(view.principal.rate_key, _EXPLANATION_COST)
            body = await view.console.derived.run(work)
        except (ApiError, StreamingError) as error:
            message = str(error)
            self._show(lambda: show_fault(message))
        else:
            self._show(lambda: _show_explanation(body))

    def _show(self, render: Any) -> None:
        self._place.clear()
        with self._place:
            render()


def _show_explanation(body: Mapping[str, Any]) -> None:
    with tag("ul", "plain"):
        for absent in body.get("absent", ()):
            with tag("li", "said"):
                show_name(absent["node"], link_to("nodes", absent["node"]))
                show_name(absent["reason"], classes="message")
        for shard in body.get("shards", ()):
            for held in shard.get("held", ()):
                with tag("li", "said"):
                    show_name(held["node"], link_to("nodes", held["node"]))
                    show_name(str(held.get("reason", "")), classes="message")
            if shard.get("still"):
                with tag("li", "said"):
                    show_name(shard["still"], classes="message")
        for each in body.get("reasons", ()):
            with tag("li", "said"):
                show_status("waiting", each["code"])
                show_name(each["message"], classes="message")
        for advice in body.get("advice", ()):
            with tag("li", "said"):
                show_status("info", "advice")
                show_name(str(advice.get("message", advice)), classes="message")


PAGES = (
    Page("/shards", "Shards", build_shards, icon="grid_view", group="Fleet"),
    Page("/streams/{stream}/shards/{shard}", "Shard", build_shard, parent="Shards"),
)
