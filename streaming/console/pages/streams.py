"""The streams: a table of all, and for each what it asks for, how it is, and where it stands."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from placement.model import Outcome
from schemas.spelling import did_you_mean
from schemas.topics import DECISIONS, VIOLATIONS
from streaming import codec
from streaming.console.derived import CommitState
from streaming.console.elements import panel, show_heading, show_name, show_status, tag
from streaming.console.facts import show_facts
from streaming.console.page import Page, View, link_to
from streaming.console.shard_table import show_shard_table
from streaming.console.table import Column, DataTable, Row, rows_reader
from streaming.console.times import show_time
from streaming.console.topology import Spread, list_spread, tally_fleet
from streaming.live import LISTINGS, NotInLiveState, policy_text
from streaming.read_model import RUNGS

_WORDS = LISTINGS["streams"].words
# A person looks at the first violations; the rest are counted.
_VIOLATIONS_SHOWN_MAX = 20


def _link(row: Row) -> str:
    return link_to("streams", row["stream"])


COLUMNS = (
    Column("stream", "Stream", "name", href=_link, searched=True),
    Column("health", "Health", "status", words=_WORDS["health"]),
    Column("outcome", "Outcome", "status", words=_WORDS["outcome"]),
    Column("shards", "Shards", "number"),
    Column("replication_factor", "Factor", "number", wide=True, hint="replication factor"),
    Column("short", "Short", "number", hint="shards with too few live copies"),
    Column("strategy", "Strategy", wide=True),
    Column("reason", "Reason", "name", searched=True, wide=True),
    Column("decided_at", "Decided", "time", wide=True),
)


def list_streams(state: CommitState) -> list[Row]:
    """A row for each stream, by what was decided last and by the live copies of its shards."""
    rows: list[Row] = []
    for decision in state.snapshot.decisions:
        steps = state.judged.get(decision.stream)
        said = [*decision.reasons, *decision.warnings]
        known = steps is not None and len(steps) > 0
        rows.append(
            {
                "stream": decision.stream,
                "health": str(RUNGS[int(steps.max())]) if steps is not None and known else None,
                "outcome": str(decision.outcome),
                "shards": decision.spec.shards,
                "replication_factor": decision.spec.replication_factor,
                "short": int((steps >= _SHORT).sum()) if steps is not None else None,
                "strategy": decision.strategy,
                "reason": said[0].message if said else None,
                "decided_at": decision.decided_at,
            }
        )
    return rows


# From this rung on a shard has fewer live copies than its factor.
_SHORT = RUNGS.index(next(each for each in RUNGS if each == "under_replicated"))


async def build_streams(view: View) -> None:
    """The table of all streams."""
    show_heading("Streams", "What was decided on each, and how its shards are.")
    await DataTable(
        view,
        "Streams of the cell",
        COLUMNS,
        rows_reader(view, "streams", COLUMNS, list_streams),
        noun="streams",
        empty="No stream was asked for yet.",
    ).show()


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """What the page of a stream shows. `spread`: its replicas in the top domains."""

    decision: Mapping[str, Any]
    policy: str
    health: dict[str, int]
    replicas: int
    spread: list[Spread]
    violations: list[Mapping[str, Any]]


def read_stream(state: CommitState, name: str) -> StreamFacts:
    """Read what is known of a stream. Raises NotInLiveState."""
    snapshot = state.snapshot
    decision = snapshot.latest[DECISIONS].get(name)
    if decision is None:
        hint = did_you_mean(name, [*snapshot.latest[DECISIONS]]) or ""
        raise NotInLiveState(f"there is no stream '{name}'{hint}")
    steps = state.judged.get(name, np.zeros(0, np.int8))
    counts = np.bincount(steps, minlength=len(RUNGS))
    held, _ = state.model.count_replicas(name)
    broken = [
        each
        for key, body in snapshot.latest[VIOLATIONS].items()
        if key.rpartition("/")[0] == name
        for each in body["violations"]
    ]
    return StreamFacts(
        decision=decision,
        policy=policy_text(codec.parse_decision(decision)),
        health={str(rung): int(n) for rung, n in zip(RUNGS, counts, strict=True) if n},
        replicas=held.total(),
        spread=list_spread(state.part("fleet", tally_fleet), held),
        violations=broken,
    )


async def build_stream(view: View) -> None:
    """The page of one stream."""
    name = view.parameters["stream"]

    async def read() -> StreamFacts:
        return await view.derive(("stream", name), lambda state: read_stream(state, name))

    await view.live(read, lambda facts: _show_stream(name, facts))
    with panel("Shards"):
        await show_shard_table(view, name)


def _show_stream(name: str, facts: StreamFacts) -> None:
    decision, spec = facts.decision, facts.decision["spec"]
    with tag("div", "page-head"):
        with tag("nav", "crumbs", aria_label="Breadcrumb"):
            tag("a", "", "Streams", href="/streams")
        with tag("div", "title"):
            with tag("h1"):
                show_name(name)
            show_status(str(decision["outcome"]))
            for rung in list(facts.health)[::-1]:
                if rung != "healthy":
                    show_status(rung, f"{facts.health[rung]:,} {rung.replace('_', ' ')}")
    with tag("div", "columns"):
        with panel("What it asks for"):
            show_facts(
                [
                    ("Shards", f"{spec['shards']:,}"),
                    ("Replication factor", str(spec["replication_factor"])),
                    ("Quorum", str(spec.get("quorum") or "majority")),
                    ("Policy", facts.policy),
                    ("Strategy", decision.get("strategy")),
                    ("Sequence", str(decision["sequence"])),
                    ("Decided", decision["decided_at"]),
                    ("Replicas", f"{facts.replicas:,}"),
                ]
            )
            _show_reasons(decision)
        with panel("Where it stands"):
            _show_spread(facts)
    if facts.violations:
        with panel("Broken rules"):
            show_violations(facts.violations)


def _show_reasons(decision: Mapping[str, Any]) -> None:
    said = [*decision["reasons"], *decision["warnings"]]
    if not said:
        return
    bad = decision["outcome"] == Outcome.REJECTED
    with tag("ul", "plain"):
        for each in said:
            with tag("li", "said"):
                show_status("rejected" if bad else "waiting", each["code"])
                show_name(each["message"], classes="message")


def _show_spread(facts: StreamFacts) -> None:
    most = max((each.replicas for each in facts.spread), default=0) or 1
    with tag("ul", "plain bars"):
        for each in facts.spread:
            with tag("li"):
                show_name(each.path.rpartition("/")[2], link_to("", at=each.path))
                with tag("span", "bar wide-bar", aria_hidden="true"):
                    bar = tag("span")
                    bar.style["width"] = f"{100 * each.replicas / most:.1f}%"
                tag("span", "figure", f"{each.replicas:,}")


def show_violations(violations: list[Mapping[str, Any]]) -> None:
    """A list of violations, the first of many."""
    with tag("ul", "plain"):
        for each in violations[:_VIOLATIONS_SHOWN_MAX]:
            with tag("li", "said"):
                show_status(str(each["class"]))
                if each.get("shard") is not None:
                    stream, shard = each["stream"], each["shard"]
                    href = link_to("streams", stream, "shards", shard)
                    show_name(f"{stream}/{shard}", href)
                tag("strong", "", str(each["rule"]))
                if each.get("domain"):
                    show_name(f"in {each['domain']}")
                show_name(each["reason"]["message"], classes="message")
                if each.get("since"):
                    show_time(each["since"])
        left = len(violations) - _VIOLATIONS_SHOWN_MAX
        if left > 0:
            tag("li", "soft", f"and {left} more")


PAGES = (
    Page("/streams", "Streams", build_streams, icon="view_stream", group="Fleet"),
    Page("/streams/{stream}", "Stream", build_stream, parent="Streams"),
)
