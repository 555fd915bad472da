"""Groups nodes that are equal to rules, so that a search looks at one of each class.

The one place that says which nodes are equal. Look-ahead asks for the finest classes (place, tags,
may lead), feasibility for those that its rules can distinguish, choice by class for places and the
tags that its rules count by. `node_sets` groups by its own columns, which are not domains of the
fleet, and `client_tags` by how a shard's replicas share tags; both are other questions.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placement.topology.topology import LEAF, Scope, Topology

# A class is packed into one number of 64 bits; of at most as many classes as there are nodes and as
# many values again there is always room.
_PACKED_MAX = 2**62


def classify_nodes(
    topology: Topology, scopes: Sequence[Scope] = (), by_attributes: bool = False
) -> NDArray[np.int64]:
    """Number the class of each node; nodes of a class share their domains at all `scopes`.

    `by_attributes`: they share their whole location and all tags, too, and all or none may lead.
    Classes are numbered by the natural order of their first nodes, whatever the nodes' indexes.
    """
    key = "classes of equal nodes", tuple(scopes), by_attributes
    return topology.derive(key, lambda: _number_classes(topology, scopes, by_attributes))


def _number_classes(
    topology: Topology, scopes: Sequence[Scope], by_attributes: bool
) -> NDArray[np.int64]:
    columns = [topology.domain_of(scope).astype(np.int64) for scope in scopes]
    if by_attributes:
        tags: dict[object, int] = {}
        tagged = [tags.setdefault(each.tags, len(tags)) for each in topology.attributes]
        columns += [topology.domain_of(LEAF).astype(np.int64), np.asarray(tagged, np.int64)]
        columns.append(topology.can_lead.astype(np.int64))
    classes, bound = np.zeros(topology.size, np.int64), 1
    for column in columns:
        values = int(column.max(initial=0)) + 2  # NO_DOMAIN is -1
        if bound * values > _PACKED_MAX:
            classes = np.unique(classes, return_inverse=True)[1]
            bound = topology.size
        classes, bound = classes * values + column + 1, bound * values
    classes = np.unique(classes, return_inverse=True)[1]
    first = np.full(int(classes.max(initial=-1)) + 1, topology.size, np.int64)
    np.minimum.at(first, classes, topology.order())
    numbers: NDArray[np.int64] = np.argsort(np.argsort(first))[classes]
    return numbers
