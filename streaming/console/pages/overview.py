"""The overview: how the fleet is, what waits, its topology, and what happened in the last hour."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from placement.diagnosis import Health
from streaming.console.console import Console
from streaming.console.derived import CommitState
from streaming.console.elements import (
    SIGNS,
    icon,
    panel,
    show_heading,
    show_name,
    show_status,
    tag,
)
from streaming.console.page import Page, View, link_to
from streaming.console.plain_table import Cell, PlainTable, name_cell, status_cell
from streaming.console.strip import Happening, Strip, latest, list_happenings
from streaming.console.times import show_time
from streaming.console.topology import Domain, list_grandchildren, tally_fleet
from streaming.console.treemap import Treemap, draw_tiles
from streaming.live import CellSummary, summarize_cell
from streaming.read_model import RUNGS

_ALERTS_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Figures:
    """What the overview counts. `shards`: by health; `streams`: by the health of their worst
    shard."""

    shards: dict[str, int]
    streams: dict[str, int]
    summary: dict[str, Any]
    places: int


def _count(state: CommitState, now_ms: int) -> Figures:
    judged, snapshot = state.judged, state.snapshot
    found: CellSummary = summarize_cell(snapshot, now_ms, snapshot.alerts)
    steps = [np.bincount(each, minlength=len(RUNGS)) for each in judged.values() if len(each)]
    shards = np.sum(steps, axis=0) if steps else np.zeros(len(RUNGS), np.int64)
    worst = Counter(RUNGS[int(each.max())] if len(each) else RUNGS[0] for each in judged.values())
    places = sum(shards.tolist())
    by_shard = {str(rung): int(n) for rung, n in zip(RUNGS, shards, strict=True) if n}
    by_stream = {str(rung): worst[rung] for rung in RUNGS if worst[rung]}
    body = found.body()
    # They change with the clock alone; the header says how old the commit is.
    del body["last_commit"], body["processes"]
    return Figures(by_shard, by_stream, body, places)


async def build_overview(view: View) -> None:
    """The page."""
    console = view.console
    lead = "How the fleet is now, and what happened in the last hour."
    show_heading("Overview", "What the file says of the fleet." if console.is_file else lead)

    async def read_figures() -> Figures:
        return await view.derive("figures", lambda state: _count(state, console.now_ms()))

    await view.live(read_figures, lambda found: _show_figures(console, found))
    await _show_topology(view)
    with tag("div", "columns"):
        if not console.is_file:
            await _show_last_hour(view)
            await _show_processes(view)


def _show_figures(console: Console, found: Figures) -> None:
    summary = found.summary
    nodes, moves = summary["nodes"], summary["moves"]
    short = sum(
        found.shards.get(rung, 0)
        for rung in (Health.UNDER_REPLICATED, Health.AT_RISK, Health.UNAVAILABLE)
    )
    down = sum(nodes.values()) - nodes.get("up", 0)
    rejected = summary["streams"].get("rejected", 0)
    with tag("div", "cards"):
        worst = next((each for each in reversed(RUNGS) if found.streams.get(each)), None)
        _show_card(
            "Streams", sum(found.streams.values()), link_to("streams"), _words(found.streams)
        )
        _show_card(
            "Shards below their factor",
            short,
            link_to("shards", health=str(worst) if short else None),
            _words({name: n for name, n in found.shards.items() if name != "healthy"})
            or [f"all {found.places} are complete"],
            "bad" if short else "good",
        )
        _show_card(
            "Nodes that are up",
            nodes.get("up", 0),
            link_to("nodes"),
            [f"of {sum(nodes.values())}", *_words({w: n for w, n in nodes.items() if w != "up"})],
            "warn" if down else "good",
        )
        if not console.is_file:
            waiting = sum(each["count"] for each in moves["waiting"])
            _show_card(
                "Moves in flight",
                moves["open"],
                link_to("moves"),
                [f"{waiting} more wait"] if waiting else [],
                "info" if moves["open"] else "",
            )
            holds = summary["holds"]
            said = [f"since a loss in {each['domain'] or 'the fleet'}" for each in holds.values()]
            _show_card("Holds", len(holds), link_to("requests"), said, "bad" if holds else "good")
        if rejected:
            href = link_to("streams", outcome="rejected")
            _show_card("Streams rejected", rejected, href, [], "warn")
    _show_attention(summary)


def _show_card(label: str, value: int, href: str | None, notes: list[str], tone: str = "") -> None:
    with tag("div" if href is None else "a", f"card {tone}", href=href):
        with tag("span", "card-label"):
            tag("span", "", label)
        with tag("span", "card-value"):
            if tone:
                tag("span", "sign", SIGNS[tone], aria_hidden="true")
            tag("span", "", f"{value:,}")
        tag("span", "card-note", " · ".join(notes))


def _words(counts: dict[str, int]) -> list[str]:
    return [f"{n:,} {word.replace('_', ' ')}" for word, n in counts.items()]


def _show_attention(summary: dict[str, Any]) -> None:
    """What a person should look at: holds, alerts, reasons for which moves wait."""
    alerts = summary["alerts"][:_ALERTS_SHOWN_MAX]
    if not (alerts or summary["moves"]["waiting"] or summary["holds"]):
        return
    with panel("Needs a look"), tag("ul", "plain"):
        for name, hold in summary["holds"].items():
            with tag("li", "said"):
                show_status("held", "hold")
                show_name(hold["domain"] or name)
                tag("span", "", "replacements wait")
                show_time(hold["since"])
        for alert in alerts:
            with tag("li", "said"):
                severity = alert.get("severity", "info")
                show_status("refused" if severity == "critical" else "suspect", severity)
                show_name(str(alert["subject"]))
                show_name(alert["reason"]["message"], classes="message")
                show_time(alert["at"])
        for each in summary["moves"]["waiting"]:
            with tag("li", "said"):
                show_status("waiting", f"{each['count']} wait")
                show_name(each["message"], classes="message")


@dataclass(frozen=True, slots=True)
class TopologyPicture:
    """A domain as it is drawn: `drawing` for the treemap, `cells` for the first rows of the table,
    `left` the rows beyond them."""

    drawing: dict[str, Any]
    cells: list[list[Cell]]
    left: int


def draw_topology(state: CommitState, path: str, by_load: bool) -> TopologyPicture:
    """Draw what stands in a domain, `""` for the whole fleet."""
    found = list_grandchildren(state.part("fleet", tally_fleet), path)
    domains = [domain for domain, _ in found]
    kind = "nodes" if domains and domains[0].is_node else "domains"
    tiles = [
        _tile(domain, by_load) | {"tiles": [_tile(each, by_load) for each in inner]}
        for domain, inner in found
    ]
    return TopologyPicture(
        draw_tiles(f"{kind} of {path or 'the fleet'}", tiles),
        [_domain_cells(each, by_load) for each in domains[:_ROWS_MAX]],
        len(domains) - _ROWS_MAX,
    )


async def _show_topology(view: View) -> None:
    path = view.query.get("at", "")
    by_load = view.query.get("colour") == "load"

    async def read() -> TopologyPicture:
        key = ("topology", path, by_load)
        return await view.derive(key, lambda state: draw_topology(state, path, by_load))

    async def read_left() -> int:
        return (await read()).left

    def show(picture: TopologyPicture) -> None:
        treemap.show(picture.drawing)
        table.show(picture.cells)

    with panel("Topology"):
        _show_crumbs(path, by_load)
        treemap = Treemap()
        with tag("details", "beside"):
            tag("summary", "", "The same as a table")
            table = PlainTable("Domains", _DOMAIN_HEADS)
            await view.live(read_left, _show_left)
        await view.live_part(read, show)


def _show_crumbs(path: str, by_load: bool) -> None:
    colour = "load" if by_load else None
    with tag("div", "picture-head"):
        with tag("nav", "crumbs", aria_label="Place in the topology"):
            tag("a", "", "fleet", href=link_to("", colour=colour))
            parts = path.split("/")[1:] if path.startswith("/") else [path] if path else []
            for depth, part in enumerate(parts):
                tag("span", "", "/", aria_hidden="true")
                here = "/" + "/".join(parts[: depth + 1]) if path.startswith("/") else path
                show_name(part, link_to("", at=here, colour=colour))
        tag("span", "grow")
        with tag("span", "choices"):
            tag("span", "soft", "size: weight · colour:")
            for label, value in (("status", None), ("load", "load")):
                current = "true" if (value == "load") == by_load else None
                href = link_to("", at=path or None, colour=value)
                tag("a", "choice", label, href=href, aria_current=current)


_LOAD_TONES = {
    "low": "load-1",
    "below": "load-2",
    "even": "load-3",
    "above": "load-4",
    "high": "load-5",
}


def _tile(domain: Domain, by_load: bool) -> dict[str, Any]:
    href = (
        link_to("nodes", domain.path)
        if domain.is_node
        else link_to("", at=domain.path, colour="load" if by_load else None)
    )
    return {
        "name": domain.name,
        "note": _note(domain, by_load),
        "href": href,
        "tone": _LOAD_TONES.get(domain.load_word, "") if by_load else domain.tone,
        "sign": "" if by_load else SIGNS[domain.tone],
        "size": max(domain.weight, 0.01),
    }


def _note(domain: Domain, by_load: bool) -> str:
    replicas = f"{domain.replicas:,} replica{'' if domain.replicas == 1 else 's'}"
    if by_load:
        many = "no load" if domain.load is None else f"{domain.load:.2f} × the mean"
        return f"{many}, {replicas}"
    if domain.is_node:
        return f"{next(iter(domain.statuses))}, {replicas}"
    rest = [f"{n} {word}" for word, n in domain.statuses.items() if word != "up"]
    return ", ".join([f"{domain.up} of {domain.nodes} up", *rest, replicas])


# The table beside the picture is read, not searched: the pages of nodes and locations have all.
_ROWS_MAX = 50
_DOMAIN_HEADS = ("Name", "Status", "Nodes up", "Replicas", "Weight", "Load")


def _domain_cells(domain: Domain, by_load: bool) -> list[Cell]:
    counts = domain.statuses.items()
    return [
        name_cell(domain.name, _tile(domain, by_load)["href"]),
        status_cell([(w, w if domain.is_node else f"{count} {w}") for w, count in counts]),
        f"{domain.up} of {domain.nodes}",
        f"{domain.replicas:,}",
        f"{domain.weight:g}",
        "–" if domain.load is None else f"{domain.load:.2f} × mean",
    ]


def _show_left(left: int) -> None:
    if left > 0:
        tag("a", "", f"{left} more: all nodes", href=link_to("nodes"))


async def _show_last_hour(view: View) -> None:
    with panel("The last hour", "span-2"):
        strip = Strip()

        async def read() -> list[Happening]:
            return await view.derive("happenings", lambda state: list_happenings(state.snapshot))

        async def read_latest() -> list[Happening]:
            return latest(await read())

        async def read_none() -> bool:
            return not await read()

        await view.live_part(read, lambda found: strip.show(found, view.console.now_ms()))
        await view.live(read_none, _show_nothing)
        await view.live_items(read_latest, _show_happening, tag("ul", "plain"), "li")


def _show_nothing(none: bool) -> None:
    if none:
        tag("p", "soft", "Nothing has happened yet.")


def _show_happening(happening: Happening) -> None:
    with tag("div", "said"):
        show_time(happening.at)
        show_name(happening.subject, happening.href)
        tag("span", "", happening.said)


async def _show_processes(view: View) -> None:
    console = view.console

    async def read() -> list[tuple[str, str, int | None]]:
        seen = await console.derived.poll("processes", console.service.processes)
        return [(each.instance, each.role, each.proven) for each in seen]

    async def read_lag() -> int | None:
        return await console.derived.poll("lag", console.lag)

    def render(processes: list[tuple[str, str, int | None]]) -> None:
        if not processes:
            tag("p", "soft", "None is heard: no process has written a tick in the last seconds.")
        with tag("ul", "plain"):
            for instance, role, proven in processes:
                with tag("li", "said"):
                    show_status(role)
                    show_name(instance)
                    if proven is not None:
                        tag("span", "soft", f"proven up to commit {proven}")

    def render_lag(lag: int | None) -> None:
        if lag is not None:
            with tag("p", "said"):
                icon("inbox")
                tag("span", "", f"{lag:,} input records are not taken in yet")

    with panel("Reconciler processes"):
        await view.live(read, render, each_second=True)
        await view.live(read_lag, render_lag, each_second=True)


PAGES = (Page("/", "Overview", build_overview, icon="dashboard"),)
