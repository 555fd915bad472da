"""Refusals: codes of records that are not input messages and become dead letters.

The table of this package's README is written from here.
"""

from enum import StrEnum

from schemas.codes import Advice


class RefusalCode(StrEnum):
    """Code of a record that is not an input message."""

    EMPTY_VALUE = "EMPTY_VALUE"
    TOO_LARGE = "TOO_LARGE"
    NOT_JSON = "NOT_JSON"
    TOO_DEEP = "TOO_DEEP"
    TOO_MANY_FIELDS = "TOO_MANY_FIELDS"
    STRING_TOO_LONG = "STRING_TOO_LONG"
    NUMBER_OUT_OF_RANGE = "NUMBER_OUT_OF_RANGE"
    DUPLICATE_FIELD = "DUPLICATE_FIELD"
    HEADER_MALFORMED = "HEADER_MALFORMED"
    UNKNOWN_TYPE = "UNKNOWN_TYPE"
    UNKNOWN_VERSION = "UNKNOWN_VERSION"
    WRONG_TOPIC = "WRONG_TOPIC"
    WRONG_TYPE = "WRONG_TYPE"
    UNKNOWN_FIELD = "UNKNOWN_FIELD"
    KEY_MISMATCH = "KEY_MISMATCH"
    RESOURCE_UNKNOWN = "RESOURCE_UNKNOWN"


REFUSALS: dict[RefusalCode, Advice] = {
    RefusalCode.EMPTY_VALUE: Advice(
        "The record has no value. Input topics take no tombstones.",
        "Send NodeUnregistered to remove a node.",
    ),
    RefusalCode.TOO_LARGE: Advice(
        "Value and headers exceed 64 KiB, or 256 KiB on loads.v1.",
        "Split the request, or drop fields.",
    ),
    RefusalCode.NOT_JSON: Advice(
        "The value is not JSON in UTF-8 (NaN, a byte order mark or a lone surrogate).",
        "Use a JSON serializer; Avro and the Schema Registry's prefix are not supported.",
    ),
    RefusalCode.TOO_DEEP: Advice(
        "The record has more than 8 nested levels.", "Flatten the record."
    ),
    RefusalCode.TOO_MANY_FIELDS: Advice(
        "An object has more than 64 fields.", "Send only documented fields."
    ),
    RefusalCode.STRING_TOO_LONG: Advice(
        "A string or a field's name exceeds 1 KiB.", "Shorten it; ids have 249 characters at most."
    ),
    RefusalCode.NUMBER_OUT_OF_RANGE: Advice(
        "A number is an integer beyond 64 bits or infinite.", "Check the producer's arithmetic."
    ),
    RefusalCode.DUPLICATE_FIELD: Advice(
        "One object has the same field twice; readers would disagree on its value.",
        "Fix the serializer.",
    ),
    RefusalCode.HEADER_MALFORMED: Advice(
        "A CloudEvents header is repeated, empty, too long or not UTF-8.", "Fix the producer."
    ),
    RefusalCode.UNKNOWN_TYPE: Advice(
        "The type is missing or is not an input message.", "See the table of messages."
    ),
    RefusalCode.UNKNOWN_VERSION: Advice(
        "The message is known, but not in this version.",
        "Send the version of the table, or upgrade the reconciler first.",
    ),
    RefusalCode.WRONG_TOPIC: Advice(
        "The message belongs on another topic.", "Check the producer's topic."
    ),
    RefusalCode.WRONG_TYPE: Advice(
        "A field is missing, of the wrong type or outside its limits; the message names it.",
        "Compare with the message's JSON Schema and example.",
    ),
    RefusalCode.UNKNOWN_FIELD: Advice(
        "An unknown field is spelt nearly like a missing one; the message names both.",
        "Correct the name. Other unknown fields are ignored and counted.",
    ),
    RefusalCode.KEY_MISMATCH: Advice(
        "The record's key is missing or differs from the id in the value.",
        "Key records as in the table of topics: order per key depends on it.",
    ),
    RefusalCode.RESOURCE_UNKNOWN: Advice(
        "A registration or a report of loads names a resource that is not configured; the message "
        "names the field and the configured ones.",
        "Correct the name, or configure the resource first. To remove one, let the nodes leave it "
        "out first.",
    ),
}
