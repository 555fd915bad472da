"""Goal: a typing error in a field's name is told from a field that this version does not know."""

import pytest

from schemas.inputs import INPUTS
from schemas.spelling import did_you_mean, find_meant_field

STREAM = list(INPUTS["StreamCreated"].model_fields)
NODE = list(INPUTS["NodeRegistered"].model_fields)


@pytest.mark.parametrize(
    ("name", "fields", "meant"),
    [
        ("polcy", STREAM, "policy"),
        ("Policy", STREAM, "policy"),
        ("shard", STREAM, "shards"),
        ("replicationFactor", STREAM, "replication_factor"),
        ("replication-factor", STREAM, "replication_factor"),
        ("replicaton_facter", STREAM, "replication_factor"),
        ("quorom", STREAM, "quorum"),
        ("placment_policies", STREAM, "placement_policies"),
        ("wieght", NODE, "weight"),
        ("locaiton", NODE, "location"),
        ("tag", NODE, "tags"),
        ("nodeId", NODE, "node_id"),
    ],
)
def test_a_slip_is_a_misspelling(name: str, fields: list[str], meant: str) -> None:
    assert find_meant_field(name, fields) == meant


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("version", STREAM),
        ("timestamp", STREAM),
        ("policy_id", STREAM),
        ("stream_name", STREAM),
        ("region", ["reason"]),
        ("cost", NODE),
        ("rack", NODE),
        ("location_source", NODE),
        ("tags2", NODE),
        ("weights2", NODE),
        ("ip", ["id"]),
        ("", STREAM),
        ("\u00e9\u00e9", STREAM),
    ],
)
def test_another_name_is_a_field_of_its_own(name: str, fields: list[str]) -> None:
    assert find_meant_field(name, fields) is None


def test_what_is_given_is_not_meant() -> None:
    assert find_meant_field("shard", [field for field in STREAM if field != "shards"]) is None


def test_suggestions_are_a_sentence() -> None:
    assert did_you_mean("ordrs", ["orders", "clicks"]) == "; did you mean orders?"
    assert did_you_mean("n11", ["n1", "n12"]) == "; did you mean n1 or n12?"
    assert did_you_mean("zzz", ["n1"]) == ""
