"""What is expected of a stream's shards stays with it through `alter`, and `apply` sends it."""

from schemas.cluster import ClusterStream
from schemas.inputs import StreamAltered
from streaming.live.published_state import StateRecords
from streaming.requests import StreamRequests, diff_streams
from streaming.settings import Settings
from tests.builders.screens import World
from tests.stories.datadriven import parse_command

ASKED = {"stream": "a", "shards": 3, "replication_factor": 2, "policy": {"strategy": "spread"}}


def known() -> StreamRequests:
    world = World()
    world.answer(parse_command("settings resources='{disk_bytes: {}}'"))
    world.answer(parse_command("topology", ["/r1 n1 has=disk_bytes:1000", "/r2 n2"]))
    policy = "policy='{strategy: spread}'"
    world.answer(parse_command(f"create stream=a shards=3 rf=2 {policy} expected=disk_bytes:100"))
    live = world.live
    assert isinstance(live, StateRecords)
    return StreamRequests(live, Settings())


def test_alter_keeps_what_is_expected() -> None:
    message = known().make_alter("a", {"shards": 4})
    assert (message.shards, message.expected_load) == (4, {"disk_bytes": 100})


def test_apply_compares_and_sends_what_is_expected() -> None:
    same = ClusterStream.model_validate(ASKED | {"expected_load": {"disk_bytes": 100}})
    other = ClusterStream.model_validate(ASKED | {"expected_load": {"disk_bytes": 200}})
    without = ClusterStream.model_validate(ASKED)
    actions = [diff_streams(known(), [each], prune=False)[0] for each in (same, other, without)]
    assert [each.action for each in actions] == ["keep", "alter", "alter"]
    (change,) = actions[1].differences
    assert (change.field, change.now, change.wanted) == ("expected_load.disk_bytes", 100, 200)
    message = actions[1].message
    assert isinstance(message, StreamAltered)
    assert message.expected_load == {"disk_bytes": 200}
