"""Goal: equal bodies have equal hashes, and no alteration or drop has that of a creation.

Method: bodies by hand; messages with and without the fields that came later.
"""

from schemas.body_hashes import hash_body, hash_request
from schemas.inputs import StreamAltered, StreamCreated, StreamDropped

SPEC = {"stream": "orders", "sequence": 1, "shards": 2, "replication_factor": 3}


def test_the_order_of_fields_does_not_change_the_hash() -> None:
    assert hash_body({"a": 1, "b": {"d": 2, "c": [3]}}) == hash_body(
        {"b": {"c": [3], "d": 2}, "a": 1}
    )
    assert hash_body({"a": 1}) != hash_body({"a": 2})
    assert hash_body({"a": [1, 2]}) != hash_body({"a": [2, 1]})


def test_requests_of_other_kinds_or_with_other_fields_differ() -> None:
    requests = (
        StreamCreated(**SPEC),
        StreamCreated(**SPEC, uid="u1"),
        StreamAltered(**SPEC),
        StreamDropped(stream="orders", sequence=1),
        StreamDropped(stream="orders", sequence=1, uid="u1"),
    )
    assert len({hash_request(each) for each in requests}) == len(requests)
    assert hash_request(StreamCreated(**SPEC)) == hash_request(StreamCreated(**SPEC))
