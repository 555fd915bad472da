"""`make chart`: the files of `deploy` that are made from others with the Helm chart.

- `deploy/helm/values.schema.json`: the part on settings comes from the settings' own classes.
- `deploy/kubernetes/*.yaml`: the plain manifests are what the chart renders. It takes helm, which
  is built once with Go, into the user's cache.

`python -m tests.chart --check` changes nothing, and ends with exit status 1 if a file is stale.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from streaming.runtime.directories import cache_dir
from streaming.settings import Settings
from streaming.settings.types import SECRET_KEY, SECRET_REFERENCE

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "deploy" / "helm"
VALUES = CHART / "ci"
MANIFESTS = ROOT / "deploy" / "kubernetes"
SCHEMA = CHART / "values.schema.json"
HELM_VERSION = "v3.19.5"
BUILD_SECONDS = 900
# The oldest that the chart allows; helm without a cluster takes a version of its own.
KUBERNETES_VERSION = "1.27"

# Set by the pod or the image.
NOT_OF_THE_CHART = (
    ("Settings", "checkpoint"),
    ("Settings", "metrics"),
    ("StandbySettings", "instance"),
)

# What is written above each manifest, and the templates that it is made of.
_HEADS: Mapping[str, tuple[str, Sequence[str]]] = {
    "reconciler.yaml": (
        """\
# Two reconcilers, of which one decides and the other stands by (deploy/standby.md). All they know
# is in Kafka, so they need no volume that lasts.
#
#   kubectl apply -f deploy/kubernetes/topics.yaml         # with Strimzi; else: placer topics apply
#   kubectl apply -f deploy/kubernetes/users.yaml          # with Strimzi; else: placer topics acls
#   kubectl apply -f deploy/kubernetes/monitoring.yaml     # with the Prometheus operator
#   kubectl create secret generic placer-kafka --from-literal=password=…
#   kubectl apply -f deploy/kubernetes/reconciler.yaml
#
# Settings are read at the start: after a change, kubectl rollout restart deployment/placer.
# Strimzi keeps the password of each user of users.yaml in a secret of its name: name `reconciler`
# as secretName below in the place of placer-kafka.
""",
        ("reconciler/*",),
    ),
    "bridge.yaml": (
        """\
# The agent that lets the reconciler heal and balance the Kafka cluster itself.
#
#   kubectl apply -f deploy/kubernetes/reconciler.yaml     # with its topics and users, first
#   kubectl create secret generic placer-kafka-bridge --from-literal=password=…
#   kubectl apply -f deploy/kubernetes/bridge.yaml
#
# It begins with `observe`, which changes nothing in Kafka: deploy/kafka.md says when to let it
# `act`.
# Strimzi keeps the password of each user of users.yaml in a secret of its name: name `bridge`
# as secretName below in the place of placer-kafka-bridge.
""",
        ("bridge/*",),
    ),
    "console.yaml": (
        """\
# The web console and the query API, over TLS. It reads the topics of the reconciler, and sends
# requests of principals with the role `operate`.
#
#   kubectl apply -f deploy/kubernetes/reconciler.yaml     # with its topics and users, first
#   kubectl create secret generic placer-kafka-console --from-literal=password=…
#   kubectl create secret generic placer-console-tokens --from-file=tokens.yaml
#   kubectl create secret tls placer-console-tls --cert=tls.crt --key=tls.key
#   kubectl apply -f deploy/kubernetes/console.yaml
#
# Strimzi keeps the password of each user of users.yaml in a secret of its name: name `operators`
# as secretName below in the place of placer-kafka-console.
""",
        ("console/*",),
    ),
    "topics.yaml": (
        """\
# For Strimzi 1.0 or newer. The label names the Kafka resource that the topics belong to. Strimzi
# deletes a topic together with its resource, and the state is in the topics.
""",
        ("strimzi/topics.yaml",),
    ),
    "users.yaml": (
        """\
# For Strimzi 1.0 or newer. One user per role, with its least rights; the operator keeps each
# one's password in a secret of the same name. A consumer that joins a group needs Read on the
# group besides.
#
# Look whether the names are free: kubectl get kafkauser. A user of the same name would get these
# rights in the place of its own. With Helm, strimzi.users.namePrefix gives other names.
""",
        ("strimzi/users.yaml",),
    ),
    "monitoring.yaml": (
        """\
# For the Prometheus operator. The job's name, which the alerts ask for, is the component of the
# services in reconciler.yaml and bridge.yaml; the rules are those of deploy/prometheus/rules.yaml.
""",
        ("monitoring/*",),
    ),
}
_WRITTEN = "# Written by `make chart` from deploy/helm; do not edit.\n"


class HelmMissing(Exception):
    """There is neither helm of this version nor a Go to build it."""


class HelmFailed(Exception):
    """Helm refused; the message is its own."""


def find_helm() -> Path:
    """Return helm in the pinned version, built first if need be. Raises HelmMissing."""
    directory = cache_dir() / f"helm-{HELM_VERSION}"
    binary = directory / "helm"
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        raise HelmMissing(f"Go is not on PATH; helm {HELM_VERSION} is built with it")
    # Aside, so that a build that was cut off leaves no half a binary.
    aside = directory.with_suffix(f".{os.getpid()}")
    command = [go, "install", f"helm.sh/helm/v3/cmd/helm@{HELM_VERSION}"]
    built = subprocess.run(
        command,
        env={**os.environ, "GOBIN": str(aside), "GOFLAGS": "-buildvcs=false"},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if built.returncode:
        raise HelmMissing(f"helm {HELM_VERSION} could not be built: {built.stderr.strip()[-500:]}")
    directory.mkdir(parents=True, exist_ok=True)
    (aside / "helm").replace(binary)
    aside.rmdir()
    return binary


def helm(*arguments: str | Path) -> str:
    """Run helm and return what it prints. Raises HelmFailed, HelmMissing."""
    command = [str(find_helm()), *map(str, arguments)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if run.returncode or run.stderr:
        raise HelmFailed(run.stdout + run.stderr)
    return run.stdout


def template(*arguments: str | Path) -> str:
    """Render the chart as release `placer`. Raises HelmFailed, HelmMissing."""
    return helm("template", "placer", CHART, "--kube-version", KUBERNETES_VERSION, *arguments)


def notes(directory: Path, *arguments: str | Path) -> str:
    """Render what `helm install` prints at its end, as the text of a manifest: of the notes helm
    renders nothing without a cluster. `directory`: for a copy of the chart."""
    copied = shutil.copytree(CHART, directory / "chart")
    templates = copied / "templates"
    text = (templates / "NOTES.txt").read_text("utf-8")
    (templates / "_notes.tpl").write_text(f'{{{{ define "notes" }}}}{text}{{{{ end }}}}', "utf-8")
    shown = '{apiVersion: v1, kind: ConfigMap, data: {notes: {{ include "notes" . | toJson }}}}'
    (templates / "notes.yaml").write_text(shown, "utf-8")
    command = ("template", "placer", copied, "--show-only", "templates/notes.yaml")
    printed = helm(*command, "--kube-version", KUBERNETES_VERSION, *arguments)
    said: str = yaml.safe_load(printed)["data"]["notes"]
    return said


def manifests() -> dict[Path, str]:
    """Render the plain manifests. Raises HelmFailed, HelmMissing."""
    values = ("--values", VALUES / "plain-values.yaml")
    return {
        MANIFESTS / name: _WRITTEN
        + head
        + template(*values, *(f"--show-only=templates/{each}" for each in templates))
        for name, (head, templates) in _HEADS.items()
    }


def values_schema(text: str) -> str:
    """Renew the part on settings of the values' schema."""
    schema = json.loads(text)
    written = Settings.model_json_schema()
    definitions: dict[str, Any] = {
        "Settings": {key: each for key, each in written.items() if key != "$defs"},
        **written["$defs"],
    }
    for section, name in NOT_OF_THE_CHART:
        del definitions[section]["properties"][name]
    used = {key: each for key, each in definitions.items() if key != "MetricsSettings"}
    for section in ("KafkaSettings", "SparkSettings"):
        # Fit as a whole, as the program asks; what is refused there is refused here, before.
        used[section]["properties"]["options"]["patternProperties"] = {
            f"(?i){SECRET_KEY.pattern}": {"pattern": f"^({SECRET_REFERENCE.pattern})$"}
        }
    of_ours = {"Secrets", "Resources", "EmptyDir"}
    kept = {key: each for key, each in schema["$defs"].items() if key in of_ours}
    schema["$defs"] = {**kept, **_without_titles(used)}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _without_titles(value: Any) -> Any:
    """Without the names that pydantic repeats as titles."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k != "title" or not isinstance(v, str)}
        return {key: _without_titles(each) for key, each in kept.items()}
    return [_without_titles(each) for each in value] if isinstance(value, list) else value


def main() -> int:
    """Exit status: 0 all fresh or rewritten, 1 stale under `--check`, 3 without helm."""
    parser = argparse.ArgumentParser(prog="python -m tests.chart", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    checking: bool = parser.parse_args().check
    # First, as helm reads it.
    stale = _renew({SCHEMA: values_schema(SCHEMA.read_text("utf-8"))}, checking)
    try:
        stale |= _renew(manifests(), checking)
    except HelmMissing as missing:
        print(missing, file=sys.stderr)
        return 3
    return 1 if stale and checking else 0


def _renew(wanted: Mapping[Path, str], checking: bool) -> bool:
    """Write what is stale, unless `checking`; returns whether something was."""
    stale = [p for p, text in wanted.items() if not p.exists() or p.read_text("utf-8") != text]
    for path in stale:
        print(f"{'stale' if checking else 'renewed'}: {path.relative_to(ROOT)}")
        if not checking:
            path.write_text(wanted[path], "utf-8")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
