"""Checks and sends requests for one node: whether it is known, and its unregistration."""

import time
from dataclasses import dataclass

from placement.model import Code, Liveness, NodeView
from placement.wording import format_count
from schemas.spelling import did_you_mean
from schemas.topics import ASSIGNMENTS, DEAD_LETTERS, NODES, TOPOLOGY, full_name
from streaming.brokers import CommittedReader, Record
from streaming.errors import StreamingError
from streaming.live import PublishedState
from streaming.requests.dead_letters import DeadLetter
from streaming.requests.operators import NoAnswer
from streaming.sending import OutgoingRecord, SentRecord, make_record, send_records
from streaming.settings import Settings

POLL_SECONDS = 0.2
# Of a long list of shards the first are named.
_NAMED_MAX = 5


class NodeNotThere(StreamingError):
    """There is no such node, or it has left already."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Departure:
    """A node that is to leave, and what stands on it. `last_copies`: shards of which no other
    node has a copy."""

    view: NodeView
    sequence: int
    replicas: int
    leaders: int
    last_copies: tuple[str, ...]

    def count_text(self) -> str:
        """Count the replicas and leaders on the node."""
        replicas = f"{self.replicas} replica{'' if self.replicas == 1 else 's'}"
        return f"{replicas} ({self.leaders} lead)" if self.leaders else replicas

    def warnings(self) -> list[str]:
        """Warn of the data that would be lost with the node."""
        if not self.last_copies:
            return []
        named = ", ".join(self.last_copies[:_NAMED_MAX])
        left = len(self.last_copies) - _NAMED_MAX
        more = f" and {left} more" if left > 0 else ""
        return [f"{Code.LAST_COPY}: no other node has a copy of {named}{more}"]


def find_node(settings: Settings, node_id: str) -> NodeView:
    """Return the published view of a node. Raises NodeNotThere with names of similar spelling,
    BrokerUnreachable, TopicMissing."""
    with PublishedState(settings, (TOPOLOGY,)) as live:
        return _view(live, node_id)


def suggest_names(settings: Settings, target: str) -> str:
    """Write the end of a sentence that names nodes or domains spelt nearly like an unknown one.
    Empty where there are none."""
    with PublishedState(settings, (TOPOLOGY,)) as live:
        views = live.nodes
    if not target.startswith("/"):
        return did_you_mean(target, [view.node_id for view in views])
    places: dict[str, None] = {}
    for view in views:
        parts = view.attributes.location.split("/")
        places |= dict.fromkeys("/".join(parts[:depth]) for depth in range(2, len(parts) + 1))
    return did_you_mean(target, [*places])


def preview_departure(settings: Settings, node_id: str) -> Departure:
    """Preview a node's unregistration: its record and the replicas it affects. Raises as
    `find_node`."""
    with PublishedState(settings, (TOPOLOGY, ASSIGNMENTS)) as live:
        view = _view(live, node_id)
        shards = [shard for shard in live.assignments if node_id in shard.replicas]
    if view.liveness is Liveness.UNREGISTERED:
        waits = (
            f"{format_count(len(shards), 'replica there is', 'replicas there are')} being replaced"
        )
        raise NodeNotThere(f"{Code.NOTHING_TO_DO}: {node_id} has unregistered already; {waits}")
    return Departure(
        view,
        _next_sequence(view.sequence),
        len(shards),
        sum(shard.replicas[0] == node_id for shard in shards),
        tuple(f"{each.stream}/{each.shard}" for each in shards if set(each.replicas) == {node_id}),
    )


def send_departure(settings: Settings, leaving: Departure) -> SentRecord:
    """Unregister the node and do not wait. Raises BrokerUnreachable, TopicMissing,
    StreamingError."""
    (sent,) = send_records(settings, [_record(settings, leaving)])
    return sent


def send_departure_and_wait(
    settings: Settings, leaving: Departure, timeout_seconds: float
) -> tuple[str, str] | None:
    """Unregister the node and wait until the reconciler has taken it in; code and sentence where it
    is refused. Raises NoAnswer, BrokerUnreachable, TopicMissing, StreamingError."""
    with CommittedReader(
        settings.kafka.bootstrap_servers,
        settings.topics.prefix,
        [TOPOLOGY, DEAD_LETTERS],
        from_beginning=False,
        options=settings.resolved_kafka_options(),
    ) as reader:
        sent = send_departure(settings, leaving)
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            for record in reader.poll(POLL_SECONDS):
                if record.topic == DEAD_LETTERS:
                    letter = DeadLetter(record)
                    if letter.is_about(sent.topic, sent.partition, sent.offset):
                        return letter.header("reason"), letter.header("message")
                elif _has_left(record, leaving.view.node_id):
                    return None
    topic = full_name(TOPOLOGY, settings.topics.prefix)
    raise NoAnswer(
        f"{leaving.view.node_id} has not left within {timeout_seconds:g} s: is placer run "
        f"running? The result will come to {topic}; unregister the node again if it has "
        "sent a higher sequence or begun another incarnation meanwhile"
    )


def _view(live: PublishedState, node_id: str) -> NodeView:
    views = {view.node_id: view for view in live.nodes}
    if node_id in views:
        return views[node_id]
    near = did_you_mean(node_id, list(views))
    raise NodeNotThere(f"{Code.NODE_UNKNOWN}: there is no node '{node_id}'{near}")


def _next_sequence(published: int) -> int:
    """Make a sequence above the node's own. Only the node's last change is published, so it is the
    time in the unit that the node seems to count in."""
    now_ns = time.time_ns()
    units = (now_ns // 1_000_000, now_ns // 1_000, now_ns)
    return next((now for now in units if now > published), published + 1)


def _record(settings: Settings, leaving: Departure) -> OutgoingRecord:
    view = leaving.view
    fields = {
        "node_id": view.node_id,
        "incarnation": view.incarnation,
        "sequence": leaving.sequence,
    }
    identity = f"NodeUnregistered:{view.node_id}:{leaving.sequence}"
    return make_record(NODES, "NodeUnregistered", view.node_id, fields, settings.cell, identity)


def _has_left(record: Record, node_id: str) -> bool:
    """Return whether a record of the topology shows that the node is unregistered or forgotten."""
    if record.key != node_id:
        return False
    return record.value is None or record.value["liveness"] == Liveness.UNREGISTERED
