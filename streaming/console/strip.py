"""What happened in the last hour: from the records of the state, drawn minute by minute.

Decisions, moves, deaths and alerts carry their times, so the strip needs no log of its own and is
the same for a console that has just been started.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nicegui import ui

from placement.model import Liveness
from schemas.topics import DECISIONS, MOVES
from streaming.console.page import link_to
from streaming.read_model import StateSnapshot

MINUTES = 60
MINUTE_MS = 60_000
# As many as a person reads.
LATEST_MAX = 12

LANES = ("decisions", "moves", "deaths", "alerts")


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened. `at`: ms since the epoch; `said`: our own words; `subject`: the name
    of what it happened to, and `href` its page."""

    at: int
    lane: str
    subject: str
    said: str
    href: str | None = None


class Strip(ui.element, component="assets/strip.js"):
    """The lanes of the last hour."""

    def show(self, happenings: Sequence[Happening], now_ms: int) -> None:
        """Draw them up to `now_ms`."""
        end = now_ms // MINUTE_MS + 1
        lanes = {lane: [0] * MINUTES for lane in LANES}
        for each in happenings:
            place = each.at // MINUTE_MS - end + MINUTES
            if 0 <= place < MINUTES:
                lanes[each.lane][place] += 1
        self.props["start"] = (end - MINUTES) * MINUTE_MS
        self.props["lanes"] = [{"name": lane, "counts": counts} for lane, counts in lanes.items()]


def list_happenings(snapshot: StateSnapshot) -> list[Happening]:
    """List what the records know to have happened, the oldest first."""
    found = [*_decisions(snapshot), *_moves(snapshot), *_deaths(snapshot), *_alerts(snapshot)]
    return sorted(found, key=lambda each: each.at)


def _decisions(snapshot: StateSnapshot) -> Iterable[Happening]:
    for name, body in snapshot.latest[DECISIONS].items():
        said = f"stream {body['outcome']}"
        yield Happening(body["decided_at"], "decisions", name, said, link_to("streams", name))


def _moves(snapshot: StateSnapshot) -> Iterable[Happening]:
    for body in snapshot.latest[MOVES].values():
        shard = f"{body['stream']}/{body['shard']}"
        href = link_to("streams", body["stream"], "shards", body["shard"])
        said = f"move {body['kind']} issued ({body['cause']})"
        yield Happening(body["issued_at"], "moves", shard, said, href)
        if body.get("ended_at") is not None:
            ended = f"move {body['kind']} {body['state']}"
            yield Happening(body["ended_at"], "moves", shard, ended, href)


def _deaths(snapshot: StateSnapshot) -> Iterable[Happening]:
    for view in snapshot.nodes:
        times = {each.at for each in view.transitions if each.liveness is Liveness.DEAD}
        if view.liveness is Liveness.DEAD:
            times.add(view.since)
        for at in times:
            href = link_to("nodes", view.node_id)
            yield Happening(at, "deaths", view.node_id, "node is dead", href)


def _alerts(snapshot: StateSnapshot) -> Iterable[Happening]:
    for body in snapshot.alerts:
        said = f"alert {body['kind']} ({body.get('severity', 'info')})"
        yield Happening(int(body.get("at", 0)), "alerts", str(body["subject"]), said, _alert_link())


def _alert_link() -> str | None:
    return link_to("alerts")


def latest(happenings: Sequence[Happening]) -> list[Happening]:
    """The latest ones, the newest first."""
    return [*happenings[-LATEST_MAX:]][::-1]
