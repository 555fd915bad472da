"""Goal: a system that has nothing but the client library lives with the real application.

Method: agents register the nodes, a requester asks for a stream, an executor keeps replicas as
files, a view follows; then a node is drained by its agent and leaves.
"""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from streaming.client import NodeAgent, PlacementView, Requester
from tests.integration.conftest import System
from tests.systems.waiting import until
from tests.test_tidy import ROOT

TIMEOUT_SECONDS = 60.0
NODES = ("n0", "n1", "n2", "n3")


def test_a_system_made_of_the_client_library(own_system: System, tmp_path: Path) -> None:
    own_system.start()
    at = (own_system.bootstrap, own_system.prefix)
    store = tmp_path / "store"
    told = {"KAFKA_BOOTSTRAP": at[0], "TOPIC_PREFIX": at[1], "STORE": str(store)}
    with ExitStack() as opened:
        executor = subprocess.Popen(
            [sys.executable, str(ROOT / "deploy" / "examples" / "executor.py")],
            env=os.environ | told | {"PYTHONPATH": str(ROOT)},
        )
        opened.callback(executor.wait, TIMEOUT_SECONDS)
        opened.callback(executor.send_signal, signal.SIGTERM)
        agents = [
            NodeAgent(*at, node, tmp_path / f"{node}.json", {"location": f"/z{number}"})
            for number, node in enumerate(NODES)
        ]
        for agent in agents[1:]:
            opened.enter_context(agent)
        agents[0].start()
        view = opened.enter_context(PlacementView(*at))
        requester = opened.enter_context(Requester(*at))
        first = requester.create("orders", 2, 3, timeout_seconds=TIMEOUT_SECONDS)
        assert first["outcome"] in ("placed", "degraded"), first["reasons"]
        assert requester.create("orders", 2, 3) == first
        until(lambda: len(view.shards("orders")) == 2, "both shards are assigned")
        until(lambda: len([*store.glob("*/orders.?")]) == 6, "all first replicas are made")
        assert requester.alter("orders", 2, 2, timeout_seconds=TIMEOUT_SECONDS)["sequence"] == 2
        until(lambda: len([*store.glob("*/orders.?")]) == 4, "the surplus is removed")
        agents[0].drain(TIMEOUT_SECONDS)
        agents[0].leave()
        # The answer and the assignments are read by two readers.
        until(
            lambda: not any("n0" in view.replicas("orders", shard) for shard in (0, 1)),
            "the view shows the drained node empty",
        )
        until(lambda: not [*(store / "n0").glob("orders.?")], "the drained node is empty")
        for shard in (0, 1):
            held = {path.parent.name for path in store.glob(f"*/orders.{shard}")}
            assert held == {*view.replicas("orders", shard)}
        assert requester.drop("orders", timeout_seconds=TIMEOUT_SECONDS)["outcome"] == "dropped"
        until(lambda: not [*store.glob("*/orders.?")], "the dropped stream leaves nothing")
    assert executor.returncode == 0
