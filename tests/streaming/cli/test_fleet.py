"""`placer fleet` on a broker that no reconciler serves: what it says, and how it ends."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from streaming.simulator import playing

LAYOUT = "name: two\nlayout: {zones: 1, racks: 1, nodes: 2}\n"


@pytest.fixture
def play(
    placer: Callable[..., Result], bootstrap: str, prefix: str, tmp_path: Path
) -> Callable[[str], Result]:
    def run(text: str) -> Result:
        file = tmp_path / "scenario.yaml"
        file.write_text(text, "utf-8")
        return placer("fleet", str(file), "--leave", at=(bootstrap, prefix))

    return run


def test_nodes_that_only_beat_wait_for_nobody(play: Callable[[str], Result]) -> None:
    result = play(LAYOUT)
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0] == "two: 2 nodes send heartbeats"


def test_streams_that_nobody_places_are_an_error(
    play: Callable[[str], Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "ANSWER_SECONDS", 0.5)
    stream = "streams: [{stream: s, shards: 1, replication_factor: 1}]\n"
    result = play(f"{LAYOUT}settings: {{tick: {{interval_seconds: 0.5}}}}\n{stream}")
    assert result.exit_code == 3, result.output
    assert "its claims assume a reconciler with tick.interval_seconds 0.5" in result.output
    assert "the reconciler has not shown 2 nodes that are up within 0.5 s" in result.output


def test_a_claim_that_does_not_hold_is_exit_status_1(play: Callable[[str], Result]) -> None:
    claim = "{healed: false, within_seconds: 0, moves_at_least: 1}"
    result = play(f"{LAYOUT}steps: [{{do: kill, target: /zone1}}]\nends: {claim}\n")
    assert result.exit_code == 1, result.output
    assert "does not hold: moves that were issued: 0, claimed at least: 1" in result.output
