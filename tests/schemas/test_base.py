"""What all models share: strictness, immutability, unknown fields, error sentences."""

import pytest
from pydantic import ValidationError

from schemas.base import describe, echo, unknown_fields
from schemas.bookkeeping import CommitMarker
from schemas.cluster import ClusterFile
from schemas.inputs import NodeHeartbeat, NodeRegistered, StreamCreated
from schemas.node_view import NodeView
from schemas.outputs import Assignment, Decision, Violations

BEAT = {"node_id": "n1", "incarnation": "i", "sequence": 1}


def test_models_are_frozen():
    beat = NodeHeartbeat.model_validate(BEAT)
    with pytest.raises(ValidationError, match="frozen"):
        beat.sequence = 2


def test_defaults_of_a_registration():
    node = NodeRegistered.model_validate(BEAT)
    assert (node.weight, node.leader, node.liveness) == (1.0, True, "heartbeat")
    assert (node.location, node.tags, node.capacity, node.tokens) == (None, None, None, None)


@pytest.mark.parametrize(
    "location",
    ["/site1", "/eu/az1/r1", "/a/b/c/d/e/f/g/h", "/a.b/_-.", "/...", "/a/...", "/us%20east/%2E"],
)
def test_locations_of_every_form_are_read(location):
    assert NodeRegistered.model_validate({**BEAT, "location": location}).location == location


@pytest.mark.parametrize("tokens", [[1, -5], ["a", "b"], []])
def test_tokens_are_all_integers_or_all_strings(tokens):
    assert NodeRegistered.model_validate({**BEAT, "tokens": tokens}).tokens == tuple(tokens)


def test_unknown_fields_are_ignored_and_named():
    given = {**BEAT, "wieght": 2, "a": 1}
    assert NodeRegistered.model_validate(given).weight == 1.0
    assert unknown_fields(NodeRegistered, given) == ["a", "wieght"]
    assert unknown_fields(NodeRegistered, BEAT) == []


def test_unknown_fields_are_found_in_nested_models():
    node = {"id": "n1", "wieght": 1}
    assert unknown_fields(ClusterFile, {"nodes": [{"id": "n0"}, node], "mvoes": []}) == [
        "mvoes",
        "nodes[1].wieght",
    ]
    marker = {"clocks": {"0": {"append_ms": 1, "clock_ms": 1, "skew": 1}}}
    assert unknown_fields(CommitMarker, marker) == ["clocks.0.skew"]
    violation = {"class": "fixable", "violation_class": "fixable", "reason": {"cod": 1}}
    assert unknown_fields(Violations, {"violations": [violation]}) == [
        "violations[0].reason.cod",
        "violations[0].violation_class",
    ]


def test_free_json_has_no_unknown_fields():
    created = {"policy": {"strategy": "spread", "anything": {"at": "all"}}, "replicas": [["n1"]]}
    assert unknown_fields(StreamCreated, created) == []


def test_unknown_fields_of_malformed_data_do_not_raise():
    assert unknown_fields(ClusterFile, {"nodes": {"id": 1}, "streams": [1, None]}) == []
    assert unknown_fields(Decision, {"spec": [1], "reasons": "x"}) == []


def test_an_assignment_keeps_its_order():
    assignment = Assignment.model_validate(
        {
            "stream": "orders",
            "shard": 0,
            "epoch": 1,
            "replicas": ["n3", "n1", "n2"],
            "adding": [],
            "removing": [],
            "decided_at": 0,
        }
    )
    assert assignment.replicas == ("n3", "n1", "n2")
    assert assignment.record_key() == "orders/0"


def test_the_unlocated_domain_is_the_empty_path():
    view = {
        **BEAT,
        "body_hash": "",
        "revision": 1,
        "location": "",
        "tags": {},
        "weight": 1,
        "leader": True,
        "liveness": "up",
        "status": "up",
        "since": 0,
    }
    assert NodeView.model_validate(view).location == ""
    with pytest.raises(ValidationError, match="location"):
        NodeView.model_validate({**view, "location": "site1"})


def test_what_is_echoed_is_short_and_printable():
    assert echo("a\nb\x1b[31m\u202e") == "'a\\nb\\x1b[31m\\u202e'"
    assert len(echo("x" * 1000)) < 70


def test_a_wild_field_name_cannot_write_into_a_log():
    given = {**BEAT, "tags": {"\x1b[2J\n" * 40: "v"}}
    with pytest.raises(ValidationError) as caught:
        NodeRegistered.model_validate(given)
    field, sentence = describe(caught.value, given)
    assert sentence.isprintable()
    assert sentence.isascii()
    assert len(field) < 80


@pytest.mark.parametrize(("wrong", "end"), [(2, "'tags.k1'"), (6, "'tags.k5'"), (9, "and 3 more")])
def test_all_wrong_fields_are_named_as_far_as_a_sentence_goes(wrong, end):
    given = {**BEAT, "tags": {f"k{n}": n for n in range(wrong)}}
    with pytest.raises(ValidationError) as caught:
        NodeRegistered.model_validate(given)
    field, sentence = describe(caught.value, given)
    assert field == "tags.k0"
    assert sentence.startswith("field 'tags.k0' must be a string, it is 0; also wrong: 'tags.k1'")
    assert sentence.endswith(end)
