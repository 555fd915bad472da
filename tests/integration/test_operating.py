"""Operators' commands against the running application: dry run, request, answer, progress.

Every command goes the way of a person: the command line, the operator topic, the answer on the
answers topic; what it did is seen in the output topics.
"""

import signal
from collections.abc import Collection
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner, Result

from streaming.cli.main import app
from streaming.simulator.fleet import Executor
from tests.integration.conftest import System
from tests.systems.application import PATIENT, Application

SETTINGS = {
    **PATIENT,
    "PLACER_LOCATION__RELOCATE_UP_TO_SHARDS": "0",
    # Nobody falls silent here, and repair waits while more than five ticks are unread.
    "PLACER_TICK__INTERVAL_SECONDS": "2",
}
ZONES = 3
# A zone with racks, as only such a one is held when it goes; a detector speaks for its nodes.
HELD = [f"h{number}" for number in range(3)]
WRONG_HASH = "00ff"


@pytest.fixture(scope="module", autouse=True)
def application(system: System) -> Application:
    """The application with nine nodes in three zones and a stream on them."""
    running = system.start(**SETTINGS)
    for number in range(9):
        register(system, f"n{number}", f"/eu/z{number % ZONES}")
    system.inputs.stream("s", shards=2, policy={"strategy": "spread", "within": ["/eu"]})
    system.outputs.decision("s")
    return running


def register(system: System, node: str, location: str, **fields: Any) -> None:
    body = {"node_id": node, "incarnation": "a", "sequence": 1, "location": location}
    system.inputs.send("nodes.v1", "NodeRegistered", node, body | fields)


def placer(system: System, *words: str) -> Result:
    place = ["--bootstrap", system.bootstrap, "--prefix", system.prefix]
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*words, *place])


def refused(system: System, code: str, *words: str) -> None:
    """The command is refused with the code, by the application where a hash was given."""
    result = placer(system, *words)
    assert (result.exit_code, code in result.output) == (1, True), result.output


def shown(system: System, *words: str) -> dict[str, Any]:
    """What the dry run of a command says."""
    result = placer(system, *words, "--dry-run", "--output", "json")
    assert result.exit_code == 0, result.output
    body: dict[str, Any] = orjson.loads(result.stdout)
    return body


def agree(system: System, *words: str) -> str:
    """Carry a command out by the hash that its dry run shows."""
    done = placer(system, *words, "--hash", shown(system, *words)["impact_hash"])
    assert done.exit_code == 0, done.output
    assert "accepted: REQUEST_ACCEPTED" in done.output
    return done.output


def answered(system: System, target: str) -> list[str]:
    """Codes of the answers to requests about a target, as the topic has them."""
    told = [record.value for record in system.outputs.of("answers.v1")]
    return [each["reason"]["code"] for each in told if each and each["target"] == target]


def test_a_zone_is_drained_by_the_hash_that_was_seen(system: System) -> None:
    outputs = system.outputs
    refused(system, "NODE_UNKNOWN", "drain", "n9", "--dry-run")
    seen = shown(system, "drain", "/eu/z0")
    assert (seen["nodes"], seen["shards"], seen["moves_at_once"]) == (3, 2, 2)
    assert all(each["status"] == "up" for each in outputs.latest("topology.v1").values())

    refused(system, "IMPACT_CHANGED", "drain", "/eu/z0", "--hash", WRONG_HASH)
    with Executor(system.bootstrap, system.prefix, 0.05):
        done = placer(system, "drain", "/eu/z0", "--hash", seen["impact_hash"], "--watch")
    assert done.exit_code == 0, done.output
    assert "accepted: REQUEST_ACCEPTED" in done.output
    assert done.output.rstrip().endswith("done, no replica is left there"), done.output
    assert not {"n0", "n3", "n6"} & {node for shard in outputs.replicas("s") for node in shard}
    refused(system, "REQUEST_CONTRADICTED", "maintenance", "/eu/z0", "--for-seconds", "600")

    # Two copies of three would be away.
    first, second, _ = sorted(outputs.replicas("s")[0])
    kept = placer(system, "maintenance", first, "--for-seconds", "600")
    assert kept.exit_code == 0, kept.output
    refused(system, "QUORUM_BROKEN", "maintenance", second, "--for-seconds", "600")
    assert placer(system, "undrain", first).exit_code == 0
    assert placer(system, "undrain", "/eu/z0").exit_code == 0
    settle(system)
    outputs.check()


def test_a_relocation_is_approved_by_the_hash_that_was_seen(system: System) -> None:
    outputs = system.outputs
    node, other, _ = outputs.replicas("s")[0]
    home, away = place(system, node), place(system, other)
    refused(system, "NODE_UNKNOWN", "approve", "n9", "--hash", WRONG_HASH)
    refused(system, "NOTHING_PENDING", "approve", node, "--hash", WRONG_HASH)
    relabel(system, node, 2, away)
    refused(system, "IMPACT_CHANGED", "approve", node, "--hash", WRONG_HASH)
    seen = shown(system, "approve", node)
    assert seen["relabelled"] == [{"was": home, "location": away, "meant": None, "nodes": 1}]
    assert place(system, node) == home, "nothing is done unseen"
    agree(system, "approve", node)
    outputs.wait(lambda: place(system, node) == away, "the new place counts")
    told = ["NOTHING_PENDING", "IMPACT_CHANGED", "REQUEST_ACCEPTED"]
    outputs.wait(lambda: answered(system, node)[-3:] == told, "all answers are read")
    settle(system)
    outputs.check()


def test_relocations_of_a_domain_are_approved_by_one_hash(system: System) -> None:
    outputs = system.outputs
    *nodes, third = outputs.replicas("s")[0]
    homes, away = [place(system, node) for node in nodes], place(system, third)
    for node in nodes:
        relabel(system, node, 3, away)
    refused(system, "DOMAIN_UNKNOWN", "approve", "/eu/z9", "--hash", WRONG_HASH)
    refused(system, "IMPACT_CHANGED", "approve", "/eu", "--hash", WRONG_HASH)
    assert [place(system, node) for node in nodes] == homes
    agree(system, "approve", "/eu")
    outputs.wait(lambda: {place(system, node) for node in nodes} == {away}, "both count")
    settle(system)
    outputs.check()


def relabel(system: System, node: str, sequence: int, location: str) -> None:
    """Have a node claim the place of another that shares a shard with it, and wait until that is
    pending."""
    outputs = system.outputs
    body = {"node_id": node, "incarnation": "a", "sequence": sequence, "location": location}
    system.inputs.send("nodes.v1", "NodeLocalityChanged", node, body)
    outputs.wait(lambda: outputs.latest("topology.v1")[node].get("pending"), f"{node} is pending")


def settle(system: System) -> None:
    """What was asked for makes moves; carry them out."""
    system.outputs.wait(lambda: system.outputs.open_moves, "moves")
    system.come_to_rest()


def place(system: System, node: str) -> str:
    """Where a node stands."""
    location: str = system.outputs.latest("topology.v1")[node]["location"]
    return location


def test_a_hold_is_lifted_by_the_hash_that_was_seen(system: System) -> None:
    outputs = system.outputs
    for number, node in enumerate(HELD):
        register(system, node, f"/held/r{number}", liveness="external")
        detect(system, node, "up", 2)
    system.inputs.stream("t", replication_factor=2, policy={"strategy": "spread", "nodes": HELD})
    assert outputs.decision("t")["outcome"] == "placed"
    refused(system, "NOTHING_TO_DO", "hold", "override", "/held", "--hash", WRONG_HASH)
    for node in HELD:
        detect(system, node, "down", 3)
    outputs.wait(lambda: holds(system), "a HOLD")
    # The first report may have come to a batch of its own, when there was nothing to hold yet.
    before = moves_off(system, HELD)
    refused(system, "NOTHING_TO_DO", "hold", "override", "/eu/z1", "--dry-run")
    refused(system, "IMPACT_CHANGED", "hold", "override", "/held", "--hash", WRONG_HASH)
    assert moves_off(system, HELD) == before
    assert shown(system, "hold", "override", "/held")["nodes"] == len(HELD)
    agree(system, "hold", "override", "/held")
    ended = outputs.wait(lambda: holds(system)[1:], "the hold is lifted")
    assert ended[0]["detail"]["state"] == "overridden"
    assert answered(system, "/held") == ["NOTHING_TO_DO", "IMPACT_CHANGED", "REQUEST_ACCEPTED"]
    refused(system, "NOTHING_TO_DO", "hold", "override", "/held", "--hash", WRONG_HASH)
    outputs.check()


def moves_off(system: System, nodes: Collection[str]) -> set[str]:
    """The moves that take a replica off one of the nodes, open and ended."""
    moves = system.outputs.latest("moves.v1")
    return {move_id for move_id, move in moves.items() if move["remove"] in nodes}


def detect(system: System, node: str, status: str, sequence: int) -> None:
    body = {"node_id": node, "incarnation": "a", "sequence": sequence, "status": status}
    system.inputs.send("detector.v1", "NodeLivenessReported", node, body)


def holds(system: System) -> list[dict[str, Any]]:
    told = [record.value for record in system.outputs.of("alerts.v1")]
    return [each for each in told if each and each["kind"] == "HOLD"]


def test_streams_are_asked_for_and_answered(system: System, tmp_path: Path) -> None:
    created = placer(system, "stream", "create", "asked", "--shards", "2", "--rf", "2")
    assert (created.exit_code, created.output) == (0, "asked placed, 2 of 2 shards whole\n")
    altered = placer(system, "stream", "alter", "asked", "--shards", "3")
    assert (altered.exit_code, "3 of 3 shards whole" in altered.output) == (0, True)
    far = ("--rf", "60", "--policy", "{strategy: spread, on_infeasible: reject}")
    rejected = placer(system, "stream", "create", "far", *far)
    assert (rejected.exit_code, "far rejected" in rejected.output) == (1, True), rejected.output
    assert "NODES_TOO_FEW" in rejected.output or "NO_CANDIDATE" in rejected.output
    unsent = placer(system, "stream", "create", "typo", "--policies", "nod=exclusive")
    assert (unsent.exit_code, "POLICY_UNKNOWN_KEY" in unsent.output) == (2, True)

    exported = yaml.safe_load(placer(system, "export").stdout)
    (asked,) = (each for each in exported["streams"] if each["stream"] == "asked")
    asked["shards"] = 4
    file = tmp_path / "streams.yaml"
    file.write_text(yaml.safe_dump(exported))
    dry = placer(system, "apply", "-f", str(file), "--dry-run")
    changed = [line for line in dry.stdout.splitlines() if line.startswith("  ")]
    assert changed == ["  shards: 3 -> 4"], dry.output
    applied = placer(system, "apply", "-f", str(file))
    assert "asked placed, 4 of 4 shards whole" in applied.output
    dropped = placer(system, "stream", "drop", "asked")
    assert (dropped.exit_code, dropped.output) == (0, "asked dropped\n")
    gone = placer(system, "stream", "show", "asked")
    assert (gone.exit_code, "there is no stream 'asked'" in gone.output) == (2, True)
    system.outputs.check()


def test_nodes_are_released_unregistered_and_forgotten(system: System) -> None:
    outputs = system.outputs

    def status(node: str) -> str | None:
        found = outputs.latest("topology.v1").get(node)
        return found and found["status"]

    register(system, "flapper", "/out/r1", liveness="external")
    outputs.wait(lambda: status("flapper") == "up", "it is known")
    for number in range(6):
        detect(system, "flapper", ("down", "up")[number % 2], number + 2)
    outputs.wait(lambda: status("flapper") == "held_down", "it is held down")
    released = placer(system, "node", "release", "flapper")
    assert (released.exit_code, "has ended" in released.output) == (0, True), released.output
    outputs.wait(lambda: status("flapper") == "up", "its hold-down is ended")
    refused(system, "NOTHING_TO_DO", "node", "release", "flapper")
    refused(system, "REQUEST_CONTRADICTED", "node", "forget", "flapper")
    detect(system, "flapper", "down", 20)
    outputs.wait(lambda: status("flapper") == "dead", "it is dead")
    assert placer(system, "node", "forget", "flapper").exit_code == 0
    outputs.wait(lambda: status("flapper") is None, "it has left the topic")
    unknown = placer(system, "node", "forget", "flaper")
    assert (unknown.exit_code, "there is no node 'flaper'" in unknown.output) == (2, True)

    register(system, "leaver", "/out/r2", incarnation="f7c1", liveness="external")
    outputs.wait(lambda: status("leaver") == "up", "it is known")
    left = placer(system, "node", "unregister", "leaver", "--yes")
    assert (left.exit_code, left.output) == (0, "accepted: leaver is unregistered\n"), left.output
    outputs.wait(lambda: status("leaver") is None, "it holds nothing and is forgotten")
    outputs.check()


def test_an_acknowledgement_of_what_there_is_not_is_a_dead_letter(system: System) -> None:
    words = ("send", "ack", "lost", "--shard")
    assert placer(system, *words, "nosuch/0", "--node", "n1").exit_code == 0
    assert placer(system, *words, "s/99", "--node", "n1").exit_code == 0
    assert placer(system, *words, "s/0", "--node", "n999").exit_code == 0

    def reasons() -> set[str]:
        listed = placer(system, "dlq", "show", "--output", "json")
        return {orjson.loads(line)["reason"] for line in listed.stdout.splitlines()}

    wanted = {"STREAM_UNKNOWN", "SHARD_UNKNOWN", "NODE_UNKNOWN"}
    system.outputs.wait(lambda: wanted <= reasons(), "letters")


def test_without_an_application_a_command_says_so(system: System, application: Application) -> None:
    application.send(signal.SIGTERM)
    assert application.wait_end() == 0, application.output
    silent = placer(system, "undrain", "/eu/z0", "--timeout-seconds", "0.5")
    assert (silent.exit_code, "no answer" in silent.output) == (3, True), silent.output
