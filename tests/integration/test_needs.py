"""The needs N1 to N28 of `tests/needs/README.md`, on a real broker and real Spark.

Goal: each need holds in the running application, seen from the output topics alone. Method: one
application and one fleet live through the stories in their order; time is compressed by settings,
not mocked; after every story the shared oracle judges everything that was ever published.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streaming.simulator import Fleet
from streaming.simulator.fleet import Executor, FleetNode
from tests.integration.conftest import System
from tests.systems.application import Application

ZONES, RACKS = (1, 2, 3), (1, 2, 3, 4, 5)
NODES = [
    FleetNode(f"n{zone}{rack}{number}", f"/z{zone}/r{rack}")
    for zone in ZONES
    for rack in RACKS
    for number in (1, 2)
]
STREAMS = [f"s{number}" for number in range(15)]
BEAT_SECONDS = 0.3
SETTINGS = {
    "PLACER_HOLD__WINDOW_SECONDS": "60",
    "PLACER_LIVENESS__FLAP_WINDOW_SECONDS": "60",
    "PLACER_LIVENESS__HOLD_DOWN_SECONDS": "8",
    "PLACER_LOCATION__RELOCATE_UP_TO_SHARDS": "0",
    "PLACER_MOVES__REMIND_SECONDS": "1",
    "PLACER_QUOTAS__BOOTSTRAP_SECONDS": "3",
}


@pytest.fixture(scope="module")
def fleet(system: System) -> Iterator[Fleet]:
    """Thirty nodes in three zones of five racks."""
    with Fleet(system.bootstrap, system.prefix, NODES, BEAT_SECONDS) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def application(system: System, fleet: Fleet) -> Iterator[Application]:
    """The application, knowing all nodes and with all streams placed."""
    running = system.start(**SETTINGS)
    outputs = system.outputs
    outputs.wait(lambda: len(outputs.latest("topology.v1")) == len(NODES), "all nodes")
    for name in STREAMS:
        system.inputs.stream(name, shards=2)
    for name in STREAMS:
        assert outputs.decision(name)["outcome"] == "placed"
    yield running
    assert running.running, running.output


@pytest.fixture(autouse=True)
def _all_is_well_afterwards(system: System, fleet: Fleet) -> Iterator[None]:
    """Every story leaves a whole fleet at rest, and records that are as promised."""
    yield
    outputs = system.outputs
    away = [node for node in fleet.node_ids if outputs.liveness(node) not in ("up", "unregistered")]
    for node in away:
        fleet.revive(node, same_incarnation=True)
    outputs.wait(lambda: all(outputs.liveness(node) == "up" for node in away), "all are back")
    system.come_to_rest()
    outputs.check()
    log = outputs.log()
    assert log.final_violations(reported_is_enough=True) == []


def issued(system: System) -> set[str]:
    """Every move there has ever been."""
    return {record.key or "" for record in system.outputs.of("moves.v1")}


def holders(system: System, nodes: set[str]) -> set[str]:
    """Shards with a replica on one of the nodes."""
    found = system.outputs.latest("assignments.v1").items()
    return {key for key, each in found if nodes & {*each["replicas"], *each["adding"]}}


def alerts(system: System, kind: str, subject: str) -> list[dict[str, Any]]:
    """Alerts of a kind about something, in their order."""
    values = [record.value for record in system.outputs.of("alerts.v1")]
    return [each for each in values if each and (each["kind"], each["subject"]) == (kind, subject)]


def answered(system: System, target: str) -> list[dict[str, Any]]:
    """Answers to requests about a target, in their order."""
    values = [record.value for record in system.outputs.of("answers.v1")]
    return [each for each in values if each and each["target"] == target]


def ask(system: System, message: str, target: str, **fields: Any) -> dict[str, Any]:
    """Send an operator's request and wait for its answer."""
    number = len(answered(system, target))
    request = f"{message}-{target}-{number}".replace("/", "_")
    body = {"target": target, "request_id": request} | fields
    system.inputs.send("operator.v1", message, target, body)

    def answers() -> list[dict[str, Any]]:
        return [each for each in answered(system, target) if each["request_id"] == request]

    return system.outputs.wait(answers, f"an answer to {request}")[0]


def agreed(system: System, message: str, target: str) -> dict[str, Any]:
    """A destructive request: refused unseen, carried out with the hash of its impact."""
    unseen = ask(system, message, target)
    assert (unseen["outcome"], unseen["reason"]["code"]) == ("refused", "IMPACT_UNSEEN")
    seen = unseen["impact_hash"]
    answer = ask(system, message, target, expected_impact_hash=seen)
    assert answer["outcome"] == "accepted", answer
    return answer


def busiest(system: System, wanted: Callable[[str], bool] = bool) -> str:
    """A node with as many shards as any, of those without one of the flapper's streams: these have
    a single copy, which two nodes alone may hold."""
    held = {node.node_id: holders(system, {node.node_id}) for node in NODES if wanted(node.node_id)}
    free = [node for node, keys in held.items() if not any(k.startswith("flap-") for k in keys)]
    return max(free, key=lambda node: len(held[node]))


def test_n1_a_return_within_the_window_moves_nothing(system: System, fleet: Fleet) -> None:
    outputs, node = system.outputs, busiest(system)
    before = issued(system)
    fleet.kill(node)
    outputs.wait(lambda: outputs.liveness(node) == "suspect", "suspect")
    fleet.revive(node, same_incarnation=True)
    outputs.wait(lambda: outputs.liveness(node) == "up", "back in time")
    assert issued(system) == before


def test_n1_after_the_window_it_is_repaired_and_the_return_moves_nothing(
    system: System, fleet: Fleet
) -> None:
    outputs, node = system.outputs, busiest(system)
    hit = holders(system, {node})
    before = issued(system)
    fleet.kill(node)
    outputs.wait(lambda: len(issued(system) - before) >= len(hit), "a move for every shard")
    system.come_to_rest()
    assert holders(system, {node}) == set()
    repaired = issued(system)
    assert len(repaired - before) == len(hit), "no shard moved twice"
    fleet.revive(node)
    outputs.wait(lambda: outputs.liveness(node) == "up", "back")
    system.inputs.stream("after-return")
    outputs.decision("after-return")
    assert issued(system) == repaired


def test_n2_a_flapping_node_causes_one_set_of_moves_at_most(system: System) -> None:
    """Twenty times down and up, told by a failure detector as fast as it can."""
    outputs, inputs = system.outputs, system.inputs
    life = {"node_id": "flapper", "incarnation": "a"}
    said = life | {"sequence": 1, "location": "/z1/r6", "liveness": "external"}
    inputs.send("nodes.v1", "NodeRegistered", "flapper", said)
    outputs.wait(lambda: outputs.liveness("flapper") is not None, "registered")

    def report(status: str, sequence: int) -> None:
        body = life | {"sequence": sequence, "status": status}
        inputs.send("detector.v1", "NodeLivenessReported", "flapper", body)

    report("up", 2)
    outputs.wait(lambda: outputs.liveness("flapper") == "up", "up")
    only_there = {"strategy": "spread", "within": ["/z1/r6", "/z1/r5"]}
    for number in range(3):
        inputs.stream(f"flap-{number}", replication_factor=1, policy=only_there)
        outputs.decision(f"flap-{number}")
    hit = holders(system, {"flapper"})
    assert hit
    before = issued(system)
    for number in range(20):
        report("down", 3 + 2 * number)
        report("up", 4 + 2 * number)
    guarded = outputs.wait(
        lambda: outputs.latest("topology.v1")["flapper"]["guard"] == "held_down", "held down"
    )
    assert guarded
    assert len(alerts(system, "HELD_DOWN", "flapper")) >= 1
    report("up", 60)
    outputs.wait(lambda: outputs.liveness("flapper") == "up", "up at last")
    system.come_to_rest()
    moved = [record.value for record in outputs.of("moves.v1") if record.value]
    completed = {m["move_id"] for m in moved if m["state"] == "completed"} - before
    assert len(completed) <= len(hit), "at most one set of moves"
    inputs.send("nodes.v1", "NodeUnregistered", "flapper", life | {"sequence": 61})
    with Executor(system.bootstrap, system.prefix, 0):
        outputs.wait(lambda: "flapper" not in outputs.latest("topology.v1"), "emptied and gone")


def test_n3_when_nearly_half_is_lost_nothing_moves_until_told(system: System, fleet: Fleet) -> None:
    outputs, lost = system.outputs, {node.node_id for node in NODES if node.node_id[-1] == "1"}
    lost -= {"n351"}
    assert len(lost) == 14, "45 % of 30, and more than 10"
    before = issued(system)
    for node in lost:
        fleet.kill(node)
    outputs.wait(lambda: all(outputs.liveness(node) == "dead" for node in lost), "all are dead")
    outputs.wait(lambda: alerts(system, "HOLD", "fleet"), "one HOLD")
    system.inputs.stream("meanwhile")
    assert outputs.decision("meanwhile")["outcome"] == "placed", "everything else goes on"
    moves = outputs.latest("moves.v1")
    assert [(moves[each]["cause"], moves[each]) for each in issued(system) - before] == []
    assert len(alerts(system, "HOLD", "fleet")) == 1
    needy = holders(system, lost)
    agreed(system, "OverrideHold", "fleet")
    outputs.wait(lambda: issued(system) - before, "repair begins")
    with Executor(system.bootstrap, system.prefix, 0):
        outputs.wait(lambda: not holders(system, lost), f"{len(needy)} shards are healed")


def test_n7_a_zone_can_be_drained(system: System) -> None:
    outputs, zone = system.outputs, {node.node_id for node in NODES if node.node_id[1] == "3"}
    assert holders(system, zone)
    agreed(system, "Drain", "/z3")
    with Executor(system.bootstrap, system.prefix, 0):
        outputs.wait(lambda: not holders(system, zone), "the zone is empty")
    nodes = outputs.latest("topology.v1")
    assert {nodes[node]["administrative"] for node in zone} == {"draining"}
    system.inputs.stream("elsewhere", replication_factor=2)
    outputs.decision("elsewhere")
    assert not holders(system, zone)
    assert ask(system, "Undrain", "/z3")["outcome"] == "accepted"


def test_n28_a_request_by_another_hash_is_refused(system: System) -> None:
    outputs, node = system.outputs, busiest(system)
    before = issued(system)
    answer = ask(system, "Drain", node, expected_impact_hash="0" * 16)
    assert (answer["outcome"], answer["reason"]["code"]) == ("refused", "IMPACT_CHANGED")
    unknown = ask(system, "Drain", "/nowhere")
    assert unknown["outcome"] == "refused"
    assert outputs.latest("topology.v1")[node]["administrative"] == "none"
    assert issued(system) == before


def test_n17_n19_a_move_is_cancelled_and_told_until_stopped(system: System, fleet: Fleet) -> None:
    outputs, node = system.outputs, busiest(system)
    agreed(system, "Drain", node)
    move = outputs.wait(
        lambda: next((m for m in outputs.open_moves.values() if m["remove"] == node), None),
        "a move off the node",
    )
    answer = ask(system, "CancelMove", move["move_id"])
    assert answer["outcome"] == "accepted", answer
    ended = outputs.wait(
        lambda: outputs.latest("moves.v1")[move["move_id"]]["state"] == "cancelled", "cancelled"
    )
    assert ended
    # Its executor has not heard it: it is told again, until it says so.
    kept, move_id = f"unmark/{move['move_id']}", move["move_id"]
    outputs.wait(lambda: outputs.latest("moves.v1")[move_id].get("reminded", 0) >= 2, "reminders")
    assert kept in outputs.latest("state.v1")
    system.inputs.ack("MoveStopped", move)
    outputs.wait(lambda: kept not in outputs.latest("state.v1"), "confirmed")
    assert ask(system, "Undrain", node)["outcome"] == "accepted"


def test_n18_a_move_whose_target_dies_is_superseded(system: System, fleet: Fleet) -> None:
    outputs, node = system.outputs, busiest(system)
    fleet.kill(node)
    move = outputs.wait(
        lambda: next((m for m in outputs.open_moves.values() if m["remove"] == node), None),
        "a move off the dead node",
    )
    fleet.kill(move["add"])
    outputs.wait(lambda: outputs.latest("moves.v1")[move["move_id"]].get("ended_at"), "it ended")
    ended = outputs.latest("moves.v1")[move["move_id"]]
    assert ended["state"] in ("cancelled", "superseded")
    again = outputs.wait(
        lambda: [
            m for m in outputs.latest("moves.v1").values() if m.get("supersedes") == move["move_id"]
        ],
        "the replacement names it",
    )
    assert again[0]["add"] != move["add"]


def test_n25_maintenance_moves_nothing_and_expires(system: System, fleet: Fleet) -> None:
    outputs, node = system.outputs, busiest(system)
    before = issued(system)
    assert ask(system, "Maintenance", node, ttl_seconds=12)["outcome"] == "accepted"
    fleet.kill(node)
    outputs.wait(lambda: outputs.liveness(node) == "dead", "away as announced")
    system.inputs.stream("during-maintenance")
    outputs.decision("during-maintenance")
    assert issued(system) == before
    other = busiest(system, lambda each: each[1] != node[1])
    risky = ask(system, "Maintenance", f"/z{other[1]}", ttl_seconds=5)
    if risky["outcome"] == "refused":
        assert risky["reason"]["message"]
    outputs.wait(
        lambda: outputs.latest("topology.v1")[node]["administrative"] == "none", "time is up"
    )
    outputs.wait(lambda: issued(system) - before, "what is dead is repaired now")


def test_n11_a_move_of_no_consequence_takes_effect_by_itself(system: System, fleet: Fleet) -> None:
    outputs = system.outputs
    system.inputs.send(
        "nodes.v1",
        "NodeRegistered",
        "spare",
        {"node_id": "spare", "incarnation": "a", "sequence": 1, "location": "/z1/r1"},
    )
    outputs.wait(lambda: "spare" in outputs.latest("topology.v1"), "registered")
    before = issued(system)
    moved = {"node_id": "spare", "incarnation": "a", "sequence": 2, "location": "/z2/r2"}
    system.inputs.send("nodes.v1", "NodeLocalityChanged", "spare", moved)
    outputs.wait(
        lambda: outputs.latest("topology.v1")["spare"]["location"] == "/z2/r2", "it holds nothing"
    )
    assert issued(system) == before
    leaves = {"node_id": "spare", "incarnation": "a", "sequence": 3}
    system.inputs.send("nodes.v1", "NodeUnregistered", "spare", leaves)
    outputs.wait(lambda: "spare" not in outputs.latest("topology.v1"), "gone")


def test_n11_one_of_consequence_waits_for_approval(system: System, fleet: Fleet) -> None:
    outputs, node = system.outputs, busiest(system)
    home = fleet.location(node)
    away = "/z2/r5" if home.startswith("/z1") else "/z1/r5"
    before = issued(system)
    fleet.relocate(node, away)
    outputs.wait(lambda: alerts(system, "RELOCATION_PENDING", node), "its impact is published")
    view = outputs.latest("topology.v1")[node]
    assert (view["location"], view["pending"]["location"]) == (home, away)
    assert issued(system) == before, "the old place is in force"
    wrong = ask(system, "ApproveRelocation", node, expected_impact_hash="0" * 16)
    assert wrong["outcome"] == "refused"
    agreed = ask(
        system, "ApproveRelocation", node, expected_impact_hash=view["pending"]["impact_hash"]
    )
    assert agreed["outcome"] == "accepted", agreed
    outputs.wait(
        lambda: outputs.latest("topology.v1")[node]["location"] == away, "the new place counts"
    )
    system.come_to_rest()
    fleet.relocate(node, home)
    back = outputs.wait(
        lambda: (
            outputs.latest("topology.v1")[node].get("pending")
            or outputs.latest("topology.v1")[node]["location"] == home
        ),
        "and back again",
    )
    if isinstance(back, dict):
        answer = ask(system, "ApproveRelocation", node, expected_impact_hash=back["impact_hash"])
        assert answer["outcome"] == "accepted", answer


def test_n12_a_typing_error_is_quarantined(system: System, fleet: Fleet) -> None:
    outputs = system.outputs
    newcomer = {"node_id": "newcomer", "incarnation": "a", "sequence": 1, "location": "/zx1/r1"}
    system.inputs.send("nodes.v1", "NodeRegistered", "newcomer", newcomer)
    outputs.wait(
        lambda: outputs.latest("topology.v1").get("newcomer", {}).get("guard") == "quarantined",
        "not trusted",
    )
    outputs.wait(lambda: alerts(system, "TYPO_SUSPECTED", "newcomer"), "told")
    only = {"strategy": "spread", "nodes": ["newcomer"], "on_infeasible": "wait"}
    system.inputs.stream("on-newcomer", replication_factor=1, policy=only)
    assert outputs.decision("on-newcomer")["outcome"] == "waiting"
    corrected = newcomer | {"sequence": 2, "location": "/z1/r1"}
    system.inputs.send("nodes.v1", "NodeLocalityChanged", "newcomer", corrected)
    outputs.wait(
        lambda: outputs.latest("topology.v1")["newcomer"]["guard"] == "none", "trusted again"
    )
    outputs.wait(
        lambda: outputs.latest("decisions.v1")["on-newcomer"]["outcome"] == "placed", "and used"
    )
