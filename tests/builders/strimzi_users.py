"""Rights as Strimzi spells them in a KafkaUser, in a form that can be compared."""

from collections.abc import Mapping
from typing import Any

from schemas.access import CLUSTER, Grant

Rights = tuple[str, str, str, tuple[str, ...]]


def rights_of(acl: Mapping[str, Any]) -> Rights:
    """Return type, name, pattern and operations of an entry of `acls`."""
    resource = acl["resource"]
    name, pattern = resource.get("name", CLUSTER), resource.get("patternType", "literal")
    return resource["type"], name, pattern, tuple(acl["operations"])


def spelled_by_strimzi(grant: Grant) -> Rights:
    """Return what `rights_of` gives for the entry of a grant."""
    kind = {"transactional-id": "transactionalId"}.get(grant.resource, grant.resource)
    pattern = {"prefixed": "prefix"}.get(grant.pattern, grant.pattern)
    return kind, grant.name, pattern, grant.operations
