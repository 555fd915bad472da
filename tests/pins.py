"""`python -m tests.pins`: digests of all that must stay byte for byte while code only moves.

What is pinned: the answers of every story; the records and digests of simulated histories, a line
for twenty seeds; an eventful journal and what its replay says of it; what `placer place`, `check`
and `plan` answer for every file in `deploy/examples` and every `testdata`, errors too. A change
that is meant to change an answer writes the pins anew (`--write`), as `pytest --rewrite` does with
the stories: read which lines differ.
"""

import argparse
import hashlib
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from typer.testing import CliRunner

from placement.model import Configuration, Event, Ready
from streaming.cli.main import app
from streaming.codec import ready_records
from streaming.replay import replay_history
from tests.builders.batches import CELL
from tests.builders.histories import eventful, history, lying
from tests.simulation.history import Failure, History
from tests.stories.datadriven import Command, run_file, story_files
from tests.stories.story import Story
from tests.streaming.cli.test_screens import Screens
from tests.streaming.live.test_describe import Descriptions
from tests.streaming.offline import test_explain_stories, test_plan_stories

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PINS = TESTS / "pins.txt"
SEEDS = 200
# Seeds of one line: enough of them to keep the file short, few enough to look through.
CHUNK = 20
COMMANDS = (("place",), ("check", "--report"), ("plan",))
# Who answers stories of the shell; the core's are told in the language of `stories/story.py`.
ANSWERERS: tuple[tuple[str, Callable[[], Callable[[Command], str]]], ...] = (
    ("streaming/live/", lambda: Descriptions().answer),
    ("streaming/cli/", lambda: Screens().answer),
    ("streaming/offline/plan_", lambda: test_plan_stories.Story().answer),
    ("streaming/offline/explain_", lambda: test_explain_stories.Story().answer),
)

Pin = tuple[str, str]


def files() -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of every example and story; names leave `testdata` out."""
    for path in sorted((ROOT / "deploy" / "examples").rglob("*.yaml")):
        yield str(path.relative_to(ROOT)), path
    for path in story_files():
        yield f"{path.parent.parent.relative_to(TESTS)}/{path.name}", path


def stories() -> Iterator[Pin]:
    """Digests of what the stories answer, whether or not that is what their files expect."""
    with tempfile.TemporaryDirectory() as folder:
        for name, path in files():
            if path.suffix != ".txt":
                continue
            makers = [make for start, make in ANSWERERS if name.startswith(start)]
            answered = Path(folder) / path.name
            answered.write_bytes(path.read_bytes())
            run_file(answered, makers[0]() if makers else Story().answer, rewrite=True)
            yield f"story {name}", hashlib.sha256(answered.read_bytes()).hexdigest()


def commands() -> Iterator[Pin]:
    """Digests of the offline tool's answers: exit code, standard output and standard error."""
    for name, path in files():
        for words in COMMANDS:
            arguments = [*words, "-", "--output", "json"]
            result = CliRunner().invoke(app, arguments, input=path.read_text("utf-8"))
            said = b"\0".join((result.stdout_bytes, result.stderr_bytes))
            told = b"%d\0%s" % (result.exit_code, said)
            yield f"{words[0]} {name}", hashlib.sha256(told).hexdigest()


def journal() -> Iterator[Pin]:
    """Digests of an eventful history's records and of its replay."""
    records = lying(eventful())
    digest = hashlib.sha256()
    for each in records:
        place = (each.topic, each.partition, each.offset, each.raw_key, each.raw, each.raw_headers)
        digest.update(repr(place).encode())
    yield "journal", digest.hexdigest()
    report = replay_history(history(records), CELL, Configuration(cell="unused"), verify=True)
    told = (report.differences, report.compared, report.digest)
    yield "replay", hashlib.sha256(repr(told).encode()).hexdigest()


class Hashed(Story):
    """A story that hashes every record it publishes and the digest of its state."""

    def __init__(self, digest: "hashlib._Hash") -> None:
        super().__init__()
        self.digest = digest
        self.commits = 0

    def commit(self, events: list[Event], caught_up: bool = True) -> Ready:
        """One batch."""
        ready = super().commit(events, caught_up)
        self.commits += 1
        for record in ready_records(ready, CELL, self.now, self.commits):
            self.digest.update(repr(tuple(record)).encode())
        self.digest.update(self.reconciler.digest.encode())
        return ready


def play(seeds: range) -> Pin:
    """The digest of some simulated histories; of one that fails, up to there and how."""
    digest = hashlib.sha256()
    for seed in seeds:
        told = History(seed)
        told.story = Hashed(digest)
        try:
            told.play()
        except Failure as failure:
            digest.update(str(failure).encode())
    return f"seeds {seeds.start:05}", digest.hexdigest()


def histories(count: int, jobs: int) -> Iterator[Pin]:
    """Digests of the first `count` seeds."""
    chunks = [range(start, start + CHUNK) for start in range(0, count, CHUNK)]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(play, chunks)


def differences(found: dict[str, str], known: dict[str, str]) -> list[str]:
    """Names whose digests differ from the pins, and pins of what is gone; fewer seeds may be played
    than are pinned."""
    gone = [name for name in known if name not in found and not name.startswith("seeds ")]
    return [name for name, digest in found.items() if known.get(name) != digest] + gone


def main() -> int:
    """0 if all digests are those of the pins, 1 if some differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.pins", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="seeds to play")
    parser.add_argument("--jobs", type=int, default=1, help="processes that play them")
    parser.add_argument("--write", action="store_true", help="write the digests as the pins")
    given = parser.parse_args()
    found = dict([*stories(), *commands(), *journal(), *histories(given.seeds, given.jobs)])
    if given.write:
        lines = [f"{name} {digest}\n" for name, digest in found.items()]
        PINS.write_text("".join(lines), "utf-8")
        return 0
    known = dict(line.rsplit(" ", 1) for line in PINS.read_text("utf-8").splitlines())
    different = differences(found, known)
    print(f"{len(found)} digests, {len(different)} of them not those of {PINS.name}")
    print("\n".join(different))
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
