"""Goal: an executor that keeps the contract is found to, and each clause that one breaks is named.

Method: the example of `deploy/examples` as a process on the embedded broker, as it is and with one
fault each; the simulated executor; the command as a person runs it.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import Result

from streaming.conformance import CLAUSES, Clause, Examination, Findings, Verdict, examine
from streaming.runtime import EmbeddedBroker
from tests.test_tidy import ROOT

GARBLED = """
import os, time
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"]})
for value in (b"\\xff\\xfe", b"[1, 2]", None):
    producer.produce(os.environ["TOPIC_PREFIX"] + "acks.v1", value, b"\\xff")
producer.flush()
os.write(1, b"out of \\x07\\xffpaper out of paper\\n")
time.sleep(1000)
"""
EXECUTOR = (sys.executable, str(ROOT / "tests" / "builders" / "examined_executor.py"))
# Replicas are files: the shell answers sooner than a program that has to be loaded.
PROBE = """sh -c 'test -e "$STORE/$2/$0.$1"'"""
# A process that starts takes a second or two, an answer far less.
PATIENCE_SECONDS = 4.0
COPY_SECONDS = 2.0
# What each fault is seen in, so that not all is played for each. A fault has the name of the clause
# that it breaks, with more behind it where a clause has several.
FAULTS: dict[str, tuple[str, ...]] = {
    Clause.COMMITTED: ("aborted",),
    Clause.CREATE: ("replace",),
    Clause.ACKNOWLEDGE: ("add",),
    Clause.WELL_FORMED: ("add",),
    Clause.ORDER: ("superseded",),
    Clause.EPOCH: ("epoch-passed",),
    Clause.NEWEST: ("old-assignment",),
    Clause.DEADLINE: ("expired",),
    Clause.ONCE: ("twice",),
    Clause.STOP: ("called-off-before",),
    Clause.REMIND: ("called-off-before",),
    Clause.CLEAN: ("called-off-after",),
    Clause.DELETE: ("replace",),
    Clause.PROGRESS: ("progress",),
    Clause.FAIL: ("failing",),
    Clause.RESTART: ("killed-after-copying",),
    "restart_of_issued": ("issued-while-away",),
    Clause.CATCH_UP: ("decided-while-away",),
    Clause.DROP: ("dropped",),
    Clause.LEADER: ("leader",),
}


# What else is broken of necessity: a copy has no source where no first replica was made.
ENTAILED = {Clause.CREATE: (Clause.ACKNOWLEDGE,)}


def broken_by(fault: str) -> Clause:
    return next(clause for clause in CLAUSES if fault == clause or fault.startswith(f"{clause}_"))


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE", str(tmp_path / "store"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def run(
    broker: EmbeddedBroker, prefix: str, tmp_path: Path, only: tuple[str, ...] = ()
) -> Findings:
    asked = Examination(
        EXECUTOR,
        broker.bootstrap_servers,
        prefix,
        tmp_path / "executor.log",
        probe=PROBE,
        has_leader_moves=True,
        only=frozenset(only),
        patience_seconds=PATIENCE_SECONDS,
        copy_seconds=COPY_SECONDS,
    )
    return examine(asked, lambda _: None)


def examine_on(broker: EmbeddedBroker) -> tuple[str, ...]:
    return ("conformance", "--bootstrap", broker.bootstrap_servers, "--patience-seconds", "4")


def test_the_library_keeps_every_clause(
    broker: EmbeddedBroker, prefix: str, tmp_path: Path, environment: None
) -> None:
    findings = run(broker, prefix, tmp_path)
    wrong = {clause: findings.why(clause) for clause in CLAUSES}
    assert {why for why in wrong.values() if why} == set()
    assert {findings.verdict(clause) for clause in CLAUSES} == {Verdict.HELD}


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_executor_is_caught_by_the_clause_that_it_breaks(
    fault: str,
    broker: EmbeddedBroker,
    prefix: str,
    tmp_path: Path,
    environment: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BREAKS", fault)
    findings = run(broker, prefix, tmp_path, FAULTS[fault])
    clause = broken_by(fault)
    assert findings.broken == [clause, *ENTAILED.get(clause, ())]
    assert findings.why(clause)
    (first, *_) = [each for each in findings.of(clause) if each.verdict is Verdict.BROKEN]
    assert {record["topic"] for record in first.records} >= {"assignments.v1"}


def test_every_clause_is_broken_by_some_executor() -> None:
    assert {broken_by(fault) for fault in FAULTS} == set(CLAUSES)


def test_the_command_shows_what_it_found(
    broker: EmbeddedBroker,
    prefix: str,
    tmp_path: Path,
    environment: None,
    monkeypatch: pytest.MonkeyPatch,
    placer: Callable[..., Result],
) -> None:
    report = tmp_path / "conformance.xml"
    words = (*examine_on(broker), "--only", "expired", "--junit", str(report))
    held = placer(*words, "--prefix", prefix, "--output", "json", "--", *EXECUTOR)
    assert held.exit_code == 0
    found = {each["clause"]: each for each in json.loads(held.stdout)["clauses"]}
    assert (found["deadline"]["verdict"], found["epoch"]["verdict"]) == ("held", "not tried")
    monkeypatch.setenv("BREAKS", "deadline")
    broken = placer(*words, "--", *EXECUTOR)
    assert broken.exit_code == 1
    assert "it said MoveAccepted and MoveCompleted of a move that is not valid" in broken.stdout
    shown = [json.loads(line) for line in broken.stdout.splitlines() if line.startswith("  {")]
    listed, accepted = ("assignments.v1", None), ("acks.v1", "MoveAccepted")
    told = [(record["topic"], record.get("message")) for record in shown]
    # The move and its list come in one transaction, behind the shard's first list.
    assert told[:4] == [listed, ("moves.v1", None), listed, accepted]
    failures = ET.parse(report).findall("testcase/failure")
    assert [failure.get("message", "").split(":")[0] for failure in failures] == ["expired"]


def test_the_scenarios_are_listed_without_an_executor(placer: Callable[..., Result]) -> None:
    """Each by a name that `--only` takes, and together they try all that a scenario can."""
    shown = placer("conformance", "--list", "--output", "json")
    assert shown.exit_code == 0
    listed = {each["scenario"]: each for each in json.loads(shown.stdout)["scenarios"]}
    assert listed["epoch-awaited"]["clauses"] == ["epoch", "acknowledge"]
    assert {name for names in FAULTS.values() for name in names} <= set(listed)
    # What is said is checked in the whole run, not by a scenario.
    tried = {clause for each in listed.values() for clause in each["clauses"]}
    assert tried == set(CLAUSES) - {Clause.WELL_FORMED}
    text = placer("conformance", "--list")
    assert text.exit_code == 0
    lines = text.stdout.splitlines()
    assert [line.split()[0] for line in lines[-len(listed) :]] == list(listed)
    assert all(each["says"] for each in listed.values())


def test_a_command_is_needed_unless_scenarios_are_listed(placer: Callable[..., Result]) -> None:
    refused = placer("conformance")
    assert refused.exit_code == 2
    assert "name the executor's command behind --" in refused.output


def test_an_executor_that_cannot_run_is_told(
    broker: EmbeddedBroker, placer: Callable[..., Result]
) -> None:
    missing = placer(*examine_on(broker), "--", "./no-such-executor")
    assert missing.exit_code == 3
    assert "behind --" in missing.output
    ended = placer(*examine_on(broker), "--", "sh", "-c", "echo no disk; exit 1")
    assert ended.exit_code == 3
    assert "no disk" in ended.output


def test_an_executor_that_does_nothing_is_told(
    broker: EmbeddedBroker, placer: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.conformance.stage.START_PATIENCE_SECONDS", 0.5)
    idle = placer(*examine_on(broker), "--", "sleep", "1000")
    assert idle.exit_code == 3
    assert "has carried out no removal within 0.5 s" in idle.output
    assert "it has written 0 records to acks.v1" in idle.output


def test_an_executor_whose_words_are_refused_is_told_which(
    broker: EmbeddedBroker, placer: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that are no message, and bytes that are no text."""
    monkeypatch.setattr("streaming.conformance.stage.START_PATIENCE_SECONDS", 5.0)
    wrong = placer(*examine_on(broker), "--", sys.executable, "-c", GARBLED)
    assert wrong.exit_code == 3
    assert "offset 0 of acks.v1 is refused: " in wrong.output
    assert "out of paper" in wrong.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "nosuch"), "there is no scenario nosuch"),
        (("--nodes", "a,b,b"), "three different ids"),
    ],
)
def test_wrong_usage_is_told(
    words: tuple[str, ...], said: str, broker: EmbeddedBroker, placer: Callable[..., Result]
) -> None:
    refused = placer(*examine_on(broker), *words, "--", *EXECUTOR)
    assert refused.exit_code == 2
    assert said in refused.output


@pytest.mark.long
def test_the_simulated_executor_keeps_all_that_can_be_seen_of_one_without_data(
    broker: EmbeddedBroker, prefix: str, tmp_path: Path
) -> None:
    command = (
        f"exec {sys.executable} -m streaming.cli executor --delay-seconds ${{COPY_SECONDS:-0.1}} "
        "--bootstrap $KAFKA_BOOTSTRAP --prefix $TOPIC_PREFIX"
    )
    asked = Examination(
        ("sh", "-c", command),
        broker.bootstrap_servers,
        prefix,
        tmp_path / "executor.log",
        has_leader_moves=True,
        patience_seconds=PATIENCE_SECONDS,
        copy_seconds=COPY_SECONDS,
    )
    findings = examine(asked, lambda _: None)
    assert {clause: findings.why(clause) for clause in findings.broken} == {}
    not_tried = {c for c in CLAUSES if findings.verdict(c) is Verdict.NOT_TRIED}
    # Where data is cannot be asked; its copies never fail.
    assert not_tried == {Clause.CREATE, Clause.CLEAN, Clause.DELETE, Clause.FAIL}
