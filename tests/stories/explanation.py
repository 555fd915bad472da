"""`explain` in stories: why replicas are where they are, why a node has none, why nothing moves.

It is asked of a state that is rebuilt from the records alone, as `placer explain --live` does.
"""

from collections.abc import Iterator

from placement.assignments import EMPTY
from placement.explain import Explainer
from placement.model import Configuration
from placement.state import ClusterState, rebuild
from tests.stories.records import Records


def why(
    records: Records, configuration: Configuration, now: int, shard: str, node_id: str | None
) -> Iterator[str]:
    """The replicas of a shard, `t1/0`, or why the node has none; then what moves, or why not."""
    stream, _, digits = shard.rpartition("/")
    number = int(digits)
    state = ClusterState(configuration)
    rebuild(state, records.published(), now)
    known = state.streams[stream]
    assert known.policy is not None
    shards = [state.current_replicas(each) for each in known.shards]
    view = state.view()
    for nodes in shards:
        for slot, node in enumerate(nodes):
            if node != EMPTY:
                view.remove(node)
                view.leaders[node] -= slot == 0
    explainer = Explainer(known.spec, known.policy, shards, view)
    if node_id is None:
        yield from (held.reason for held in explainer.explain_replicas(number))
    else:
        absent = explainer.explain_absence(number, state.topology.index[node_id])
        yield absent.reason if absent else f"{node_id} holds a replica of {shard}"
    yield from _still(records, stream, number)


def _still(records: Records, stream: str, number: int) -> Iterator[str]:
    """What moves, or what keeps it from moving."""
    opened = records.assignments[stream, number].move_id
    if opened is not None:
        move = records.moves[opened]
        yield f"moving: {move.remove or ''} -> {move.add or ''}: {move.reason.message}"
        return
    violations = records.violations.get((stream, number), ())
    if not violations:
        yield "still: no rule is broken, nothing is to be moved"
    for each in violations:
        yield f"still: {each.violation_class} {each.rule}: {each.reason.message}"
