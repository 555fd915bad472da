"""A node of the store, as a process: `python -m deploy.examples.store.node`.

It answers other nodes and clients, leads the shards whose assignment names it first, and carries
out the moves whose replicas are its own. Its settings are the variables that `main` reads.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

from deploy.examples.store.leader import Leadership
from deploy.examples.store.log import BLOCK_BYTES, Place
from deploy.examples.store.placing import NodeReplicas
from deploy.examples.store.replica import LocalReplica, LocalReplicas, Shard
from deploy.examples.store.wire import Body, Refused, serve
from streaming.client import Change, Executor, NodeAgent, PlacementView

LOG = logging.getLogger("store")
# A read waits so long for what its client has seen elsewhere, then another replica is asked.
READ_TIMEOUT_SECONDS = 1.0
LOAD_INTERVAL_SECONDS = 30.0
START_TIMEOUT_SECONDS = 60.0


class Node:
    """The replicas of a node and the shards that it leads. Safe for threads. `find_host` says where
    another node answers."""

    def __init__(
        self, node_id: str, directory: Path, find_host: Callable[[str], str | None]
    ) -> None:
        self.node_id, self._find_host = node_id, find_host
        self.replicas = LocalReplicas(directory)
        self.store = NodeReplicas(node_id, self.replicas, find_host, self.look, self._give_up)
        self._lock = threading.RLock()
        self._assignments: dict[Shard, Change] = {}
        self._leads: dict[Shard, Leadership] = {}

    def see(self, change: Change) -> None:
        """Take in an assignment."""
        with self._lock:
            self._assignments[change.shard_id] = change
            self.look(change.shard_id)

    def look(self, shard: Shard) -> None:
        """Lead a shard, or lead it no more, as its assignment says."""
        with self._lock:
            change, lead = self._assignments.get(shard), self._leads.get(shard)
            replica = self.replicas.get(shard)
            if change is None or (lead is not None and lead.epoch == change.epoch):
                return
            self._give_up(shard)
            if change.replicas[:1] == (self.node_id,) and replica and replica.is_complete:
                self._leads[shard] = Leadership(self.node_id, replica, change, self._find_host)

    def find_lost(self, is_new: bool) -> list[Shard]:
        """List the shards that were assigned to this node before this start, and are not here. Of
        the first epoch there may be none yet, unless the directory `is_new` or it was damaged."""
        return [
            shard
            for shard, change in self._assignments.items()
            if self.node_id in change.replicas
            and self.replicas.get(shard) is None
            and (change.epoch != 1 or is_new or shard in self.replicas.damaged)
        ]

    def answer(self, question: Body) -> Body:
        """Answer another node or a client. Raises Refused."""
        shard = (question["stream"], question["shard"])
        replica = self.replicas.get(shard)
        if replica is None:
            raise Refused("no_replica", f"{self.node_id} has no replica of {shard}")
        return self._answers[question["question"]](self, shard, replica, question)

    def _promise(self, _: Shard, replica: LocalReplica, question: Body) -> Body:
        return {"last": replica.promise(question["epoch"])}

    def _accept(self, _: Shard, replica: LocalReplica, question: Body) -> Body:
        epoch, after = question["epoch"], Place(*question["after"])
        return {"last": replica.accept(epoch, after, question["lines"], question["committed"])}

    def _read(self, _: Shard, replica: LocalReplica, question: Body) -> Body:
        lines = replica.read(Place(*question["after"]))
        return {"lines": lines, "size_bytes": replica.log.size_bytes}

    def _put(self, shard: Shard, _: LocalReplica, question: Body) -> Body:
        """Write a pair; or nothing, without `key`: the number says what is committed by now."""
        with self._lock:
            lead = self._leads.get(shard)
        if lead is None:
            raise Refused("not_leading", f"{self.node_id} does not lead {shard}")
        return {"number": lead.write(question.get("key"), question.get("value"))}

    def _scan(self, shard: Shard, replica: LocalReplica, question: Body) -> Body:
        """Pairs in the order of their keys, behind `after` and beginning with `prefix`; `get` of
        one key is a scan of one."""
        change = self._assignments.get(shard)
        if change is None or self.node_id not in change.replicas or not replica.is_complete:
            raise Refused("no_replica", f"{self.node_id} serves no reads of {shard}")
        replica.wait_committed(question["at_least"], READ_TIMEOUT_SECONDS)
        with replica.changed:
            table, number = replica.table, replica.committed
            if "key" in question:
                keys = [question["key"]] if question["key"] in table else []
            else:
                start, after = question["prefix"], question["after"]
                keys = sorted(k for k in table if k.startswith(start) and k > after)
            pairs: list[tuple[str, str]] = []
            size = 0
            for key in keys:
                size += len(key) + len(table[key])
                if pairs and size > BLOCK_BYTES // 2:
                    break
                pairs.append((key, table[key]))
        return {"pairs": pairs, "more": len(pairs) < len(keys), "number": number}

    _answers: ClassVar = {
        "promise": _promise, "accept": _accept, "read": _read, "put": _put, "scan": _scan
    }  # fmt: skip

    def _give_up(self, shard: Shard) -> None:
        with self._lock:
            lead = self._leads.pop(shard, None)
            if lead is not None:
                lead.close()


def main() -> None:
    """Run a node until SIGTERM."""
    logging.basicConfig(level="INFO", format="%(asctime)s %(name)s %(levelname)s %(message)s")
    told = os.environ
    at = (told["KAFKA_BOOTSTRAP"], told["TOPIC_PREFIX"])
    node_id, directory = told["NODE_ID"], Path(told["NODE_DIRECTORY"])
    is_new = not (directory / "agent.json").exists()
    view = PlacementView(*at)
    node = Node(node_id, directory, view.host)
    server, host = serve(told.get("NODE_LISTEN", "127.0.0.1:0"), node.answer)
    attributes = {"location": told["NODE_LOCATION"], "host": told.get("NODE_HOST", host)}
    agent = NodeAgent(*at, node_id, directory / "agent.json", attributes)
    executor = Executor(*at, node.store, nodes=[node_id])
    view.on_change(node.see)
    stopping = threading.Event()
    with ExitStack() as opened:
        opened.enter_context(view)
        opened.callback(server.shutdown)
        if not view.wait_complete(START_TIMEOUT_SECONDS):
            raise SystemExit(f"the topics are not read within {START_TIMEOUT_SECONDS:g} s")
        node.store.lost = {*node.find_lost(is_new)}
        opened.enter_context(agent)
        for shard in node.store.lost:
            agent.report_lost(*shard, "it is not on the node's disk, or damaged")
        LOG.info("%s answers at %s", node_id, attributes["host"])
        opened.callback(stopping.set)
        threading.Thread(target=_report_loads, args=(node, agent, stopping), daemon=True).start()
        executor.serve()


def _report_loads(node: Node, agent: NodeAgent, stopping: threading.Event) -> None:
    while not stopping.wait(LOAD_INTERVAL_SECONDS):
        agent.report_loads(
            [
                {"stream": stream, "shard": shard, "disk_bytes": replica.log.size_bytes}
                for (stream, shard), replica in node.replicas.list()
            ]
        )


if __name__ == "__main__":
    main()
