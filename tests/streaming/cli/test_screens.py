"""Goal: what `status`, `nodes`, `streams` and their kin show is right, whole, and fits.

Method: stories (`testdata/*.txt`) whose records are shown as a terminal of 80 or 120
columns shows them, and as a pipe gets them. `--rewrite` writes the screens anew: read the diff.
"""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from placement.model import Code, Lives, Pending, PendingLife, Reason, RefusedLife
from schemas.topics import COMMITS
from streaming.cli.commands.listings import choose_columns, listing_table, select_rows
from streaming.cli.render.status import StatusScreen
from streaming.codec.records import node_record
from streaming.live import LISTINGS, CellStatus, preview_rebalance, read_status
from streaming.live import cell_status as status_module
from tests.builders.screens import CELL, World, answered, rendered
from tests.stories.datadriven import Command, parse_command, run_file

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


class Screens(World):
    """A world with the commands `status`, `nodes`, …: `width=`, `height=`, and their options."""

    def answer(self, command: Command) -> str:
        if command.name in LISTINGS:
            return self.listing(command)
        if command.name != "status":
            return super().answer(command) if self._tells(command) else self._quietly(command)
        depth = command.given("depth")
        found = self.status(command)
        screen = StatusScreen(
            found,
            path=command.take("path", ""),
            depth=None if depth is None else int(depth),
            fits=command.take("fits", "no") == "yes",
        )
        return answered(lambda: screen, command)

    def listing(self, command: Command) -> str:
        """`columns=`, and `where=` with one condition."""
        name, where = command.name, command.given("where")
        listing = LISTINGS[name]
        shown, left_out = choose_columns(name, command.given("columns"), listing)
        rows = listing.rows(self.live)
        wanted = [tuple(where.split("=", 1))] if where else []
        table = listing_table(select_rows(rows, wanted), shown, left_out, self.at_ms)
        return answered(lambda: table, command)

    def status(self, command: Command) -> CellStatus:
        """`lag=nodes:34`: records not yet read; `ignored=REASON:2`: records without effect."""
        counts = {f"{name}.v1": int(n) for name, n in _pairs(command.take("lag", ""))}
        self.live.latest[COMMITS][CELL]["ignored"] = {
            reason: {"count": int(n), "last_at": self.now}
            for reason, n in _pairs(command.take("ignored", ""))
        }
        return read_status(self.live, self.at_ms, counts, self.alerts, preview_rebalance(self.live))

    def _tells(self, command: Command) -> bool:
        return command.name in ("show", "orders", "explain")

    def _quietly(self, command: Command) -> str:
        """What is published is not what these stories are about."""
        super().answer(command)
        return ""


def _pairs(text: str) -> list[list[str]]:
    return [pair.split(":") for pair in text.split(",") if pair]


def test_there_are_stories() -> None:
    assert STORIES


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_screens(path: Path, request: pytest.FixtureRequest) -> None:
    run_file(path, Screens().answer, request.config.getoption("--rewrite"))


def test_restarts_and_relocations_are_shown() -> None:
    world = Screens()
    world.answer(parse_command("topology", ["/a n1 n2", "/b n3"]))
    views = {view.node_id: view for view in world.live.nodes}
    pending = PendingLife("life-2", 1, "0" * 32, world.now, 3_000, views["n1"].attributes)
    conflict = Reason(Code.INCARNATION_CONFLICT, "life-1 still speaks")
    odd = {
        "n1": replace(views["n1"], lives=Lives(pending=pending)),
        "n2": replace(views["n2"], lives=Lives(refused=RefusedLife("l9", world.now, conflict))),
        "n3": replace(views["n3"], pending=Pending("/c", (), "0" * 32)),
    }
    for name, view in odd.items():
        written = node_record(name, view, CELL, world.now, 9)
        assert written.value is not None
        world.live.take("topology.v1", name, orjson.loads(written.value))
    shown = rendered(StatusScreen(world.status(Command("status", {}))), None)
    words = (
        "n1: restarted 0s ago, takes over once its earlier incarnation has been silent for 3s",
        "n2: another process claims its id, refused 0s ago: life-1 still speaks",
        "relocations to approve: n3 to /c; see: placer approve NODE --dry-run",
    )
    assert [each for each in words if each not in shown] == []
    rows = LISTINGS["nodes"].rows(world.live)
    assert [row["restart"] for row in rows] == ["pending", "refused", "none"]


def test_what_is_watched_never_scrolls() -> None:
    world = Screens()
    nodes = [f"/a/b{n} n{n}1 n{n}2 n{n}3" for n in range(20)]
    world.answer(parse_command("topology", nodes))
    world.answer(parse_command("create stream=s shards=30 rf=3"))
    world.answer(parse_command("dead nodes=n11,n52"))
    found = world.status(Command("status", {}))
    for height in range(4, 60):
        lines = rendered(StatusScreen(found, fits=True), 80, height).splitlines()
        assert len(lines) < height
        assert lines[0].startswith("cell ")
        assert lines[1].startswith("health ")
        tree = lines[lines.index("") :] if "" in lines else []
        # The dead node, or the closest branch for which there is room.
        assert height <= 14 or any("dead" in line for line in tree)


def test_a_rebalance_of_a_large_fleet_is_not_planned_for_status(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Screens()
    world.answer(parse_command("topology", ["/a n1 n2", "/b n3 n4"]))
    world.answer(parse_command("create stream=s shards=4 rf=2"))
    monkeypatch.setattr(status_module, "PLANNED_REPLICAS_MAX", 7)
    monkeypatch.setattr("streaming.live.PLANNED_REPLICAS_MAX", 7)
    found = world.status(Command("status", {}))
    assert found.balance is None
    hint = "balance     not previewed above 7 replicas: placer rebalance --dry-run"
    assert hint in rendered(StatusScreen(found), 120).splitlines()
