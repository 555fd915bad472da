"""The dead letters: records that could not be applied, why, and sending them again."""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from schemas.codes import REASONS
from schemas.refusals import REFUSALS
from streaming.api import ApiError, check_operator
from streaming.console.elements import panel, show_fault, show_heading, show_name, show_status, tag
from streaming.console.facts import show_facts
from streaming.console.form import show_button
from streaming.console.letters import LetterPage, Letters
from streaming.console.page import LOGGER, Page, View, link_to
from streaming.console.table import Column, DataTable, Row, TablePage, TableQuery, select_rows
from streaming.errors import StreamingError
from streaming.requests import DeadLetter, Redriven, choose_letters, redriven_ids

_NUMBER = re.compile(r"[0-9]{1,18}")
# A value is cut by the letter itself; of it this much is shown.
_VALUE_CHARS_MAX = 1_024
_OUTCOMES_SHOWN_MAX = 50


def _letter_link(letter_id: str) -> str:
    return link_to("dead-letters", *letter_id.split("/"))


_COLUMNS = (
    Column("id", "Letter", "name", href=lambda row: _letter_link(row["id"])),
    Column("at", "Time", "time"),
    Column("reason", "Reason", "name", searched=True),
    Column("place", "Where it lay", "name", searched=True, wide=True),
    Column("key", "Key", "name", searched=True),
    Column("message", "What was wrong", "name", searched=True, wide=True),
    Column("again", "Sent again", wide=True),
)


def letter_rows(letters: Sequence[DeadLetter]) -> list[Row]:
    """The letters as rows, the newest first."""
    done = redriven_ids(letters)
    return [
        {
            "id": each.id,
            "at": body["timestamp"],
            "reason": body["reason"],
            "place": each.place,
            "key": body["key"],
            "message": body["message"],
            "again": "refused again" if each.id in done else None,
        }
        for each in reversed(letters)
        for body in [each.body()]
    ]


class LetterBox:
    """Reads letters, and sends their records again where that is asked for."""

    def __init__(self, view: View, source: Letters) -> None:
        self._view, self._source = view, source

    async def read(self, before: Mapping[int, int]) -> LetterPage:
        """The latest letters before some offsets. Raises StreamingError."""
        return await self._view.console.derived.run_long(lambda: self._source.read(before))

    async def find(self, partition: int, offset: int) -> DeadLetter | None:
        """One letter; None where there is none. Raises StreamingError."""
        return await self._view.console.derived.run_long(
            lambda: self._source.find(partition, offset)
        )

    async def redrive(self, chosen: Sequence[DeadLetter], *, only_try: bool) -> list[Redriven]:
        """Send the records of letters again. Raises ApiError, StreamingError."""
        view, service = self._view, self._view.console.service
        if not only_try:
            check_operator(service, view.principal)
            if not view.may_operate:
                raise ApiError(403, "ROLE_MISSING", "your session has ended: reload the page")
        service.limits.requests.take(view.principal.rate_key)
        found = await view.console.derived.run_long(lambda: self._source.redrive(chosen, only_try))
        if not only_try:
            sent = sum(each.refusal is None for each in found)
            logging.getLogger(LOGGER).info(
                "%d of %d dead letters sent again by %s", sent, len(found), view.principal.name
            )
        return found

    def show_redrive(self, label: str, chosen: Sequence[DeadLetter]) -> None:
        """Offer to send letters again: a look first, then consent."""
        view = self._view
        if not view.may_operate:
            with tag("p", "soft"):
                tag("span", "", "Sending again needs a console started with --operate and a ")
                tag("span", "", "principal with the role operate; or: ")
                tag("code", "", "placer dlq redrive")
            return
        place = tag("div", "live", role="status", aria_live="polite")

        async def act(*, only_try: bool) -> None:
            place.clear()
            try:
                found = await self.redrive(chosen, only_try=only_try)
            except (ApiError, StreamingError) as error:
                message = error.message if isinstance(error, ApiError) else str(error)
                with place:
                    show_fault(message)
                return
            with place:
                _show_outcomes(found, only_try=only_try)
                if only_try and any(each.refusal is None for each in found):
                    with tag("div", "controls"):
                        show_button("Send again", send, "primary carry-out")

        async def look() -> None:
            await act(only_try=True)

        async def send() -> None:
            await act(only_try=False)

        show_button(label, look, "quiet redrive")
        place.move()


def _show_outcomes(found: Sequence[Redriven], *, only_try: bool) -> None:
    sent = sum(each.refusal is None for each in found)
    word = "can be sent again" if only_try else "sent again"
    with tag("div", "notice good" if sent == len(found) else "notice warn"):
        show_status("accepted" if sent == len(found) else "partial", f"{sent} of {len(found)}")
        tag("span", "", f"{word}, behind what is on their partitions now.")
    refused = [each for each in found if each.refusal is not None]
    with tag("ul", "plain"):
        for each in refused[:_OUTCOMES_SHOWN_MAX]:
            with tag("li", "said"):
                show_status("refused")
                show_name(str(each.refusal), classes="message")


async def build_dead_letters(view: View) -> None:
    """The table of letters."""
    show_heading("Dead letters", "Records that could not be applied; all else was.")
    box = _box(view)
    if box is None:
        return
    before = parse_places(view.query.get("before", ""))
    page = await box.read(before)
    rows = letter_rows(page.letters)

    async def read(query: TableQuery) -> TablePage:
        return select_rows(rows, _COLUMNS, query)

    reasons = Counter(each.header("reason") for each in page.letters)
    if reasons:
        with panel("Reasons"):
            for reason, count in reasons.most_common():
                chosen, _ = choose_letters(page.letters, (), reason)
                _show_reason(box, reason, count, chosen)
    await DataTable(
        view,
        "Dead letters",
        _COLUMNS,
        read,
        noun="letters",
        empty="None is here." if before else "Every record could be applied.",
    ).show()
    with tag("div", "controls"):
        if before:
            tag("a", "quiet", "The latest letters", href=link_to("dead-letters"))
        if page.older:
            href = link_to("dead-letters", before=format_places(page.older))
            tag("a", "quiet", "Older letters", href=href)


def parse_places(text: str) -> dict[int, int]:
    """Offsets by partition, `0:1200,2:88`; what is none of these is left out."""
    found = {}
    for word in text.split(","):
        partition, _, offset = word.partition(":")
        if all(map(_NUMBER.fullmatch, (partition, offset))):
            found[int(partition)] = int(offset)
    return found


def format_places(places: Mapping[int, int]) -> str:
    """As `parse_places` reads them."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(places.items()))


def _show_reason(box: LetterBox, reason: str, count: int, chosen: Sequence[DeadLetter]) -> None:
    with tag("div", "reason"):
        with tag("div", "said"):
            with tag("h3"):
                show_name(reason)
            tag("span", "soft", f"{count:,}")
        advice = _advice()
        if reason in advice:
            tag("p", "soft", advice[reason].replace("`", ""))
        if chosen:
            box.show_redrive(f"Look at sending {len(chosen):,} again", chosen)


def _advice() -> Mapping[str, str]:
    """Meaning and action by reason code."""
    return {
        str(code): f"{each.meaning} {each.action}"
        for table in (REASONS, REFUSALS)
        for code, each in table.items()
    }


async def build_letter(view: View) -> None:
    """The page of one letter."""
    name = f"{view.parameters['partition']}/{view.parameters['offset']}"
    box = _box(view)
    if box is None:
        return
    place = parse_places(name.replace("/", ":"))
    letter = None
    for partition, offset in place.items():
        letter = await box.find(partition, offset)
    if letter is None:
        view.client.status_code = 404
        show_fault(f"There is no dead letter {name}.")
        return
    body = letter.body()
    with tag("div", "page-head"):
        with tag("nav", "crumbs", aria_label="Breadcrumb"):
            tag("a", "", "Dead letters", href="/dead-letters")
        with tag("div", "title"):
            with tag("h1"):
                show_name(f"Letter {name}")
            show_status("refused", body["reason"])
    show_name(body["message"], classes="message")
    with panel("Facts"):
        show_facts(
            [
                ("What to do", _advice().get(body["reason"], "").replace("`", "") or None),
                ("Time", body["timestamp"]),
                ("Where it lay", letter.place),
                ("Key", body["key"]),
                ("Stage", body["stage"] or None),
                ("Stands for", f"{letter.count:,} records" if letter.count > 1 else None),
                ("Bytes", None if body["bytes"] is None else f"{body['bytes']:,}"),
                ("Sent again from", body["redriven_from"]),
            ]
        )
    with panel("The record"):
        said = body["value"] if body["value"] is not None else body["value_base64"]
        with tag("pre", "value", tabindex="0"):
            tag("code", "", (said or "(no value)")[:_VALUE_CHARS_MAX])
        if not body["whole"]:
            tag("p", "soft", "The letter holds the beginning of it.")
    with panel("Send it again"):
        box.show_redrive("Look whether it can be sent again", [letter])


def _box(view: View) -> LetterBox | None:
    source = view.console.letters
    if source is None:
        show_fault("The dead letters cannot be read: this console has no broker.")
        return None
    return LetterBox(view, source)


PAGES = (
    Page(
        "/dead-letters",
        "Dead letters",
        build_dead_letters,
        icon="mark_email_unread",
        group="Operate",
        file=False,
    ),
    Page(
        "/dead-letters/{partition}/{offset}",
        "Letter",
        build_letter,
        parent="Dead letters",
        file=False,
    ),
)
