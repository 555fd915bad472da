"""Goal: every setting can be given in four ways, the strongest wins, and a mistake names its place.

Method: tables of what each source says and what is in force; the texts of errors as users see them.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from placement.model import Resource
from streaming.errors import SettingsInvalid
from streaming.settings.loader import load_settings
from streaming.settings.settings import Settings, core_configuration

EXAMPLE = Path(__file__).parents[3] / "deploy" / "placer.yaml"


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "placer.yaml"
    file.write_text(text)
    return file


def problems(
    tmp_path: Path, text: str = "", flags: dict[str, Any] | None = None
) -> tuple[str, ...]:
    """The lines of the error, the file's directory cut off."""
    with pytest.raises(SettingsInvalid) as caught:
        load_settings(write(tmp_path, text), flags)
    return tuple(line.replace(f"{tmp_path}/", "") for line in caught.value.problems)


def leaves(model: type[BaseModel], above: str = "") -> set[str]:
    """Dotted names of all settings of the model."""
    names = set()
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            names |= leaves(inner, f"{above}{name}.")
        else:
            names.add(f"{above}{name}")
    return names


@pytest.mark.parametrize("written", ["off", '"off"', "OFF", "false"])
def test_a_bare_off_is_the_mode_of_that_name(tmp_path: Path, written: str) -> None:
    settings = load_settings(write(tmp_path, f"rebalance:\n  mode: {written}\n"))
    assert settings.rebalance.mode == "off"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("/c", Path("/c")),
        ("c/d", Path("c/d")),
        ("s3a://bucket/c", "s3a://bucket/c"),
        ("hdfs:/c", "hdfs:/c"),
        ("file:///c", "file:///c"),
    ],
)
def test_a_checkpoint_is_a_path_of_this_machine_or_a_uri(
    tmp_path: Path, written: str, read: Path | str
) -> None:
    assert load_settings(write(tmp_path, f"checkpoint: {written}\n")).checkpoint == read


def test_nothing_is_copied_for_balance_unless_asked(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, "")).rebalance.mode == "off"


@pytest.mark.parametrize(
    ("file", "variable", "flag", "expected"),
    [
        (None, None, None, 300),
        (200, None, None, 200),
        (200, "100", None, 100),
        (200, "100", 90.0, 90),
        (None, "100", None, 100),
        (None, None, 90.0, 90),
        (200, None, 90.0, 90),
        (200, "", None, 200),
    ],
)
def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: int | None,
    variable: str | None,
    flag: float | None,
    expected: float,
) -> None:
    text = "" if file is None else f"liveness:\n  dead_after_seconds: {file}\n"
    if variable is not None:
        monkeypatch.setenv("PLACER_LIVENESS__DEAD_AFTER_SECONDS", variable)
    settings = load_settings(write(tmp_path, text), {"liveness.dead_after_seconds": flag})
    assert settings.liveness.dead_after_seconds == expected
    assert settings.liveness.suspect_after_seconds == 60, "the neighbour keeps its default"


def test_the_sources_are_joined_setting_by_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path, "moves: {max_open: 7, max_in_per_node: 2}\ncell: east\nkafka:\n")
    monkeypatch.setenv("PLACER_MOVES__MAX_IN_PER_NODE", "3")
    monkeypatch.setenv("PLACER_LEVELS", "region, az,rack")
    monkeypatch.setenv("placer_topics__prefix", "staging.")
    settings = load_settings(file, {"moves.deadline_seconds": 5, "checkpoint": Path("/c")})
    assert (settings.moves.max_open, settings.moves.max_in_per_node) == (7, 3)
    assert (settings.moves.deadline_seconds, settings.checkpoint) == (5, Path("/c"))
    assert (settings.levels, settings.cell) == (["region", "az", "rack"], "east")
    assert settings.topics.prefix == "staging."


def test_a_mapping_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "policy: {default: {strategy: affinity, node: exclusive}}\n"
    monkeypatch.setenv("PLACER_POLICY__DEFAULT", '{"strategy": "spread"}')
    assert load_settings(write(tmp_path, text)).policy.default == {"strategy": "spread"}


def test_resources_reach_the_core_in_the_order_of_their_names(tmp_path: Path) -> None:
    text = """\
resources:
  write_bytes_per_second: {capacity: 0.7, balance: none, led: true}
  disk_bytes: {capacity: 1, balance: 0.1}
moves: {max_bytes_per_node: 5, max_bytes_per_domain_pair: 6, max_bytes_open: 7}
"""
    configuration = core_configuration(load_settings(write(tmp_path, text)))
    assert configuration.resources == (
        Resource("disk_bytes", 1.0, 0.1),
        Resource("write_bytes_per_second", 0.7, None, led=True),
    )
    bounds = configuration.limits
    assert (bounds.max_bytes_per_node, bounds.max_bytes_per_domain_pair) == (5, 6)
    assert bounds.max_bytes_open == 7


def test_the_environment_can_give_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_RESOURCES", '{"disk_bytes": {"capacity": 0.85}}')
    assert load_settings().resources["disk_bytes"].capacity == 0.85


def test_the_environment_can_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACER_CONFIG", str(write(tmp_path, "cell: west\n")))
    assert load_settings().cell == "west"


def test_arguments_alone_are_not_mixed_with_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PLACER_CELL", "west")
    assert Settings().cell == "main"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "liveness:\n  dead_aftr_seconds: 3\n",
            (
                "placer.yaml:2: liveness.dead_aftr_seconds: unknown setting, did you mean "
                "dead_after_seconds?"
            ),
        ),
        ("cell: a\nfoo: 1\n", "placer.yaml:2: foo: unknown setting"),
        (
            "liveness:\n  dead_after_seconds: 3\n",
            (
                "placer.yaml:2: liveness.dead_after_seconds: expected more than "
                "liveness.suspect_after_seconds (60), got 3"
            ),
        ),
        (
            "liveness:\n  suspect_after_seconds: 400\n",
            (
                "default: liveness.dead_after_seconds: expected more than "
                "liveness.suspect_after_seconds (400), got 300.0"
            ),
        ),
        (
            "levels: [zone]\nhold: {levels: [rack]}\n",
            "placer.yaml:2: hold: hold.levels has 'rack', expected names from levels (zone)",
        ),
        (
            'location: {authority: command, command: "it\'s"}\n',
            'placer.yaml:1: location: location.command "it\'s": No closing quotation',
        ),
        (
            "location: {authority: command, command: ' '}\n",
            "placer.yaml:1: location: location.command is empty",
        ),
        (
            "moves:\n  max_open: 0\n",
            "placer.yaml:2: moves.max_open: expected at least 1, got 0",
        ),
        (
            "moves:\n  max_open: 1.5\n",
            "placer.yaml:2: moves.max_open: expected a whole number, got 1.5",
        ),
        (
            "moves: {completion: eventually}\n",
            "placer.yaml:1: moves.completion: expected 'acked' or 'immediate', got 'eventually'",
        ),
        (
            "cell: 'a b'\n",
            "placer.yaml:1: cell: expected 1 to 249 letters, digits, '_', '.' or '-', got 'a b'",
        ),
        (
            "topics: {prefix: under_score}\n",
            (
                "placer.yaml:1: topics.prefix: expected words of letters, digits and '-', each "
                "with a '.' behind it, got 'under_score'"
            ),
        ),
        (
            "tick: {interval_seconds: 4}\n",
            "placer.yaml:1: tick.interval_seconds: expected at most 3, got 4",
        ),
        (
            "kafka: {bootstrap_servers: kafka}\n",
            (
                "placer.yaml:1: kafka.bootstrap_servers: expected host:port, several separated by "
                "commas, got 'kafka'"
            ),
        ),
        (
            "policy: {default: {node: exclusive}}\n",
            (
                "placer.yaml:1: policy.default: expected a mapping with a strategy, e.g. "
                "{strategy: spread}"
            ),
        ),
        ("levels: [az, az]\n", "placer.yaml:1: levels: expected every level once"),
        (
            "kafka: {options: {acks: 0}}\n",
            "placer.yaml:1: kafka.options: acks: set by the application, cannot be changed",
        ),
        (
            "spark: {options: {master: x}}\n",
            "placer.yaml:1: spark.options: master: a Spark setting begins with 'spark.'",
        ),
        (
            "resources:\n  disk_bytes: {capacity: 0}\n",
            "placer.yaml:2: resources.disk_bytes.capacity: expected more than 0, got 0",
        ),
        (
            "resources:\n  disk_bytes: {capacity: 85}\n",
            "placer.yaml:2: resources.disk_bytes.capacity: expected at most 1, got 85",
        ),
        (
            "resources:\n  disk_bytes: {balance: -0.1}\n",
            "placer.yaml:2: resources.disk_bytes.balance: expected at least 0, got -0.1",
        ),
        (
            "resources:\n  disk_bytes: {capcity: 0.8}\n",
            "placer.yaml:2: resources.disk_bytes.capcity: unknown setting, did you mean capacity?",
        ),
        (
            "resources: {Disk: {}}\n",
            (
                "placer.yaml:1: resources: 'Disk' is no name of a resource: expected a small "
                "letter, then at most 62 small letters, digits or '_'"
            ),
        ),
        (
            "resources: {shard: {}}\n",
            "placer.yaml:1: resources: 'shard' is a field of reported shards, choose another name",
        ),
        ("resources: {disk_bytes: 1}\n", "placer.yaml:1: resources.disk_bytes: expected a mapping"),
        ("resources: 1\n", "placer.yaml:1: resources: expected a mapping"),
        (
            "loads: {suspicion_factor: 1}\n",
            "placer.yaml:1: loads.suspicion_factor: expected more than 1, got 1",
        ),
        ("moves: 3\n", "placer.yaml:1: moves: expected a mapping"),
        ("cell: a\ncell: b\n", "placer.yaml:2: cell: given twice, first on line 1"),
        ("cell: [\n", "placer.yaml:2: expected the node content, but found '<stream end>'"),
        ("- cell\n", "placer.yaml:1: expected a mapping of settings"),
        ("1: cell\n", "placer.yaml:1: a key must be text"),
    ],
)
def test_a_mistake_in_the_file_is_told_in_one_line_with_its_place(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert problems(tmp_path, text) == (expected,)


def test_every_mistake_is_told_with_the_source_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLACER_LIVENESS__DEAD_AFTER_SECONDS", "soon")
    monkeypatch.setenv("PLACER_LIVNESS__SUSPECT_AFTER_SECONDS", "1")
    monkeypatch.setenv("PLACER_PORT", "tcp://10.0.0.1:80")  # as Kubernetes sets for a service
    assert set(problems(tmp_path, "moves: {max_open: -1}\n", {"cell": ""})) == {
        (
            "environment PLACER_LIVNESS__SUSPECT_AFTER_SECONDS: unknown setting, did you mean "
            "liveness?"
        ),
        (
            "environment PLACER_LIVENESS__DEAD_AFTER_SECONDS: liveness.dead_after_seconds: "
            "expected a number, got 'soon'"
        ),
        "command line: cell: expected 1 to 249 letters, digits, '_', '.' or '-', got ''",
        "placer.yaml:1: moves.max_open: expected at least 1, got -1",
    }


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsInvalid, match=r"nowhere\.yaml: cannot be read: No such file"):
        load_settings(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "ssl.key.password",
        "my.SECRET",
        "x.token",
        "s3.access.key",
        "sasl.jaas.config",
    ],
)
def test_a_secret_in_plain_text_is_refused_without_repeating_it(tmp_path: Path, key: str) -> None:
    [problem] = problems(tmp_path, f"kafka:\n  options:\n    {key}: hunter2\n")
    assert problem == (
        f"placer.yaml:2: kafka.options: {key}: a secret is given as env:NAME or file:/path, never "
        "as plain text"
    )


def test_a_secret_among_unknown_keys_is_not_repeated(tmp_path: Path) -> None:
    assert "hunter2" not in "".join(problems(tmp_path, "kafka: {sasl.password: hunter2}\n"))


def test_references_are_resolved_for_clients_and_masked_for_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("from-file\n")
    monkeypatch.setenv("KAFKA_PASSWORD", "from-environment")
    text = (
        "kafka:\n  options:\n    security.protocol: SASL_SSL\n"
        "    sasl.mechanism: PLAIN\n    sasl.username: true\n    socket.timeout.ms: 5000\n"
        "    sasl.password: env:KAFKA_PASSWORD\n"
        f"spark:\n  options:\n    spark.hadoop.fs.s3a.secret.key: file:{tmp_path}/key\n"
        "    spark.eventLog.dir: file:/logs\n"
    )
    settings = load_settings(write(tmp_path, text))
    assert settings.resolved_kafka_options() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "true",
        "socket.timeout.ms": "5000",
        "sasl.password": "from-environment",
    }
    assert settings.resolved_spark_options() == {
        "spark.hadoop.fs.s3a.secret.key": "from-file",
        "spark.eventLog.dir": "file:/logs",
    }
    shown = yaml.safe_load(settings.render())
    assert shown["kafka"]["options"]["sasl.password"] == "***"
    assert shown["spark"]["options"]["spark.hadoop.fs.s3a.secret.key"] == "***"
    assert shown["kafka"]["options"]["security.protocol"] == "SASL_SSL"
    assert "from-" not in settings.render()


def test_references_that_lead_nowhere_are_told_together(tmp_path: Path) -> None:
    text = (
        "kafka: {options: {sasl.password: env:NOT_SET_ANYWHERE, ssl.key.password: file:/no/file}}\n"
    )
    settings = load_settings(write(tmp_path, text))
    with pytest.raises(SettingsInvalid) as caught:
        settings.resolved_kafka_options()
    assert caught.value.problems == (
        "kafka.options.sasl.password: the environment variable NOT_SET_ANYWHERE is not set",
        "kafka.options.ssl.key.password: /no/file cannot be read: No such file or directory",
    )


@pytest.mark.parametrize(
    ("kafka", "refused"),
    [
        ("bootstrap_servers: 'localhost:1,127.0.0.1:2,[::1]:3'", None),
        ("bootstrap_servers: kafka:9092", "kafka:9092"),
        ("bootstrap_servers: 'localhost:1,10.0.0.7:2,k:3'", "10.0.0.7:2, k:3"),
        ("bootstrap_servers: 'localhost.example.org:1'", "localhost.example.org:1"),
        ("bootstrap_servers: kafka:1, options: {security.protocol: plaintext}", "kafka:1"),
        ("bootstrap_servers: kafka:1, options: {security.protocol: ssl}", None),
        ("bootstrap_servers: kafka:1, allow_plaintext: true", None),
    ],
)
def test_plain_text_to_another_machine_has_to_be_allowed(
    tmp_path: Path, kafka: str, refused: str | None
) -> None:
    text = f"kafka: {{{kafka}}}\n"
    if refused is None:
        load_settings(write(tmp_path, text))
        return
    [problem] = problems(tmp_path, text)
    assert problem.startswith(
        f"placer.yaml:1: kafka.bootstrap_servers: {refused} is another machine and the connection "
        "is not encrypted: set security.protocol in kafka.options to SSL or SASL_SSL, or "
        "kafka.allow_plaintext to true, got "
    )


def test_what_is_rendered_loads_again(tmp_path: Path) -> None:
    settings = load_settings(write(tmp_path, "levels: [az]\ncheckpoint: /c\nmoves: {max_open: 9}"))
    assert load_settings(write(tmp_path, settings.render())) == settings


def test_the_example_file_lists_every_setting_with_its_default() -> None:
    document = yaml.safe_load(EXAMPLE.read_text())
    listed = {
        f"{section}.{name}" if name else section
        for section, values in document.items()
        for name in ((values or [""]) if isinstance(values, dict) else [""])
    }
    assert listed == leaves(Settings)
    assert load_settings(EXAMPLE) == Settings()


def test_every_setting_is_described() -> None:
    def undescribed(model: type[BaseModel]) -> list[str]:
        found = []
        for name, field in model.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
                found += undescribed(field.annotation)
            elif not field.description:
                found.append(name)
        return found

    assert undescribed(Settings) == []


def test_settings_do_not_change() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().liveness.dead_after_seconds = 1  # type: ignore[misc]
