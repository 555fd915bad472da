"""Draws the replicas of a shard in the topology: a box for each domain, also for those without."""

from collections.abc import Sequence
from dataclasses import dataclass

from streaming.console.elements import show_name, show_status, tag
from streaming.console.page import link_to

# A fleet with more domains than fit a screen is drawn with those that hold a replica.
BOXES_MAX = 48


@dataclass(frozen=True, slots=True)
class PlacedReplica:
    """A replica and where it stands. `said`: `coming` or `going` while a move is open."""

    node: str
    location: str
    role: str
    leads: bool
    condition: str
    said: str


def show_replica_map(replicas: Sequence[PlacedReplica], places: Sequence[str]) -> None:
    """Draw them. `places`: all domains of the first two levels."""
    tops = [place for place in places if place.count("/") <= 1]
    inner = {top: [each for each in places if each.startswith(f"{top}/")] for top in tops}
    if sum(len(each) or 1 for each in inner.values()) > BOXES_MAX:
        tops = [top for top in tops if any(_is_in(each, top) for each in replicas)]
        inner = {
            top: [place for place in inner[top] if any(_is_in(each, place) for each in replicas)]
            for top in tops
        }
    with tag("div", "replica-map"):
        for top in tops:
            _show_top(top, inner[top], replicas)
        nowhere = [r for r in replicas if not any(_is_in(r, top) for top in tops)]
        if nowhere:
            with tag("div", "top-box holds"):
                tag("h3", "", "no known location")
                _show_replicas(nowhere)


def _show_top(top: str, inner: Sequence[str], replicas: Sequence[PlacedReplica]) -> None:
    here = [each for each in replicas if _is_in(each, top)]
    with tag("div", f"top-box {'holds' if here else ''}"):
        with tag("h3"):
            show_name(top, link_to("", at=top))
        for place in inner:
            within = [each for each in here if _is_in(each, place)]
            with tag("div", f"inner-box {'holds' if within else ''}"):
                with tag("h4", "soft"):
                    show_name(place.rpartition("/")[2], link_to("", at=place))
                if within:
                    _show_replicas(within)
                else:
                    tag("span", "none", "no replica")
        outside = [each for each in here if not any(_is_in(each, place) for place in inner)]
        if outside:
            _show_replicas(outside)
        elif not inner:
            tag("span", "none", "no replica")


def _show_replicas(replicas: Sequence[PlacedReplica]) -> None:
    for each in replicas:
        with tag("div", f"replica {'leads' if each.leads else ''} {each.said}"):
            show_name(each.node, link_to("nodes", each.node))
            with tag("span", "replica-notes"):
                if each.leads:
                    tag("span", "badge", "leader")
                elif each.role != "replica":
                    tag("span", "badge", each.role)
                if each.said:
                    tag("span", "badge", each.said)
                if each.condition != "up":
                    show_status(each.condition.split(" ")[0], each.condition)
            rest = each.location.split("/")[3:]
            if rest:
                show_name("/".join(rest), classes="soft")


def _is_in(replica: PlacedReplica, place: str) -> bool:
    return f"{replica.location}/".startswith(f"{place}/")
