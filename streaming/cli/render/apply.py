"""Shows on standard error how far `placer kafka apply` is: a bar on a terminal, else lines."""

import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from placement.wording import format_bytes
from streaming.cli.render.console import tell, text_console
from streaming.cli.times import duration_text

if TYPE_CHECKING:
    from rich.progress import TaskID

    from streaming.kafka_bridge import Progress

# In a log file a line every so often is enough.
_LINE_INTERVAL_SECONDS = 10.0


class ApplyScreen:
    """The `Surroundings` of an executor in a terminal: shows progress and hears of a stop."""

    def __init__(self, stop: threading.Event) -> None:
        from rich.progress import BarColumn, DownloadColumn, TextColumn
        from rich.progress import Progress as Bar

        console = text_console(stderr=True)
        self._stop = stop
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._first: tuple[float, Progress] | None = None
        self._printed: tuple[float, str] | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def now_ms(self) -> int:
        """See Surroundings."""
        return int(time.time() * 1000)

    def pause(self, seconds: float) -> None:
        """See Surroundings."""
        # A stop ends the wait once; calling off is looked at a few times a second then.
        if self._stop.is_set():
            threading.Event().wait(seconds / 4)
        else:
            self._stop.wait(seconds)

    def is_stopping(self) -> bool:
        """See Surroundings."""
        return self._stop.is_set()

    def tell(self, message: str) -> None:
        """See Surroundings."""
        if self._bar.disable:
            tell(message)
        else:
            self._bar.console.print(f"placer: {message}", markup=False)

    def show(self, progress: "Progress") -> None:
        """See Surroundings."""
        from streaming.kafka_bridge import seconds_left

        now = time.monotonic()
        first = self._first = self._first or (now, progress)
        left = seconds_left(first[1], progress, now - first[0])
        wave = f"wave {progress.wave} of {progress.waves}"
        partitions = f"{progress.partitions_done} of {progress.partitions} partitions"
        said = "" if left is None else f"about {duration_text(left)} left"
        if self._bar.disable:
            self._print(now, wave, partitions, progress, said)
            return
        if self._task is None:
            self._task = self._bar.add_task("", left="")
        self._bar.update(
            self._task,
            description=f"{wave}: {partitions}",
            completed=progress.bytes_done,
            total=progress.bytes_total,
            left=said,
        )

    def _print(
        self, now: float, wave: str, partitions: str, progress: "Progress", left: str
    ) -> None:
        # Each wave has a line at its beginning and its end.
        stage = f"{wave}: {progress.partitions_done == progress.partitions}"
        printed = self._printed
        if printed and printed[1] == stage and now - printed[0] < _LINE_INTERVAL_SECONDS:
            return
        self._printed = (now, stage)
        copied = (
            f"{format_bytes(progress.bytes_done)} of {format_bytes(progress.bytes_total)} copied"
        )
        tell(", ".join(filter(None, (f"{wave}: {partitions}", copied, left))))
