"""Kafka's own command-line tools, run as their scripts run them: a Java class against brokers."""

import os
import re
import subprocess
from pathlib import Path
from unittest.mock import patch

from streaming.runtime import jars, java

LOCK = Path(__file__).with_name("kafka-tools.lock")
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
# Each run starts a JVM, which takes two seconds where nothing else runs.
PATIENCE_SECONDS = 120


def run_tool(tool: str, bootstrap: str, *words: str) -> str:
    """Run a tool and return its output. Fails the test where the tool fails."""
    classes = jars.ensure_jars("broker")
    with patch.dict(os.environ, PLACER_JARS_LOCK=str(LOCK)):
        classes = [*classes, *jars.ensure_jars("broker")]
    path = ":".join(map(str, classes))
    command = [str(java.find_java().executable), "-cp", path, tool]
    done = subprocess.run(
        [*command, "--bootstrap-server", bootstrap, *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def printed_reassignments(said: str) -> list[str]:
    """The reassignments that the tool prints, each on a line of its own."""
    return re.findall(r"^\{.*\}$", said, re.MULTILINE)
