"""Fetches the jars that Python packages do not carry: Spark's Kafka connector and the broker.

Before a session or an embedded broker starts, `ensure` makes sure that every jar of a set, pinned
by checksum in jars.lock, lies in the user's cache. Downloads run through the Ivy inside the PySpark
package, one Java process per set; `python -m streaming.runtime [SET…]` fetches ahead of time.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, get_args
from xml.sax.saxutils import quoteattr

from streaming.errors import StreamingError
from streaming.runtime.directories import cache_dir
from streaming.runtime.java import Java, find_java, write_trust_store

JarSet = Literal["connector", "broker"]

# Both sets together take 10 s on a usual line; this is for a slow one, after which something hangs.
FETCH_TIMEOUT_SECONDS = 900
# A repository that cannot be reached should be told in seconds, not after TCP's own minutes.
CONNECT_TIMEOUT_MS = 10_000
READ_TIMEOUT_MS = 60_000

# The repository is Ivy's default, Maven Central. POMs are not read: the list is complete, and
# Spark's name parents that are elsewhere. Ivy's checksums only double the requests; ours decide.
_IVY_SETTINGS = f"""<ivysettings>
  <property name="ivy.checksums" value=""/>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="patience" connectionTimeout="{CONNECT_TIMEOUT_MS}"
                        readTimeout="{READ_TIMEOUT_MS}"/>
  </timeout-constraints>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="false" timeoutConstraint="patience"/>
  </resolvers>
</ivysettings>
"""


class JarsUnavailable(StreamingError):
    """Jars could not be had or are not the pinned ones; the message names them and the ways out."""


@dataclass(frozen=True, slots=True)
class Jar:
    """Holds one row of the lock: Maven coordinate `organisation:name:revision`, size, SHA-256 in
    hex."""

    coordinate: str
    size_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The file's name everywhere: `name-revision.jar`."""
        _, name, revision = self.coordinate.split(":")
        return f"{name}-{revision}.jar"


def jar_lock() -> dict[str, tuple[Jar, ...]]:
    """Return the pinned jars of each set, from `PLACER_JARS_LOCK` or the file beside this module.

    Raises JarsUnavailable if the file does not have the form of jars.lock.
    """
    import yaml

    chosen = os.environ.get("PLACER_JARS_LOCK")
    path = Path(chosen) if chosen else Path(__file__).with_name("jars.lock")
    try:
        sets = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {name: tuple(Jar(**row) for row in sets[name]) for name in get_args(JarSet)}
    except (OSError, yaml.YAMLError, TypeError, KeyError) as error:
        raise JarsUnavailable(f"The list of jars {path} cannot be read: {error}") from error


def ensure_jars(name: JarSet) -> list[Path]:
    """Return the jar files of a set, in the order of the lock, fetching them when they are missing.

    Checksums are compared once, before the files are put in place; later calls look at presence and
    size only. Safe to run in several processes at once. Raises JarsUnavailable.
    """
    jars = jar_lock()[name]
    directory = _directory(name, jars)
    if not _is_complete(directory, jars):
        with _lock(directory.parent):
            if not _is_complete(directory, jars):
                _put_in_place(name, jars, directory)
    return [directory / jar.file_name for jar in jars]


def has_jars(name: JarSet) -> bool:
    """Return whether the jars of a set are in the cache, so that `ensure` fetches nothing."""
    jars = jar_lock()[name]
    return _is_complete(_directory(name, jars), jars)


def _directory(name: str, jars: Sequence[Jar]) -> Path:
    """Name the directory by its content, so that another lock never meets the files of this one."""
    content = "\n".join(f"{jar.coordinate} {jar.sha256}" for jar in jars)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return cache_dir() / "jars" / f"{name}-{digest}"


def _is_complete(directory: Path, jars: Sequence[Jar]) -> bool:
    try:
        return all((directory / jar.file_name).stat().st_size == jar.size_bytes for jar in jars)
    except FileNotFoundError:
        return False


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Hold the lock that lets one process at a time fetch; the system drops it if we die."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / ".lock").open("w")
    except OSError as error:
        raise JarsUnavailable(
            f"The jar cache {directory} cannot be written: {error.strerror}. "
            "Name another place with PLACER_CACHE_DIR."
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _put_in_place(name: JarSet, jars: Sequence[Jar], directory: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=directory.parent) as work_name:
        work = Path(work_name)
        fetched = work / "jars"
        fetched.mkdir()
        own = os.environ.get("PLACER_JARS_DIR")
        if own:
            _copy(name, jars, Path(own), fetched)
        else:
            _download(name, jars, work, fetched)
        _verify(name, jars, fetched, source=own or "the repository")
        if directory.exists():  # damaged, or it would have been in place
            shutil.rmtree(directory)
        fetched.rename(directory)


def _copy(name: str, jars: Sequence[Jar], source: Path, target: Path) -> None:
    missing = [jar for jar in jars if not (source / jar.file_name).is_file()]
    if missing:
        raise JarsUnavailable(
            f"PLACER_JARS_DIR={source} lacks {len(missing)} of the {len(jars)} jars of the {name}: "
            + ", ".join(jar.file_name for jar in missing)
            + ". Add them, or unset PLACER_JARS_DIR to download them."
        )
    for jar in jars:
        shutil.copyfile(source / jar.file_name, target / jar.file_name)


def _verify(name: str, jars: Sequence[Jar], directory: Path, source: str) -> None:
    for jar in jars:
        with (directory / jar.file_name).open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != jar.sha256:
            raise JarsUnavailable(
                f"{jar.coordinate} (of the {name}) from {source} is not the pinned file: its "
                f"SHA-256 is {actual}, not {jar.sha256}. Nothing was installed. A mirror or proxy "
                "may have changed it or answered with a page; try another source with "
                "PLACER_IVY_SETTINGS or PLACER_JARS_DIR."
            )


def _download(name: str, jars: Sequence[Jar], work: Path, target: Path) -> None:
    """Run Ivy once for all jars, with a home and a cache that are empty and end with the run.

    An own empty home because entries of `~/.m2` that are only POMs make Ivy fail.
    """
    module = work / "ivy.xml"
    module.write_text(_module_xml(jars), encoding="utf-8")
    chosen = os.environ.get("PLACER_IVY_SETTINGS")
    settings = Path(chosen) if chosen else work / "ivysettings.xml"
    if not chosen:
        settings.write_text(_IVY_SETTINGS, encoding="utf-8")
    runtime = find_java()
    command = [
        str(runtime.executable),
        *_trust_options(runtime, work / "authorities.jks"),
        f"-Duser.home={work / 'home'}",
        *("-jar", str(_ivy_jar())),
        *("-settings", str(settings), "-ivy", str(module), "-cache", str(work / "cache")),
        *("-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", str(target / "[artifact]-[revision].[ext]")),
    ]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=FETCH_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _make_fetch_failure(name, jars, f"no end after {FETCH_TIMEOUT_SECONDS} s") from error
    missing = [jar for jar in jars if not (target / jar.file_name).is_file()]
    if done.returncode != 0 or missing:
        raise _make_fetch_failure(name, missing or jars, _ivy_reason(done.stdout))


def _trust_options(runtime: Java, store: Path) -> list[str]:
    given = "javax.net.ssl.trustStore" in os.environ.get("JAVA_TOOL_OPTIONS", "")
    if given or not runtime.bundled or not write_trust_store(store):
        return []
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]


def _ivy_jar() -> Path:
    """Find the Ivy jar without importing PySpark, which takes a second."""
    package = find_spec("pyspark")
    if package is None or package.origin is None:
        raise JarsUnavailable(
            "jars are fetched by the Ivy of PySpark, which is not installed here; install it with: "
            "pip install 'placement-reconciler[reconciler]'"
        )
    return next((Path(package.origin).parent / "jars").glob("ivy-*.jar"))


def _module_xml(jars: Sequence[Jar]) -> str:
    rows = []
    for jar in jars:
        organisation, name, revision = map(quoteattr, jar.coordinate.split(":"))
        rows.append(
            f"<dependency org={organisation} name={name} rev={revision} "
            'transitive="false" conf="default->default"/>'
        )
    return (
        '<ivy-module version="2.0"><info organisation="placer" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(rows)}</dependencies></ivy-module>"
    )


def _ivy_reason(output: str) -> str:
    """Return the one line of Ivy's report that tells why, the cause before its consequences."""
    for sign in (
        r"Host \S+ not found",
        r"Server access error .*",
        r"\S+: not found",
        r"\S*Exception.*",
    ):
        found = re.search(sign, output)
        if found:
            return found.group(0)[:300]
    return " ".join(output.split())[-300:] or "no output"


def _make_fetch_failure(name: str, missing: Sequence[Jar], reason: str) -> JarsUnavailable:
    names = ", ".join(jar.coordinate for jar in missing[:4])
    more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
    return JarsUnavailable(
        f"{len(missing)} jars of the {name} could not be fetched: {names}{more} ({reason}). "
        'Behind a proxy set JAVA_TOOL_OPTIONS="-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT"; '
        "for a mirror set PLACER_IVY_SETTINGS to an Ivy settings file; without a network put the "
        "files (named name-version.jar) into a directory and set PLACER_JARS_DIR to it."
    )


def main(names: Sequence[str]) -> int:
    """Fetch the named sets, or all, with a line about each; 0, else the code of what failed."""
    unknown = set(names) - set(get_args(JarSet))
    if unknown:
        print(f"no set of jars: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    for name in get_args(JarSet):
        if names and name not in names:
            continue
        print(f"{name} jars: ", end="", flush=True)
        started = time.monotonic()
        try:
            files = ensure_jars(name)
        except StreamingError as error:
            print("not available")
            print(error, file=sys.stderr)
            return error.exit_code
        megabytes = sum(file.stat().st_size for file in files) / 1e6
        took_seconds = time.monotonic() - started
        print(f"{len(files)} files, {megabytes:.1f} MB in {files[0].parent} ({took_seconds:.1f} s)")
    return 0
