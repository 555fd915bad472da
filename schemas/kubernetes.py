"""Writes the manifests in `deploy/kubernetes` for the operators that run there.

Strimzi's `KafkaTopic`s come from the catalogue, so that who keeps topics in git has the same ones
as `placer topics apply` makes, its `KafkaUser`s from the rights of the roles, and the
`PrometheusRule` of the Prometheus operator from the rules that compose's Prometheus reads.
"""

import json
from collections import defaultdict
from textwrap import indent

from schemas.access import ROLES, Grant, grants
from schemas.topics import CATALOGUE, Topic, configs_for, full_name

# What production asks for; two copies have a record before it counts as written.
REPLICAS = 3

_WRITTEN = "# Written by `python -m schemas.generate`; do not edit. "
_HEAD = f"""\
{_WRITTEN}For Strimzi 1.0 or newer.
# The label names the Kafka resource that the topics belong to.
"""
_USERS_HEAD = f"""\
{_WRITTEN}For Strimzi 1.0 or newer.
# One user per role, with its least rights; the operator keeps each one's password in a secret of
# the same name. A consumer that joins a group needs Read on the group besides.
"""
_MONITORING_HEAD = f"""\
{_WRITTEN}For the Prometheus operator.
# The job's name, which the alerts ask for, is the component of the services in reconciler.yaml and
# bridge.yaml; the rules are those of deploy/prometheus/rules.yaml.
"""


def kafka_topics() -> str:
    """Format all topics with the default prefix, one YAML document each."""
    return _HEAD + "".join(_manifest(topic) for topic in CATALOGUE)


def _manifest(topic: Topic) -> str:
    name = full_name(topic)
    settings = "".join(
        f"    {key}: {json.dumps(value)}\n"
        for key, value in sorted(configs_for(topic, REPLICAS).items())
    )
    return (
        "---\n"
        "apiVersion: kafka.strimzi.io/v1\n"
        "kind: KafkaTopic\n"
        "metadata:\n"
        f"  name: {name}\n"
        "  labels:\n"
        "    strimzi.io/cluster: kafka\n"
        "spec:\n"
        f"  topicName: {name}\n"
        f"  partitions: {topic.partitions}\n"
        f"  replicas: {REPLICAS}\n"
        "  config:\n"
        f"{settings}"
    )


def kafka_users() -> str:
    """Format all roles with the default prefix and cell, one YAML document each."""
    by_role: defaultdict[str, list[Grant]] = defaultdict(list)
    for grant in grants():
        by_role[grant.role].append(grant)
    return _USERS_HEAD + "".join(_user(role, by_role[role]) for role in ROLES)


# As Strimzi spells a kind of resource.
_RESOURCES = {"topic": "topic", "transactional-id": "transactionalId", "group": "group"}


def _resource(grant: Grant) -> str:
    if grant.resource == "cluster":
        return "{type: cluster}"
    name = json.dumps(grant.name) if grant.name == "*" else grant.name
    return f"{{type: {_RESOURCES[grant.resource]}, name: {name}, patternType: literal}}"


def _user(role: str, granted: list[Grant]) -> str:
    rules = "".join(
        f"      - resource: {_resource(grant)}\n"
        f"        operations: [{', '.join(grant.operations)}]\n"
        for grant in granted
    )
    return (
        "---\n"
        "apiVersion: kafka.strimzi.io/v1\n"
        "kind: KafkaUser\n"
        "metadata:\n"
        f"  name: {role}\n"
        "  labels:\n"
        "    strimzi.io/cluster: kafka\n"
        "spec:\n"
        "  authentication: {type: scram-sha-512}\n"
        "  authorization:\n"
        "    type: simple\n"
        "    acls:\n"
        f"{rules}"
    )


def monitoring(rules: str) -> str:
    """Format a `ServiceMonitor`, and a `PrometheusRule` with the text of a rule file."""
    return (
        f"{_MONITORING_HEAD}"
        "---\n"
        "apiVersion: monitoring.coreos.com/v1\n"
        "kind: ServiceMonitor\n"
        "metadata:\n"
        "  name: placer\n"
        "  labels: {app.kubernetes.io/name: placer}\n"
        "spec:\n"
        "  jobLabel: app.kubernetes.io/component\n"
        "  selector:\n"
        "    matchLabels: {app.kubernetes.io/name: placer}\n"
        "  endpoints:\n"
        "    - {port: metrics, interval: 15s}\n"
        "---\n"
        "apiVersion: monitoring.coreos.com/v1\n"
        "kind: PrometheusRule\n"
        "metadata:\n"
        "  name: placer\n"
        "  labels: {app.kubernetes.io/name: placer}\n"
        "spec:\n"
        f"{indent(rules[rules.index('groups:') :], '  ')}"
    )
