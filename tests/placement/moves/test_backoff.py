"""Pauses after failed moves end in one order, whatever order the failures came in."""

from placement.moves import Backoff


def test_a_rebuilt_process_forgets_failures_in_the_same_order() -> None:
    failures = [(("t", 1), "n1"), (("t", 0), "n3"), (("t", 0), "n2"), (("s", 10), "n1")]
    found = []
    for order in (failures, failures[::-1]):
        backoff = Backoff()
        for shard, node_id in order:
            backoff.record_failure(shard, node_id, now=0, first_ms=10, most_ms=10)
        found.append(backoff.expired_pauses(before=11))
    assert found[0] == found[1] == sorted(failures)
