"""The JSON of `kafka-reassign-partitions`: current and wanted assignments, byte for byte as Kafka's
tool writes them.

The form has no place for a reason, a policy or a limit, and its nodes are broker numbers. Read as
ReassignPartitionsCommand reads it, with its refusals. What that prints of the present names the
directory of each replica, what it proposes says `any` (tried with the tool of Kafka 4.3.1, whose
output comes out byte for byte when it is read and written here); so do the rollback and the plan.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from placement.streams import SHARDS_MAX
from schemas.limits import ID

_VERSION = 1
_ANY = "any"
# What ReassignPartitionsCommand prints above the assignments that it found.
_CURRENT = "Current partition replica assignment"
# A broker's number is an int32 on the wire.
_BROKER_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Listed:
    """Holds a partition's node ids, leader first, and for each its log directory or `any`. No
    directories mean `any` for every node."""

    nodes: tuple[str, ...]
    log_dirs: tuple[str, ...] = ()


Assignments = Mapping[tuple[str, int], Listed]
"""By topic and partition."""


class ReassignmentInvalid(Exception):
    """A text that is no reassignment, or an arrangement that cannot be one."""


class AssignmentsUnfit(Exception):
    """Assignments that leave out partitions of which nothing is known; the message names them."""


def reassignment_json(assignments: Assignments) -> str:
    """The reassignment, by topic and then partition. Raises ReassignmentInvalid for a node that is
    no broker number."""
    partitions = [
        {
            "topic": topic,
            "partition": partition,
            "replicas": [_broker(node) for node in listed.nodes],
            "log_dirs": listed.log_dirs or [_ANY] * len(listed.nodes),
        }
        for (topic, partition), listed in sorted(assignments.items(), key=lambda each: each[0])
    ]
    return orjson.dumps({"version": _VERSION, "partitions": partitions}).decode()


def parse_reassignment(text: str) -> dict[tuple[str, int], Listed]:
    """The assignments that a reassignment says; of all that the tool prints with --generate or
    --execute those that are current. Raises ReassignmentInvalid."""
    value = _load(text)
    if not isinstance(value, dict):
        raise ReassignmentInvalid("not an object with 'partitions'")
    version = value.get("version", _VERSION)
    if version != _VERSION or isinstance(version, bool):
        raise ReassignmentInvalid(f"not supported version field value {version}")
    rows = value.get("partitions")
    if not isinstance(rows, list):
        raise ReassignmentInvalid("'partitions' is missing or no array")
    if not rows:
        raise ReassignmentInvalid("the list of partitions is empty")
    found: dict[tuple[str, int], Listed] = {}
    for number, row in enumerate(rows):
        topic, partition, listed = _row(row, f"partitions[{number}]")
        if (topic, partition) in found:
            raise ReassignmentInvalid(f"{topic}-{partition} is listed twice")
        found[topic, partition] = listed
    return found


def election_json(partitions: Iterable[tuple[str, int]]) -> str:
    """The partitions as `kafka-leader-election --path-to-json-file` reads them."""
    rows = [{"topic": topic, "partition": number} for topic, number in sorted(partitions)]
    return orjson.dumps({"partitions": rows}).decode()


def read_reassignment(file: str) -> dict[tuple[str, int], Listed]:
    """`read` of a file. Raises OSError and ReassignmentInvalid."""
    return parse_reassignment(Path(file).read_bytes().decode("utf-8", "replace"))


def shard_lists(assignments: Assignments) -> dict[str, list[list[str]]]:
    """The lists by topic, one for each partition up to the last that is named."""
    lists: dict[str, list[list[str]]] = {}
    for (topic, partition), listed in sorted(assignments.items(), key=lambda each: each[0]):
        own = lists.setdefault(topic, [])
        own += [[] for _ in range(partition + 1 - len(own))]
        own[partition] = list(listed.nodes)
    return lists


def _load(text: str) -> Any:
    """The value of the text, or of the JSON below the tool's heading for current assignments."""
    _, heading, below = text.partition(_CURRENT)
    lines = [line for line in text.splitlines() if line.lstrip().startswith("{")]
    if heading:
        text = next((line for line in below.splitlines() if line.lstrip().startswith("{")), "")
    try:
        return orjson.loads(text)
    except ValueError as error:
        if len(lines) > 1 and not heading and all(map(_is_json, lines)):
            message = f"{len(lines)} JSON documents, of which Kafka's tool reads the first and "
            raise ReassignmentInvalid(f"{message}ignores the others: give one") from error
        raise ReassignmentInvalid(f"not JSON: {error}") from error


def _is_json(text: str) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


def _row(row: Any, place: str) -> tuple[str, int, Listed]:
    if not isinstance(row, dict):
        raise ReassignmentInvalid(f"{place} is no object")
    topic, partition, brokers = row.get("topic"), row.get("partition"), row.get("replicas")
    if not isinstance(topic, str) or not ID.fullmatch(topic):
        raise ReassignmentInvalid(f"{place}.topic is missing or no name of a topic")
    if type(partition) is not int or not 0 <= partition < SHARDS_MAX:
        raise ReassignmentInvalid(f"{place}.partition is missing or not below {SHARDS_MAX}")
    name = f"{topic}-{partition}"
    if not isinstance(brokers, list) or not all(map(_is_number, brokers)):
        raise ReassignmentInvalid(f"the replicas of {name} are missing or no broker numbers")
    if not brokers:
        raise ReassignmentInvalid(f"the list of replicas of {name} is empty")
    twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
    if twice:
        raise ReassignmentInvalid(f"{name} lists {_parse_partition(twice)} more than once")
    directories = row.get("log_dirs", [_ANY] * len(brokers))
    if not isinstance(directories, list) or len(directories) != len(brokers):
        raise ReassignmentInvalid(f"{name} has not as many log_dirs as replicas")
    for each in directories:
        if not isinstance(each, str) or not (each == _ANY or each.startswith("/")):
            raise ReassignmentInvalid(f"{name}: a log dir is neither 'any' nor an absolute path")
    return topic, partition, Listed(tuple(map(str, brokers)), tuple(directories))


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _BROKER_MAX


def _broker(node: str) -> int:
    """The number that a node's id is."""
    if node.isascii() and node.isdecimal() and str(int(node)) == node and int(node) <= _BROKER_MAX:
        return int(node)
    message = f"node '{node}' is no broker number: Kafka's reassignment names brokers by number"
    raise ReassignmentInvalid(message)


def _parse_partition(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))
