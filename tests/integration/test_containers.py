"""The application as its image, beside brokers in containers: what machines and networks do to it.

Method: nodes and their executor run on this machine, the rest in containers. Every test does one
thing to one container, asks for a stream meanwhile and expects the answer; the records are judged
by the oracle each time. The tests of one cluster go on from each other, which saves starts.
"""

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streaming.simulator import Fleet
from streaming.simulator.fleet import Executor, FleetNode
from tests.integration.conftest import System
from tests.systems.containers import (
    REPLICATION_FACTOR,
    ApplicationContainer,
    Compose,
    Kafka,
    build_image,
    engine_or_skip,
)
from tests.systems.waiting import until

# The image takes a minute and a half from nothing.
pytestmark = pytest.mark.timeout(600)
NODES = [FleetNode(f"n{zone}{number}", f"/z{zone}") for zone in "abc" for number in range(3)]
# Longer than a node's silence may last before it counts as dead.
OUTAGE_SECONDS = 6.0
# An outage may end the application, and then it starts again.
ANSWER_TIMEOUT_SECONDS = 150.0


ONE, THREE = ("r1",), ("r1", "r2", "r3")
# What costs minutes and differs little between one broker and three is for `make containers`.
THREE_WHEN_LONG = pytest.mark.parametrize(
    "stage",
    [pytest.param(ONE, id="one"), pytest.param(THREE, id="three", marks=pytest.mark.long)],
    indirect=True,
    scope="module",
)
# `make test` shows a node's and the application's death in containers; outages of the broker and
# of the network, half a minute each, are for `make containers`.
OUTAGE = pytest.mark.long


class Stage:
    """A cluster with the application, nodes and their executor on it."""

    def __init__(self, kafka: Kafka, application: ApplicationContainer, system: System) -> None:
        self.kafka, self.application, self.system = kafka, application, system
        self.fleet = Fleet(system.bootstrap, system.prefix, NODES, 0.5)
        self.executor = Executor(system.bootstrap, system.prefix, 0.5)

    def placed(self, stream: str) -> None:
        """A new stream gets its replicas, and everything so far is as it should be."""
        self.system.inputs.stream(stream, shards=2)
        self.settled(stream)

    def settled(self, stream: str) -> None:
        """The stream that was asked for has its replicas; nothing is doubled, lost or left."""
        outputs = self.system.outputs
        self.application.wait(
            lambda: len(outputs.replicas(stream)) == 2, f"{stream} placed", ANSWER_TIMEOUT_SECONDS
        )
        outputs.wait(lambda: not outputs.latest("violations.v1"), "nothing is broken")
        outputs.wait(lambda: not outputs.open_moves, "no move is open")
        until(lambda: not outputs.log().final_violations(), "at rest", 10)
        outputs.check()

    @property
    def dead(self) -> set[str]:
        """Nodes that were ever taken for dead."""
        views = self.system.outputs.of("topology.v1")
        return {v.key or "" for v in views if v.value and v.value["liveness"] == "dead"}


@pytest.fixture(scope="module")
def image() -> str:
    engine_or_skip()
    return build_image()


@pytest.fixture(
    scope="module",
    params=[ONE, pytest.param(THREE, marks=pytest.mark.long)],
    ids=["one", "three"],
)
def stage(
    request: pytest.FixtureRequest, image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    """One broker, then three in three racks."""
    with Kafka(request.param) as kafka:
        copies = min(REPLICATION_FACTOR, len(request.param))
        system = System(kafka.bootstrap, tmp_path_factory.mktemp("system"), copies)
        application = ApplicationContainer(image, kafka, system.prefix)
        application.start()
        try:
            application.wait_ready()
            application.wait(lambda: application.health == "healthy", "healthy")
            made = Stage(kafka, application, system)
            with made.fleet, made.executor:
                yield made
            assert application.terminate() == 0, application.log
        finally:
            application.remove()
            system.close()


def test_a_node_dies_and_its_replicas_are_rebuilt(stage: Stage) -> None:
    stage.placed("orders")
    outputs = stage.system.outputs
    lost = outputs.replicas("orders")[0][0]
    stage.fleet.kill(lost)
    outputs.wait(lambda: stage.executor.moves.completed, "a move is carried out")
    stage.settled("orders")
    assert not any(lost in replicas for replicas in outputs.replicas("orders"))
    assert stage.dead == {lost}


@OUTAGE
@THREE_WHEN_LONG
def test_a_paused_broker_only_delays(stage: Stage) -> None:
    dead = stage.dead
    with stage.kafka.brokers[0].paused():
        threading.Event().wait(OUTAGE_SECONDS)
    stage.placed("paused")
    assert stage.dead == dead, "silence of a broker is not silence of nodes"


@OUTAGE
def test_a_killed_broker_comes_back(stage: Stage) -> None:
    broker = stage.kafka.brokers[-1]
    broker.kill()
    if len(stage.kafka.brokers) >= REPLICATION_FACTOR:
        stage.placed("while-one-is-down")
    broker.start_again()
    stage.placed("killed")


@OUTAGE
@THREE_WHEN_LONG
def test_the_application_is_cut_off_from_the_network(stage: Stage) -> None:
    dead = stage.dead
    with stage.application.cut_off():
        stage.system.inputs.stream("unheard", shards=2)
        threading.Event().wait(OUTAGE_SECONDS)
        assert not stage.system.outputs.replicas("unheard")
    stage.settled("unheard")
    assert stage.dead == dead, "what nobody reads is no silence"


@THREE_WHEN_LONG
def test_the_application_is_killed(stage: Stage) -> None:
    starts = stage.application.starts
    stage.application.kill()
    stage.system.inputs.stream("between", shards=2)
    stage.application.start_again()
    stage.application.wait_ready(starts + 1)
    stage.settled("between")
    epochs = [record.value["writer_epoch"] for record in stage.system.outputs.of("commits.v1")]
    assert epochs == sorted(epochs)


@pytest.mark.long
def test_compose_starts_three_brokers_that_are_healed(image: str) -> None:
    with Compose("--env-file", "deploy/compose/kafka.env", "--profile", "kafka") as compose:
        compose("up", "--detach")
        admin = AdminClient({"bootstrap.servers": "127.0.0.1:9092"})
        admin.create_topics([NewTopic("orders", 4, 2)])["orders"].result(30)

        def lists() -> list[list[int]]:
            found = admin.list_topics("orders", timeout=10).topics["orders"].partitions
            return [each.replicas for each in found.values()]

        def streams() -> str:
            return compose("exec", "-T", "reconciler", "placer", "streams", "--output", "json")

        def is_adopted() -> bool:
            return '"orders"' in streams()

        until(is_adopted, "the topic is adopted", 120)
        assert any(3 in each for each in lists())
        compose("kill", "kafka-3")
        until(lambda: not any(3 in each for each in lists()), "its replicas are replaced", 180)
        assert all(len(each) == 2 for each in lists())
