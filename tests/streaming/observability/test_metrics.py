"""Goal: metrics, probes and log lines say what happened, in words that never change."""

import io
import json
import logging
import re
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.samples import Sample

from placement.model import (
    AckKind,
    Action,
    Alert,
    AlertKind,
    AnswerOutcome,
    Code,
    Configuration,
    Event,
    Liveness,
    MoveAcked,
    MoveState,
    NodeAttributes,
    NodeChanged,
    OperatorAsked,
    Ready,
    Reason,
    StreamCreated,
)
from placement.reconciler import Reconciler
from streaming.observability import metrics as metrics_module
from streaming.observability.endpoint import Endpoint, EndpointRefused
from streaming.observability.logs import LOGGER, MEANINGS, LogEvent, configure_logging, log_event
from streaming.observability.metrics import CommitSummary, Metrics
from streaming.observability.observer import Observer
from streaming.observability.probes import BATCH_SECONDS_MAX, QUIET_SECONDS_MAX, Probes

README = Path(metrics_module.__file__).parent / "README.md"
NODES = {f"n{i}": f"/z{i}" for i in range(1, 5)}


def node(node_id: str, at: int, liveness: Liveness = Liveness.UP) -> NodeChanged:
    attributes = NodeAttributes(NODES[node_id]) if at == 0 else None
    return NodeChanged(at, node_id, "a", at, liveness, attributes)


class Told:
    """Metrics fed by a reconciler, batch by batch."""

    def __init__(self) -> None:
        self.core = Reconciler(Configuration())
        self.observer = Observer("main")
        self.observer.on_active(self.core)

    def batch(
        self,
        events: list[Event],
        at: int,
        letters: tuple[str, ...] = (),
        left_out: Mapping[str, int] | None = None,
    ) -> None:
        self.observer.on_batch_began("nodes")
        ready = self.core.apply(events, at)
        spent, open_moves = (0.01, 0.02), self.core.open_moves
        commit = CommitSummary(
            tuple(events), ready, letters, *spent, at, open_moves, left_out or {}
        )
        self.observer.on_records_ignored(ready.counts)
        self.observer.on_commit(commit)
        self.observer.on_batch_ended("nodes")

    def value(self, name: str, **labels: str) -> float | None:
        return self.observer.metrics.registry.get_sample_value(f"reconciler_{name}", labels)


@pytest.fixture
def told() -> Told:
    return Told()


def test_who_stands_by_again_shows_nothing_of_its_time_as_the_active_one(told: Told) -> None:
    gauges = {"nodes", "underreplicated_shards", "moves_in_flight", "load_lag_seconds"}
    told.batch([node(node_id, 0) for node_id in NODES], 1)
    told.batch([StreamCreated(2, "s", 1, 2, 3), node("n1", 3, Liveness.DEAD)], 4)
    told.observer.on_loads_read(90_000)
    assert told.value("nodes", status="dead") == 1
    assert told.value("load_lag_seconds") == 90
    told.observer.on_standing_by("other", 2, None)
    assert told.value("role", role="standby") == 1
    assert told.value("role", role="active") == 0
    assert told.value("last_batch_timestamp_seconds") > 0
    shown = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in told.observer.metrics.registry.collect()
        for sample in metric.samples
        if sample.name.removeprefix("reconciler_") in gauges
    }
    assert len(shown) > len(gauges)
    assert set(shown.values()) == {0}


def test_metrics_follow_what_is_published(told: Told) -> None:
    told.batch([node(node_id, 0) for node_id in NODES], 1)
    asked = [
        StreamCreated(2, "s", 1, 2, 3),
        StreamCreated(2, "no", 1, 1, 9, placement_policies="node=exclusive"),
    ]
    told.batch(asked, 2, ("NOT_JSON", "NOT_JSON", "KEY_MISMATCH"), {"NOT_JSON": 1})
    assert told.value("events_consumed_total", type="NodeChanged") == 4
    assert told.value("events_rejected_total", reason="NOT_JSON") == 2
    assert told.value("dead_letters_left_out_total", reason="NOT_JSON") == 1
    assert told.value("decisions_emitted_total", outcome="placed") == 1
    assert told.value("streams", outcome="rejected") == 1
    assert told.value("nodes", status="up") == 4
    assert told.value("underreplicated_shards") == 0
    ready = told.core.in_force()
    dead = next(iter(NODES))
    told.batch([node(dead, 3, Liveness.DEAD)], 3)
    open_moves = told.core.open_moves
    assert open_moves > 0
    assert told.value("nodes", status="dead") == 1
    assert told.value("nodes", status="up") == 3
    assert told.value("moves_in_flight") == open_moves
    assert told.value("underreplicated_shards") == open_moves
    assert told.value("placement_violations", severity="required") == open_moves
    issued = told.value("commands_emitted_total", kind="replace", cause="under_replicated")
    assert issued == open_moves
    acks: list[Event] = [MoveAcked(4, AckKind.COMPLETED, None, "s", shard) for shard in (0, 1)]
    told.batch(acks, 4)
    assert told.value("commands_ended_total", state="completed") == open_moves
    assert told.value("moves_in_flight") == told.value("underreplicated_shards") == 0
    assert told.value("placement_violations", severity="required") == 0
    assert told.value("batch_duration_seconds_count") == 4
    assert told.value("last_batch_timestamp_seconds") == 0.004
    assert set(ready.decisions) == {"s", "no"}


def test_what_changed_nothing_is_counted_by_reason(told: Told) -> None:
    told.batch([node("n1", 1), StreamCreated(1, "s", 1, 1, 1)], 1)
    told.batch([MoveAcked(2, AckKind.COMPLETED, None, "s", 0)], 2)
    told.observer.on_records_ignored({"unknown_node": 2})
    assert told.value("ignored_records_total", reason="unknown_node") == 3
    assert told.value("ignored_records_total", reason="late_ack") == 1


def test_moves_that_were_called_off_are_counted_until_they_are_confirmed(told: Told) -> None:
    told.batch([node(node_id, 0) for node_id in NODES], 1)
    told.batch([StreamCreated(2, "s", 1, 2, 3), node("n1", 3, Liveness.DEAD)], 3)
    expired = 3 + Configuration().deadline_ms
    lived: list[Event] = [node(each, expired) for each in NODES if each != "n1"]
    told.batch(lived, expired)
    called_off = told.value("commands_ended_total", state="expired")
    assert called_off
    assert told.value("moves_unconfirmed", told="once") == called_off
    told.batch([], expired + Configuration().remind_ms)
    assert told.value("moves_unconfirmed", told="once") == 0
    assert told.value("moves_unconfirmed", told="again") == called_off
    again = Metrics("main")
    again.start_from(told.core.in_force(), told.core.open_moves)
    assert samples(again, "moves_unconfirmed") == {(("told", "again"),): called_off}
    stopped: list[Event] = [MoveAcked(4, AckKind.STOPPED, None, "s", shard) for shard in (0, 1)]
    told.batch(stopped, expired + Configuration().remind_ms + 1)
    assert told.value("moves_unconfirmed", told="again") == 0
    assert told.value("commands_ended_total", state="expired") == called_off, "each ended once"


def test_a_hold_is_counted_as_held_until_it_is_overridden_or_ends(told: Told) -> None:
    # Four zones of three nodes each: the loss of all of one is held.
    for rack in range(4):
        told.batch([racked(f"n{rack}{number}", 1 + rack, rack) for number in range(3)], 1 + rack)
    assert told.value("holds", state="held") == 0
    gone = [node_at(f"n0{number}", 10, Liveness.DEAD) for number in range(3)]
    told.batch([*gone], 10)
    assert told.value("holds", state="held") == 1
    seen = told.core.preview(OperatorAsked(11, "r", Action.OVERRIDE_HOLD, "/z0"))
    told.batch([OperatorAsked(11, "r", Action.OVERRIDE_HOLD, "/z0", seen.hash)], 11)
    assert told.value("memory", kind="hold") == 1, "it is remembered, and holds nothing"
    assert (told.value("holds", state="held"), told.value("holds", state="overridden")) == (0, 1)
    again = Metrics("main")
    again.start_from(told.core.in_force(), told.core.open_moves)
    assert samples(again, "holds") == {(("state", "overridden"),): 1.0}
    told.batch([], 12 + Configuration().hold_window_ms)
    assert (told.value("holds", state="held"), told.value("holds", state="overridden")) == (0, 0)


def racked(node_id: str, at: int, rack: int) -> NodeChanged:
    return NodeChanged(at, node_id, "a", 0, Liveness.UP, NodeAttributes(f"/z{rack}/r"))


def node_at(node_id: str, at: int, liveness: Liveness) -> NodeChanged:
    return NodeChanged(at, node_id, "a", at, liveness)


def test_what_alerting_rules_count_begins_at_zero() -> None:
    begun = {
        family: {tuple(sample.labels.values()) for sample in samples_of(family)}
        for family in ("commands_ended", "alerts_emitted", "requests_answered")
    }
    ended = {str(state) for state in MoveState if not state.is_open}
    assert {state for (state,) in begun["commands_ended"]} == ended
    assert {kind for kind, _ in begun["alerts_emitted"]} == set(AlertKind)
    assert {outcome for (outcome,) in begun["requests_answered"]} == set(AnswerOutcome)


def samples_of(family: str) -> list[Sample]:
    families = Metrics("main").registry.collect()
    return [s for f in families if f.name == f"reconciler_{family}" for s in f.samples]


def test_a_restart_counts_from_the_state(told: Told) -> None:
    told.batch([node(node_id, 0) for node_id in NODES], 1)
    told.batch([StreamCreated(2, "s", 1, 2, 3), node("n1", 3, Liveness.DEAD)], 3)
    again = Metrics("main")
    again.start_from(told.core.in_force(), told.core.open_moves)
    for name in ("nodes", "streams", "placement_violations", "underreplicated_shards"):
        counted = samples(told.observer.metrics, name)
        assert counted, f"nothing is counted in {name}"
        assert samples(again, name) == counted
    assert again.registry.get_sample_value("reconciler_commands_emitted_total") is None


def samples(metrics: Metrics, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    families = (f for f in metrics.registry.collect() if f.name == f"reconciler_{name}")
    found = (sample for family in families for sample in family.samples)
    return {tuple(sample.labels.items()): sample.value for sample in found if sample.value}


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def endpoint_of(told: Told, host: str = "127.0.0.1", port: int = 0) -> Endpoint:
    registry, probes = told.observer.metrics.registry, told.observer.probes
    return Endpoint(host, port, registry, probes.check_live, probes.check_ready)


@pytest.fixture
def served(told: Told) -> Iterator[tuple[Told, str]]:
    with endpoint_of(told) as endpoint:
        yield told, endpoint.address


def test_the_endpoint(served: tuple[Told, str]) -> None:
    told, address = served
    assert get(address, "/livez") == get(address, "/healthz") == (200, "ok\n")
    status, why = get(address, "/readyz")
    assert (status, "starting" in why) == (503, True)
    told.batch([], 1)
    assert get(address, "/readyz")[0] == 200
    status, text = get(address, "/metrics")
    assert status == 200
    assert 'reconciler_build_info{cell="main"' in text
    assert get(address, "/other")[0] == 404
    told.observer.on_query_ended("the query has ended")
    assert get(address, "/livez") == (503, "the query has ended\n")
    assert get(address, "/readyz")[0] == 503


def test_a_port_that_is_taken(served: tuple[Told, str]) -> None:
    told, address = served
    host, port = address.split(":")
    with pytest.raises(EndpointRefused, match=r"set metrics\.port"):
        endpoint_of(told, host, int(port))


def test_a_batch_that_the_role_was_taken_from_does_not_hang() -> None:
    now = 0.0
    probes = Probes(lambda: now)
    probes.on_batch_began("nodes")
    # Stopped with its query; the process stands by from here on.
    probes.on_query_ended("the query has ended")
    now = BATCH_SECONDS_MAX + 1
    probes.on_followed(7, 0)
    assert probes.check_live() == (True, "ok")
    assert probes.check_ready() == (True, "standby: commit 7 is proven, 0 behind the last one")


def test_health_over_time() -> None:
    now = 0.0
    probes = Probes(lambda: now)
    probes.on_batch_began("nodes")
    now = BATCH_SECONDS_MAX
    assert probes.check_live()[0]
    now += 1
    assert probes.check_live() == (False, "a batch of nodes has been running for 61 s")
    probes.on_batch_ended("nodes")
    assert probes.check_ready()[0]
    now += QUIET_SECONDS_MAX + 1
    assert probes.check_live()[0], "Kafka may be away: a restart would not mend that"
    assert not probes.check_ready()[0]


def test_names_follow_the_practice(told: Told) -> None:
    """All of our registry is ours, but for what Prometheus' client says of the process."""
    families = told.observer.metrics.registry.collect()
    ours = [family for family in families if re.match(r"reconciler_", family.name)]
    others = {family.name.split("_")[0] for family in families if family not in ours}
    assert {family.name for family in ours} >= {
        "reconciler_nodes",
        "reconciler_batch_duration_seconds",
    }
    assert others <= {"python", "process"}
    for family in ours:
        assert re.fullmatch(r"reconciler_[a-z_]+", family.name)
        assert family.documentation.endswith((".", "…"))
        assert family.type in ("counter", "gauge", "histogram", "info")


def test_the_readme_lists_every_metric_and_every_event() -> None:
    text = README.read_text("utf-8")
    for name in metrics_module.descriptions():
        assert f"`{name}" in text, name
    for event in LogEvent:
        assert f"| `{event}` | {MEANINGS[event]} |" in text, event


@pytest.fixture
def lines() -> Iterator[list[Any]]:
    """The log's records during a test; each has the attributes `event` and `fields`."""
    kept: list[Any] = []
    logger, handler = logging.getLogger(LOGGER), logging.Handler()
    handler.emit = kept.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield kept
    logger.removeHandler(handler)


def test_answers_to_requests_are_counted_and_are_no_warnings(told: Told, lines: list[Any]) -> None:
    told.batch([node(node_id, 0) for node_id in NODES], 1)
    told.batch([OperatorAsked(2, "r1", Action.CORDON, "n1")], 2)
    told.batch([OperatorAsked(3, "r2", Action.CORDON, "n9")], 3)
    assert told.value("requests_answered_total", outcome="accepted") == 1
    assert told.value("requests_answered_total", outcome="refused") == 1
    assert [(line.levelname, line.event, line.fields["outcome"]) for line in lines] == [
        ("INFO", LogEvent.REQUEST_ANSWERED, "accepted"),
        ("INFO", LogEvent.REQUEST_ANSWERED, "refused"),
    ]


@pytest.mark.parametrize(
    ("kind", "code", "severity"),
    [
        (AlertKind.HOLD, Code.REPAIR_HELD, "critical"),
        (AlertKind.HOLD, Code.HOLD_ENDED, "info"),
        (AlertKind.HELD_DOWN, Code.NODE_FLAPPING, "warning"),
        (AlertKind.NEW_DOMAIN, Code.DOMAIN_NEW, "info"),
    ],
)
def test_an_alert_is_counted_and_logged_by_its_severity(
    kind: AlertKind, code: Code, severity: str, lines: list[Any]
) -> None:
    observer = Observer("main")
    ready = Ready(alerts=[Alert(kind, "/a", 1, Reason(code, "It is so."))])
    observer.on_commit(CommitSummary((), ready, (), 0.01, 0.02, 1, 0))
    counted = samples(observer.metrics, "alerts_emitted")
    assert (("kind", kind), ("severity", severity)) in counted
    assert [(line.levelname, line.event) for line in lines] == [(severity.upper(), "ALERT")]


@pytest.mark.parametrize(
    ("seconds", "warnings"),
    [
        ([40.0, 1.0, 1.0], 0),  # the first batch bears the start
        ([40.0, 9.0, 9.0, 1.0, 9.0, 9.0], 0),
        ([1.0, 9.0, 9.0, 9.0], 1),
        ([40.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0], 1),  # once for one spell
        ([40.0, 9.0, 9.0, 9.0, 1.0, 9.0, 9.0, 9.0], 2),
    ],
)
def test_batches_are_slow_when_three_in_a_row_are(
    seconds: list[float],
    warnings: int,
    lines: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(
        "streaming.observability.observer.time", SimpleNamespace(monotonic=lambda: now[0])
    )
    observer = Observer("main")
    for spent in seconds:
        observer.on_batch_began("nodes")
        now[0] += spent
        observer.on_batch_ended("nodes")
    assert [line.event for line in lines] == [LogEvent.SLOW_BATCH] * warnings


def test_text_lines_print_words_as_they_are_and_nothing_of_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    configure_logging("info", "text")
    reasons = {Code.STREAM_EXISTS: 1}
    log_event(
        LogEvent.DEAD_LETTERS, reasons=reasons, kind=AlertKind.HOLD, why="two words", seconds=1.5
    )
    told = out.getvalue().partition("by reason ")[2]
    assert told == 'reasons={"STREAM_EXISTS": 1} kind=HOLD why="two words" seconds=1.5\n'
    logging.getLogger(LOGGER).handlers.clear()


@pytest.mark.parametrize("form", ["text", "json"])
def test_log_lines(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    configure_logging("info", form)
    log_event(LogEvent.ALERT, logging.WARNING, subject="a\nb")
    line = out.getvalue()
    assert line.count("\n") == 1, "what comes from outside cannot begin a line"
    if form == "json":
        read = json.loads(line)
        assert list(read) == ["ts", "level", "logger", "msg", "event", "context"]
        assert (read["event"], read["context"]) == ("ALERT", {"subject": "a\nb"})
    else:
        assert "WARNING ALERT" in line
    logging.getLogger(LOGGER).handlers.clear()
