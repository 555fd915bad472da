"""Goal: `placer stream`, `apply` and `node` check what they are asked, wait for the answer, show it
with its reasons and end with the exit status of the README's table.

Method: commands run in this process against the embedded broker, on which a reconciler answers
without Spark.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import Result

from placement.model import Configuration
from streaming.administration import apply_topics
from streaming.brokers import CommittedReader
from streaming.runtime import EmbeddedBroker
from tests.builders.answering_reconciler import AnsweringReconciler

Placer = Callable[..., Result]
At = tuple[str, str]
TWICE = "{stream: x, shards: 1, replication_factor: 1}"
# No answer can come where nobody answers; long enough that the record is there.
SOON = ("--timeout", "0.5")


@pytest.fixture(scope="module")
def answering(broker: EmbeddedBroker) -> Iterator[tuple[At, AnsweringReconciler]]:
    bootstrap, prefix = broker.bootstrap_servers, "asked."
    apply_topics(bootstrap, prefix)
    configuration = Configuration(levels=("zone",))
    with AnsweringReconciler(bootstrap, prefix, configuration) as reconciler:
        yield (bootstrap, prefix), reconciler


@pytest.fixture(scope="module")
def at(answering: tuple[At, AnsweringReconciler]) -> At:
    """A reconciler that answers, with six nodes in three zones."""
    from typer.testing import CliRunner

    from streaming.cli.main import app

    place, _ = answering
    for number in range(1, 7):
        words = ["send", "node", f"n{number}", "--location", f"/z{(number + 1) // 2}"]
        sent = CliRunner().invoke(app, [*words, "--bootstrap", place[0], "--prefix", place[1]])
        assert sent.exit_code == 0, sent.output
    return place


def sent(at: At, topic: str) -> int:
    """How many records there are on a topic."""
    with CommittedReader(*at, [topic]) as reader:
        return len(reader.read_to_end())


def flat(result: Result) -> str:
    """What is on standard error, without the frame and line breaks of a usage error."""
    return " ".join(result.stderr.replace("│", " ").split())


def decision(at: At, stream: str) -> dict[str, Any]:
    with CommittedReader(*at, ["decisions.v1"]) as reader:
        found = [record.value for record in reader.read_to_end() if record.key == stream]
    assert found, "no decision"
    assert found[-1] is not None
    return found[-1]


class TestStream:
    def test_created_altered_shown_dropped(self, placer: Placer, at: At) -> None:
        created = placer("stream", "create", "orders", "--shards", "2", "--rf", "2", at=at)
        assert (created.exit_code, created.stdout) == (
            0,
            "orders placed, 2 of 2 shards whole\n",
        ), created.output
        altered = placer("stream", "alter", "orders", "--shards", "4", "--output", "json", at=at)
        assert altered.exit_code == 0, altered.output
        body = orjson.loads(altered.stdout)
        assert (body["outcome"], body["spec"]["shards"], body["spec"]["replication_factor"]) == (
            "placed",
            4,
            2,
        )
        shown = placer("stream", "show", "orders", at=at)
        assert shown.exit_code == 0
        for words in ("orders placed", "health: healthy", "shards: 4", "quorum: majority"):
            assert words in shown.stdout
        told = orjson.loads(placer("stream", "show", "orders", "--output", "json", at=at).stdout)
        assert (told["health"], told["violations"]) == ("healthy", 0)
        dropped = placer("stream", "drop", "orders", at=at)
        assert (dropped.exit_code, dropped.stdout) == (0, "orders dropped\n")
        assert placer("stream", "show", "orders", at=at).exit_code == 2

    def test_what_lacks_nodes_ends_with_1_and_says_why(self, placer: Placer, at: At) -> None:
        policy = "{strategy: spread, on_infeasible: wait}"
        waits = placer("stream", "create", "wide", "--rf", "9", "--policy", policy, at=at)
        assert waits.exit_code == 1
        assert waits.stdout.startswith("wide waiting, 0 of 1 shards whole, replicas missing: 9\n")
        assert "NODES_TOO_FEW" in waits.stdout
        assert placer("stream", "show", "wide", at=at).exit_code == 1
        assert placer("stream", "drop", "wide", at=at).exit_code == 0

    def test_a_refused_change_says_what_stays(self, placer: Placer, at: At) -> None:
        assert placer("stream", "create", "kept", "--rf", "2", at=at).exit_code == 0
        policy = '{"strategy": "spread", "on_infeasible": "reject"}'
        refused = placer("stream", "alter", "kept", "--rf", "9", "--policy", policy, at=at)
        assert refused.exit_code == 1, refused.output
        assert "the change is refused; the stream stays as it was" in refused.stdout
        shown = placer("stream", "show", "kept", at=at)
        assert shown.exit_code == 1, "what was asked for last is not in force"
        assert "refused:" in shown.stdout
        assert placer("stream", "drop", "kept", at=at).exit_code == 0

    @pytest.mark.parametrize(
        ("words", "status", "said"),
        [
            ("create s --policies nod=exclusive", 2, "POLICY_UNKNOWN_KEY"),
            ("create s --rf 99", 2, "REPLICATION_FACTOR_OUT_OF_RANGE"),
            ("create s --rf 0", 2, "replication_factor is 0, expected 1 to 64"),
            ("create s --shards 10001", 2, "SHARDS_OUT_OF_RANGE"),
            ("create s --quorum most", 2, "QUORUM_OUT_OF_RANGE"),
            ("create s/1", 2, "field 'stream' must be of the form"),
            ("create s --policy [1]", 2, "--policy: expected a mapping"),
            (
                "create s --policy {strategy:\u00a0cassandra,\u00a0replication:\u00a0{z9:\u00a02}}",
                2,
                "z9",
            ),
            ("create s --policy {strategy:\u00a0sprad}", 2, "STRATEGY_UNKNOWN"),
            (
                "create s --policy {rules:\u00a0[{at_most:\u00a01,per:\u00a0zoen}]}",
                2,
                "LEVEL_UNKNOWN",
            ),
            ("create s --policy {} --policies node=exclusive", 2, "exclude each other"),
            ("create there", 1, "STREAM_EXISTS: stream 'there' already exists and is placed"),
            ("alter there", 2, "say what is to change"),
            ("alter there --shards 1", 2, "1 shards are fewer than the 2 there are"),
            ("alter ther --rf 2", 2, "there is no stream 'ther'; did you mean there?"),
            ("drop nosuch", 2, "STREAM_UNKNOWN: there is no stream 'nosuch'"),
            ("show thera", 2, "did you mean there?"),
        ],
    )
    def test_what_cannot_be_is_not_sent(
        self, placer: Placer, at: At, words: str, status: int, said: str
    ) -> None:
        if words.startswith("create s --policies"):
            assert placer("stream", "create", "there", "--shards", "2", at=at).exit_code == 0
        before = sent(at, "streams.v1")
        parts = [word.replace("\u00a0", " ") for word in words.split(" ")]
        result = placer("stream", *parts, at=at)
        assert (result.exit_code, said in flat(result)) == (status, True), result.output
        assert sent(at, "streams.v1") == before

    def test_without_waiting_it_says_where_the_request_went(self, placer: Placer, at: At) -> None:
        result = placer("stream", "create", "later", "--no-wait", at=at)
        assert result.exit_code == 0
        assert result.stdout.startswith("later sent: asked.streams.v1-0@")
        # The next answer comes behind that of the first.
        assert placer("stream", "create", "after", at=at).exit_code == 0
        assert decision(at, "later")["outcome"] == "placed"


def test_a_dead_letter_is_an_answer(
    placer: Placer, at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else was faster: what was checked is not so any more."""
    from streaming.requests import StreamRequests

    assert placer("stream", "create", "twice", at=at).exit_code == 0
    monkeypatch.setattr(StreamRequests, "find", lambda *_: None)
    refused = placer("stream", "create", "twice", at=at)
    assert (refused.exit_code, refused.stdout) == (
        1,
        "twice refused\n  STREAM_EXISTS stream 'twice' already exists and is placed\n",
    )


def test_without_a_reconciler_there_is_no_answer(
    placer: Placer, bootstrap: str, prefix: str
) -> None:
    silent = placer("stream", "create", "s", *SOON, at=(bootstrap, prefix))
    assert (silent.exit_code, "no decision on s within 0.5 s" in silent.stderr) == (3, True)


class TestApply:
    def file(self, tmp_path: Path, text: str) -> str:
        path = tmp_path / "streams.yaml"
        path.write_text(text)
        return str(path)

    def test_streams_become_those_of_the_file(self, placer: Placer, at: At, tmp_path: Path) -> None:
        text = (
            "streams:\n"
            "- {stream: a1, shards: 2, replication_factor: 2}\n"
            "- {stream: a2, shards: 1, replication_factor: 3, policy: {strategy: spread}}\n"
        )
        file = self.file(tmp_path, text)
        before = sent(at, "streams.v1")
        dry = placer("apply", "-f", file, "--dry-run", at=at)
        assert dry.exit_code == 0, dry.output
        assert dry.stdout.splitlines()[:3] == [
            "a1 is new",
            "  shards: 2",
            "  replication_factor: 2",
        ]
        assert sent(at, "streams.v1") == before
        first = placer("apply", "-f", file, at=at)
        assert first.exit_code == 0, first.output
        assert "a1 placed" in first.stdout
        assert sent(at, "streams.v1") == before + 2
        again = placer("apply", "-f", file, at=at)
        assert (again.exit_code, again.stdout) == (0, "a1 is unchanged\na2 is unchanged\n")
        assert sent(at, "streams.v1") == before + 2, "what is so is left alone"

        changed = text.replace("shards: 2,", "shards: 4,").replace("factor: 3", "factor: 2")
        changed = changed.replace("spread}", "spread, within: [/z1, /z2]}")
        file = self.file(tmp_path, changed)
        shown = placer("apply", "-f", file, "--dry-run", "--output", "json", at=at)
        found = {each["stream"]: each for each in map(orjson.loads, shown.stdout.splitlines())}
        assert found["a1"] == {
            "stream": "a1",
            "action": "alter",
            "differences": [{"field": "shards", "now": 2, "wanted": 4}],
        }
        assert [each["field"] for each in found["a2"]["differences"]] == [
            "replication_factor",
            "policy.within",
        ]
        assert placer("apply", "-f", file, at=at).exit_code == 0
        assert decision(at, "a1")["spec"]["shards"] == 4
        assert decision(at, "a2")["spec"]["policy"]["within"] == ["/z1", "/z2"]

    def test_only_prune_drops_and_only_when_agreed(
        self, placer: Placer, at: At, tmp_path: Path
    ) -> None:
        exported = placer("export", at=at).stdout
        file = self.file(tmp_path, exported)
        assert placer("stream", "create", "extra", at=at).exit_code == 0
        kept = placer("apply", "-f", file, at=at)
        assert (kept.exit_code, "extra" in kept.stdout) == (0, False), kept.output
        asked = placer("apply", "-f", file, "--prune", at=at)
        assert (asked.exit_code, "extra is to be dropped" in asked.stdout) == (2, True)
        assert "then add --yes" in flat(asked)
        assert decision(at, "extra")["outcome"] == "placed"
        pruned = placer("apply", "-f", file, "--prune", "--yes", at=at)
        assert (pruned.exit_code, "extra dropped" in pruned.stdout) == (0, True), pruned.output

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("streams: [{stream: x, shards: 1}]", "field 'replication_factor' is missing"),
            ("streams:\n- {stream: x, shards: 1, replication_factor: 99}", "OUT_OF_RANGE"),
            ("streams:\n- {stream: x, shards: 1, replication_factor: 1, policy: {a: 1}}", "'a'"),
            ("strams: []", "did you mean 'streams'"),
            ("- 1", "must be a mapping"),
            ("a: [", "not YAML"),
            (f"streams:\n- {TWICE}\n---\nstreams:\n- {TWICE}", "'x' is given twice"),
        ],
    )
    def test_a_file_that_is_wrong_sends_nothing(
        self, placer: Placer, at: At, tmp_path: Path, text: str, said: str
    ) -> None:
        before = sent(at, "streams.v1")
        result = placer("apply", "-f", self.file(tmp_path, text), at=at)
        assert (result.exit_code, said in flat(result)) == (2, True), result.output
        assert sent(at, "streams.v1") == before


class TestNode:
    def test_one_is_unregistered_in_the_life_that_it_lives(self, placer: Placer, at: At) -> None:
        node = ("send", "node", "leaver", "--location", "/z1", "--incarnation", "f7c1")
        assert placer(*node, at=at).exit_code == 0
        assert placer("stream", "create", "on-it", "--rf", "1", "--policy",
                      "{strategy: spread, nodes: [leaver]}", at=at).exit_code == 0  # fmt: skip
        asked = placer("node", "unregister", "leaver", at=at)
        assert asked.exit_code == 2
        assert "leaver holds 1 replica (1 lead)" in asked.stderr
        assert "LAST_COPY: no other node has a copy of on-it/0" in asked.stderr
        assert placer("stream", "drop", "on-it", at=at).exit_code == 0
        left = placer("node", "unregister", "leaver", at=at)
        assert (left.exit_code, left.stdout) == (0, "accepted: leaver is unregistered\n")
        gone = placer("node", "unregister", "leaver", at=at)
        assert (gone.exit_code, "there is no node 'leaver'" in gone.stderr) == (2, True)

    @pytest.mark.parametrize("command", ["forget", "release", "unregister"])
    def test_an_unknown_node_is_named_with_what_is_like_it(
        self, placer: Placer, at: At, command: str
    ) -> None:
        before = sent(at, "operator.v1")
        result = placer("node", command, "n11", at=at)
        assert result.exit_code == 2
        assert "NODE_UNKNOWN: there is no node 'n11'; did you mean n1" in result.stderr
        assert sent(at, "operator.v1") == before

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("drain n22 --dry-run", "did you mean n2"),
            ("cordon n22", "did you mean n2"),
            ("drain /z11", "did you mean /z1"),
            ("cordon nowhere", "is not known; a domain begins with '/'\n"),
        ],
    )
    def test_other_requests_name_it_too(
        self, placer: Placer, at: At, words: str, said: str
    ) -> None:
        result = placer(*words.split(), at=at)
        assert (result.exit_code, said in result.output) == (1, True), result.output

    def test_what_cannot_be_done_is_refused_with_its_reason(self, placer: Placer, at: At) -> None:
        forgotten = placer("node", "forget", "n1", at=at)
        assert (forgotten.exit_code, "REQUEST_CONTRADICTED" in forgotten.stdout) == (1, True)
        released = placer("node", "release", "n1", at=at)
        assert (released.exit_code, "n1 is not held down" in released.stdout) == (1, True)

    def test_a_drained_node_is_forgotten(self, placer: Placer, at: At) -> None:
        assert placer("send", "node", "old", "--location", "/z3", at=at).exit_code == 0
        drained = placer("drain", "old", "--yes", at=at)
        assert drained.exit_code == 0, drained.output
        dry = placer("node", "forget", "old", "--dry-run", at=at)
        assert (dry.exit_code, "old: 1 node, 0 shards" in dry.stdout) == (0, True), dry.output
        done = placer("node", "forget", "old", "--output", "json", at=at)
        assert (done.exit_code, orjson.loads(done.stdout)["outcome"]) == (0, "accepted")
        listed = orjson.loads(placer("nodes", "--output", "json", at=at).stdout)
        assert "old" not in [row["node"] for row in listed]
