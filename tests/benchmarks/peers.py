"""Other placers under the same conditions as ours: CRUSH in C, and Kafka's in its JVM.

Neither needs a cluster. One that is not installed is left out, with a line that says how to get it.
"""

import re
import resource
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile

import numpy as np

from streaming.errors import StreamingError
from streaming.runtime import jars, java
from tests.benchmarks.placing import LEVELS, REPLICATION_FACTOR, SHARDS, Extent, Placed, Tree
from tests.benchmarks.processes import BenchmarkFailed

# Of the slowest, `upmap` of a thousand devices: ten times what it takes.
PATIENCE_SECONDS = 1_200
CRUSHTOOL = "crushtool"
STRIPED = Path(__file__).with_name("StripedPlacement.java")
# Runs until the JVM has compiled what it will.
JVM_WARM_UP = 5


def crush(tree: Tree, extent: Extent) -> Placed | str:
    """Ceph's CRUSH: a replica in each of three regions, then down the tree to a device (`chooseleaf
    firstn`), as its tool maps numbers from 0 on. Starting the tool and reading the map, measured
    with one mapping, is taken off."""
    tool = shutil.which(CRUSHTOOL)
    if tool is None:
        return "crushtool is not installed: apt-get install ceph-base (Debian, Ubuntu)"
    with TemporaryDirectory(prefix="placer-crush-") as scratch:
        bare, ruled = str(Path(scratch) / "bare"), str(Path(scratch) / "ruled")
        layers = [text for name, many in tree.layers for text in (name, "straw2", str(many))]
        layers += ["root", "straw2", "0"]
        run([tool, "--outfn", bare, "--build", "--num_osds", str(tree.size), *layers])
        rule = ["--create-replicated-rule", "spread", "root", LEVELS[0]]
        run([tool, "-i", bare, "--outfn", ruled, *rule])
        test = [tool, "-i", ruled, "--test", "--rule", "0", "--num-rep", str(REPLICATION_FACTOR)]
        test += ["--show-utilization", "--min-x", "0", "--max-x"]
        start = min(cpu_seconds([*test, "0"])[0] for _ in range(extent.repeats))
        runs = [cpu_seconds([*test, str(extent.shards - 1)]) for _ in range(1 + extent.repeats)]
    load = np.zeros(tree.size, np.int64)
    for device, stored in re.findall(r"device (\d+):\s+stored : (\d+)", runs[-1][1]):
        load[int(device)] = int(stored)
    return Placed(extent, [spent - start for spent, _ in runs[1:]], _whole(load, extent))


def kafka(tree: Tree, extent: Extent) -> Placed | str:
    """Kafka's StripedReplicaPlacer with the whole path as the rack, a topic for each stream."""
    try:
        runtime, classes = java.find_java(), jars.ensure_jars("broker")
    except StreamingError as error:
        return str(error)
    if "jdk.compiler" not in run([str(runtime.executable), "--list-modules"]):
        return "the Java found has no compiler; name one that has: PLACER_JAVA_HOME (a JDK)"
    counts = (extent.streams, SHARDS, REPLICATION_FACTOR, JVM_WARM_UP + extent.repeats)
    command = [str(runtime.executable), "-cp", ":".join(map(str, classes)), str(STRIPED)]
    answer = run([*command, *map(str, counts)], "\n".join(tree.locations()) + "\n")
    seconds = [float(spent) for spent in re.findall(r"^seconds (\S+)$", answer, re.MULTILINE)]
    held = [int(load) for load in re.findall(r"^load (\d+)$", answer, re.MULTILINE)]
    warm = seconds[JVM_WARM_UP:]
    first = max(seconds[0] - float(np.median(warm)), 0.0)
    return Placed(extent, warm, _whole(np.asarray(held, np.int64), extent), first)


def _whole(load: np.ndarray, extent: Extent) -> np.ndarray:
    if load.sum() != extent.shards * REPLICATION_FACTOR:
        raise BenchmarkFailed(f"{load.sum()} replicas are placed of {extent.shards} shards")
    return load


def cpu_seconds(command: Sequence[str]) -> tuple[float, str]:
    """CPU time of a command that starts no other one, and its output."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = run(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, answer


def run(command: Sequence[str], given: str = "") -> str:
    """What a command says. It writes into a file: crushtool drops what a pipe does not take at
    once."""
    with TemporaryFile("w+", encoding="utf-8") as said:
        done = subprocess.run(
            command,
            input=given,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        said.seek(0)
        answer = said.read()
    if done.returncode:
        raise BenchmarkFailed(f"{command[0]} failed:\n{answer[-1_000:]}")
    return answer
