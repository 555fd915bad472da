"""What differs where Spark's executors are processes of a cluster, on machines of their own.

They get the jars, and the archive that `placer package` makes, from the application, and share with
the driver nothing but the network and the file system of the checkpoint. The driver runs here
(client mode): it plans and commits, and there is one of it.
"""

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from streaming.errors import SettingsInvalid
from streaming.settings import URI

# Under this name an executor finds the archive in its working directory.
ENVIRONMENT = "environment"
_PYTHON = f"./{ENVIRONMENT}/bin/python"
_ARCHIVES, _EXECUTOR_PYTHON = "spark.archives", "spark.pyspark.python"
# Comma-separated paths of this machine, or URIs.
_PATHS = (_ARCHIVES, "spark.jars", "spark.files", "spark.submit.pyFiles")
# Of one executor's Python workers and its JVM; the directory that YARN gives a container has a name
# that is too long for a socket.
_SOCKET_DIR = "/tmp"
# An executor that says nothing, as its machine is gone, paused or cut off, is given up after this
# time; Spark's own 120 s, looked at once a minute, made decisions wait for 139 s. Long enough for a
# full collection on a busy machine: whoever is given up without need costs a batch and a new start.
_SILENT_SECONDS = 15
# So often it is looked at, and an executor says that it is there.
_LOOK_SECONDS = 3
# What a batch exchanges between executors is small: one that does not answer a fetch at once is
# lost. Spark's own 3 tries with 5 s between them made each exchange of a batch wait for 15 s.
_FETCH_TRIES, _FETCH_PAUSE_SECONDS = 1, 1


def is_cluster(master: str) -> bool:
    """Whether executors are processes of their own, by Spark's name of the master."""
    return not re.match(r"local($|\[)", master)


def cluster_options(malloc_pools: str) -> dict[str, str]:
    """Settings of a session on a cluster, where those of one machine do not serve. What is not
    among them, such as the driver's address and the writer of checkpoint files, Spark chooses by
    machine and file system."""
    return {
        "spark.submit.deployMode": "client",
        "spark.python.unix.domain.socket.dir": _SOCKET_DIR,
        "spark.executorEnv.MALLOC_ARENA_MAX": malloc_pools,
        "spark.executor.heartbeatInterval": f"{_LOOK_SECONDS}s",
        "spark.network.timeoutInterval": f"{_LOOK_SECONDS}s",
        "spark.storage.blockManagerHeartbeatTimeoutMs": f"{_SILENT_SECONDS}s",
        "spark.shuffle.io.connectionTimeout": f"{_SILENT_SECONDS}s",
        "spark.shuffle.io.maxRetries": str(_FETCH_TRIES),
        "spark.shuffle.io.retryWait": f"{_FETCH_PAUSE_SECONDS}s",
    }


def find_executor_python(chosen: Mapping[str, str]) -> str:
    """The Python of executors, from the settings of the session: what is named there, else that of
    the archive. Raises SettingsInvalid where executors would have neither."""
    given = chosen.get(_EXECUTOR_PYTHON)
    if given:
        return given
    archives = chosen.get(_ARCHIVES, "").split(",")
    if any(archive.endswith(f"#{ENVIRONMENT}") for archive in archives):
        return _PYTHON
    problem = (
        f"spark.options: {chosen['spark.master']} is a cluster, and its executors have neither our "
        f"code nor its environment. Make an archive with `placer package FILE` and set {_ARCHIVES} "
        f"to FILE#{ENVIRONMENT}; or, where the executors' image has all of it, set "
        f"{_EXECUTOR_PYTHON} to the Python there"
    )
    raise SettingsInvalid([problem])


def check_place(master: str, checkpoint: Path | str) -> None:
    """Raise SettingsInvalid for a checkpoint that only this machine has."""
    if isinstance(checkpoint, Path):
        problem = (
            f"checkpoint: {checkpoint} is a directory of this machine, and the executors of "
            f"{master} keep their state there. Name a directory on a file system that driver and "
            "executors share, by its URI: hdfs://…, s3a://…, or file:///… for a directory that is "
            "mounted on all of them"
        )
        raise SettingsInvalid([problem])


def resolve_paths(chosen: Mapping[str, str]) -> dict[str, str]:
    """The settings with absolute paths: the JVM has a working directory of its own."""
    return {
        name: ",".join(map(_resolve, filter(None, value.split(",")))) if name in _PATHS else value
        for name, value in chosen.items()
    }


def _resolve(path: str) -> str:
    return path if URI.match(path) else str(Path(path).absolute())


def make_working_directory(place: Path, python: str) -> Path:
    """Make the working directory of the driver's JVM; it gives the executors' Python, if its path
    is relative, to the driver as well.

    Spark starts a Python worker on the driver too, to ask a stateful operator for its state's
    schema, and by the path that executors know.
    """
    directory = place / "driver"
    directory.mkdir()
    if not Path(python).is_absolute() and "/" in python:
        command = directory / python
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        command.chmod(0o755)
    return directory
