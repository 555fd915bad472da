"""What others move when a fleet changes: Kafka placing anew, Ceph's CRUSH with upmap.

Both on the fleet and the number of shards of `planning.py`; neither needs a cluster. One that is
not installed is left out, with a line that says how to get it.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from streaming.errors import StreamingError
from streaming.runtime import jars, java
from tests.benchmarks.peers import CRUSHTOOL, cpu_seconds, run
from tests.benchmarks.placing import REPLICATION_FACTOR, SHARDS
from tests.benchmarks.planning import JOINS, RACKS, SMALL_REPLICAS, Moved, losses, racked
from tests.benchmarks.processes import BenchmarkFailed

ANEW = Path(__file__).with_name("PlacedAnew.java")
OSDMAPTOOL = "osdmaptool"
# Changes of one placement group each; more than there are.
CHANGES_MAX = 10_000_000


def kafka(nodes: int) -> Iterator[Moved | str]:
    """Kafka's placer with every topic placed from nothing, as its `--generate` does. That tool has
    an older class for the same round robin over racks, which the broker's jars do not hold."""
    try:
        runtime, classes = java.find_java(), jars.ensure_jars("broker")
    except StreamingError as error:
        yield str(error)
        return
    if "jdk.compiler" not in run([str(runtime.executable), "--list-modules"]):
        yield "the Java found has no compiler; name one that has: PLACER_JAVA_HOME (a JDK)"
        return
    command = [str(runtime.executable), "-cp", ":".join(map(str, classes)), str(ANEW)]
    replicas = nodes * SMALL_REPLICAS
    counts = (replicas // REPLICATION_FACTOR, SHARDS, REPLICATION_FACTOR)
    for what, gone in {JOINS: [], **losses(nodes)}.items():
        locations = racked(nodes + (what == JOINS)).locations
        when = ["before" if n in gone else "always" for n in range(nodes)] + ["after"]
        told = "".join(f"{rack} {at}\n" for rack, at in zip(locations, when, strict=False))
        answer = run([*command, *map(str, counts)], told)
        moved, seconds = _number(answer, "moved"), _number(answer, "seconds")
        bound = int(_number(answer, "left")) or replicas // (nodes + 1)
        yield Moved(what, nodes, replicas, int(moved), bound, seconds)


def ceph(nodes: int) -> Iterator[Moved | str]:
    """CRUSH with every placement group put where `osdmaptool --upmap` wants it, at a deviation of
    one; then a device joins the first rack, or it, its rack or two racks (a zone's) are taken out,
    and upmap is asked again. Counted are replicas on devices that did not hold their group, timed
    is the second upmap."""
    for tool in (CRUSHTOOL, OSDMAPTOOL):
        if shutil.which(tool) is None:
            yield f"{tool} is not installed: apt-get install ceph-base (Debian, Ubuntu)"
            return
    try:
        yield from _ceph(nodes)
    except subprocess.TimeoutExpired as expired:
        tool, patience = expired.cmd[0], expired.timeout
        yield f"{nodes} devices: {tool} has not come to an end after {patience:.0f} s"


def _ceph(nodes: int) -> Iterator[Moved]:
    with TemporaryDirectory(prefix="placer-upmap-") as scratch:
        place = Path(scratch)
        crush, begun, now = (str(place / name) for name in ("crush", "begun", "now"))
        layers = ["rack", "straw2", str(nodes // RACKS), "root", "straw2", "0"]
        run([CRUSHTOOL, "--outfn", crush, "--build", "--num_osds", str(nodes), *layers])
        rule = ["--create-replicated-rule", "spread", "root", "rack"]
        run([CRUSHTOOL, "-i", crush, "--outfn", crush, *rule])
        bits = str((SMALL_REPLICAS // REPLICATION_FACTOR).bit_length() - 1)
        simple = ["--createsimple", str(nodes + 1), begun, "--with-default-pool", "--pg-bits", bits]
        run([OSDMAPTOOL, *simple])
        _balanced(begun, crush)
        before = _groups(begun)
        replicas = len(before) * REPLICATION_FACTOR
        changed = str(place / "changed")
        for what, gone in {JOINS: [], **_first(nodes)}.items():
            shutil.copy(begun, now)
            shutil.copy(crush, changed)
            if what == JOINS:
                where = ["--loc", "rack", "rack0", "--loc", "root", "root"]
                item = ["--add-item", str(nodes), "1.0", f"osd.{nodes}", *where]
                run([CRUSHTOOL, "-i", changed, "-o", changed, *item])
            for device in gone:
                run([CRUSHTOOL, "-i", changed, "-o", changed, "--remove-item", f"osd.{device}"])
            seconds = _balanced(now, changed)
            left = {str(device) for device in gone}
            bound = sum(len(held & left) for held in before.values()) or replicas // (nodes + 1)
            moved = sum(len(held - before[group]) for group, held in _groups(now).items())
            yield Moved(what, nodes, replicas, moved, bound, seconds)


def _first(nodes: int) -> dict[str, range]:
    """The devices of `losses`: here the first rack has the first ones."""
    return {what: range(len(gone)) for what, gone in losses(nodes).items()}


def _balanced(osd_map: str, crush: str) -> float:
    """Put a CRUSH map into force and balance; CPU time of the latter."""
    run([OSDMAPTOOL, osd_map, "--import-crush", crush])
    upmap = ["--upmap", f"{osd_map}.commands", "--upmap-max", str(CHANGES_MAX)]
    finely = ["--upmap-deviation", "1", "--save"]
    seconds, _ = cpu_seconds([OSDMAPTOOL, osd_map, "--mark-up-in", *upmap, *finely])
    return seconds


def _groups(osd_map: str) -> dict[str, set[str]]:
    """The devices of every placement group."""
    answer = run([OSDMAPTOOL, osd_map, "--mark-up-in", "--test-map-pgs-dump-all"])
    found = re.findall(r"^(\d+\.\w+) raw .*? up \(\[([\d,]*)\]", answer, re.MULTILINE)
    return {group: set(devices.split(",")) for group, devices in found}


def _number(answer: str, name: str) -> float:
    found: Sequence[str] = re.findall(rf"^{name} (\S+)$", answer, re.MULTILINE)
    if len(found) != 1:
        raise BenchmarkFailed(f"no {name} in:\n{answer[-1_000:]}")
    return float(found[0])
