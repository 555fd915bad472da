"""Codes and enumerations on the wire are those of the core, and each has advice."""

import pytest

from placement.diagnosis import health
from placement.model import alerts as core_alerts
from placement.model import events, reasons, records
from placement.streams import decision
from schemas import alerts, generate, node_view, outputs, reason, requests
from schemas.codes import REASONS
from schemas.refusals import REFUSALS, RefusalCode
from schemas.words import ALERTS, CAUSES, HEALTH, MOVES, RULES


def test_every_refusal_has_advice():
    assert set(REFUSALS) == set(RefusalCode)


def test_the_reasons_are_those_of_the_core():
    assert set(REASONS) == {code.value for code in reasons.Code}


def test_the_bands_are_those_of_the_core():
    assert {code: advice.band.value for code, advice in REASONS.items()} == {
        code.value: reasons.BAND_OF[code].value for code in reasons.Code
    }


def test_the_words_for_health_are_those_of_the_core():
    assert list(HEALTH) == [word.value for word in health.Health]


def test_the_causes_of_moves_are_those_of_the_core():
    assert list(CAUSES) == [cause.value for cause in records.Cause]


def test_the_severities_of_alerts_are_those_of_the_core():
    assert {kind.value: advice.severity.value for kind, advice in ALERTS.items()} == {
        kind.value: severity.value for kind, severity in core_alerts.SEVERITIES.items()
    }
    assert set(core_alerts.SEVERITIES) == set(core_alerts.AlertKind)


@pytest.mark.parametrize(
    "advice",
    [
        each
        for table in (REFUSALS, REASONS, HEALTH, RULES, CAUSES, ALERTS, MOVES)
        for each in table.values()
    ],
)
def test_advice_is_whole_sentences(advice):
    for text in (advice.meaning, advice.action):
        assert text[0].isupper()
        assert text.endswith((".", ")."))
        assert "|" not in text


@pytest.mark.parametrize(
    ("written", "name"),
    [
        *((outputs, name) for name in ("Outcome", "MoveKind", "MoveState", "ViolationClass")),
        *((node_view, name) for name in ("Liveness", "AdministrativeState", "Guard")),
    ],
)
def test_enumerations_hold_every_word_of_the_core(written, name):
    spoken = {member.value for member in getattr(records, name)}
    assert spoken <= {member.value for member in getattr(written, name)}


@pytest.mark.parametrize("name", ["AlertKind", "AnswerOutcome", "Severity"])
def test_words_of_alerts_and_answers_are_those_of_the_core(name):
    core, written = getattr(core_alerts, name), getattr(alerts, name)
    assert [each.value for each in core] == [each.value for each in written]


def test_actions_of_requests_are_those_of_the_core():
    assert [each.value for each in events.Action] == [each.value for each in requests.Action]


def test_the_causes_are_enumerated():
    assert [each.value for each in records.Cause] == [each.value for each in outputs.MoveCause]


@pytest.mark.parametrize("name", ["StreamCreated", "StreamAltered", "ClusterFile"])
def test_the_words_a_stream_may_use_are_listed_although_the_core_judges_them(name):
    schema = generate.json_schema(name)
    stream = schema["$defs"]["ClusterStream"] if name == "ClusterFile" else schema
    repair, quorum = (
        [word for branch in stream["properties"][field]["anyOf"] for word in branch.get("enum", ())]
        for field in ("repair", "quorum")
    )
    assert repair == [each.value for each in records.RepairMode]
    assert decision.check_repair_mode(repair[0]) is None
    assert [decision.check_counts(1, 3, word) for word in quorum] == [None] * len(quorum)
    assert decision.check_counts(1, 3, "all") is not None


def test_bands_are_the_same_words():
    assert {band.value for band in reasons.Band} == {band.value for band in reason.Band}
