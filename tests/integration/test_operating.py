"""Operators' commands against the running application: dry run, request, answer, progress."""

import signal

import orjson
import pytest
from typer.testing import CliRunner, Result

from streaming.cli.main import app
from streaming.fleet import Executor
from tests.integration.conftest import System

PATIENT = {
    "PLACER_LIVENESS__SUSPECT_AFTER_SECONDS": "600",
    "PLACER_LIVENESS__DEAD_AFTER_SECONDS": "900",
}
ZONES = 3


@pytest.mark.timeout(300)
def test_a_zone_is_drained_by_the_hash_that_was_seen(own_system: System) -> None:
    system, outputs = own_system, own_system.outputs

    def placer(*words: str) -> Result:
        place = ["--bootstrap", system.bootstrap, "--prefix", system.prefix]
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*words, *place])

    application = system.start(**PATIENT)
    for number in range(6):
        body = {"node_id": f"n{number}", "incarnation": "a", "sequence": 1}
        placed = body | {"location": f"/z{number % ZONES}"}
        system.inputs.send("nodes.v1", "NodeRegistered", f"n{number}", placed)
    system.inputs.stream("s", shards=2)
    outputs.decision("s")

    unknown = placer("drain", "n9", "--dry-run")
    assert (unknown.exit_code, "NODE_UNKNOWN" in unknown.output) == (1, True), unknown.output
    dry = placer("drain", "/z0", "--dry-run", "--output", "json")
    assert dry.exit_code == 0, dry.output
    shown = orjson.loads(dry.stdout)
    assert (shown["nodes"], shown["shards"], shown["moves_at_once"]) == (2, 2, 2)
    assert all(each["status"] == "up" for each in outputs.latest("topology.v1").values())

    wrong = placer("drain", "/z0", "--hash", "00ff")
    assert (wrong.exit_code, "IMPACT_CHANGED" in wrong.output) == (1, True), wrong.output
    with Executor(system.bootstrap, system.prefix, 0.05):
        done = placer("drain", "/z0", "--hash", shown["impact_hash"], "--watch")
    assert done.exit_code == 0, done.output
    assert "accepted: REQUEST_ACCEPTED" in done.output
    assert done.output.rstrip().endswith("0 remaining, 0 in flight, 0 blocked"), done.output
    assert not {"n0", "n3"} & {node for shard in outputs.replicas("s") for node in shard}

    # Two copies of three would be away.
    first, second, _ = sorted(outputs.replicas("s")[0])
    kept = placer("maintenance", first, "--for-seconds", "600")
    assert kept.exit_code == 0, kept.output
    broken = placer("maintenance", second, "--for-seconds", "600", "--output", "json")
    assert broken.exit_code == 1
    assert orjson.loads(broken.stdout)["reason"]["code"] == "QUORUM_BROKEN"
    outputs.check()

    application.send(signal.SIGTERM)
    assert application.wait_end() == 0, application.output
    silent = placer("undrain", "/z0", "--timeout-seconds", "0.5")
    assert (silent.exit_code, "no answer" in silent.output) == (3, True), silent.output
