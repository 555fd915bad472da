"""Loads that waver move nothing: reports through the filter to a reconciler that balances."""

import random

import pytest

from placement.load_reports import LoadBands, LoadReport, ReportFilter
from tests.stories.datadriven import parse_command
from tests.stories.story import Story

NODES, SHARDS = 8, 60
CAPACITY = 1_000_000
EVERY_MS = 30_000
# Two hours of reports.
ROUNDS = 240
# The first reports are believed as they come; what they were wrong by is found out within an hour.
CORRECTIONS_MAX = 5

SETTINGS = (
    "settings resources='{disk_bytes: {capacity: 0.9, balance: 0.1}}' rebalance=continuous dwell=60"
)


@pytest.mark.parametrize("seed", range(4))
def test_noise_of_a_fifth_moves_nothing(seed: int) -> None:
    """Every report is off by up to 20 %; once the fleet is even it stays as it is."""
    rng = random.Random(seed)
    story = Story()
    tell(story, SETTINGS)
    for node in range(NODES):
        where = f"location=/r{node % 4} has=disk_bytes:{CAPACITY}"
        tell(story, f"register nodes=n{node + 1} {where}")
    tell(story, f"create stream=a shards={SHARDS} rf=2")
    truth = [int(rng.lognormvariate(10, 0.8)) for _ in range(SHARDS)]
    filters = {f"n{node + 1}": ReportFilter(LoadBands()) for node in range(NODES)}
    moves = [report_all(story, filters, truth, rng, number) for number in range(ROUNDS)]
    assert len(story.records.loads) == SHARDS
    assert moves[0] > 0, "the fleet is even from the start"
    assert sum(moves[1:]) <= CORRECTIONS_MAX
    assert sum(moves[ROUNDS // 2 :]) == 0


def tell(story: Story, line: str) -> int:
    """Carry out a command; return the moves that are open after it."""
    command = parse_command(line)
    if command.name in story.actors.makers():
        story.carry_out(command)
    else:
        story.answer(command)
    return len(story.records.open_moves())


def report_all(
    story: Story,
    filters: dict[str, ReportFilter],
    truth: list[int],
    rng: random.Random,
    number: int,
) -> int:
    """Let each node report its shards, with noise; return the moves that were issued."""
    tell(story, f"tick seconds={EVERY_MS // 1000}")
    held: dict[str, list[int]] = {}
    for (_, shard), assignment in sorted(story.records.assignments.items()):
        for node_id in assignment.replicas:
            held.setdefault(node_id, []).append(shard)
    events = []
    for node_id, reports in filters.items():
        entries = [
            ("a", shard, None, {"disk_bytes": int(truth[shard] * rng.uniform(0.8, 1.2))})
            for shard in held.get(node_id, ())
        ]
        life, has = (node_id, "a", number + 1), (("disk_bytes", CAPACITY),)
        event = reports.apply(LoadReport.of(story.now, life, entries, has))
        if event is not None:
            events.append(event)
    before = len(story.records.moves)
    story.commit(list(events))
    story.finish_moves()
    return len(story.records.moves) - before
