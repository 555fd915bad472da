"""Reports of loads: figures that are no amounts are refused by the name of their field."""

import json
from typing import Any

import pytest

from schemas import limits
from schemas.envelope import Refusal, decode, validate
from schemas.inputs import NodeLoadReported, NodeRegistered
from schemas.outputs import OUTPUTS
from schemas.refusals import RefusalCode

LIFE = {"node_id": "n1", "incarnation": "a", "sequence": 1}


def read(message: str, topic: str, text: str, bytes_max: int = limits.RECORD_BYTES_MAX) -> Any:
    """The message or the refusal of a record whose fields are given as JSON."""
    life = json.dumps({"type": message, **LIFE})[:-1]
    envelope = decode(f"{life}, {text}}}".encode(), None, bytes_max)
    return envelope if isinstance(envelope, Refusal) else validate(envelope, b"n1", topic)


def test_a_shard_names_amounts_by_resource() -> None:
    text = '"shards": [{"stream": "s", "shard": 0, "disk_bytes": 5, "uid": "u"}]'
    found = read("NodeLoadReported", "loads.v1", text)
    assert isinstance(found, NodeLoadReported)
    (shard,) = found.shards
    assert (shard.stream, shard.shard, shard.uid, shard.amounts) == ("s", 0, "u", {"disk_bytes": 5})


@pytest.mark.parametrize(
    ("shard", "code", "detail"),
    [
        (
            '"disk_bytes": -1',
            "WRONG_TYPE",
            "field 'shards[0].disk_bytes' must be at least 0, it is -1",
        ),
        (
            '"disk_bytes": 1.5',
            "WRONG_TYPE",
            "field 'shards[0].disk_bytes' must be an integer, it is 1.5",
        ),
        ('"disk_bytes": NaN', "NOT_JSON", "NaN is not JSON"),
        (
            '"disk_bytes": 4611686018427387905',
            "WRONG_TYPE",
            (
                "field 'shards[0].disk_bytes' must be at most 4611686018427387904, "
                "it is 4611686018427387905"
            ),
        ),
        (
            '"disk_bytes": 99999999999999999999',
            "NUMBER_OUT_OF_RANGE",
            "the integer 99999999999999999999 does not fit 64 bits",
        ),
        (
            '"disk_bytes": "5"',
            "WRONG_TYPE",
            "field 'shards[0].disk_bytes' must be an integer, it is '5'",
        ),
        (
            '"disk_bytes": true',
            "WRONG_TYPE",
            "field 'shards[0].disk_bytes' must be an integer, it is True",
        ),
        ('"load": 5, "load": 6', "DUPLICATE_FIELD", "field 'load' is given twice"),
        (
            '"disk_bytes": 5}, {"stream": "s", "shard": 0, "disk_bytes": 6',
            "WRONG_TYPE",
            (
                "field 'shards' must be legal: each shard once, it is "
                "[{'stream': 's', 'shard': 0, 'disk_bytes': 5}, {'stream': 's..."
            ),
        ),
        (
            '"Disk": 5',
            "WRONG_TYPE",
            (
                "field 'shards[0]' must be legal: amounts by names of resources of the form "
                "^[a-z][a-z0-9_]{0,62}$, it is {'stream': 's', 'shard': 0, 'Disk': 5}"
            ),
        ),
        (
            '"uid": null',
            "WRONG_TYPE",
            (
                "field 'shards[0]' must be legal: at least one amount, by the name of its "
                "resource, it is {'stream': 's', 'shard': 0, 'uid': None}"
            ),
        ),
    ],
)
def test_what_is_no_amount_is_refused_with_the_name_of_its_field(
    shard: str, code: str, detail: str
) -> None:
    text = f'"shards": [{{"stream": "s", "shard": 0, {shard}}}]'
    assert read("NodeLoadReported", "loads.v1", text) == Refusal(RefusalCode(code), detail)


@pytest.mark.parametrize(
    ("capacities", "detail"),
    [
        ('{"disk_bytes": 0}', "field 'capacities.disk_bytes' must be at least 1, it is 0"),
        ('{"disk_bytes": -5}', "field 'capacities.disk_bytes' must be at least 1, it is -5"),
        ('{"disk_bytes": 0.5}', "field 'capacities.disk_bytes' must be an integer, it is 0.5"),
        (
            '{"Disk": 5}',
            "field 'capacities.Disk' must be of the form ^[a-z][a-z0-9_]{0,62}$, it is 'Disk'",
        ),
    ],
)
def test_a_capacity_is_more_than_nothing(capacities: str, detail: str) -> None:
    found = read("NodeRegistered", "nodes.v1", f'"capacities": {capacities}')
    assert found == Refusal(RefusalCode.WRONG_TYPE, detail)


def test_a_registration_states_capacities() -> None:
    found = read("NodeRegistered", "nodes.v1", '"capacities": {"disk_bytes": 4}')
    assert isinstance(found, NodeRegistered)
    assert found.capacities == {"disk_bytes": 4}


def test_a_report_may_be_longer_than_other_records() -> None:
    shards = [{"stream": "orders", "shard": n, "disk_bytes": 10**12} for n in range(2_000)]
    text = f'"shards": {json.dumps(shards)}'
    assert read("NodeLoadReported", "loads.v1", text).code == RefusalCode.TOO_LARGE
    found = read("NodeLoadReported", "loads.v1", text, limits.LOAD_RECORD_BYTES_MAX)
    assert len(found.shards) == 2_000


def test_the_load_of_a_shard_is_published_under_its_name() -> None:
    body = {"stream": "s", "shard": 3, "amounts": {"disk_bytes": 5}, "node_id": "n", "at": 0}
    assert OUTPUTS["ShardLoad"].model_validate(body).record_key() == "s/3"
