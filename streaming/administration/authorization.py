"""Asks the brokers which operations a principal lacks on our topics.

Asked by `placer doctor`, and when a running application is refused something: a client's error
seldom names both the topic and the operation.
"""

from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient

from schemas.topics import CATALOGUE, DEAD_LETTERS, NODES, Topic, full_name
from streaming.brokers import CONNECT_TIMEOUT_SECONDS, connect


def find_missing_rights(bootstrap: str, prefix: str, options: Mapping[str, str]) -> list[str]:
    """Each topic with the operations that this principal needs there and is not allowed.

    Raises BrokerUnreachable or AccessRefused, and KafkaException when brokers stop answering.
    """
    client = connect(AdminClient, bootstrap, {}, options)
    names = {full_name(topic, prefix): topic for topic in CATALOGUE}
    asked = client.describe_topics(
        TopicCollection([*names]),
        include_authorized_operations=True,
        request_timeout=CONNECT_TIMEOUT_SECONDS,
    )
    found = []
    for name, answer in asked.items():
        needed = _needed_operations(names[name])
        try:
            allowed = set(answer.result().authorized_operations)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found.append(f"{name}: {error.args[0].str()}")
                continue
            # Whoever may not even see a topic may do nothing with it.
            allowed = set()
        missing = sorted(operation.name for operation in needed - allowed)
        if missing:
            found.append(f"{name}: {', '.join(missing)} not allowed")
    return found


def _needed_operations(topic: Topic) -> set[AclOperation]:
    needed = {AclOperation.READ, AclOperation.DESCRIBE}
    # Ticks go into the nodes topic; everything else that is written is an output.
    if topic.direction == "out" or topic.name == NODES:
        needed.add(AclOperation.WRITE)
    if topic.name == DEAD_LETTERS:
        needed.discard(AclOperation.READ)
    return needed
