"""What the shards of a cluster file use of their nodes: by shard, by node and by domain.

Shards count as the running reconciler counts them: with the load that is given, else with what
their stream expects, else with a mean. A file without `resources` has no loads.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.diagnosis import StreamToDiagnose
from placement.model import Configuration, Decision, Outcome, Resource, ShardLoad, natural_key
from placement.rules import NodeLoads
from placement.state import ClusterState
from placement.topology import Topology
from schemas.cluster import Cluster, ClusterStream
from streaming import codec

Integers = NDArray[np.int64]

# Of a share more digits say nothing.
_DIGITS = 4


def known_loads(cluster: Cluster) -> dict[str, list[ShardLoad]]:
    """List what the file knows of the shards of each stream; nothing without resources."""
    if not cluster.resources:
        return {}
    streams = (each for each in cluster.streams if isinstance(each, ClusterStream))
    return {each.stream: codec.loads_of_stream(each) for each in streams}


def count_shards(
    cluster: Cluster, streams: Sequence[StreamToDiagnose]
) -> Sequence[StreamToDiagnose]:
    """Count the shards of streams by what the file knows; as they are in one without resources."""
    resources = codec.resources_of_cluster(cluster)
    if not resources:
        return streams
    known, state = known_loads(cluster), ClusterState(Configuration(resources=resources))
    for each in streams:
        spec = each.spec
        decision = Decision(spec.stream, 0, 1, Outcome.PLACED, spec, "", "", 0, 0, (), (), 0)
        state.add_shards(state.upsert_stream(decision, each.policy), spec.shards, slots=1)
    names = [each.spec.stream for each in streams]
    state.loads.learn([load for name in names for load in known[name]])
    columns = state.table.loads
    assert columns is not None, "resources are counted"
    shards = (np.asarray(state.streams[name].shards, np.int64) for name in names)
    found = (columns.of_shards(numbers) for numbers in shards)
    return [replace(each, loads=loads) for each, loads in zip(streams, found, strict=True)]


def count_nodes(
    cluster: Cluster, topology: Topology, streams: Sequence[StreamToDiagnose]
) -> NodeLoads | None:
    """Sum what the nodes bear: planned replicas, and complete ones that are still to leave.

    None for a file without resources.
    """
    resources = codec.resources_of_cluster(cluster)
    if not resources:
        return None
    borne, led = np.zeros((len(resources), topology.size), np.int64), led_mask(resources)
    for each in streams:
        assert each.loads is not None, "resources are counted"
        for shard, nodes in enumerate(each.shards):
            held = {int(node) for node in (*nodes, *each.complete[shard]) if node >= 0}
            for node in held:
                borne[~led, node] += each.loads[~led, shard]
            if len(nodes) and nodes[0] >= 0:
                borne[led, nodes[0]] += each.loads[led, shard]
    return NodeLoads(topology, resources, borne, np.zeros(len(resources), np.int64))


def led_mask(resources: Sequence[Resource]) -> NDArray[np.bool_]:
    """Mask the resources of which the leader alone bears the load."""
    return np.asarray([each.led for each in resources], bool)


def utilisation_body(topology: Topology, loads: NodeLoads) -> dict[str, Any]:
    """Write what nodes and domains bear, by resource: load, capacity and utilisation.

    A domain has its nodes that are not dead; of those, the ones that say what they have count for
    its capacity and utilisation.
    """
    order = sorted(range(topology.size), key=lambda node: natural_key(topology.ids[node]))
    inside = _nodes_by_domain(topology)
    found = {}
    for resource, borne, capacity in zip(loads.resources, loads.borne, loads.capacity, strict=True):
        found[resource.name] = {
            "nodes": {topology.ids[node]: _figures(borne, capacity, [node]) for node in order},
            "domains": {name: _figures(borne, capacity, nodes) for name, nodes in inside.items()},
        }
    return found


def peak_body(topology: Topology, loads: NodeLoads, peak: Integers) -> dict[str, Any]:
    """Write the most that each node bears on the way, by resource."""
    order = sorted(range(topology.size), key=lambda node: natural_key(topology.ids[node]))
    return {
        resource.name: {topology.ids[node]: _figures(most, has, [node]) for node in order}
        for resource, most, has in zip(loads.resources, peak, loads.capacity, strict=True)
    }


def _figures(borne: Integers, capacity: Integers, nodes: Sequence[int]) -> dict[str, Any]:
    bounded = [node for node in nodes if capacity[node] > 0]
    whole = int(capacity[bounded].sum())
    share = round(int(borne[bounded].sum()) / whole, _DIGITS) if bounded else None
    load = int(borne[[*nodes]].sum())
    return {"load": load, "capacity": whole or None, "utilisation": share}


def _nodes_by_domain(topology: Topology) -> dict[str, list[int]]:
    """List the nodes in each domain that are not dead, by the path of the domain."""
    found: dict[str, list[int]] = {}
    for node in range(topology.size):
        place = topology.locations[node]
        if not topology.is_dead(node):
            for depth in range(1, place.depth + 1):
                found.setdefault(str(place.prefix(depth)), []).append(node)
    return dict(sorted(found.items(), key=lambda each: natural_key(each[0])))
