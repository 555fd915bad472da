"""Three nodes of the store in one process, for `placer conformance`, whose stand-in registers none.

Copies heed COPY_SECONDS and COPY_FAILS, as the examination asks for.
"""

import os
import time
from contextlib import ExitStack
from pathlib import Path

from deploy.examples.store.node import Node
from deploy.examples.store.wire import serve
from streaming.client import Executor, Move, PlacementView, Progress, ReplicaStore

NODES = ("node-a", "node-b", "node-c")


def make_slow(store: ReplicaStore) -> None:
    """Let a node's copies take as long, or fail, as the environment says."""
    copy = store.copy

    def copy_as_asked(move: Move, progress: Progress) -> None:
        if "COPY_FAILS" in os.environ:
            raise OSError("asked to fail")
        began = time.monotonic()
        while time.monotonic() < began + float(os.environ.get("COPY_SECONDS", "0")):
            progress(int(1000 * (time.monotonic() - began)))
            progress.wait(0.1)
        copy(move, progress)

    store.copy = copy_as_asked  # type: ignore[method-assign]


def main() -> None:
    """Run until SIGTERM."""
    at = (os.environ["KAFKA_BOOTSTRAP"], os.environ["TOPIC_PREFIX"])
    hosts: dict[str, str] = {}
    view = PlacementView(*at)
    executors = []
    for node_id in NODES:
        node = Node(node_id, Path(os.environ["STORE"]) / node_id, hosts.get)
        _, hosts[node_id] = serve("127.0.0.1:0", node.answer)
        make_slow(node.store)
        view.on_change(node.see)
        executors.append(Executor(*at, node.store, nodes=[node_id]))
    with ExitStack() as opened:
        opened.enter_context(view)
        for executor in executors[1:]:
            opened.enter_context(executor)
        executors[0].serve()


if __name__ == "__main__":
    main()
