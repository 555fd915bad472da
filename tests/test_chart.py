"""The Helm chart: its values, and what it renders of them.

What helm has to render takes minutes where helm has to be built first, and is left to `make long`.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

from schemas.access import grants
from schemas.topics import CATALOGUE, configs_for, full_name
from streaming.doctor import machine_checks
from streaming.settings import Settings, load_settings
from tests import chart
from tests.builders.strimzi_users import rights_of, spelled_by_strimzi
from tests.documentation.commands import parse

ROOT = Path(__file__).resolve().parent.parent
STRIMZI = Path(__file__).parent / "strimzi"
VALUES = sorted(chart.VALUES.glob("*-values.yaml"))
SHIPPED: dict[str, Any] = yaml.safe_load((chart.CHART / "values.yaml").read_text("utf-8"))
SCHEMA: dict[str, Any] = json.loads(chart.SCHEMA.read_text("utf-8"))
MONITORING = "monitoring.coreos.com/"
WORKLOADS = {"reconciler": "placer", "bridge": "bridge", "console": "console"}

Manifest = dict[str, Any]


def merged(below: Any, above: Any) -> Any:
    """As helm lays values over those of the chart: null removes a key."""
    if not isinstance(below, dict) or not isinstance(above, dict):
        return above
    both = {**below, **{key: merged(below.get(key), each) for key, each in above.items()}}
    return {key: each for key, each in both.items() if each is not None}


def values(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def test_the_chart_has_the_version_of_the_project() -> None:
    about = values(chart.CHART / "Chart.yaml")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (about["version"], about["appVersion"]) == (project["version"], project["version"])
    assert (about["name"], about["apiVersion"]) == (project["name"], "v2")


def test_the_schema_of_the_settings_is_fresh() -> None:
    text = chart.SCHEMA.read_text("utf-8")
    assert chart.values_schema(text) == text, "run make chart"


def test_the_schema_leaves_no_section_of_the_settings_open() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    settings = SCHEMA["$defs"]["Settings"]
    left_out = {name for section, name in chart.NOT_OF_THE_CHART if section == "Settings"}
    assert settings["properties"].keys() == Settings.model_fields.keys() - left_out
    sections = [each for name, each in SCHEMA["$defs"].items() if name.endswith("Settings")]
    assert len(sections) > 15
    assert [each for each in sections if each["additionalProperties"] is not False] == []


def listed(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, below in schema.get("properties", {}).items():
        yield f"{path}{name}"
        if "$ref" not in below:
            yield from listed(below, f"{path}{name}.")


def shipped(given: dict[str, Any], schema: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, value in given.items():
        yield f"{path}{name}"
        below = schema.get("properties", {}).get(name, {})
        if isinstance(value, dict) and "$ref" not in below:
            yield from shipped(value, below, f"{path}{name}.")


def test_each_value_is_shipped_and_in_the_schema() -> None:
    # `global` is helm's own.
    assert set(listed(SCHEMA)) - {"global"} == set(shipped(SHIPPED, SCHEMA))


def faults(given: Any) -> list[str]:
    found = Draft202012Validator(SCHEMA).iter_errors(merged(SHIPPED, given))
    return [f"{'.'.join(map(str, each.absolute_path))}: {each.message}" for each in found]


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.name)
def test_values_that_are_rendered_obey_the_schema(path: Path) -> None:
    assert faults(values(path)) == []


# What is given, what jsonschema says of it, and what helm does.
REFUSED = [
    ({"replica": 3}, "'replica' was unexpected", "'replica' not allowed"),
    ({"replicas": -1}, "replicas: -1 is less than", "at '/replicas': minimum: got -1, want 0"),
    (
        {"settings": {"livenes": {"dead_after_seconds": 3}}},
        "'livenes' was unexpected",
        "at '/settings': additional properties 'livenes' not allowed",
    ),
    (
        {"settings": {"liveness": {"dead_after": 3}}},
        "'dead_after' was unexpected",
        "at '/settings/liveness': additional properties 'dead_after' not allowed",
    ),
    (
        {"settings": {"metrics": {"port": 1}}},
        "'metrics' was unexpected",
        "'metrics' not allowed",
    ),
    (
        {"settings": {"standby": {"instance": "a"}}},
        "'instance' was unexpected",
        "'instance' not allowed",
    ),
    (
        {"settings": {"kafka": {"bootstrap_servers": "kafka"}}},
        "settings.kafka.bootstrap_servers: 'kafka' does not match",
        "at '/settings/kafka/bootstrap_servers': 'kafka' does not match pattern",
    ),
    (
        {"settings": {"kafka": {"options": {"sasl.password": "open"}}}},
        "sasl.password: 'open' does not match",
        "at '/settings/kafka/options/sasl.password': 'open' does not match pattern",
    ),
    (
        {"bridge": {"settings": {"spark": {"options": {"a.Token": "open"}}}}},
        "a.Token: 'open' does not match",
        "at '/bridge/settings/spark/options/a.Token': 'open' does not match pattern",
    ),
    ({"bridge": {"mode": "on"}}, "bridge.mode: 'on' is not one of", "must be one of 'observe'"),
    (
        {"console": {"allowedOrigins": ["https://portal.example/"]}},
        "'https://portal.example/' does not match",
        "at '/console/allowedOrigins/0': 'https://portal.example/' does not match pattern",
    ),
    (
        {"terminationGracePeriodSeconds": 30},
        "30 is less than the minimum of 60",
        "got 30, want 60",
    ),
    (
        {"secrets": {"env": {"PASSWORD": {"value": "open"}}}},
        "'value' was unexpected",
        "'value' not allowed",
    ),
]


@pytest.mark.parametrize(("given", "expected"), [row[:2] for row in REFUSED])
def test_wrong_values_are_refused_by_the_schema(given: Any, expected: str) -> None:
    assert expected in "\n".join(faults(given))


def test_every_number_of_replicas_has_its_number_in_sync() -> None:
    catalogue = values(chart.CHART / "files" / "topics.yaml")
    needed = catalogue["minInsyncReplicas"]
    for topic in CATALOGUE:
        for replicas in range(1, 8):
            config = configs_for(topic, replicas)
            assert config["min.insync.replicas"] == needed[min(replicas, len(needed)) - 1]


def test_the_scratch_of_a_pod_is_room_enough_for_the_doctor() -> None:
    # Of a Kubernetes quantity; a healthy pod has used a few megabytes of it.
    size = int(SHIPPED["scratch"]["sizeLimit"].removesuffix("Mi")) * 1024**2
    assert size >= 2 * machine_checks.SPACE_LOW_BYTES


def test_the_notes_name_commands_that_there_are() -> None:
    text = (chart.CHART / "templates" / "NOTES.txt").read_text("utf-8")
    named = re.findall(r"^  (?:kubectl .* -- )?(placer .*)$", text, re.MULTILINE)
    assert len(named) == 3
    for line in named:
        parse(line.split())


# From here on helm renders.


@pytest.fixture(scope="module")
def helm() -> None:
    try:
        chart.find_helm()
    except chart.HelmMissing as missing:
        pytest.skip(str(missing))


long = [pytest.mark.long, pytest.mark.timeout(chart.BUILD_SECONDS), pytest.mark.usefixtures("helm")]


def marked(function: Any) -> Any:
    for mark in long:
        function = mark(function)
    return function


def rendered(*arguments: str | Path) -> list[Manifest]:
    found = [each for each in yaml.safe_load_all(chart.template(*arguments)) if each]
    assert found
    return found


def of_file(name: str) -> list[Manifest]:
    return rendered("--values", chart.VALUES / f"{name}-values.yaml")


def of_kind(kind: str, manifests: list[Manifest]) -> list[Manifest]:
    found = [each for each in manifests if each["kind"] == kind]
    assert found
    return found


def pods(manifests: list[Manifest]) -> dict[str, Any]:
    """The specs of the deployments' pods by component."""
    templates = [each["spec"]["template"] for each in of_kind("Deployment", manifests)]
    label = "app.kubernetes.io/component"
    return {each["metadata"]["labels"][label]: each["spec"] for each in templates}


def with_values(tmp_path: Path, given: Any) -> tuple[str, Path]:
    path = tmp_path / "values.yaml"
    path.write_text(yaml.safe_dump(given), "utf-8")
    return "--values", path


RENDERED = [(), *(("--values", path) for path in VALUES)]
NAMED = ["defaults", *(path.name for path in VALUES)]


@marked
@pytest.mark.parametrize("arguments", RENDERED, ids=NAMED)
def test_helm_finds_nothing_to_complain_of(arguments: tuple[str, ...]) -> None:
    said = chart.helm("lint", "--strict", chart.CHART, *arguments)
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    assert re.findall(r"\[(\w+)\] (.*)", said) == [("INFO", "Chart.yaml: icon is recommended")]


def check(manifest: Manifest) -> str:
    """Hold a manifest to its kind's schema; returns whose that is."""
    if manifest["apiVersion"].startswith("kafka.strimzi.io/"):
        schema = json.loads((STRIMZI / f"{manifest['kind']}.schema.json").read_text("utf-8"))
        Draft202012Validator(schema).validate(manifest)
        return "Strimzi"
    if manifest["apiVersion"].startswith(MONITORING):
        # Its definitions come in no package. The rules are promtool's to judge: see test_deploy.py.
        assert manifest.keys() == {"apiVersion", "kind", "metadata", "spec"}
        return "Prometheus"
    for version in (chart.KUBERNETES_VERSION, kubernetes_validate.latest_version()):
        kubernetes_validate.validate(manifest, version, strict=True)
    return "Kubernetes"


@marked
@pytest.mark.parametrize("arguments", RENDERED, ids=NAMED)
def test_every_manifest_is_valid(arguments: tuple[str, ...]) -> None:
    manifests = rendered(*arguments)
    assert "Kubernetes" in {check(each) for each in manifests}
    named = [(each["kind"], each["metadata"]["name"]) for each in manifests]
    assert len(set(named)) == len(named)


@marked
def test_a_manifest_that_is_not_valid_is_found() -> None:
    manifests = of_file("everything")
    assert {check(each) for each in manifests} == {"Kubernetes", "Strimzi", "Prometheus"}
    (topic, *_) = of_kind("KafkaTopic", manifests)
    topic["spec"]["partition"] = 1
    with pytest.raises(Exception, match="partition"):
        check(topic)
    (service, *_) = of_kind("Service", manifests)
    service["spec"]["selectors"] = {}
    with pytest.raises(Exception, match="selectors"):
        check(service)


@marked
def test_the_plain_manifests_are_rendered_from_the_chart() -> None:
    wanted = chart.manifests()
    assert {path.name for path in wanted} == {path.name for path in chart.MANIFESTS.iterdir()}
    stale = [path.name for path, text in wanted.items() if path.read_text("utf-8") != text]
    assert stale == [], "run make chart"


@marked
@pytest.mark.parametrize(("given", "expected"), [(row[0], row[2]) for row in REFUSED])
def test_helm_refuses_wrong_values_by_name(tmp_path: Path, given: Any, expected: str) -> None:
    with pytest.raises(chart.HelmFailed, match=re.escape(expected)):
        chart.template(*with_values(tmp_path, given))


@marked
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (
            {"settings": {"kafka": {"options": {"sasl.password": "env:NOSUCH"}}}},
            "needs secrets.env.NOSUCH",
        ),
        (
            {"settings": {"kafka": {"options": {"sasl.password": "file:/run/secrets/none/x"}}}},
            "needs secrets.files.none",
        ),
        (
            {"bridge": {"enabled": True, "settings": {"spark": {"options": {"a": "env:B"}}}}},
            "needs secrets.env.B",
        ),
        (
            {"console": {"enabled": True, "operate": True}},
            "console.operate needs principals who may: set console.tokens.secretName",
        ),
        (
            {"console": {"enabled": True, "anonymous": False}},
            "set console.tokens.secretName or console.trustedProxies",
        ),
        (
            {"strimzi": {"topics": {"enabled": True, "partitions": {"nodes": 4}}}},
            "no topic nodes; there are nodes.v1, ",
        ),
    ],
)
def test_what_no_schema_sees_is_refused(tmp_path: Path, given: Any, expected: str) -> None:
    with pytest.raises(chart.HelmFailed, match=re.escape(expected)):
        chart.template(*with_values(tmp_path, given))


@marked
@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.name)
def test_the_settings_are_read_as_they_were_given(path: Path, tmp_path: Path) -> None:
    wanted = merged(SHIPPED, values(path))
    file = tmp_path / "placer.yaml"
    configs = of_kind("ConfigMap", rendered("--values", path))
    assert len(configs) == 1 + wanted["bridge"]["enabled"] + wanted["console"]["enabled"]
    for config in configs:
        component = config["metadata"]["labels"]["app.kubernetes.io/component"]
        file.write_text(config["data"]["placer.yaml"], "utf-8")
        own = wanted.get(component, {}).get("settings", {})
        given = merged(wanted["settings"], own)
        read = load_settings(file)
        assert read == Settings(**given)
        assert read.kafka.bootstrap_servers == given["kafka"]["bootstrap_servers"]


@marked
def test_a_pod_gets_the_secrets_that_its_settings_name() -> None:
    got = {
        name: [each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each]
        for name, pod in pods(of_file("plain")).items()
    }
    assert got == {
        "reconciler": ["placer-kafka", "kafka-cluster-ca-cert"],
        "bridge": ["placer-kafka-bridge", "kafka-cluster-ca-cert"],
        "console": [
            *("placer-console-tls", "placer-console-tokens"),
            *("kafka-cluster-ca-cert", "placer-kafka-console"),
        ],
    }
    by_component = {}
    for name, pod in pods(of_file("everything")).items():
        (container,) = pod["containers"]
        by_component[name] = {
            each["name"]: each["valueFrom"]["secretKeyRef"]["key"]
            for each in container["env"]
            if "secretKeyRef" in each.get("valueFrom", ())
        }
    assert by_component == {
        "reconciler": {"KAFKA_PASSWORD": "reconciler"},
        "bridge": {"BRIDGE_PASSWORD": "bridge"},
        "console": {"READERS_PASSWORD": "readers"},
    }


@marked
def test_the_notes_name_every_secret_that_a_pod_mounts(tmp_path: Path) -> None:
    said = chart.notes(tmp_path, "--values", chart.VALUES / "plain-values.yaml")
    (listed,) = re.findall(
        r"^Secrets that have to be in namespace default: (.*)$", said, re.MULTILINE
    )
    mounted = {
        each["secret"]["secretName"]
        for pod in pods(of_file("plain")).values()
        for each in pod["volumes"]
        if "secret" in each
    }
    assert sorted(listed.split(", ")) == sorted(mounted)


@marked
def test_a_cell_without_processes_says_that_nothing_is_decided(tmp_path: Path) -> None:
    assert of_kind("Deployment", rendered("--set", "replicas=0"))[0]["spec"]["replicas"] == 0
    assert "Nothing is decided: replicas is 0" in chart.notes(tmp_path, "--set", "replicas=0")


@marked
def test_only_a_driver_of_executors_gets_a_token() -> None:
    token = "automountServiceAccountToken"
    tokens = {name: pod[token] for name, pod in pods(of_file("everything")).items()}
    assert tokens == {"reconciler": True, "bridge": False, "console": False}
    assert [pod[token] for pod in pods(rendered()).values()] == [False]


@marked
def test_selectors_find_the_pods_of_their_component_alone() -> None:
    manifests = of_file("everything")
    deployments = of_kind("Deployment", manifests)
    pods = {
        each["metadata"]["name"]: each["spec"]["template"]["metadata"]["labels"]
        for each in deployments
    }
    assert len(pods) == len(WORKLOADS)
    selecting = {
        "Deployment": lambda spec: spec["selector"]["matchLabels"],
        "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
        "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
        "Service": lambda spec: spec["selector"],
    }
    for kind, selector in selecting.items():
        found = of_kind(kind, manifests)
        assert len(found) == len(pods)
        for each in found:
            wanted = selector(each["spec"]).items()
            owner = each["metadata"]["name"].removesuffix("-metrics")
            assert [name for name, labels in pods.items() if wanted <= labels.items()] == [owner]


@marked
def test_topics_and_users_follow_prefix_cell_and_replicas() -> None:
    manifests = of_file("everything")
    prefix = "Placement.west."
    topics = {
        each["spec"]["topicName"]: (each["spec"]["partitions"], each["spec"]["config"])
        for each in of_kind("KafkaTopic", manifests)
    }
    assert topics == {
        full_name(topic, prefix): (
            4 if topic.name == "nodes.v1" else topic.partitions,
            configs_for(topic, 2),
        )
        for topic in CATALOGUE
    }
    rights = [
        (user["metadata"]["name"], rights_of(acl))
        for user in of_kind("KafkaUser", manifests)
        for acl in user["spec"]["authorization"]["acls"]
    ]
    assert rights == [
        (f"west-{each.role}", spelled_by_strimzi(each)) for each in grants(prefix, "west")
    ]
    named = [*of_kind("KafkaTopic", manifests), *of_kind("KafkaUser", manifests)]
    assert {each["metadata"]["namespace"] for each in named} == {"kafka"}
    assert {each["metadata"]["labels"]["strimzi.io/cluster"] for each in named} == {"shared"}
    names = [each["metadata"]["name"] for each in named]
    assert [name for name in names if name != name.lower()] == []
    # Strimzi deletes a topic, and all state in it, together with its resource.
    kept = {each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in named}
    assert kept == {"keep"}


@marked
def test_other_settings_make_other_pods() -> None:
    templates = [
        each["spec"]["template"]["metadata"]["annotations"]["checksum/settings"]
        for arguments in ((), ("--set", "settings.cell=other"), ("--set", "replicas=3"))
        for each in of_kind("Deployment", rendered(*arguments))
    ]
    first, other_cell, more_replicas = templates
    assert first != other_cell
    assert first == more_replicas


@marked
def test_what_is_off_is_not_rendered() -> None:
    kinds = {each["kind"] for each in of_file("minimal")}
    assert kinds == {"ConfigMap", "Service", "Deployment"}
    kinds = {each["kind"] for each in rendered()}
    assert kinds == {
        *("ConfigMap", "Service", "Deployment"),
        *("ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"),
    }
