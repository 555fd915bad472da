"""Goal: the `placer` command does what its help says, fails in one clear message, starts quickly.

Method: commands run in this process, against the embedded broker where they need one.
"""

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import orjson
import pytest
import yaml
from typer.testing import Result

from schemas.topics import CATALOGUE
from streaming.administration import apply_topics
from streaming.runtime import EmbeddedBroker

COMMANDS = (
    "run",
    "broker",
    "watch",
    "executor",
    "topics apply",
    "topics diff",
    "send node",
    "send heartbeat",
    "send locality",
    "send unregister",
    "send stream",
    "send ack",
)
# Nothing answers on this port.
NOWHERE = "127.0.0.1:1"


def said(result: Result) -> str:
    """The output as one line, without the frames drawn around messages."""
    return " ".join(result.output.replace("│", " ").split())


class TestHelp:
    def test_the_version_is_printed(
        self,
        placer: Callable[..., Result],
    ) -> None:
        result = placer("--version")
        assert (result.exit_code, result.stdout) == (
            0,
            f"placer {version('placement-reconciler')}\n",
        )

    def test_the_first_page_names_all_groups_and_how_to_try_it(
        self,
        placer: Callable[..., Result],
    ) -> None:
        result = placer("--help")
        assert result.exit_code == 0
        for word in ("run", "broker", "topics", "send", "watch", "placer run --embedded"):
            assert word in result.stdout

    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_command_has_help(self, placer: Callable[..., Result], command: str) -> None:
        result = placer(*command.split(), "--help")
        assert result.exit_code == 0
        assert f"Usage: placer {command}" in result.stdout

    @pytest.mark.parametrize("group", ["run", "broker", "watch", "topics", "send"])
    def test_help_shows_examples(self, placer: Callable[..., Result], group: str) -> None:
        assert f"placer {group} " in placer(group, "--help").stdout.partition("Examples")[2]

    def test_help_loads_neither_spark_nor_kafka_nor_models(self) -> None:
        code = (
            "import sys, streaming.cli.main\n"
            "print({'pyspark', 'confluent_kafka', 'kafka', 'pydantic', 'numpy', 'yaml', 'rich'}"
            " & set(sys.modules))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout == "set()\n"


class TestMistakes:
    @pytest.mark.parametrize(
        ("command", "message"),
        [
            ("nonsense", "No such command 'nonsense'"),
            ("run", "name a scratch directory: --checkpoint DIR"),
            ("run --embedded --bootstrap x:1", "--embedded brings its own broker"),
            ("run --data-dir d --checkpoint c", "--data-dir needs --embedded"),
            ("run --embedded --dead-after-seconds 3", "expected more than"),
            ("run --embedded --completion soon", "expected 'acked' or 'immediate', got 'soon'"),
            ("run --embedded --cell a/b", "command line: cell: expected"),
            ("run --config nowhere.yaml", "nowhere.yaml: cannot be read: No such file"),
            ("broker --port 70000", "less than or equal to 65535"),
            ("watch --topic sheep", "expected nodes, "),
            ("watch --from tomorrow", "'tomorrow' is not one of"),
            ("topics apply --bootstrap kafka", "kafka.bootstrap_servers: expected host:port"),
            ("send node", "Missing argument 'ID'"),
            ("send node n/1", "field 'node_id' must be of the form"),
            ("send node n1 --location z1", "field 'location' must be of the form"),
            ("send node n1 --tag ssd", "--tag: expected KEY=VALUE, got 'ssd'"),
            ("send node n1 --weight 0", "field 'weight' must be at least"),
            ("send locality n1", "Missing option '--location'"),
            ("send stream s --policies x --policy {}", "exclude each other"),
            ("send stream s --policy [1]", "--policy: expected a mapping"),
            ("send stream s --policy {", "--policy: not YAML"),
            ("send ack done --move m --shard s/0", "expected accepted, progressed, completed"),
            ("send ack failed --move m --shard s", "--shard: expected STREAM/N"),
            ("send ack failed --move m --shard a/b/0", "field 'stream' must be of the form"),
        ],
    )
    def test_wrong_usage_ends_with_2_and_says_what_is_wrong(
        self, placer: Callable[..., Result], command: str, message: str
    ) -> None:
        result = placer(*command.split())
        assert result.exit_code == 2
        assert message in said(result)
        assert "Traceback" not in result.output

    @pytest.mark.parametrize(
        "command", ["topics apply", "topics diff", "send heartbeat n1", "watch"]
    )
    def test_a_broker_that_does_not_answer_ends_with_3(
        self, placer: Callable[..., Result], command: str
    ) -> None:
        result = placer(*command.split(), "--bootstrap", NOWHERE)
        assert result.exit_code == 3
        assert f"placer: no broker answers at {NOWHERE}" in result.stderr
        assert isinstance(result.exception, SystemExit), "no traceback"

    @pytest.mark.parametrize("command", ["send heartbeat n1", "watch --topic moves"])
    def test_missing_topics_end_with_3_and_the_remedy(
        self, placer: Callable[..., Result], broker: EmbeddedBroker, prefix: str, command: str
    ) -> None:
        result = placer(*command.split(), at=(broker.bootstrap_servers, prefix))
        assert result.exit_code == 3
        assert "does not exist; create the topics with: placer topics apply" in result.stderr

    def test_a_mistake_in_the_file_is_shown_with_its_line(
        self, placer: Callable[..., Result], tmp_path: Path
    ) -> None:
        file = tmp_path / "placer.yaml"
        file.write_text("cell: main\nlivness: {}\nmoves:\n  max_open: many\n")
        result = placer("run", "--embedded", "--config", str(file))
        assert result.exit_code == 2
        assert sorted(result.stderr.splitlines()) == [
            f"placer: {file}:2: livness: unknown setting, did you mean liveness?",
            f"placer: {file}:4: moves.max_open: expected a whole number, got 'many'",
        ]


class TestPrintConfig:
    def test_it_shows_what_is_in_force_with_secrets_masked(
        self, placer: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = tmp_path / "placer.yaml"
        file.write_text("cell: east\nkafka: {options: {sasl.password: env:KAFKA_PASSWORD}}\n")
        monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
        monkeypatch.setenv("PLACER_KAFKA__ALLOW_PLAINTEXT", "true")
        monkeypatch.setenv("PLACER_LIVENESS__DEAD_AFTER_SECONDS", "100")
        result = placer(
            *("run", "--print-config", "--config", str(file), "--bootstrap", "kafka:9092"),
            *("--suspect-after-seconds", "9", "--move-deadline-seconds", "8", "--prefix", "p."),
            *("--checkpoint", "c", "--completion", "immediate"),
        )
        assert result.exit_code == 0
        shown = yaml.safe_load(result.stdout)
        assert shown["cell"] == "east"
        assert shown["kafka"] == {
            "bootstrap_servers": "kafka:9092",
            "options": {"sasl.password": "***"},
            "allow_plaintext": True,
        }
        assert shown["liveness"]["suspect_after_seconds"] == 9.0
        assert shown["liveness"]["dead_after_seconds"] == 100.0
        assert (shown["topics"]["prefix"], shown["checkpoint"]) == ("p.", "c")
        assert shown["moves"]["completion"] == "immediate"
        assert shown["moves"]["deadline_seconds"] == 8.0
        assert "hunter2" not in result.output


class TestTopics:
    def test_diff_apply_diff(
        self, placer: Callable[..., Result], broker: EmbeddedBroker, prefix: str
    ) -> None:
        at = (broker.bootstrap_servers, prefix)
        before = placer("topics", "diff", "--output", "json", at=at)
        assert before.exit_code == 1
        assert {c["action"] for c in orjson.loads(before.stdout)["changes"]} == {"create"}
        applied = placer("topics", "apply", at=at)
        assert applied.exit_code == 0
        assert f"{prefix}nodes.v1" in applied.stdout
        assert f"dlq.{prefix}v1" in applied.stdout
        after = placer("topics", "diff", "--output", "json", at=at)
        assert after.exit_code == 0
        changes = orjson.loads(after.stdout)["changes"]
        assert [c["action"] for c in changes] == ["ok"] * len(CATALOGUE)

    def test_what_cannot_be_mended_ends_with_1(
        self, placer: Callable[..., Result], broker: EmbeddedBroker, prefix: str
    ) -> None:
        apply_topics(broker.bootstrap_servers, prefix, partitions={"moves.v1": 3})
        result = placer("topics", "apply", at=(broker.bootstrap_servers, prefix))
        assert result.exit_code == 1
        assert "refused" in result.stdout
