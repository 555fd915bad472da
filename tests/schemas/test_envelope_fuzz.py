"""Whatever a record holds, it becomes a message or a refusal: nothing raises."""

import json

from hypothesis import given
from hypothesis import strategies as st

from schemas import limits
from schemas.envelope import Refusal, decode, type_name, validate
from schemas.inputs import INPUTS
from schemas.refusals import RefusalCode
from schemas.topics import BY_NAME

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=20,
)
header_names = st.sampled_from(["ce_type", "ce_specversion", "ce_id", "content-type"]) | st.text()
header_contents = (
    st.none()
    | st.binary()
    | st.sampled_from([*(type_name(m).encode() for m in INPUTS), b"1.0"])
    | st.just(b"application/cloudevents+json")
)
headers_or_none = st.none() | st.lists(st.tuples(header_names, header_contents), max_size=4)
short_names = st.sampled_from([*BY_NAME, "nowhere"])


def assert_answered(value, key, topic, headers):
    envelope = decode(value, headers)
    answer = envelope if isinstance(envelope, Refusal) else validate(envelope, key, topic)
    if isinstance(answer, Refusal):
        assert answer.code in RefusalCode.__members__
        assert answer.detail
        assert len(answer.detail) <= limits.DETAIL_LENGTH_MAX
    else:
        assert type(answer) in INPUTS.values()


@given(st.none() | st.binary(), st.none() | st.binary(), short_names, headers_or_none)
def test_no_bytes_raise(value, key, topic, headers):
    assert_answered(value, key, topic, headers)


@given(
    st.sampled_from([*INPUTS, "Nothing"]),
    st.dictionaries(
        st.sampled_from(sorted({f for m in INPUTS.values() for f in m.model_fields})) | st.text(),
        json_values,
    ),
    st.binary(),
    short_names,
    headers_or_none,
)
def test_no_json_raises(message, fields, key, topic, headers):
    value = json.dumps({**fields, "type": message}).encode()
    assert_answered(value, key, topic, headers)
