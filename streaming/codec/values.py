"""The parts that records are made of: fields, reasons and nodes, as JSON and back."""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from placement.model import (
    SEEN_MAX,
    Amounts,
    Code,
    FlapHistory,
    HoldDown,
    Liveness,
    Lives,
    NodeAttributes,
    PendingLife,
    Reason,
    RefusedLife,
    Reporting,
    Transition,
)


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that are set, inherited ones first."""
    names, get = _FIELDS[type(value)]
    return {name: each for name, each in zip(names, get(value), strict=False) if each is not None}


class _Fields(dict[type[Any], tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]]):
    """Holds by kind the names of its fields and one getter for all. A batch may have a million
    records."""

    def __missing__(self, kind: type[Any]) -> Any:
        names: tuple[str, ...] = kind.__match_args__
        # Of one name it would give the bare value.
        get = attrgetter(*names, names[0])
        self[kind] = names, get
        return self[kind]


_FIELDS = _Fields()


def attributes_of(body: Mapping[str, Any]) -> NodeAttributes:
    return NodeAttributes(
        location=body.get("location") or "",
        tags=tags_of(body.get("tags") or {}),
        host=body.get("host"),
        weight=float(body["weight"]),
        capacity=body.get("capacity"),
        leader=body["leader"],
        tokens=None if body.get("tokens") is None else tuple(body["tokens"]),
        capacities=amounts_of(body.get("capacities")),
    )


def attributes_body(attributes: NodeAttributes) -> dict[str, Any]:
    """The attributes of a node as its record has them."""
    body = fields_of(attributes) | {"tags": dict(attributes.tags)}
    if attributes.capacities is not None:
        body["capacities"] = dict(attributes.capacities)
    return body


def amounts_of(amounts: Mapping[str, int] | None) -> Amounts | None:
    return None if amounts is None else tuple(sorted(amounts.items()))


def tags_of(tags: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(tags.items()))


def reason_body(reason: Reason) -> dict[str, Any]:
    """A reason as it stands in records and in the offline tool's answers."""
    body = fields_of(reason) | {"band": reason.band}
    body["seen"] = reason.seen[:SEEN_MAX]
    if not reason.seen:
        del body["seen"]
    return body


def parse_reason(body: Mapping[str, Any]) -> Reason:
    fields = {name: value for name, value in body.items() if name != "band"}
    return Reason(**fields | {"code": Code(body["code"]), "seen": tuple(body.get("seen", ()))})


def flaps_body(flaps: FlapHistory) -> dict[str, Any]:
    """Transitions and hold-down, where there are any."""
    body: dict[str, Any] = {}
    if flaps.transitions:
        body["transitions"] = [fields_of(each) for each in flaps.transitions]
    if flaps.hold is not None:
        body["hold_down"] = fields_of(flaps.hold)
    return body


def parse_flaps(body: Mapping[str, Any]) -> FlapHistory:
    """Read what `flaps_body` wrote."""
    turns = body.get("transitions") or ()
    hold = body.get("hold_down")
    return FlapHistory(
        tuple(Transition(each["at"], Liveness(each["liveness"])) for each in turns),
        None if hold is None else HoldDown(hold["since"], hold["until"], hold["active"]),
    )


def reporting_body(reporting: Reporting) -> dict[str, Any]:
    if not reporting.external:
        return {}
    reported = {"sequence": reporting.sequence, "said": reporting.said}
    return {"liveness_mode": "external", "reported": reported}


def lives_body(lives: Lives) -> dict[str, Any]:
    """The other lives of a node, where there are any."""
    body: dict[str, Any] = {}
    if lives.pending is not None:
        life = lives.pending
        about = attributes_body(life.attributes)
        mode = {"liveness_mode": "external" if life.external else "heartbeat"}
        body["pending_life"] = fields_of(life) | about | mode
        for name in ("attributes", "external"):
            del body["pending_life"][name]
    if lives.refused is not None:
        body["refused_life"] = fields_of(lives.refused) | {
            "reason": reason_body(lives.refused.reason)
        }
    if lives.earlier:
        body["earlier_lives"] = lives.earlier
    return body


def parse_lives(body: Mapping[str, Any]) -> Lives:
    pending, refused = body.get("pending_life"), body.get("refused_life")
    return Lives(
        None
        if pending is None
        else PendingLife(
            incarnation=pending["incarnation"],
            sequence=pending["sequence"],
            body_hash=pending["body_hash"],
            since=pending["since"],
            grace_ms=pending["grace_ms"],
            attributes=attributes_of(pending),
            external=pending["liveness_mode"] == "external",
        ),
        None
        if refused is None
        else RefusedLife(refused["incarnation"], refused["since"], parse_reason(refused["reason"])),
        tuple(body.get("earlier_lives", ())),
    )
