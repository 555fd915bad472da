"""Writes the files of the Helm chart in `deploy/helm` that follow from the contracts.

Strimzi's topics come from the catalogue, so that who keeps topics in git has the same ones as
`placer topics apply` makes, its users from the rights of the roles, and the rules of the Prometheus
operator from those that compose's Prometheus reads. The chart's templates put them into resources.
"""

import json
from collections import defaultdict

from schemas.access import DEFAULT_CELL, ROLES, Grant, grants
from schemas.topics import CATALOGUE, DEFAULT_PREFIX, Topic, configs_for, full_name

# What production asks for; two copies have a record before it counts as written.
REPLICAS = 3

# The templates put the release's own in their places.
PREFIX = "PREFIX."
CELL = "CELL"

_HEAD = "# Written by `python -m schemas.generate`; do not edit.\n"
_IN_SYNC = "min.insync.replicas"


def kafka_topics() -> str:
    """Format all topics: name, partitions and settings, which depend on the number of replicas."""
    by_replicas = [configs_for(CATALOGUE[0], n)[_IN_SYNC] for n in range(1, REPLICAS + 1)]
    return (
        f"{_HEAD}"
        f"prefix: {DEFAULT_PREFIX}\n"
        f"replicas: {REPLICAS}\n"
        "# With one replica, two, and so on; the last holds for more.\n"
        f"minInsyncReplicas: {json.dumps(by_replicas)}\n"
        f"topics:\n{''.join(_topic(topic) for topic in CATALOGUE)}"
    )


def _topic(topic: Topic) -> str:
    settings = "".join(
        f"      {key}: {json.dumps(value)}\n"
        for key, value in sorted(configs_for(topic, None).items())
    )
    return (
        f"  - name: {topic.name}\n"
        f"    topicName: {full_name(topic, PREFIX)}\n"
        f"    partitions: {topic.partitions}\n"
        f"    config:\n{settings}"
    )


def kafka_users() -> str:
    """Format all roles with their rights, one user each."""
    by_role: defaultdict[str, list[Grant]] = defaultdict(list)
    for grant in grants(PREFIX, CELL):
        by_role[grant.role].append(grant)
    return (
        f"{_HEAD}"
        f"prefix: {DEFAULT_PREFIX}\n"
        f"cell: {DEFAULT_CELL}\n"
        f"users:\n{''.join(_user(role, by_role[role]) for role in ROLES)}"
    )


# As Strimzi spells a kind of resource, and how its names are compared.
_RESOURCES = {"topic": "topic", "transactional-id": "transactionalId", "group": "group"}
_PATTERNS = {"literal": "literal", "prefixed": "prefix"}


def _resource(grant: Grant) -> str:
    if grant.resource == "cluster":
        return "{type: cluster}"
    name = json.dumps(grant.name) if grant.name == "*" else grant.name
    kind, pattern = _RESOURCES[grant.resource], _PATTERNS[grant.pattern]
    return f"{{type: {kind}, name: {name}, patternType: {pattern}}}"


def _user(role: str, granted: list[Grant]) -> str:
    rules = "".join(
        f"      - resource: {_resource(grant)}\n"
        f"        operations: [{', '.join(grant.operations)}]\n"
        for grant in granted
    )
    return f"  - role: {role}\n    acls:\n{rules}"


def alerting_rules(rules: str) -> str:
    """Format the groups of a rule file."""
    return f"{_HEAD}{rules[rules.index('groups:') :]}"
