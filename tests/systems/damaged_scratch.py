"""What has been seen to happen to Spark checkpoints, done to one: every way by itself (F11, F15).

A copy of the directory stands for each way on each kind of file, so that one start meets them all.
PySpark itself refuses to start on most of them, and on some says a batch again in other words.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

# A process's directory, from where its scratch directory is.
HELD = "placer-query-*"
# Kinds of files, by where they are in a process's directory: those of the query on nodes, which
# alone has state.
KINDS = {
    "offsets": "nodes/offsets/[0-9]*",
    "commits": "nodes/commits/[0-9]*",
    "state": "nodes/state/**/*.changelog",
    "state's schema": "nodes/state/**/_stateSchema/**/*",
    "metadata": "nodes/metadata",
    "state's metadata": "nodes/state/**/_metadata/**/*",
}


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def remove(path: Path) -> None:
    """With its checksum, as if the write had never been."""
    path.unlink()
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def remove_alone(path: Path) -> None:
    """Its checksum stays."""
    path.with_name(f".{path.name}.crc").write_bytes(b"stray")
    path.unlink()


def alter(path: Path) -> None:
    """As another version may have written it."""
    path.write_bytes(b"v9\n" + path.read_bytes())


WAYS: tuple[Callable[[Path], None], ...] = (cut, empty, flip, remove, remove_alone, alter)


def damage(checkpoint: Path) -> int:
    """Damage what a start has left in its scratch directory; returns in how many ways."""
    (query,) = checkpoint.glob(HELD)
    number = 0
    for kind, pattern in KINDS.items():
        for way in WAYS:
            number += 1
            copy = checkpoint / f"{query.name}-{number}"
            shutil.copytree(query, copy, ignore_dangling_symlinks=True)
            files = [p for p in copy.glob(pattern) if p.is_file() and p.suffix != ".crc"]
            assert files, f"no file of the {kind} in {query}"
            way(max(files))
    # Whole, but not ours; and something that is no directory.
    (checkpoint / "placer-query-0").mkdir()
    (checkpoint / "placer-query-0" / "metadata").write_text('{"id":"not ours"}')
    (checkpoint / "placer-query-1").write_text("no directory")
    shutil.rmtree(query)
    return number + 2
