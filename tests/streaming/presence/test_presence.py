"""Who is active and who may take over, from the ticks in the log alone."""

import random
from dataclasses import dataclass, field

import pytest

from schemas.inputs import ACTIVE, CLAIMANT, STANDBY
from streaming.presence import Presence, TickSeen

PATIENCE = 5_000


def active(at: int, epoch: int = 1, name: str = "a") -> TickSeen:
    return TickSeen(at, ACTIVE, name, epoch)


def standby(at: int, name: str = "b", proven: int | None = 7) -> TickSeen:
    return TickSeen(at, STANDBY, name, 0, proven)


def claim(at: int, name: str = "b") -> TickSeen:
    return TickSeen(at, CLAIMANT, name, 0)


def follow(*ticks: TickSeen, name: str = "b", marker: dict[str, object] | None = None) -> Presence:
    presence = Presence(name, PATIENCE)
    presence.begin(marker)
    for tick in ticks:
        presence.take_tick(tick)
    return presence


def seconds(first: float, last: float, step: float = 1.0) -> list[int]:
    return [round(1000 * (first + i * step)) for i in range(round((last - first) / step) + 1)]


def test_a_broker_whose_clock_is_behind_does_not_stop_the_clock() -> None:
    minute = 60_000
    before = [active(minute), standby(minute)]
    # Another broker leads from here on, and the active one died with the one before.
    presence = follow(*before, *(standby(at) for at in seconds(0, 4)))
    assert not presence.is_due
    for at in seconds(5, 6):
        presence.take_tick(standby(at))
    assert presence.is_due


def test_nobody_was_ever_active() -> None:
    assert follow(standby(0)).is_due


def test_an_active_one_that_ticks_is_not_replaced() -> None:
    ticks = [each for at in seconds(0, 60) for each in (active(at), standby(at + 10))]
    presence = follow(*ticks)
    assert (presence.is_due, presence.active_instance, presence.active_epoch) == (False, "a", 1)


@pytest.mark.parametrize(("last", "due"), [(4.9, False), (5.0, True), (60, True)])
def test_silence_is_measured_between_ticks(last: float, due: bool) -> None:
    presence = follow(active(0), *map(standby, seconds(0, last, 0.1)))
    assert presence.is_due is due
    assert presence.silence_ms == round(last * 1000)


def test_a_stall_of_the_log_is_half_a_silence_at_most() -> None:
    presence = follow(active(0), standby(100), standby(60_000))
    assert (presence.silence_ms, presence.is_due) == (100 + PATIENCE // 2, False)
    presence.take_tick(active(60_010))
    assert presence.silence_ms == 0


def test_a_fenced_writer_that_goes_on_is_none() -> None:
    ticks = [each for at in seconds(0, 6) for each in (active(at, 3, "old"), standby(at))]
    assert follow(*ticks, marker={"writer_epoch": 4, "instance": "a"}).is_due


def test_a_marker_is_a_sign_of_life_and_a_released_one_the_end() -> None:
    presence = follow(active(0), *map(standby, seconds(0, 4)))
    presence.take_marker({"writer_epoch": 1})
    assert presence.silence_ms == 0
    presence.take_marker({"writer_epoch": 1, "released": True})
    presence.take_tick(active(4_100))
    assert presence.is_due, "ticks that were under way change nothing"
    presence.take_marker({"writer_epoch": 2, "instance": "c"})
    assert (presence.is_due, presence.active_instance) == (False, "c")


def test_what_was_released_before_the_start_is_taken_at_once() -> None:
    marker: dict[str, object] = {"writer_epoch": 2, "released": True}
    assert follow(standby(0), marker=marker).is_due
    assert not follow(active(0, 2), standby(1), marker={"writer_epoch": 2}).is_due


def test_whoever_handed_over_leaves_the_role_to_others() -> None:
    presence = Presence("a", PATIENCE)
    presence.begin({"writer_epoch": 1, "released": True})
    presence.take_tick(standby(0, "a"))
    presence.stand_back()
    for at in seconds(0.1, 4.9, 0.1):
        presence.take_tick(standby(at, "a"))
        assert not presence.is_due
    presence.take_tick(standby(5_000, "a"))
    assert presence.is_due, "nobody else has come"


def test_of_two_claims_the_first_in_the_log_wins() -> None:
    ticks = [active(0), *map(standby, seconds(0, 6)), claim(6_001, "c"), claim(6_002, "b")]
    first, second = follow(*ticks, name="c"), follow(*ticks, name="b")
    assert (first.take_claim(), first.take_claim()) == (True, False)
    assert not second.take_claim()
    assert not second.is_due, "it waits for what becomes of the other"


def test_a_claim_that_the_active_one_forestalls_is_void() -> None:
    ticks = [active(0), *map(standby, seconds(0, 6)), active(6_001), claim(6_002)]
    assert not follow(*ticks).take_claim()


def test_a_claimant_that_dies_is_replaced_in_its_turn() -> None:
    ticks = [active(0), *map(standby, seconds(0, 6)), claim(6_001, "c")]
    presence = follow(*ticks, *map(standby, seconds(6.5, 11)))
    assert not presence.is_due
    presence.take_tick(standby(11_001))
    assert presence.is_due


def test_a_tick_that_cannot_be_read_is_none() -> None:
    assert TickSeen.parse(1, None) is None
    assert TickSeen.parse(1, {"role": "active"}) is None
    assert TickSeen.parse(1, {"writer_epoch": "x"}) is None
    of_older_version = TickSeen.parse(1, {"writer_epoch": 2, "number": 3})
    assert of_older_version == TickSeen(1, ACTIVE, "", 2)


@dataclass
class Process:
    """A process of the cell in a log that it reads late and in pieces."""

    name: str
    presence: Presence
    read: int = 0
    epoch: int = 0
    paused_until: int = 0
    claimed_at: int | None = None
    ticked: int = -PATIENCE
    alive: bool = True
    died: list[int] = field(default_factory=list)


class Cell:
    """Several processes over one log; the fencing is the number of the last writer epoch."""

    def __init__(self, seed: int, count: int) -> None:
        self.random = random.Random(seed)
        self.log: list[TickSeen] = []
        self.now, self.epoch = 0, 0
        self.wins: list[tuple[int, str]] = []
        self.processes = [self.start(f"p{i}") for i in range(count)]

    def start(self, name: str) -> Process:
        process = Process(name, Presence(name, PATIENCE))
        process.presence.begin({"writer_epoch": self.epoch} if self.epoch else None)
        self.log.append(TickSeen(self.now, STANDBY, name, 0))
        first = next((i for i, t in enumerate(self.log) if t.at >= self.now - 2 * PATIENCE), 0)
        for tick in self.log[first:]:
            process.presence.take_tick(tick)
        process.read = len(self.log)
        return process

    def step(self) -> None:
        self.now += self.random.randrange(1, 120)
        for process in self.random.sample(self.processes, len(self.processes)):
            if process.alive and self.now >= process.paused_until:
                self.run(process)

    def run(self, process: Process) -> None:
        if process.epoch:
            if process.epoch < self.epoch:
                process.alive = False  # its next commit is refused
            elif self.now - process.ticked >= 1_000:
                process.ticked = self.now
                self.log.append(TickSeen(self.now, ACTIVE, process.name, process.epoch))
            return
        upto = self.random.randrange(process.read, len(self.log) + 1)
        for place, tick in enumerate(self.log[process.read : upto], process.read):
            process.presence.take_tick(tick)
            if place == process.claimed_at:
                process.claimed_at = None
                if process.presence.take_claim():
                    self.epoch += 1
                    process.epoch = self.epoch
                    self.wins.append((place, process.name))
        process.read = max(upto, process.read)
        if process.epoch or process.claimed_at is not None:
            return
        if process.presence.is_due:
            process.claimed_at = len(self.log)
            self.log.append(TickSeen(self.now, CLAIMANT, process.name, 0))
        elif self.now - process.ticked >= 500:
            process.ticked = self.now
            self.log.append(TickSeen(self.now, STANDBY, process.name, 0))

    @property
    def writer(self) -> Process | None:
        return next((p for p in self.processes if p.alive and p.epoch == self.epoch > 0), None)


@pytest.mark.parametrize("seed", range(40))
def test_nobody_takes_over_without_need_and_somebody_always_does(seed: int) -> None:
    cell = Cell(seed, count=2 + seed % 3)
    silent_since = 0
    for _ in range(3_000):
        cell.step()
        writer, chance = cell.writer, cell.random.random()
        working = writer is not None and cell.now >= writer.paused_until
        if writer is not None and chance < 0.002:
            writer.alive = False
        elif writer is not None and chance < 0.004:
            writer.paused_until = cell.now + cell.random.randrange(500, 20_000)
        cell.processes = [
            each if each.alive else cell.start(f"{each.name}'") for each in cell.processes
        ]
        silent_since = cell.now if working else silent_since
        assert cell.now - silent_since < 6 * PATIENCE, "somebody takes over"
    assert len(cell.wins) > 3
    for place, name in cell.wins[1:]:
        before = [t for t in cell.log[:place] if t.role == ACTIVE or t.role == CLAIMANT]
        quiet = cell.log[place].at - max(t.at for t in before if t.instance != name)
        assert quiet >= PATIENCE, "whoever was there had been silent"
