"""Goal: the screens in the README are what the commands show.

Method: the commands that ask a running reconciler are shown the records of one story; all others
are run, on a terminal of the width that the block names. `--rewrite` writes the blocks anew.
"""

import os
import shlex
import time
from collections.abc import Iterator
from contextlib import chdir
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rich.cells import cell_len
from rich.console import Group
from typer.testing import CliRunner

import streaming.kafka_bridge
from streaming.cli.commands.describe import shard_name
from streaming.cli.commands.history import history_lines
from streaming.cli.commands.listings import choose_columns, listing_table
from streaming.cli.commands.stream import print_decision
from streaming.cli.commands.watch import DEFAULT_TOPICS, topics_of
from streaming.cli.main import app
from streaming.cli.render.console import text_console
from streaming.cli.render.describe import DescribeScreen, node_lines, shard_lines
from streaming.cli.render.record import TextPrinter
from streaming.cli.render.status import StatusScreen
from streaming.kafka_bridge import ImportOptions, Observer, import_cluster
from streaming.live import LISTINGS, describe_node, describe_shard, preview_rebalance, read_status
from streaming.offline import cluster_text
from streaming.replay import NodeTimeline, ShardTimeline
from tests.builders.kafka_apply import ApplyBench, ConnectedKafka
from tests.builders.kafka_cluster import SimulatedKafka
from tests.builders.screens import World, rendered
from tests.documentation.console_blocks import ROOT, Step, hold, steps
from tests.stories.datadriven import parse_command

PAGES = ("README.md", "streaming/README.md", "streaming/cli/README.md")
# A terminal of a person who has more than one window.
HEIGHT = 40
STORY = """\
settings levels=zone,rack
topology
  /zone1/rack1 n111 n112
  /zone1/rack2 n121
  /zone2/rack1 n211 n212
  /zone2/rack2 n221
  /zone3/rack1 n311 n312
  /zone3/rack2 n321
create stream=orders shards=4 rf=3 policy='{rules: [{at_most: 1, per: zone}]}'
create stream=clicks shards=3 rf=2 quorum=one
create stream=archive shards=1 rf=3 policy='{within: [/zone4]}'
tick seconds=86400
look action=drain target=n311
ask action=drain target=n311 hash=seen
tick seconds=60
dead nodes=n111
tick seconds=2
ack kind=accepted moves=all
tick seconds=38
suspect nodes=/zone2
wait seconds=75
"""


def told() -> World:
    """The fleet of the story."""
    world = World()
    lines = STORY.splitlines()
    while lines:
        line = lines.pop(0)
        below = []
        while lines and lines[0].startswith(" "):
            below.append(lines.pop(0).strip())
        world.answer(parse_command(line, below))
    return world


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """The fleet of the story, in UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield told()
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()


def live(world: World, step: Step) -> str | None:
    """The answer of a command that asks a running reconciler; None where it is another one."""
    name, *options = shlex.split(step.command.removeprefix("placer "))
    if name == "status":
        assert options[:-1] in ([], ["--depth"])
        depth = int(options[-1]) if options else None
        found = read_status(
            world.live, world.at_ms, {}, world.alerts, preview_rebalance(world.live)
        )
        return rendered(StatusScreen(found, depth=depth), step.columns, HEIGHT)
    if name in LISTINGS and not options:
        shown, left_out = choose_columns(name, None, LISTINGS[name])
        table = listing_table(LISTINGS[name].rows(world.live), shown, left_out, world.at_ms)
        return rendered(table, step.columns)
    if name in ("describe", "history"):
        return rendered(inspected(world, name, *options), step.columns)
    if (name, *options[:1]) == ("kafka", "apply"):
        return applied(step)
    if name == "kafka" or options[:1] == ["cluster.yaml"]:
        return of_kafka(step)
    if name == "watch" and not options:
        return watched(world, step.columns)
    if (name, *options[:1]) == ("stream", "create"):
        given = dict(zip(options[2::2], options[3::2], strict=True))
        return created(told(), options[1], given, step.columns)
    return None


def inspected(world: World, command: str, kind: str, name: str) -> Group:
    """What `describe` or `history` shows of a node or a shard."""
    if command == "history":
        timeline = NodeTimeline(name) if kind == "node" else ShardTimeline(*shard_name(name))
        world.tell(timeline)
        return Group(*history_lines(timeline, timeline.items(), 0))
    if kind == "node":
        return Group(DescribeScreen(describe_node(world.live, name), node_lines, world.at_ms))
    body = describe_shard(world.live, *shard_name(name))
    return Group(DescribeScreen(body, shard_lines, world.at_ms))


def created(world: World, stream: str, given: dict[str, str], columns: int | None) -> str:
    """The decision on a stream that is asked for with these options."""
    shards, policy = given.get("--shards", "1"), given["--policy"]
    words = (
        f"create stream={stream} shards={shards} rf={given['--rf']} policy={shlex.quote(policy)}"
    )
    world.answer(parse_command(words))
    [decision] = [each for each in world.live.decisions if each.stream == stream]
    written = StringIO()
    print_decision(text_console(columns, written), decision)
    return written.getvalue()


def watched(world: World, columns: int | None) -> str:
    """The commits in which nodes went."""
    topics = topics_of(DEFAULT_TOPICS)
    written = StringIO()
    printer = TextPrinter(text_console(columns, written))
    gone = {
        record.timestamp_ms
        for record in world.written
        if (record.value or {}).get("liveness") in ("dead", "suspect")
    }
    printer.show(
        record for record in world.written if record.timestamp_ms in gone and record.topic in topics
    )
    printer.close()
    return written.getvalue()


def of_kafka(step: Step) -> str:
    """What is shown of a small cluster, one broker of which is gone, where it is imported."""
    kafka = SimulatedKafka({1: "us east 1a", 2: "us east 1b", 3: "us east 1c", 4: "us east 1c"})
    lists = [(1, 2, 3), (2, 4, 1), (3, 1, 2)]
    kafka.create("orders", lists, size=52_428_800, min_insync_replicas="2")
    kafka.fence(3)
    body = import_cluster(Observer(kafka).look(0), ImportOptions(fenced_is_dead=True)).body
    if step.command.startswith("placer kafka import"):
        return cluster_text(body)
    with TemporaryDirectory() as directory, chdir(directory):
        Path("cluster.yaml").write_text(cluster_text(body))
        return on_a_terminal(step)


def applied(step: Step) -> str:
    """What is shown of a plan for a small cluster, where it is carried out and rolled back."""
    with TemporaryDirectory() as directory, chdir(directory), pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming.kafka_bridge.apply, "ROUND_SECONDS", 0.001)
        kafka = ConnectedKafka({1: "east", 2: "west", 3: "east", 4: "west"})
        kafka.create("orders", [(1, 2), (2, 1), (1, 2), (2, 1)], size=52_428_800)
        patch.setattr(streaming.kafka_bridge, "KafkaAdmin", lambda *_: kafka)
        bench = ApplyBench(kafka, Path(directory))
        bench.save_plan()
        *_, options = step.command.partition("plan.json ")
        words = options.split()
        if "--rollback" in words:
            bench.apply()
        return bench.apply(*words).output


def on_a_terminal(step: Step) -> str:
    """The answer of a command that needs no broker, at the width of the block."""
    terminal = {"TTY_COMPATIBLE": "1", "TERM": "dumb", "COLUMNS": str(step.columns)}
    command = shlex.split(step.command.removeprefix("placer "))
    return CliRunner(env=terminal | {"LINES": str(HEIGHT)}).invoke(app, command).stdout


SCREENS = [step for page in PAGES for step in steps(page) if step.columns]


def test_there_are_screens() -> None:
    shown = {(step.command.split()[1], step.columns) for step in SCREENS}
    commands = ("status", "nodes", "streams", "check", "explain", "stream")
    assert {(name, n) for name in commands for n in (80, 120)} <= shown
    assert {(name, 80) for name in ("watch", "describe", "history")} <= shown


def test_no_line_of_a_screen_is_wider_than_its_terminal() -> None:
    wide = [
        line
        for step in SCREENS
        for line in step.shown.splitlines()
        if step.command != "placer watch" and cell_len(line) > (step.columns or 0)
    ]
    assert wide == []


@pytest.mark.parametrize("step", SCREENS, ids=str)
def test_the_readme_shows_what_is_shown(
    step: Step, world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    shown = live(world, step)
    if shown is None:
        shown = on_a_terminal(step)
    hold(step, shown, request.config.getoption("--rewrite"))
