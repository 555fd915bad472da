"""The main job on a real broker and real Spark: events in, decisions and moves out, healed again.

One application serves all tests of this module, which go on from each other's fleet.
"""

from collections.abc import Iterator
from hashlib import sha256

import orjson
import pytest

from placement.model import Configuration, Liveness, NodeAttributes, NodeChanged, StreamCreated
from placement.reconciler import Reconciler
from streaming.simulator import Fleet
from streaming.simulator.fleet import Executor, FleetNode
from tests.integration.conftest import System
from tests.systems.application import Application

NODES = [FleetNode(f"node-0x{n}", f"/site{(n + 1) // 2}") for n in range(1, 7)]
BEAT_SECONDS = 0.25
ERRORS = "__placement.errors."

Headers = list[tuple[str, bytes | None]]


@pytest.fixture(scope="module")
def fleet(system: System) -> Iterator[Fleet]:
    """Six nodes in three sites, as in the documented examples."""
    with Fleet(system.bootstrap, system.prefix, NODES, BEAT_SECONDS) as running:
        yield running


@pytest.fixture(scope="module")
def application(system: System, fleet: Fleet) -> Iterator[Application]:
    """The application, ready and knowing all nodes."""
    running = system.start()
    system.outputs.wait(
        lambda: len(system.outputs.latest("topology.v1")) == len(NODES), "all nodes registered"
    )
    yield running
    assert running.running, running.output


@pytest.fixture(autouse=True)
def _nothing_is_wrong(system: System, application: Application) -> Iterator[None]:
    """After every test, whatever it did, the records must be as promised."""
    yield
    system.outputs.check()


def test_nodes_are_believed_as_they_registered(system: System) -> None:
    views = system.outputs.latest("topology.v1")
    assert {node: (v["location"], v["liveness"]) for node, v in views.items()} == {
        node.node_id: (node.location, "up") for node in NODES
    }


def test_a_healthy_start_logs_no_warning(application: Application) -> None:
    lines = application.printed.splitlines()
    assert [line for line in lines if " READY " in line], "what it prints is its log"
    assert [line for line in lines if " WARNING " in line or " CRITICAL " in line] == []


def test_the_documented_examples(system: System) -> None:
    """The first on the empty cluster is as on Timeplus' page; the others as the core answers."""
    outputs, inputs = system.outputs, system.inputs
    inputs.stream("first", shards=2, placement_policies="")
    first = outputs.decision("first")
    assert (first["outcome"], first["shards_placed"], first["revision"]) == ("placed", 2, 1)
    assert outputs.replicas("first") == [["node-0x1", "node-0x3", "node-0x5"]] * 2
    inputs.stream("second", shards=2, placement_policies="shard=exclusive")
    assert outputs.decision("second")["outcome"] == "placed"
    assert len({node for shard in outputs.replicas("second") for node in shard}) == 6
    inputs.stream("third", replication_factor=5, placement_policies="node=exclusive", sequence=7)
    third = outputs.decision("third")
    assert (third["outcome"], third["sequence"]) == ("rejected", 7)
    (reason,) = third["reasons"]
    assert (reason["code"], reason["need"], reason["have"]) == ("DOMAINS_TOO_FEW", 5, 3)
    assert reason["seen"] == ["/site1", "/site2", "/site3"]
    expected = core_answers()
    for name in ("first", "second", "third"):
        assert outputs.replicas(name) == [list(shard) for shard in expected[name]]
    assert {a["epoch"] for a in outputs.latest("assignments.v1").values()} == {1}


def core_answers() -> dict[str, list[tuple[str, ...]]]:
    """Replicas by stream when the core alone is told the same."""
    core = Reconciler(Configuration())
    for node in NODES:
        attributes = NodeAttributes(node.location)
        core.apply([NodeChanged(1, node.node_id, "a", 1, Liveness.UP, attributes)], 1)
    asked = [
        ("first", 2, 3, ""),
        ("second", 2, 3, "shard=exclusive"),
        ("third", 1, 5, "node=exclusive"),
    ]
    return {
        name: [
            each.replicas
            for each in core.apply(
                [StreamCreated(2, name, 1, shards, factor, policies)], 2
            ).assignments.values()
        ]
        for name, shards, factor, policies in asked
    }


def test_a_repeated_request_is_answered_once(system: System) -> None:
    system.inputs.stream("once")
    before = system.outputs.decision("once")
    place = system.inputs.stream("once")
    system.outputs.wait_passed("streams.v1", place)
    answers = [r for r in system.outputs.of("decisions.v1") if r.key == "once"]
    assert [each.value for each in answers] == [before]


def test_a_dead_node_is_replaced_and_its_return_moves_nothing(system: System, fleet: Fleet) -> None:
    outputs, dead = system.outputs, "node-0x3"
    assignments = outputs.latest("assignments.v1")
    hit = {key for key, each in assignments.items() if dead in each["replicas"]}
    # The stream with one replica per node has no sixth node to go to.
    helpless = {key for key in hit if key.startswith("second/")}
    assert len(helpless) == 1 < len(hit)
    fleet.kill(dead)
    outputs.wait(lambda: outputs.liveness(dead) == "suspect", "suspect")
    assert outputs.open_moves == {}, "a suspect keeps its replicas"
    outputs.wait(lambda: outputs.liveness(dead) == "dead", "dead")
    outputs.wait(
        lambda: (
            {f"{m['stream']}/{m['shard']}" for m in outputs.open_moves.values()} == hit - helpless
        ),
        "a move for every shard of the dead node that can be helped",
    )
    for key in helpless:
        told = outputs.wait(lambda key=key: outputs.latest("violations.v1").get(key), "violation")
        (violation,) = told["violations"]
        assert (violation["class"], violation["count"]) == ("unfixable", 2)
    for move in outputs.open_moves.values():
        assert (move["kind"], move["remove"], move["state"]) == ("replace", dead, "issued")
        key, epoch = f"{move['stream']}/{move['shard']}", move["expected_epoch"]
        outputs.wait(
            lambda key=key, epoch=epoch: outputs.latest("assignments.v1")[key]["epoch"] == epoch,
            f"{key} at epoch {epoch}",
        )
        shown = outputs.latest("assignments.v1")[key]
        assert shown["move_id"] == move["move_id"]
        assert (shown["adding"], shown["removing"]) == ([move["add"]], [dead])
        assert shown["replicas"][0] != dead, "a live replica leads"
    targets = {move["add"] for move in outputs.open_moves.values()}
    assert targets == {"node-0x4"}, "the other node of the same site comes first"
    with Executor(system.bootstrap, system.prefix, 0.1):
        outputs.wait(lambda: not outputs.open_moves, "all moves completed")
        outputs.wait(
            lambda: outputs.latest("violations.v1").keys() == helpless, "all else is healed"
        )
    outputs.wait(
        lambda: (
            helpless
            == {k for k, a in outputs.latest("assignments.v1").items() if dead in a["replicas"]}
        ),
        "nothing else names the dead node",
    )
    moved = outputs.latest("assignments.v1")
    fleet.revive(dead)
    outputs.wait(lambda: outputs.liveness(dead) == "up", "back")
    outputs.wait(lambda: not outputs.latest("violations.v1"), "no violation is open")
    place = system.inputs.stream("after-return", shards=3)
    outputs.wait_passed("streams.v1", place)
    now = outputs.latest("assignments.v1")
    assert {key: now[key] for key in moved} == moved, "nothing that was placed has moved"


def test_a_failed_move_is_derived_again(system: System, fleet: Fleet) -> None:
    outputs = system.outputs
    system.inputs.stream("fragile", replication_factor=2)
    outputs.decision("fragile")
    dead = outputs.replicas("fragile")[0][1]
    fleet.kill(dead)

    def moves_of_it() -> list[str]:
        return [m["move_id"] for m in outputs.open_moves.values() if m["stream"] == "fragile"]

    (first,) = outputs.wait(moves_of_it, "a move of the dead replica")
    system.inputs.ack("MoveFailed", outputs.open_moves[first])
    outputs.wait(lambda: moves_of_it() not in ([], [first]), "another move")
    assert outputs.latest("moves.v1")[first]["state"] == "failed"
    assert outputs.latest("moves.v1")[first]["reason"]["code"] == "EXECUTOR_FAILED"
    fleet.revive(dead)
    with Executor(system.bootstrap, system.prefix, 0.1):
        outputs.wait(lambda: not outputs.open_moves, "no move is open")
        outputs.wait(lambda: not outputs.latest("violations.v1"), "no violation is open")


def test_an_unregistered_node_is_emptied_and_forgotten(system: System) -> None:
    outputs, inputs = system.outputs, system.inputs
    life = {"node_id": "guest", "incarnation": "a", "sequence": 1}
    inputs.send("nodes.v1", "NodeRegistered", "guest", life | {"location": "/site9"})
    outputs.wait(lambda: outputs.liveness("guest") == "up", "the guest")
    inputs.stream("visit", replication_factor=1, policy={"strategy": "spread", "nodes": ["guest"]})
    assert outputs.decision("visit")["outcome"] == "placed"
    inputs.send("nodes.v1", "NodeUnregistered", "guest", life | {"sequence": 2})
    open_violations = outputs.wait(
        lambda: outputs.latest("violations.v1").get("visit/0"), "no other node is allowed"
    )
    assert open_violations["violations"][0]["class"] == "unfixable"
    assert outputs.liveness("guest") == "unregistered", "it still holds a replica"


def test_bad_records_are_dead_lettered_among_good_ones(system: System) -> None:
    outputs, inputs = system.outputs, system.inputs
    good: list[str] = []
    bad: dict[tuple[str, str, str], tuple[str, str, bytes | None]] = {}
    for topic, name, key, value, headers, stage, code in poison():
        partition, offset = inputs.raw(topic, key, value, headers)
        bad[topic, str(partition), str(offset)] = (stage, code, value)
        good.append(f"good-after-{name}")
        inputs.stream(good[-1], replication_factor=1)
    rejected = {
        "zero-copies": ({"replication_factor": 0}, "REPLICATION_FACTOR_OUT_OF_RANGE"),
        "unknown-key": ({"policy": {"strategy": "spread", "ruels": []}}, "POLICY_UNKNOWN_KEY"),
        "unknown-strategy": ({"policy": {"strategy": "magic"}}, "STRATEGY_UNKNOWN"),
        "unknown-setting": ({"placement_policies": "nodes=exclusive"}, "POLICY_UNKNOWN_KEY"),
    }
    for name, (fields, _) in rejected.items():
        inputs.stream(name, **fields)
    for name in good:
        assert outputs.decision(name)["outcome"] == "placed"
    for name, (_, code) in rejected.items():
        answer = outputs.decision(name)
        assert (answer["outcome"], answer["reasons"][0]["code"]) == ("rejected", code)
    outputs.wait(lambda: bad.keys() <= outputs.letters().keys(), "a dead letter for each")
    letters = outputs.letters()
    assert letters.keys() == bad.keys()
    for place, (stage, code, value) in bad.items():
        said, whole = letters[place].headers, value or b""
        assert (said[ERRORS + "stage"], said[ERRORS + "reason"]) == (stage, code), said
        assert said[ERRORS + "message"]
        assert said[ERRORS + "value.sha256"] == sha256(whole).hexdigest()
        assert letters[place].raw == (None if value is None else whole[:1024])


def poison() -> Iterator[tuple[str, str, bytes | None, bytes | None, Headers, str, str]]:
    """(topic, name, key, value, headers, stage, reason code) of what can go wrong with a record."""
    asked = {"stream": "x", "sequence": 1, "shards": 1, "replication_factor": 1}
    whole = orjson.dumps(asked | {"type": "StreamCreated"})
    for name, value, code in (
        ("no-json", b"replicas, please", "NOT_JSON"),
        ("no-utf8", b'{"type":"\xff"}', "NOT_JSON"),
        ("not-a-number", whole.replace(b":1,", b":NaN,", 1), "NOT_JSON"),
        ("half-a-character", whole.replace(b'"x"', b'"\\ud800"'), "NOT_JSON"),
        ("nothing", None, "EMPTY_VALUE"),
        ("deep", b"[" * 10_000, "TOO_DEEP"),
        ("large", b" " * 990_000, "TOO_LARGE"),
        ("digits", whole.replace(b":1,", b":" + b"9" * 5_000 + b","), "NUMBER_OUT_OF_RANGE"),
        ("no-type", orjson.dumps(asked), "UNKNOWN_TYPE"),
        ("twice", whole.replace(b"{", b'{"stream":"y",', 1), "DUPLICATE_FIELD"),
        (
            "version",
            whole.replace(b"StreamC", b"placement.StreamC").replace(b'ed"', b'ed.v2"'),
            "UNKNOWN_VERSION",
        ),
    ):
        yield "streams.v1", name, b"x", value, [], "decode", code
    for name, key, value, code in (
        ("wrong-type", b"x", whole.replace(b'shards":1', b'shards":"two"'), "WRONG_TYPE"),
        ("missing", b"x", b'{"type":"StreamCreated","stream":"x"}', "WRONG_TYPE"),
        ("other-key", b"y", whole, "KEY_MISMATCH"),
        ("no-key", None, whole, "KEY_MISMATCH"),
        ("other-topic", b"x", b'{"type":"NodeHeartbeat"}', "WRONG_TOPIC"),
    ):
        yield "streams.v1", name, key, value, [], "validate", code
    beat = {"node_id": "node-0x1", "incarnation": "a", "sequence": 1, "type": "NodeHeartbeat"}
    yield "nodes.v1", "node", b"node-0x2", orjson.dumps(beat), [], "validate", "KEY_MISMATCH"
    yield "nodes.v1", "null", b"n", None, [("ce_type", None)], "decode", "EMPTY_VALUE"
    strange: Headers = [("own", b"\xff\x00"), ("own", None), ("", b"")]
    yield "acks.v1", "ack", b"\xff\xfe", b"\x00", strange, "decode", "NOT_JSON"


def test_a_request_behind_registrations_finds_the_nodes(system: System) -> None:
    """They are in topics of different queries; the nodes go again so that nothing else changes."""
    for number in range(10):
        late = [f"late-{number}-{each}" for each in range(3)]
        for site, name in enumerate(late, start=1):
            body = {"node_id": name, "incarnation": "only", "sequence": 1}
            body |= {"location": f"/site{site}", "tags": {"late": str(number)}}
            system.inputs.send("nodes.v1", "NodeRegistered", name, body)
        policy = {"with_tags": {"late": str(number)}}
        system.inputs.stream(f"behind-{number}", policy=policy)
        decision = system.outputs.decision(f"behind-{number}")
        assert (decision["outcome"], decision["revision"]) == ("placed", 1)
        assert {*system.outputs.replicas(f"behind-{number}")[0]} == {*late}
        body = {"stream": f"behind-{number}", "sequence": 2}
        system.inputs.send("streams.v1", "StreamDropped", f"behind-{number}", body)
        for name in late:
            body = {"node_id": name, "incarnation": "only", "sequence": 2}
            system.inputs.send("nodes.v1", "NodeUnregistered", name, body)


def test_the_fleet_at_rest_is_as_it_was_asked(system: System) -> None:
    log = system.outputs.log()
    found = [each for each in log.final_violations() if "visit/0" not in each]
    assert found == []
