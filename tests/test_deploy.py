"""What is in `deploy/` agrees with the code: topics, settings, metrics, and Kubernetes' schemas."""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import kubernetes_validate
import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.metrics import MetricWrapperBase
from typer.testing import CliRunner

from schemas.access import ROLES, grants
from schemas.kubernetes import REPLICAS
from schemas.topics import CATALOGUE, configs_for, full_name
from streaming.cli.main import app as cli
from streaming.kafka_bridge import Monitoring
from streaming.observability import Endpoint
from streaming.observability.metrics import Metrics
from streaming.settings import load_settings, name_instance
from tests.builders.api_service import ServedModel, token_rules
from tests.builders.strimzi_users import rights_of, spelled_by_strimzi
from tests.systems.application import PLACER

ROOT = Path(__file__).resolve().parent.parent
KUBERNETES = ROOT / "deploy" / "kubernetes"
PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "dashboards" / "placer.json"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((KUBERNETES / name).read_text("utf-8")))


def document(name: str, kind: str) -> dict[str, Any]:
    (found,) = (each for each in documents(name) if each["kind"] == kind)
    return found


def test_the_topics_are_those_of_the_catalogue() -> None:
    found = {
        topic["spec"]["topicName"]: (
            topic["spec"]["partitions"],
            topic["spec"]["replicas"],
            topic["spec"]["config"],
        )
        for topic in documents("topics.yaml")
    }
    assert found == {
        full_name(topic): (topic.partitions, REPLICAS, configs_for(topic, REPLICAS))
        for topic in CATALOGUE
    }


@pytest.mark.parametrize(
    "document",
    [*documents("reconciler.yaml"), *documents("bridge.yaml"), *documents("console.yaml")],
    ids=lambda each: f"{each['metadata']['name']}-{each['kind']}",
)
def test_manifests_are_valid(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize(
    ("manifest", "user"),
    [("reconciler", "reconciler"), ("bridge", "bridge"), ("console", "operators")],
)
def test_the_settings_in_the_manifest_are_ours(tmp_path: Path, manifest: str, user: str) -> None:
    config = document(f"{manifest}.yaml", "ConfigMap")
    file = tmp_path / "placer.yaml"
    file.write_text(config["data"]["placer.yaml"])
    options = load_settings(file).kafka.options
    assert (options["security.protocol"], options["sasl.username"]) == ("SASL_SSL", user)
    assert user in ROLES


def is_understood(command: list[str]) -> bool:
    """Whether the command line reads the words, and fails at the brokers only."""
    refused = CliRunner().invoke(cli, [*command, "--bootstrap", "127.0.0.1:1"])
    return refused.exit_code == 3 and "no broker answers" in refused.output


def test_the_containers_start_the_bridge_with_options_that_there_are(tmp_path: Path) -> None:
    config = document("bridge.yaml", "ConfigMap")
    deployment = document("bridge.yaml", "Deployment")
    for name, text in config["data"].items():
        (tmp_path / name).write_text(text)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    words = [each.replace("/etc/placer", str(tmp_path)) for each in container["args"]]
    plain = [each for each in words if not each.startswith("--config")]
    assert len(plain) == len(words) - 1
    assert is_understood(plain)
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    command = compose["bridge"]["command"]
    assert is_understood([re.sub(r"\$\{\w+:-(\w+)\}", r"\1", each) for each in command])


def test_the_containers_start_the_console_with_options_that_there_are(tmp_path: Path) -> None:
    deployment = document("console.yaml", "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).touch()
    (tmp_path / "tokens.yaml").write_text("[{name: alice, role: operate, token: 0123456789abcdef}]")
    plain = [
        re.sub(r"/run/console/\w+", str(tmp_path), each)
        for each in container["args"]
        if not each.startswith("--config")
    ]
    assert len(plain) == len(container["args"]) - 1
    # A process of its own: its pages are global, and other tests have some.
    refused = subprocess.run(
        [PLACER, *plain, "--bootstrap", "127.0.0.1:1"], capture_output=True, text=True, check=False
    )
    # The options are understood; an empty file is no certificate.
    assert (refused.returncode, "cannot be used for TLS" in refused.stderr) == (3, True)


def test_the_containers_start_reconcilers_that_stand_by_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = document("reconciler.yaml", "Deployment")
    assert deployment["spec"]["replicas"] == 2
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    plain = [each for each in container["args"] if not each.startswith("--config")]
    assert len(plain) == len(container["args"]) - 1
    assert "--ha" in plain
    assert is_understood([*plain, "--checkpoint", str(tmp_path)])
    (variable,) = container["env"]
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    monkeypatch.setenv(variable["name"], "placer-5d8f-x2")
    assert name_instance(load_settings()) == "placer-5d8f-x2"


def dashboard_expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def rule_expressions() -> list[str]:
    return [rule["expr"] for rule in shipped_rules()]


@pytest.mark.parametrize("expressions", [dashboard_expressions, rule_expressions])
def test_dashboard_and_alerts_ask_for_what_is_served(
    expressions: Callable[[], list[str]],
) -> None:
    # A metric with labels has no sample before it counted something: its name is in the help line.
    metrics, bridge = Metrics("main"), Monitoring("act")
    pages = [generate_latest(each.registry).decode() for each in (metrics, bridge)]
    served = set(re.findall(r"# TYPE (\w+)", "\n".join(pages)))
    served |= {f"{name}_bucket" for name in served}
    every = [*vars(metrics).values(), *vars(bridge).values()]
    kept = (each for each in every if isinstance(each, MetricWrapperBase))
    labels = {
        "instance",
        "job",
        "namespace",
        "service",
        "le",
        "severity",
        "status",
        "outcome",
        "told",
    }
    labels |= {label for each in kept for label in each._labelnames}
    text = "\n".join(expressions())
    asked = set(re.findall(r"(?:reconciler|kafka_bridge)_\w+", text))
    assert asked
    assert asked <= served
    named = set(re.findall(r"[{,]\s*(\w+)\s*=", text))
    for listed in re.findall(r"\b(?:by|on) \(([^)]*)\)", text):
        named |= {name.strip() for name in listed.split(",")}
    assert named <= labels


def shipped_rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / "rules.yaml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alert_cases(name: str) -> list[bool]:
    """Whether an alert is expected, for each case of rules_test.yaml that asks for it."""
    tests = yaml.safe_load((PROMETHEUS / "rules_test.yaml").read_text("utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    return [bool(case.get("exp_alerts")) for case in cases if case["alertname"] == name]


@pytest.mark.parametrize("rule", shipped_rules(), ids=lambda rule: str(rule["alert"]))
def test_each_alert_is_shown_to_fire_and_to_rest(rule: dict[str, Any]) -> None:
    assert set(alert_cases(rule["alert"])) == {True, False}
    assert set(rule["annotations"]) == {"summary", "action"}
    assert rule["labels"]["severity"] in ("page", "ticket")


def test_promtool_sees_each_alert_fire_and_rest() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on PATH (Debian: in the package prometheus)")
    command = [promtool, "test", "rules", "rules_test.yaml"]
    found = subprocess.run(
        command, cwd=PROMETHEUS, capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_alerts_ask_for_the_job_that_compose_and_kubernetes_name() -> None:
    asked = set(re.findall(r'job="(\w+)"', "\n".join(rule_expressions())))
    scraped = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    assert {job["job_name"] for job in scraped} == asked
    monitor = document("monitoring.yaml", "ServiceMonitor")
    rules = document("monitoring.yaml", "PrometheusRule")
    written = [rule for group in rules["spec"]["groups"] for rule in group["rules"]]
    assert written == shipped_rules()
    (endpoint,) = monitor["spec"]["endpoints"]
    jobs = set()
    for name in ("reconciler.yaml", "bridge.yaml"):
        service = document(name, "Service")
        labels = service["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        jobs.add(labels[monitor["spec"]["jobLabel"]])
        assert endpoint["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert jobs == asked


def test_the_users_have_the_rights_of_their_roles() -> None:
    found = [
        (user["metadata"]["name"], rights_of(acl))
        for user in documents("users.yaml")
        for acl in user["spec"]["authorization"]["acls"]
    ]
    assert found == [(grant.role, spelled_by_strimzi(grant)) for grant in grants()]
    assert [user["metadata"]["name"] for user in documents("users.yaml")] == list(ROLES)


def test_prometheus_reads_the_rules_and_the_port_of_the_image() -> None:
    configuration = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text("utf-8"))
    assert [(PROMETHEUS / name).is_file() for name in configuration["rule_files"]] == [True]
    reconciler, bridge = configuration["scrape_configs"]
    ((target,),) = [each["targets"] for each in reconciler["static_configs"]]
    service, port = target.split(":")
    (found,) = bridge["dns_sd_configs"]
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    assert {service, *found["names"]} <= services.keys()
    image = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    assert f"PLACER_METRICS__PORT={port}" in image
    assert found["port"] == int(port)


def status(address: str) -> int:
    try:
        with urlopen(address, timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("manifest", ["reconciler", "bridge"])
def test_probes_ask_for_paths_that_are_served(manifest: str) -> None:
    deployment = document(f"{manifest}.yaml", "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    asked = {n: each["httpGet"] for n, each in container.items() if n.endswith("Probe")}
    assert asked.keys() == {"startupProbe", "livenessProbe", "readinessProbe"}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    monitoring = Monitoring("act")
    probes = monitoring.check_live, monitoring.check_ready
    with Endpoint("127.0.0.1", 0, monitoring.registry, *probes) as endpoint:
        for probe in asked.values():
            assert ports[probe["port"]] == 9464
            assert status(f"http://{endpoint.address}{probe['path']}") in (200, 503)


def test_the_probes_of_the_console_are_served() -> None:
    deployment = document("console.yaml", "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    probes = [each["httpGet"] for name, each in container.items() if name.endswith("Probe")]
    assert {(each["port"], each["scheme"]) for each in probes} == {("http", "HTTPS")}
    with ServedModel().client(token_rules(anonymous=False)) as client:
        assert {client.get(each["path"]).status_code for each in probes} == {200}
        assert len(probes) == 3


def test_compose_publishes_on_loopback_alone_and_names_versions() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    published = [port for each in services.values() for port in each.get("ports", ())]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []
    images = [each["image"] for each in services.values()]
    assert [image for image in images if not re.search(r":(v?\d|\$\{)", image)] == []


def test_compose_sets_settings_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))["services"]
    given = dict(
        line.split("=", 1)
        for line in (ROOT / "deploy" / "compose" / "kafka.env").read_text("utf-8").splitlines()
        if not line.startswith("#")
    )
    named = services["bridge"]["environment"]
    assert given.keys() <= named.keys()
    for name, text in named.items():
        filled = re.sub(r"\$\{(\w+):-\}", lambda at: given.get(at[1], ""), text)
        monkeypatch.setenv(name, filled)
    settings = load_settings()
    # Without the level the bridge's policies are refused.
    assert (settings.levels, settings.topics.replication_factor) == (["rack"], 3)


def test_compose_runs_the_store_with_what_it_reads() -> None:
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
    services = {n: e for n, e in composed["services"].items() if e.get("profiles") == ["store"]}
    nodes = {name: each for name, each in services.items() if name != "store-client"}
    assert len({each["environment"]["NODE_LOCATION"] for each in nodes.values()}) == len(nodes) == 6
    source = (ROOT / "deploy" / "examples" / "store" / "node.py").read_text("utf-8")
    read = {*re.findall(r'told(?:\.get\(|\[)"(\w+)"', source)}
    for name, each in services.items():
        (code, *data) = each["volumes"]
        inside, outside, _ = code.split(":")
        assert (ROOT / inside).is_dir()
        assert outside.startswith(each["environment"]["PYTHONPATH"])
        assert (ROOT / f"{each['entrypoint'][2].replace('.', '/')}.py").is_file()
        if name in nodes:
            given = each["environment"]
            assert read == given.keys() - {"PYTHONPATH"}
            assert given["NODE_ID"] == name
            assert given["NODE_HOST"] == f"{name}:{given['NODE_LISTEN'].rpartition(':')[2]}"
            assert [each.partition(":")[0] for each in data] == [name]
            assert name in composed["volumes"]


def test_the_license_goes_where_the_code_goes() -> None:
    """Into the wheel, and into the image, whose build installs from what is copied."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert (project["license"], project["license-files"]) == ("Apache-2.0", ["LICENSE"])
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert "COPY LICENSE" in (ROOT / "deploy" / "Dockerfile").read_text("utf-8")
    assert "!LICENSE" in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
