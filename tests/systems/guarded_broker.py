"""A broker that asks who is there: a user for each role with its rights alone, and some with less.

`root` may do all. Every user's password is made of its name.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourceType,
)

from schemas.access import ROLES, Grant, grants
from streaming.runtime import EmbeddedBroker
from streaming.settings import admin_client_options

# A right of a role: the role, the kind and the name of the resource, and the operation.
Right = tuple[str, str, str, str]
RESOURCES = {
    "topic": ResourceType.TOPIC,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
    "group": ResourceType.GROUP,
    "cluster": ResourceType.CLUSTER,
}


def password(user: str) -> str:
    """The password of a user."""
    return f"pass-of-{user}"


def options(user: str) -> dict[str, str]:
    """What a client of librdkafka needs to be that user."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password(user),
    }


@contextmanager
def guarded_broker(prefix: str, short_of: Mapping[str, Right]) -> Iterator[EmbeddedBroker]:
    """Start a broker with the rights for a prefix. `short_of`: users that have the rights of a role
    but for one."""
    users = "".join(
        f' user_{user}="{password(user)}"' for user in ("root", "nobody", *short_of, *ROLES)
    )
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    login = f'{module} username="root" password="{password("root")}"{users};'
    properties = {
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": login,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The controller's own listener knows no users; clients cannot reach it by that name.
        "super.users": "User:root;User:ANONYMOUS",
    }
    broker = EmbeddedBroker(
        properties=properties, protocol="SASL_PLAINTEXT", options=options("root")
    )
    with broker:
        with administering(broker) as admin:
            given = [acl for grant in grants(prefix) for acl in _acls(grant, grant.role)]
            short = [
                acl
                for user, (role, *lacking) in short_of.items()
                for grant in grants(prefix)
                if grant.role == role
                for acl in _acls(grant, user)
                if [grant.resource, grant.name, acl.operation.name] != lacking
            ]
            admin.create_acls([*given, *short])
        yield broker


@contextmanager
def administering(broker: EmbeddedBroker) -> Iterator[KafkaAdminClient]:
    """A client that may do all."""
    admin = KafkaAdminClient(
        bootstrap_servers=broker.bootstrap_servers, **admin_client_options(options("root"))
    )
    try:
        yield admin
    finally:
        admin.close()


def _acls(grant: Grant, user: str) -> list[ACL]:
    names = [
        "".join(f"_{c}" if c.isupper() else c for c in o)[1:].upper() for o in grant.operations
    ]
    kind = ACLResourcePatternType[grant.pattern.upper()]
    pattern = ResourcePattern(RESOURCES[grant.resource], grant.name, kind)
    return [
        ACL(f"User:{user}", "*", ACLOperation[name], ACLPermissionType.ALLOW, pattern)
        for name in names
    ]
