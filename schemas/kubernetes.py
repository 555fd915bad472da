"""The topics as Strimzi's `KafkaTopic` resources: `deploy/kubernetes/topics.yaml`.

Written by `schemas.generate` from the catalogue, so that an operator who keeps topics in git has
the same ones as `placer topics apply` makes.
"""

import json

from schemas.topics import CATALOGUE, Topic, configs_for, full_name

# What production asks for; two copies have a record before it counts as written.
REPLICAS = 3

_HEAD = """\
# Written by `python -m schemas.generate`; do not edit. For Strimzi 1.0 or newer.
# The label names the Kafka resource that the topics belong to.
"""


def kafka_topics() -> str:
    """All topics with the default prefix, one YAML document each."""
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
