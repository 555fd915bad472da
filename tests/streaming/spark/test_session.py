"""Goal: an idle application is small: JVMs with small heaps, a Spark that forgets what it did. A
JVM that is gone is named, and leaves nothing behind.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from streaming.runtime import broker_process, java
from streaming.spark.session import spark_options

MIB = 2**20


def session_options() -> dict[str, str]:
    return spark_options(1, "512m", Path("/scratch"))


def flags_of(options: list[str]) -> dict[str, str]:
    """What a JVM makes of its options."""
    command = [str(java.find_java().executable), *options, "-XX:+PrintFlagsFinal", "-version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"(\w+) += (\S+)", shown))


@pytest.mark.parametrize(
    ("jvm", "heap", "young", "free"),
    [("session", 128, 64, "40"), ("broker", 32, 8, "30")],
    ids=["session", "broker"],
)
def test_a_jvm_starts_small_and_gives_back(jvm: str, heap: int, young: int, free: str) -> None:
    options = {
        "session": shlex.split(session_options()["spark.driver.extraJavaOptions"]),
        "broker": list(broker_process._JAVA_OPTIONS),
    }
    flags = flags_of(options[jvm])
    assert int(flags["InitialHeapSize"]) == int(flags["MinHeapSize"]) == heap * MIB
    assert int(flags["MaxNewSize"]) == young * MIB
    assert (flags["MaxHeapFreeRatio"], flags["UseSerialGC"]) == (free, "true")


def test_spark_keeps_no_history_for_an_interface_that_it_does_not_have() -> None:
    options = session_options()
    assert options["spark.ui.enabled"] == "false"
    kept = ("ui.retainedJobs", "ui.retainedStages", "ui.retainedTasks", "sql.ui.retainedExecutions")
    assert all(int(options[f"spark.{name}"]) <= 20 for name in kept)


# A process of its own: it can have one session.
OF_A_JVM_THAT_IS_KILLED = """
import sys
from pathlib import Path
from streaming.spark import QueryFailed, StartingSession, check_session, close_session

spark = StartingSession(1, "512m", {}, Path(sys.argv[1])).finish()
check_session(spark)
process = spark.sparkContext._gateway.proc
process.kill()
process.wait()
try:
    check_session(spark)
except QueryFailed as error:
    print(error)
close_session(spark)
"""


def test_a_jvm_that_was_killed_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OF_A_JVM_THAT_IS_KILLED, str(tmp_path / "scratch")]
    there = {**os.environ, "TMPDIR": str(tmp_path)}
    ended = subprocess.run(
        command, env=there, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == (
        "the JVM of Spark has ended with exit code -9: it was killed, as the system does where "
        "memory is short; see spark.log\n"
    )
    assert [path for path in tmp_path.iterdir() if path.name.startswith("placer-jvm")] == []
