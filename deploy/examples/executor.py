"""A minimal executor: the replicas of node N are files N/STREAM.SHARD in the directory STORE."""

import os
from collections.abc import Iterator
from pathlib import Path

from streaming.client import Executor, Move, Progress, Replica, ReplicaStore

ROOT = Path(os.environ["STORE"])


class Files(ReplicaStore):
    def path(self, stream: str, shard: int, node_id: str | None, _uid: object = None) -> Path:
        (ROOT / str(node_id)).mkdir(parents=True, exist_ok=True)
        return ROOT / str(node_id) / f"{stream}.{shard}"

    def list_replicas(self) -> Iterator[Replica]:
        for path in ROOT.glob("*/*.*[0-9]"):
            yield Replica(path.stem, int(path.suffix[1:]), path.parent.name)

    def holds(self, replica: Replica) -> bool:
        return self.path(*replica).exists()

    def create(self, replica: Replica) -> None:
        self.path(*replica).touch()

    def copy(self, move: Move, progress: Progress) -> None:
        data = self.path(*move.shard_id, move.source).read_bytes()
        progress(0, len(data))
        target = self.path(*move.shard_id, move.add)
        part = target.with_name(f"{target.name}.part")
        part.write_bytes(data)
        part.replace(target)  # only a complete replica has its name

    def delete(self, replica: Replica) -> None:
        self.path(*replica).unlink(missing_ok=True)


if __name__ == "__main__":
    Executor(os.environ["KAFKA_BOOTSTRAP"], os.environ["TOPIC_PREFIX"], Files()).serve()
