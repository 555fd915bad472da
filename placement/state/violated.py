"""Publishes violations: the changed ones of single shards, or the same one of many."""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from placement.model import Violation
from placement.state import digest
from placement.state.facts import Facts

Key = tuple[str, int]
Keys = dict[int, Key]
Violations = tuple[Violation, ...]


def publish(state: Facts, found: Iterable[tuple[int, Key, Violations]]) -> None:
    """Publish the open violations of shards where they are not what was published last."""
    said: dict[int, Violations] = {}
    for shard, key, now in found:
        told = _news(state.violations.get(shard, ()), now)
        if told is not None:
            said[shard] = state.ready.violations[key] = told
    contents = map(digest.of_violations, said.values())
    _keep(state, said, np.fromiter(contents, np.uint64, len(said)))


def publish_alike(state: Facts, keys: Keys, example: Violation) -> None:
    """`publish` of shards, given with their keys, each of which breaks one rule as in `example`."""
    known = keys.keys() & state.violations.keys()
    if known:
        publish(state, [(s, key, _as(example, key)) for s, key in keys.items() if s in known])
        keys = {shard: key for shard, key in keys.items() if shard not in known}
    said = [_as(example, key) for key in keys.values()]
    state.ready.violations.update(zip(keys.values(), said, strict=True))
    content = np.uint64(digest.of_violations((example,)))
    _keep(state, dict(zip(keys, said, strict=True)), content)


def _news(before: Violations, now: Violations) -> Violations | None:
    """What is to be published of a shard whose violations were others `before`, each with the time
    since when it is open; None where what was published still holds."""
    if not before:
        return now or None
    if [_essence(v) for v in before] == [_essence(v) for v in now]:
        return None
    known = {(v.rule, v.domain): v.since for v in before}
    return tuple([v._replace(since=known.get((v.rule, v.domain), v.since)) for v in now])


def _essence(violation: Violation) -> tuple[object, ...]:
    """What makes a violation worth publishing again."""
    v = violation
    reason = v.reason.code, v.reason.seen
    return v.rule, v.domain, v.count, v.limit, v.violation_class, *reason


def _as(example: Violation, key: Key) -> Violations:
    return (Violation._make(key + example[2:]),)


def _keep(
    state: Facts, said: Mapping[int, Violations], contents: NDArray[np.uint64] | np.uint64
) -> None:
    """Remember what was published, and count it into the digest; `contents`: its hashes."""
    shards, table = np.fromiter(said, np.int64, len(said)), state.table
    hashes = digest.keyed(contents, state.stream_hashes(shards), table.numbers_of(shards))
    state.violations.update(said)
    if not all(said.values()):
        hashes[[not each for each in said.values()]] = 0
        for shard in [shard for shard, each in said.items() if not each]:
            del state.violations[shard]
    state.digest.exchange(table.violations_digest[shards], hashes)
    table.violations_digest[shards] = hashes
