"""What if: a domain lost, nodes drained or joined, another replication factor; nothing is sent.

live state or file ──▶ changed cluster ──▶ check, plan ──▶ violations, quorums, moves, loads
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from placement.wording import format_count, format_crossing
from schemas.base import describe
from schemas.cluster import ClusterNode
from streaming.api import ApiError
from streaming.console.change_picture import (
    Change,
    list_changes,
    show_changes,
    show_move_table,
)
from streaming.console.console import Console
from streaming.console.elements import panel, show_fault, show_heading, show_name, show_status, tag
from streaming.console.form import Form, show_button
from streaming.console.page import Page, View, link_to
from streaming.console.pages.streams import show_violations
from streaming.errors import StreamingError
from streaming.offline import (
    CheckOptions,
    Document,
    NoMatchingNode,
    PlanOptions,
    WhatIf,
    check_cluster,
    plan_moves,
)

# A plan of so many shards takes some seconds, in which the pages of others wait for a thread.
SHARDS_MAX = 50_000
NODES_ADDED_MAX = 500
# As many as a table of lists and descriptions of the API costs: a plan is dear.
_COST = 20
_QUORUMS_SHOWN_MAX = 50


# Words of status as this page says them.
_WORDS = {
    "unavailable": "quorum",
    "healthy": "fine",
    "degraded": "rules",
    "issued": "moves",
    "waiting": "warning",
}


class WhatIfRefused(StreamingError):
    """Something typed means nothing; the message begins with the field's name."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """What follows from a hypothetical change. `lost`: the shards that lose their quorum, as
    `placer check --lose` lists them; `left`: violations that no move mends."""

    lost: list[Mapping[str, Any]]
    violations: int
    found: list[Mapping[str, Any]]
    left: list[Mapping[str, Any]]
    moves: list[Mapping[str, Any]]
    traffic: Mapping[str, Any]
    hold: str | None
    warnings: list[str]
    changes: list[Change]


def parse_what_if(values: Mapping[str, str]) -> WhatIf:
    """Read the fields of the form. Raises WhatIfRefused."""
    factors: list[tuple[str | None, int]] = []
    for word in _words(values.get("factor", "")):
        name, equals, number = word.rpartition("=")
        if not number.isdecimal() or (equals and not name) or not 0 < int(number[:6]) <= 64:
            raise WhatIfRefused(f"factor: '{word}' is no number from 1 to 64, nor STREAM=NUMBER")
        factors.append((name or None, int(number)))
    return WhatIf(
        lose=tuple(_words(values.get("lose", ""))),
        drain=tuple(_words(values.get("drain", ""))),
        add=tuple(_parse_nodes(values.get("add", ""))),
        factors=tuple(factors),
    )


def _words(text: str) -> list[str]:
    return [word for word in text.replace(",", " ").split() if word]


def _parse_nodes(text: str) -> list[ClusterNode]:
    """`5 in /eu/az1`: so many new nodes there; several are separated by commas."""
    found: list[ClusterNode] = []
    for part in filter(None, map(str.strip, text.split(","))):
        count, _, location = part.partition(" in ")
        if not count.strip().isdecimal() or not location.strip():
            raise WhatIfRefused(f"add: '{part}' is not of the form: 3 in /eu/az1")
        if len(found) + int(count[:6]) > NODES_ADDED_MAX:
            raise WhatIfRefused(f"add: at most {NODES_ADDED_MAX} nodes")
        for _ in range(int(count)):
            body = {"id": f"new-{len(found) + 1}", "location": location.strip()}
            try:
                found.append(ClusterNode.model_validate(body))
            except ValidationError as error:
                raise WhatIfRefused(f"add: {describe(error, body)[1]}") from error
    return found


def read_document(console: Console) -> Document:
    """The cluster as it is: the file, or the live state. Raises NotReady, WhatIfRefused."""
    if console.document is not None:
        return console.document
    model = console.service.model
    shards = model.count_shards()
    if shards > SHARDS_MAX:
        raise WhatIfRefused(
            f"the cell has {shards:,} shards, and more than {SHARDS_MAX:,} are not planned in a "
            "browser: use placer export, and placer plan with --lose, --drain, --add or --rf"
        )
    return Document(model.take_snapshot(whole=True)[1].cluster())


def try_what_if(document: Document, asked: WhatIf) -> Outcome:
    """Judge and plan the changed cluster. Raises WhatIfRefused."""
    try:
        lost = check_cluster(document, CheckOptions(lose=asked.lose)).body().get("lost", {})
        found = plan_moves(document, PlanOptions(what_if=asked))
    except NoMatchingNode as error:
        raise WhatIfRefused(f"{_field_of(asked, str(error))}: {error}") from error
    body, check = found.body(), found.check.body()
    before = check_cluster(document, CheckOptions()).loads
    places = {node.id: node.location or "" for node in found.nodes}
    return Outcome(
        lost=lost.get("below_quorum", []),
        violations=len(check["violations"]),
        found=check["violations"][:200],
        left=body["unfixable"],
        moves=body["moves"],
        traffic=body["traffic"],
        hold=body["hold"]["reason"] if body["hold"] else None,
        warnings=[each["message"] for each in body["warnings"]],
        changes=list_changes(before, found.loads(after=True), places),
    )


def _field_of(asked: WhatIf, message: str) -> str:
    """The field whose word an error names."""
    for field, words in (("lose", asked.lose), ("drain", asked.drain)):
        if any(f"'{word}'" in message for word in words):
            return field
    return "factor" if asked.factors else "lose"


async def build_what_if(view: View) -> None:
    """The page."""
    show_heading(
        "What if", "Try a change on a copy of the cluster as it is now; nothing is sent anywhere."
    )
    WhatIfDesk(view)


class WhatIfDesk:
    """The form, and what follows from what is typed."""

    def __init__(self, view: View) -> None:
        self._view = view
        with panel("Suppose that"):
            self._form = Form(self._forget)
            query = view.query
            domain = "domains (/eu/az1), tags (disk=ssd) or nodes"
            self._form.text("lose", "These are lost", query.get("lose", "")[:2048], domain)
            drained = "nodes or domains"
            self._form.text("drain", "These are drained", query.get("drain", "")[:2048], drained)
            self._form.text("add", "These join", query.get("add", "")[:2048], "3 in /eu/az1")
            self._form.text(
                "factor",
                "Replication factor",
                query.get("factor", "")[:2048],
                "5 for all streams, or orders=5",
            )
            with tag("div", "controls"):
                self._button = show_button("Show what follows", self._try)
        self._place = tag("div", "live", role="status", aria_live="polite")

    def _forget(self) -> None:
        self._form.clear_faults()
        self._place.clear()

    async def _try(self) -> None:
        self._forget()
        view, service = self._view, self._view.console.service
        self._button.props["disabled"] = True
        try:
            asked = parse_what_if(self._form.values)
            if asked == WhatIf():
                raise WhatIfRefused("lose: name something that is lost, drained, joins or changes")
            service.limits.details.take(view.principal.rate_key, _COST)
            found = await view.console.derived.run(
                lambda: try_what_if(read_document(view.console), asked)
            )
        except (ApiError, StreamingError) as error:
            message = error.message if isinstance(error, ApiError) else str(error)
            with self._place:
                if not self._form.refuse(message):
                    show_fault(message)
            return
        finally:
            self._button.props.pop("disabled", None)
        with self._place:
            _show_outcome(found)


def _show_outcome(found: Outcome) -> None:
    with panel("What follows"):
        with tag("ul", "plain"):
            for tone, sentence in outcome_sentences(found):
                with tag("li", "said"):
                    show_status(tone, _WORDS[tone])
                    show_name(sentence, classes="message")
        if found.changes:
            show_changes(found.changes)
    if found.lost:
        with panel("Quorums lost"), tag("ul", "plain"):
            for each in found.lost[:_QUORUMS_SHOWN_MAX]:
                with tag("li", "said"):
                    href = link_to("streams", each["stream"], "shards", each["shard"])
                    show_name(f"{each['stream']}/{each['shard']}", href)
                    tag("span", "soft", f"{each['live']} live of the {each['quorum']} it needs")
            if len(found.lost) > _QUORUMS_SHOWN_MAX:
                tag("li", "soft", f"and {len(found.lost) - _QUORUMS_SHOWN_MAX} more")
    if found.found:
        with panel("Broken rules before the moves"):
            show_violations(found.found)
    if found.left:
        with panel("Broken rules that stay"):
            show_violations(found.left)
    if found.moves:
        with panel("Moves"):
            show_move_table(found.moves)


def outcome_sentences(found: Outcome) -> list[tuple[str, str]]:
    """What follows, each sentence with a word of status."""
    said: list[tuple[str, str]] = []
    if found.lost:
        count = format_count(len(found.lost), "shard loses its quorum", "shards lose their quorum")
        said.append(("unavailable", f"{count} until the nodes are back."))
    else:
        said.append(("healthy", "No shard loses its quorum."))
    if found.violations:
        broken = format_count(found.violations, "rule is", "rules are")
        said.append(("degraded", f"{broken} broken before anything moves."))
    moves = format_count(len(found.moves), "move")
    if found.moves:
        copies = format_count(found.traffic["copies"], "copy", "copies")
        crossing = format_crossing(found.traffic["crossing"], found.traffic["level"])
        said.append(("issued", f"{moves} follow: {copies}, {crossing}."))
    else:
        said.append(("healthy", "Nothing moves."))
    if found.hold:
        said.append(("waiting", f"Repair would be held first: {found.hold}"))
    if found.left:
        left = format_count(len(found.left), "violation stays", "violations stay")
        said.append(("degraded", f"{left} whatever is moved."))
    said += [("waiting", message) for message in found.warnings]
    return said


PAGES = (Page("/what-if", "What if", build_what_if, icon="science", group="Plan"),)
