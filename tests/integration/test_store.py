"""Goal: the example store loses nothing that it has acknowledged, whatever happens to its nodes.

Method: the nodes are processes of `deploy/examples/store`, placed by the real application. A writer
and reader, which judges by itself, runs while nodes are killed, drained, restarted and replaced.
"""

import json
import random
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from deploy.examples.store.client import StoreClient
from streaming.cli.main import app as cli
from streaming.client import Requester
from streaming.simulator import JudgingProgram, ProcessFleet
from streaming.simulator.scenario import FleetLayout
from tests.integration.conftest import System
from tests.systems.waiting import until

NODE = ("python", "-m", "deploy.examples.store.node")
WORKLOAD = ("python", "-m", "deploy.examples.store.workload")
# A node is dead after some seconds, a process starts in a few, and others use the machine too.
TIMEOUT_SECONDS = 90.0
EVENTS, SEED = 30, 11
CALLED_OFF = ("superseded", "cancelled", "expired", "failed")
SETTINGS = {
    # A node that is killed and started at once must not be dead meanwhile.
    "PLACER_LIVENESS__SUSPECT_AFTER_SECONDS": "4",
    "PLACER_LIVENESS__DEAD_AFTER_SECONDS": "10",
    # Nodes come and go all the time here, and what comes back gets its share again.
    "PLACER_LIVENESS__FLAP_TRANSITIONS": "100",
    "PLACER_REBALANCE__MODE": "continuous",
}


def is_whole(system: System, stream: str, factor: int) -> bool:
    """Whether every shard has its replicas on nodes that live, and nothing is under way."""
    alive = {n for n, v in system.outputs.latest("topology.v1").items() if v["liveness"] == "up"}
    shards = system.outputs.replicas(stream)
    return (
        bool(shards)
        and not system.outputs.open_moves
        and all(len(alive & {*replicas}) == factor for replicas in shards)
    )


@pytest.fixture
def fleet(own_system: System, tmp_path: Path) -> Iterator[ProcessFleet]:
    layout = FleetLayout(zones=2, racks=2, nodes=1)
    at = (own_system.bootstrap, own_system.prefix)
    with ProcessFleet(*at, layout.fleet_nodes(), NODE, tmp_path / "nodes") as made:
        own_system.start()
        yield made


def test_what_was_written_is_read_after_a_node_is_replaced(
    own_system: System, fleet: ProcessFleet
) -> None:
    at, outputs = (own_system.bootstrap, own_system.prefix), own_system.outputs
    pairs = {f"key-{number}": f"value {number}" for number in range(60)}
    with ExitStack() as opened:
        outputs.wait(lambda: len(outputs.latest("topology.v1")) == 4, "all nodes have registered")
        requester = opened.enter_context(Requester(*at))
        requester.create("pairs", 2, 3)
        writer = opened.enter_context(StoreClient(*at, "pairs"))
        for key, value in pairs.items():
            writer.put(key, value)
        victim = outputs.replicas("pairs")[0][0]
        fleet.kill(victim)
        writer.put("key-0", "after the kill")
        outputs.wait(
            lambda: (
                is_whole(own_system, "pairs", 3)
                and not any(victim in replicas for replicas in outputs.replicas("pairs"))
            ),
            "the node is replaced",
            TIMEOUT_SECONDS,
        )
        fleet.revive(victim)
        for node in fleet.alive:
            reader = opened.enter_context(StoreClient(*at, "pairs", fleet.location(node)))
            assert dict(reader.scan()) == pairs | {"key-0": "after the kill"}
    copied = [re.findall(r"copied (pairs/\d)", fleet.log(n).read_text()) for n in fleet.node_ids]
    assert sum(map(len, copied)) == 2


class Trial:
    """Draws what happens to the nodes, one thing after the other, and counts copies."""

    def __init__(self, system: System, fleet: ProcessFleet, seed: int) -> None:
        self._system, self._fleet, self._drawn = system, fleet, random.Random(seed)
        self.rows: list[str] = []
        self._lives: dict[str, str] = {}
        self._restarted: set[str] = set()
        self.needed = self.made = self.called_off = 0

    def play(self, what: str) -> None:
        """Let it happen, and wait until the stream is whole again and every node is up."""
        needed, made, called_off = self._count_needed(), self._count_made(), self._called_off()
        self._lives, self._restarted = self._find_lives(), set()
        began = time.monotonic()
        target = getattr(self, f"_{what}")()
        self._wait_whole()
        needed, made = self._count_needed() - needed, self._count_made() - made
        called_off = self._called_off() - called_off
        self.needed, self.made = self.needed + needed, self.made + made
        self.called_off += called_off
        seconds = time.monotonic() - began
        self.rows.append(
            f"{what:12} {target:24} {seconds:6.1f} s  needed {needed:2}  made {made:2}"
            f"  called off {called_off}"
        )
        print(self.rows[-1], flush=True)

    def _restart(self) -> str:
        (victim,) = self._draw_victims(1)
        self._fleet.kill(victim)
        self._revive(victim)
        return victim

    def _kill(self) -> str:
        return self._replace([*self._draw_victims(1)])

    def _rack(self) -> str:
        racks = sorted({self._fleet.location(node) for node in self._fleet.node_ids})
        self._drawn.shuffle(racks)
        for rack in racks:
            inside = [n for n in self._fleet.node_ids if self._fleet.location(n) == rack]
            if self._may_go({*inside}) and any(map(self._holds, inside)):
                return self._replace(inside)
        return self._kill()

    def _kill_target(self) -> str:
        """Kill a node, and then the node that receives a replica in its place."""
        (victim,) = self._draw_victims(1)
        self._fleet.kill(victim)
        moves = self._system.outputs.wait(
            lambda: [m for m in self._system.outputs.open_moves.values() if m.get("add")],
            f"a move off {victim}",
        )
        target = moves[0]["add"]
        return self._replace([victim, target] if self._may_go({victim, target}) else [victim])

    def _drain(self) -> str:
        (victim,) = self._draw_victims(1)
        # What balancing changes meanwhile makes another impact, which is agreed to anew.
        until(lambda: self._drain_as_seen(victim), f"the drain of {victim} is accepted")
        until(lambda: not self._holds(victim), f"{victim} is drained", TIMEOUT_SECONDS)
        done = self._placer("undrain", victim)
        assert done.exit_code == 0, done.output
        return victim

    def _drain_as_seen(self, victim: str) -> bool:
        shown = self._placer("drain", victim, "--dry-run", "--output", "json")
        words = ("--hash", json.loads(shown.stdout)["impact_hash"])
        return self._placer("drain", victim, *words).exit_code == 0

    def _placer(self, *words: str) -> Result:
        place = ("--bootstrap", self._system.bootstrap, "--prefix", self._system.prefix)
        return CliRunner().invoke(cli, [*words, *place])

    def _replace(self, victims: list[str]) -> str:
        """Keep nodes dead until others have taken their place."""
        for victim in victims:
            self._fleet.kill(victim)
        until(
            lambda: is_whole(self._system, "pairs", 3) and not any(map(self._holds, victims)),
            f"{', '.join(victims)} replaced",
            TIMEOUT_SECONDS,
        )
        for victim in victims:
            self._revive(victim)
        return " ".join(victims)

    def _revive(self, victim: str) -> None:
        self._fleet.revive(victim)
        self._restarted.add(victim)

    def _draw_victims(self, count: int) -> set[str]:
        holders = [node for node in self._fleet.node_ids if self._holds(node)]
        drawn = ({*self._drawn.sample(holders, count)} for _ in range(100))
        return next(nodes for nodes in drawn if self._may_go(nodes))

    def _may_go(self, nodes: set[str]) -> bool:
        """Whether every shard keeps a majority."""
        return all(2 * len({*held} - nodes) > len(held) for held in self._lists().values())

    def _holds(self, node: str) -> bool:
        return any(node in held for held in self._lists().values())

    def _lists(self) -> dict[int, list[str]]:
        return dict(enumerate(self._system.outputs.replicas("pairs")))

    def _count_needed(self) -> int:
        """How often a node has joined the list of a shard that there was."""
        lists: dict[str, set[str]] = {}
        count = 0
        for record in self._system.outputs.of("assignments.v1"):
            now = {*record.value["replicas"]}
            count += len(now - lists.get(record.key, now))
            lists[record.key] = now
        return count

    def _count_made(self) -> int:
        """How many copies the nodes say to have made."""
        logs = [self._fleet.log(node).read_text() for node in self._fleet.node_ids]
        return sum(len(re.findall(r"copied pairs/\d", log)) for log in logs)

    def _called_off(self) -> int:
        """How many moves have ended without their effect."""
        told = [record.value for record in self._system.outputs.of("moves.v1") if record.value]
        return len({m["move_id"] for m in told if m["state"] in CALLED_OFF})

    def _find_lives(self) -> dict[str, str]:
        nodes = self._system.outputs.latest("topology.v1")
        return {node: view["incarnation"] for node, view in nodes.items()}

    def _wait_whole(self) -> None:
        outputs = self._system.outputs
        until(
            lambda: (
                is_whole(self._system, "pairs", 3)
                and all(outputs.liveness(node) == "up" for node in self._fleet.node_ids)
                and all(self._find_lives()[n] != self._lives[n] for n in self._restarted)
            ),
            "everything is whole again",
            TIMEOUT_SECONDS,
        )


@pytest.mark.long
@pytest.mark.timeout(2_400)
def test_thirty_kills_and_drains_lose_nothing(own_system: System, tmp_path: Path) -> None:
    at = (own_system.bootstrap, own_system.prefix)
    layout = FleetLayout(zones=2, racks=2, nodes=2)
    own_system.start(**SETTINGS)
    said: list[str] = []
    told = {"KAFKA_BOOTSTRAP": at[0], "TOPIC_PREFIX": at[1]}
    command = (*WORKLOAD, "--location", "/zone1/rack1")
    with ProcessFleet(*at, layout.fleet_nodes(), NODE, tmp_path / "nodes") as fleet:
        outputs = own_system.outputs
        outputs.wait(
            lambda: len(outputs.latest("topology.v1")) == len(fleet.node_ids), "all registered"
        )
        with JudgingProgram(command, told, said.append) as workload:
            until(lambda: is_whole(own_system, "pairs", 3), "the stream is placed")
            trial = Trial(own_system, fleet, SEED)
            drawn = random.Random(SEED)
            for _ in range(EVENTS):
                trial.play(drawn.choice(("restart", "kill", "kill_target", "rack", "drain")))
            found = workload.end()
    print("\n".join(["", *trial.rows, said[-1]]))
    print(f"copies needed {trial.needed}, made {trial.made}, called off {trial.called_off}")
    assert found == []
    assert re.search(r"keys read back [1-9]\d*, lost 0", said[-1])
    assert trial.needed <= trial.made <= trial.needed + trial.called_off
    own_system.outputs.check()
