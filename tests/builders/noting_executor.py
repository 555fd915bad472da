"""An executor as a process that notes what it does: `python noting_executor.py NODE...`.

Replicas are files as in `deploy/examples/executor.py`. A copy of shard N lasts until the file
`N.go` is in the directory STORE; what becomes of it is appended to the file `notes` there, with the
process's id.
"""

import logging
import os
import sys

from deploy.examples.executor import ROOT, Files
from streaming.client import Executor, Move, MoveCalledOff, Progress, Replica

PAUSE_SECONDS = 0.05


class Noting(Files):
    def copy(self, move: Move, progress: Progress) -> None:
        self.note("begins", move.shard)
        try:
            while not (ROOT / f"{move.shard}.go").exists():
                progress(0)
                progress.wait(PAUSE_SECONDS)
            progress(1)
        except MoveCalledOff:
            self.note("leaves", move.shard)
            raise
        super().copy(move, progress)
        self.note("ends", move.shard)

    def delete(self, replica: Replica) -> None:
        self.note("deletes", replica.shard)
        super().delete(replica)

    def note(self, what: str, shard: int) -> None:
        with (ROOT / "notes").open("a") as file:
            file.write(f"{os.getpid()} {what} {shard}\n")


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s %(message)s")
    logging.getLogger("streaming.client").setLevel("DEBUG")
    at = (os.environ["KAFKA_BOOTSTRAP"], os.environ["TOPIC_PREFIX"])
    Executor(*at, Noting(), nodes=sys.argv[1:] or None).serve()
