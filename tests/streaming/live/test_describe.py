"""Goal: `describe` shows all that is known of a node, a stream, a shard; `history` what happened.

Method: stories (`testdata/*.txt`) whose records are shown as a terminal shows them.
`--rewrite` writes the screens anew: read the diff.
"""

from pathlib import Path

import orjson
import pytest
from rich.console import Group

from schemas.topics import ASSIGNMENTS, TOPOLOGY
from streaming.cli.commands.describe import shard_name
from streaming.cli.commands.history import history_lines
from streaming.cli.render.describe import DescribeScreen, node_lines, shard_lines, stream_lines
from streaming.errors import StreamingError
from streaming.live.describe import describe_node, describe_shard, describe_stream
from streaming.live.explain import NotInLiveState
from streaming.live.published_state import StateRecords
from streaming.offline import CheckOptions, Document, check_cluster
from streaming.replay import NodeTimeline, ShardTimeline
from tests.builders.screens import CELL, World, answered
from tests.stories.datadriven import Command, parse_command, run_file

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


class Descriptions(World):
    """A world with

    `describe kind=node|stream|shard name= [width=]`;
    `history kind=node|shard name= [limit= since= (seconds ago) replay=yes width=]`;
    `compact`, after which only the last record of each key is left.
    """

    def answer(self, command: Command) -> str:
        if command.name == "history":
            return self.history(command)
        if command.name == "compact":
            self.written = list({(r.topic, r.key): r for r in self.written}.values())
            return ""
        if command.name != "describe":
            super().answer(command)
            return ""
        kind, name = command.take("kind"), command.take("name")
        if kind == "node":
            body, lines = describe_node(self.live, name), node_lines
        elif kind == "stream":
            body, lines = describe_stream(self.live, name), stream_lines
        else:
            body, lines = describe_shard(self.live, *shard_name(name)), shard_lines
        # What is shown is what --output json says.
        body = orjson.loads(orjson.dumps(body))
        return answered(lambda: DescribeScreen(body, lines, self.at_ms), command)

    def history(self, command: Command) -> str:
        name, since = command.take("name"), command.given("since")
        is_shard = command.take("kind") == "shard"
        timeline = ShardTimeline(*shard_name(name)) if is_shard else NodeTimeline(name)
        self.tell(timeline, again=command.take("replay", "no") == "yes")
        found = timeline.items(None if since is None else self.at_ms - int(since) * 1000)
        shown = found[-int(command.take("limit", "100")) :]
        lines = history_lines(timeline, shown, len(found) - len(shown))
        return answered(lambda: Group(*lines), command)


def test_there_are_stories() -> None:
    assert STORIES


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_stories(path: Path, request: pytest.FixtureRequest) -> None:
    run_file(path, Descriptions().answer, request.config.getoption("--rewrite"))


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("node", "n11", "there is no node 'n11'; did you mean n1? see: placer nodes"),
        ("node", "x", "there is no node 'x'; see: placer nodes"),
        ("stream", "order", "there is no stream 'order'; did you mean orders?"),
        ("shard", "orders/9", "there is no shard orders/9: stream 'orders' has 2 shards"),
        ("shard", "wide/0", "there is no shard wide/0: stream 'wide' is not placed"),
        ("shard", "clicks/0", "there is no stream 'clicks'"),
    ],
)
def test_what_is_not_there(kind: str, name: str, said: str) -> None:
    world = Descriptions()
    for line in (
        "register nodes=n1,n2 location=/a",
        "create stream=orders shards=2 rf=2",
        "create stream=wide shards=1 rf=9 policies=node=exclusive",
    ):
        world.answer(parse_command(line))
    with pytest.raises(NotInLiveState) as caught:
        world.answer(parse_command(f"describe kind={kind} name={name}"))
    assert said in str(caught.value)


@pytest.fixture(scope="module")
def stood() -> World:
    """Shards that can do without few of their copies, some of them on the move."""
    world = World()
    world.answer(parse_command("topology", ["/a n1 n2 n11", "/b n4 n5", "/c n6 n7"]))
    world.answer(parse_command("create stream=pair shards=7 rf=2"))
    world.answer(parse_command("create stream=trio-2 shards=12 rf=3"))
    world.answer(parse_command("tick seconds=86400"))
    world.answer(parse_command("dead nodes=n1"))
    return world


def as_written(world: World) -> StateRecords:
    """The live state from the bytes of the records, as it is read from a broker."""
    live = StateRecords(CELL, "placement.")
    for record in world.written:
        if record.topic in live.latest:
            live.take(record.topic, record.key or "", record.raw)
    return live


def test_critical_shards_of_a_node_are_those_of_the_whole_cluster(stood: World) -> None:
    critical = check_cluster(Document(stood.live.cluster()), CheckOptions()).diagnosis.critical
    expected = {each.domain: each.shards for each in critical if each.level == "node"}
    assert stood.live.open_moves
    assert len(set(expected.values())) > 1, "nodes differ"
    for node in stood.live.latest[TOPOLOGY]:
        assert describe_node(stood.live, node)["critical_shards"] == expected.get(node, 0)


def test_what_is_read_as_bytes_is_described_alike(stood: World) -> None:
    live = as_written(stood)
    for node in live.latest[TOPOLOGY]:
        assert describe_node(live, node) == describe_node(stood.live, node)
    assert live.assignments == stood.live.assignments
    assert [(each.stream, each.shard) for each in live.assignments] == [
        *(("pair", shard) for shard in range(7)),
        *(("trio-2", shard) for shard in range(12)),
    ]


def test_a_damaged_shard_matters_to_those_that_ask_for_it(stood: World) -> None:
    live = as_written(stood)
    live.take(ASSIGNMENTS, "pair/3", b"{")
    whole = stood.live
    assert describe_shard(live, "trio-2", 3) == describe_shard(whole, "trio-2", 3)
    assert describe_node(live, "n6")["by_stream"]
    with pytest.raises(
        StreamingError, match="this version cannot read the record with key 'pair/3'"
    ):
        describe_stream(live, "pair")
