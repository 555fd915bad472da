"""`placer kafka import` and the way from there to Kafka's tools and back.

The cluster is one in memory that answers as brokers do; tests/integration has one of real brokers.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import orjson
import pytest
import yaml
from typer.testing import CliRunner, Result

import streaming.kafka_bridge
from streaming.cli.main import app
from streaming.kafka_bridge import settling
from streaming.offline.reassignment import parse_reassignment
from tests.builders.kafka_cluster import SimulatedKafka

RACKS = {1: "us east 1a", 2: "us east 1a", 3: "rack:7", 4: "rack:7", 5: "Zürich", 6: "Zürich"}

Placer = Callable[..., Result]


class ConnectedKafka(SimulatedKafka):
    """Is what the command connects to."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """It has no connection to close."""


@pytest.fixture
def kafka() -> ConnectedKafka:
    return ConnectedKafka(RACKS)


@pytest.fixture
def placer(kafka: ConnectedKafka, monkeypatch: pytest.MonkeyPatch) -> Placer:
    """Runs a command; its result."""
    monkeypatch.setattr(streaming.kafka_bridge, "KafkaAdmin", lambda *_: kafka)
    monkeypatch.setattr(settling, "PAUSE_SECONDS", 0.0)

    def run(*arguments: str, **options: Any) -> Result:
        return CliRunner(env={"COLUMNS": "200"}).invoke(app, arguments, **options)

    return run


def imported(placer: Placer, file: Path, *options: str) -> str:
    result = placer("kafka", "import", "--bootstrap", "127.0.0.1:9092", *options)
    assert result.exit_code == 0, result.output
    file.write_text(result.stdout)
    return str(file)


def carry_out(kafka: ConnectedKafka, waves: Path) -> None:
    """Do what the commands of the plan do: file by file, each until it is complete."""
    for file in sorted(waves.glob("wave-*.json")):
        wanted = parse_reassignment(file.read_text())
        answers = kafka.alter_reassignments(
            {key: [int(node) for node in listed.nodes] for key, listed in wanted.items()}
        )
        assert {*answers.values()} == {None}
        kafka.copy()
        assert kafka.list_reassignments() == {}
    election = waves / "leader-election.json"
    if election.exists():
        rows = orjson.loads(election.read_text())["partitions"]
        answers = kafka.elect_preferred([(row["topic"], row["partition"]) for row in rows])
        assert {*answers.values()} == {None}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("squash", [False, True])
def test_a_plan_that_was_carried_out_leaves_nothing_to_plan(
    kafka: ConnectedKafka, placer: Placer, tmp_path: Path, seed: int, squash: bool
) -> None:
    drawn = random.Random(seed)
    for number in range(4):
        factor = drawn.choice((2, 3))
        lists = [drawn.sample(sorted(RACKS), factor) for _ in range(drawn.randint(1, 12))]
        kafka.create(f"topic-{number}", lists, size=100)
    if seed % 2:
        kafka.fence(drawn.choice(sorted(RACKS)))
    file, waves = tmp_path / "cluster.yaml", tmp_path / "waves"
    options = ("--output-dir", str(waves), "--until-balanced", *["--squash"] * squash)
    found = imported(placer, file, "--fenced-is-dead")
    plan = placer("plan", found, *options, "--output", "json")
    assert plan.exit_code == 0, plan.output
    answer = orjson.loads(plan.stdout)
    assert answer["moves"]
    carry_out(kafka, waves)
    # What was promised is what is there.
    promised = answer["final"]["replicas"]
    lists = {
        name: [[str(node) for node in each.listed] for each in topic.partitions]
        for name, topic in kafka.topics.items()
    }
    assert lists == promised
    assert all(
        each.leader == each.listed[0] for t in kafka.topics.values() for each in t.partitions
    )
    again = placer("plan", imported(placer, file, "--fenced-is-dead"), "--output", "json")
    assert (again.exit_code, orjson.loads(again.stdout)["moves"]) == (0, [])
    assert placer("check", str(file)).exit_code == 0


def test_what_a_person_should_know_goes_to_standard_error(
    kafka: ConnectedKafka, placer: Placer
) -> None:
    kafka.create("orders", [(1, 3, 5)])
    kafka.fence(1)
    result = placer("kafka", "import", "--bootstrap", "127.0.0.1:9092", "--output", "json")
    assert orjson.loads(result.stdout)["streams"][0]["stream"] == "orders"
    assert "note: 1 broker (1) is fenced" in result.stderr
    kafka.fence(3)
    assert yaml.safe_load(placer("kafka", "import").stdout)["nodes"][2]["status"] == "fenced"


def test_policies_come_by_pattern_also_from_a_file(
    kafka: ConnectedKafka, placer: Placer, tmp_path: Path
) -> None:
    for name in ("audit.a", "orders", "clicks"):
        kafka.create(name, [(1, 3, 5)])
    file = tmp_path / "policies.yaml"
    file.write_text("orders: {strategy: kafka}\n'.*': simple\n")
    given = ("--policy", r"audit\..*={rules: [{at_most: 1, per: rack}]}", "--policies", str(file))
    result = placer("kafka", "import", *given)
    assert result.exit_code == 0, result.output
    read = {each["stream"]: each["policy"] for each in yaml.safe_load(result.stdout)["streams"]}
    assert read == {
        "audit.a": {"rules": [{"at_most": 1, "per": "rack"}]},
        "clicks": {"strategy": "simple"},
        "orders": {"strategy": "kafka"},
    }


def test_a_policy_that_the_core_refuses_is_named(kafka: ConnectedKafka, placer: Placer) -> None:
    for number in range(7):
        kafka.create(f"t{number}", [(1, 3, 5)])
    result = placer("kafka", "import", "--policy", "t.*=nonsense")
    assert result.exit_code == 1
    assert "7 streams are refused (t0, t1, t2, t3, t4, …): " in result.stderr
    assert "nonsense" in result.stderr.partition("refused")[2]
    assert len(yaml.safe_load(result.stdout)["streams"]) == 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--policy", "t"), "'t' is not REGEX=POLICY"),
        (("--policy", "=spread"), "'=spread' is not REGEX=POLICY"),
        (("--policy", "t="), "'t=' is not REGEX=POLICY"),
        (("--policy", "t(=spread"), "'t(' is no regular expression"),
        (("--policy", "t={"), "is not YAML"),
        (("--policy", "t=[1]"), "[1] is no policy"),
        (
            ("--policy", "none=spread"),
            "pattern 'none' matches the whole name of none of the topics",
        ),
        (("--policies", "FILE"), "FILE: expected a mapping of REGEX to POLICY, it is list"),
        (("--policies", "FILE.none"), "FILE.none: No such file"),
        (("--include", "("), "'(' is no regular expression"),
        (("--exclude", "["), "'[' is no regular expression"),
        (("--levels", "zone,rack", "--separator", "/"), "rack 'us east 1a' has 1 part between '/'"),
        (("--levels", "4"), "'levels[0]' must be of the form"),
    ],
)
def test_what_cannot_be_read_is_told(
    kafka: ConnectedKafka, placer: Placer, tmp_path: Path, options: tuple[str, ...], says: str
) -> None:
    kafka.create("t", [(1, 3, 5)])
    file = tmp_path / "f"
    file.write_text("[1]\n")
    result = placer("kafka", "import", *(each.replace("FILE", str(file)) for each in options))
    assert (result.exit_code, result.stdout) == (2, "")
    said = " ".join(result.stderr.replace("│", "").split())
    assert says.replace("FILE", "").strip() in said.replace(str(file), "").replace("  ", " ")


def test_a_cluster_that_does_not_answer_is_told(kafka: ConnectedKafka, placer: Placer) -> None:
    kafka.unreachable = "no broker answers at kafka:9092"
    result = placer("kafka", "import")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "placer: no broker answers at kafka:9092" in result.stderr
