"""Tells the demo's story on a real broker with the real application and a simulated fleet.

Each scene changes the world and waits until the output topics show what should follow; nothing is
looked up inside the application. `placer demo` shows it and turns the closing audit into an exit
status.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from schemas.inputs import StreamCreated
from schemas.requests import OverrideHold
from schemas.topics import DECISIONS, DEFAULT_PREFIX
from streaming.demo.stage import (
    DEAD_AFTER_SECONDS,
    SCENE_TIMEOUT_SECONDS,
    DemoReport,
    SceneFailed,
    Stage,
)
from streaming.requests import dry_run, new_request_id, send_request_and_wait
from streaming.settings import load_settings
from streaming.simulator import Executor, Fleet, ScenarioStep, StepPlayer, read_scenario

# What happens to the fleet; the scenes below say what has to follow from its steps.
SCENARIO = Path(__file__).with_name("scenario.yaml")
# Name, shards, replication factor, placement_policies.
STREAMS: tuple[tuple[str, int, int, str | None], ...] = (
    ("default", 2, 3, ""),
    ("exclusive-shards", 2, 3, "shard=exclusive"),
    ("exclusive-racks", 2, 4, "node=exclusive;shard=balanced"),
    ("impossible", 1, 7, "node=exclusive"),
    # Streams that name no policy: the default strategy spreads them.
    *((f"events-{number}", 4, 3, None) for number in range(8)),
)


class StoryDemo(Stage):
    """The story of a cluster that is created, hurt and healed."""

    def play(self) -> DemoReport:
        """All scenes and the audit. Raises SceneFailed; KeyboardInterrupt when stopped."""
        self._start()
        scenario = read_scenario(SCENARIO.read_text("utf-8"))
        nodes, beat_seconds = scenario.fleet(), scenario.heartbeat_seconds
        self._tell(f"{len(nodes)} nodes in 3 zones × 2 racks register and send heartbeats")
        with (
            Fleet(self.bootstrap, DEFAULT_PREFIX, nodes, beat_seconds) as fleet,
            Executor(self.bootstrap, DEFAULT_PREFIX, scenario.executor),
        ):
            self._player = StepPlayer(fleet, self._tell, self._stop)
            self._create_streams(len(nodes))
            node_dies, node_returns, zone_dies, zone_returns, rack_dies = scenario.steps
            self._play_node_return(node_dies, node_returns)
            self._play_zone_hold(zone_dies, zone_returns)
            self._play_rack_loss_and_kill(rack_dies)
            self._wait_until("everything is at rest", self._is_at_rest)
        return self._report()

    def _create_streams(self, nodes: int) -> None:
        self._wait_until("all nodes are up", lambda: self._liveness_counts().get("up", 0) == nodes)
        latencies = []
        for name, shards, factor, policies in STREAMS:
            appended_at = self._create(_stream(name, shards, factor, policies))
            self._wait_until(f"{name} is decided", partial(self._is_decided, name))
            latencies.append(self.world.first_seen[DECISIONS, name] - appended_at)
            self._tell(_decision_text(self.world.decisions[name]))
        self.seconds["stream appended → decision readable, p50"] = median(latencies)
        self.seconds["stream appended → decision readable, max"] = max(latencies)

    def _play_node_return(self, dies: ScenarioStep, returns: ScenarioStep) -> None:
        victim = dies.target
        self._tell(f"{victim} falls silent")
        self._silence(dies)
        self._wait_until(f"{victim} is replaced everywhere", lambda: self._is_healed({victim}))
        self._tell(f"{victim} returns; nothing should move")
        before = len(self.world.moves)
        self._player.act(returns)
        self._wait_until(f"{victim} is up", lambda: self._are_all({victim}, "up"))
        self._expect_no_moves_since(before, f"{victim} returned")

    def _play_zone_hold(self, dies: ScenarioStep, returns: ScenarioStep) -> None:
        zone, lost, before = dies.target, self._targets(dies), len(self.world.moves)
        self._tell(f"{zone} loses power: {', '.join(sorted(lost))}")
        self._player.act(dies)
        self._wait_until(f"a HOLD of {zone}", lambda: self.world.hold_reason(zone) is not None)
        self._tell(f"alert HOLD {zone}: {self.world.hold_reason(zone)}")
        self._wait_until(f"{zone} dead", lambda: self._are_all(lost, "dead"))
        self._expect_no_moves_since(before, f"{zone} is held")
        self._tell(f"all nodes of {zone} are dead and nothing moves: most zones come back")
        self._override(zone)
        self._tell_moves(lost)
        self._wait_until(f"{zone} is replaced everywhere", lambda: self._is_healed(lost))
        self._tell(
            f"{zone} is replaced everywhere; it returns, and streams that need three zones use "
            "it again"
        )
        self._player.act(returns)
        self._wait_until(f"{zone} is up", lambda: self._are_all(lost, "up"))

    def _override(self, hold: str) -> None:
        """Override the hold, as an operator does who knows that the zone stays away."""
        settings = load_settings(None, {"kafka.bootstrap_servers": self.bootstrap})
        request = OverrideHold(target=hold, request_id=new_request_id())
        shown = dry_run(settings, request)
        self._tell(f"placer hold override {hold} --dry-run → {shown.seen}")
        agreed = request.model_copy(update={"expected_impact_hash": shown.seen.hash})
        answer = send_request_and_wait(settings, agreed, SCENE_TIMEOUT_SECONDS)
        what = f"placer hold override {hold} --hash {shown.seen.hash}"
        self._tell(f"{what} → {answer['reason']['message']}")
        if answer["outcome"] != "accepted":
            raise SceneFailed(f"{what}: refused")

    def _play_rack_loss_and_kill(self, dies: ScenarioStep) -> None:
        rack, lost = dies.target, self._targets(dies)
        self._tell(f"{rack} loses power: {', '.join(sorted(lost))}")
        self._silence(dies)
        self._tell(f"kill -9 of the application, {len(self.world.open_moves)} moves under way")
        with self._measure("kill -9 → ready again"):
            self._application.kill()
            self._application.start()
            self._application.wait_ready()
        with self._measure("ready again → decision of a new stream"):
            name = "after-the-crash"
            self._create(_stream(name, 4, 3, None))
            self._wait_until("a new stream is decided", partial(self._is_decided, name))
        self._tell(_decision_text(self.world.decisions[name]))
        self._wait_until(f"{rack} is replaced everywhere", lambda: self._is_healed(lost))

    def _silence(self, dies: ScenarioStep) -> None:
        """Silence nodes and wait for the first moves away from them."""
        lost = self._targets(dies)
        what = " and ".join(sorted(lost))
        started = time.time()
        self._player.act(dies)
        self._wait_until(f"{what} dead", lambda: self._are_all(lost, "dead"))
        self._tell_moves(lost)
        found = f"{what} silent → dead and first move (timer {DEAD_AFTER_SECONDS:g} s)"
        self.seconds[found] = time.time() - started

    def _tell_moves(self, lost: set[str]) -> None:
        """Wait for moves off lost nodes and name the first."""
        self._wait_until("moves are issued", lambda: bool(self._moves_off(lost)))
        moves = self._moves_off(lost)
        for move in moves[:3]:
            self._tell(_move_text(move))
        if len(moves) > 3:
            self._tell(f"… and {len(moves) - 3} more")

    # Looking at the world

    def _wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SCENE_TIMEOUT_SECONDS
        while not holds():
            if self.world.failure is not None:
                raise self.world.failure
            if self._stop.wait(0.02):
                raise KeyboardInterrupt
            if time.monotonic() > deadline:
                raise SceneFailed(f"not within {SCENE_TIMEOUT_SECONDS:g} s: {what}")

    def _is_decided(self, name: str) -> bool:
        return name in self.world.decisions

    def _targets(self, step: ScenarioStep) -> set[str]:
        return {*self._player.targets(step.target)}

    def _are_all(self, node_ids: set[str], liveness: str) -> bool:
        views = [self.world.nodes.get(node_id, {}) for node_id in node_ids]
        return all(view.get("liveness") == liveness for view in views)

    def _expect_no_moves_since(self, before: int, when: str) -> None:
        if len(self.world.moves) != before:
            raise SceneFailed(f"{when} and {len(self.world.moves) - before} moves began")

    def _liveness_counts(self) -> dict[str, int]:
        seen = [view["liveness"] for view in list(self.world.nodes.values())]
        return {liveness: seen.count(liveness) for liveness in set(seen)}

    def _is_healed(self, lost: set[str]) -> bool:
        return not self.world.holders(lost) and self._is_at_rest()

    def _is_at_rest(self) -> bool:
        needy = any(
            violation["rule"] == "replicas"
            for record in list(self.world.violations.values())
            for violation in record["violations"]
        )
        return not self.world.open_moves and not needy

    def _moves_off(self, lost: set[str]) -> list[dict[str, Any]]:
        return [move for move in self.world.open_moves if move.get("remove") in lost]


def _stream(name: str, shards: int, factor: int, policies: str | None) -> StreamCreated:
    return StreamCreated(
        stream=name,
        sequence=1,
        shards=shards,
        replication_factor=factor,
        placement_policies=policies,
    )


def _decision_text(decision: dict[str, Any]) -> str:
    spec = decision["spec"]
    shape = f"{spec['shards']} × {spec['replication_factor']}"
    asked = spec.get("placement_policies")
    wish = "" if asked is None else f" '{asked}'" if asked else " (Timeplus defaults)"
    why = "".join(f": {reason['message']}" for reason in decision["reasons"])
    return f"stream {decision['stream']} {shape}{wish} → {decision['outcome']}{why}"


def _move_text(move: dict[str, Any]) -> str:
    where = f"{move['stream']}/{move['shard']}"
    ways = f"{move.get('remove', 'nothing')} → {move.get('add', 'nothing')}"
    return f"move {where}: {ways} ({move['cause']})"
