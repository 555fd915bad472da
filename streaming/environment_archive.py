"""Makes the archive that Spark's executors on a cluster get: our code, its packages and a Python.

`placer package FILE.tar.gz`, then `spark.archives: FILE.tar.gz#environment`. An executor unpacks it
in its working directory and needs nothing but the C library of its system. It runs wherever it is
unpacked: a virtual environment would lead to the Python that it was made from.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import cache_from_source
from pathlib import Path, PurePosixPath

from streaming.errors import StreamingError

SUFFIXES = (".tar.gz", ".tgz")
# What the workers' daemon imports; everything else that is installed is the driver's alone.
ROOTS = ("numpy", "orjson", "pandas", "protobuf", "pyarrow", "pydantic", "pyspark")
_OURS = ("placement", "schemas", "streaming")
# The jars come with the executors' Spark.
_LEFT_OUT = re.compile(
    r"(^|/)(\.\.|tests?|__pycache__)/"
    r"|^pyspark/(bin|data|examples|jars|licenses|pandas|pipelines|python|R|sbin)/"
    r"|^pyarrow/(include|src)/"
)
# Parts of Python that need a screen, a compiler or the internet, and its own tests.
_STDLIB_LEFT_OUT = (
    *("config-*", "dist-packages", "ensurepip", "idlelib", "lib2to3", "site-packages", "test"),
    *("tests", "tkinter", "turtledemo", "__pycache__"),
)
# Half the time of the best compression, and a tenth larger.
_COMPRESSION = 3
_TRY_TIMEOUT_SECONDS = 120.0
# Everything that is imported, and every library that is mapped, comes from the archive.
_TRY = """
import sys
from pathlib import Path
import streaming.worker_daemon
root = Path(sys.argv[1]).resolve()
files = {m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)}
maps = Path("/proc/self/maps")
if maps.exists():
    mapped = {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines()}
    files |= {each for each in mapped if "/libpython" in each}
for each in sorted(files):
    if not Path(each).resolve().is_relative_to(root):
        print(each)
"""


class PackagingFailed(StreamingError):
    """The archive cannot be made, or does not run; the message says why."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Describes the archive: `size_bytes` of the file, the distributions inside with versions."""

    file: Path
    size_bytes: int
    distributions: tuple[str, ...]


def make_environment_archive(file: Path) -> Packed:
    """Make the archive, after its content has been tried in another place with an empty
    environment. Raises PackagingFailed; an older `file` stays then."""
    if not file.name.endswith(SUFFIXES):
        raise PackagingFailed(
            f"{file}: Spark unpacks an archive by the end of its name; call it "
            f"{file.name.split('.')[0] or 'environment'}.tar.gz"
        )
    try:
        with tempfile.TemporaryDirectory(prefix="placer-package-") as place:
            root = Path(place) / "environment"
            found = list_distributions()
            _write_interpreter(root)
            for each in found:
                _copy_distribution(each, root / "packages")
            _copy_ours(root / "packages")
            _try(root)
            _write_archive(root, file)
    except OSError as error:
        where = error.filename or file
        raise PackagingFailed(f"{where}: {error.strerror}; free space or name another file") from (
            error
        )
    names = tuple(f"{each.name} {each.version}" for each in found)
    return Packed(file, file.stat().st_size, names)


def list_distributions() -> list[Distribution]:
    """The distributions that executors need, by name: `ROOTS` and what they require here."""
    found: dict[str, Distribution] = {}
    waiting = list(ROOTS)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError as error:
            if name in ROOTS:
                raise PackagingFailed(
                    f"the package {name} is not installed here, and executors need it; "
                    "install placement-reconciler with its dependencies, and try again"
                ) from error
            # Required on another system or another Python.
            continue
        waiting += _required(found[name])
    return [found[name] for name in sorted(found)]


def _required(of: Distribution) -> Iterator[str]:
    """Yield what a distribution requires, without its optional parts."""
    for line in of.requires or ():
        name, _, marker = line.partition(";")
        if "extra" not in marker:
            named = re.match(r"[\w.-]+", name)
            assert named is not None, line
            yield named[0]


def _write_interpreter(root: Path) -> None:
    """Copy the Python that runs this, and put a command before it that finds all from its place."""
    base, version = Path(sys.base_prefix), f"python3.{sys.version_info.minor}"
    stdlib = Path(sysconfig.get_path("stdlib", vars={"installed_base": str(base)}))
    ignored = shutil.ignore_patterns(*_STDLIB_LEFT_OUT)
    shutil.copytree(stdlib, root / stdlib.relative_to(base), ignore=ignored)
    for source in stdlib.rglob("*.py"):
        copied = root / source.relative_to(base)
        if copied.exists():
            _copy_compiled(source, copied)
    (root / "bin").mkdir()
    # A virtual environment's own command is a link to it.
    shutil.copy2(Path(sys.executable).resolve(), root / "bin" / version)
    library = sysconfig.get_config_var("INSTSONAME")
    if sysconfig.get_config_var("Py_ENABLE_SHARED") and library:
        (root / "lib").mkdir(exist_ok=True)
        shutil.copy2(Path(sysconfig.get_config_var("LIBDIR")) / library, root / "lib" / library)
    command = root / "bin" / "python"
    command.write_text(
        "#!/bin/sh\n"
        "# Runs the Python beside it, with its packages, wherever all of this was unpacked.\n"
        'root=$(cd "$(dirname "$0")/.." && pwd -P) || exit 127\n'
        'export LD_LIBRARY_PATH="$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"\n'
        'export PYTHONPATH="$root/packages${PYTHONPATH:+:$PYTHONPATH}" PYTHONNOUSERSITE=1\n'
        f'exec "$root/bin/{version}" "$@"\n'
    )
    command.chmod(0o755)


def _copy_distribution(each: Distribution, packages: Path) -> None:
    for name in each.files or ():
        if _LEFT_OUT.search(PurePosixPath(name).as_posix()):
            continue
        source, target = Path(str(each.locate_file(name))), packages / name
        # What a later distribution has overwritten, or its owner has removed.
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            _copy_compiled(source, target)


def _copy_ours(packages: Path) -> None:
    root, ignored = Path(__file__).parents[1], shutil.ignore_patterns("__pycache__")
    for name in _OURS:
        shutil.copytree(root / name, packages / name, ignore=ignored)


def _copy_compiled(source: Path, target: Path) -> None:
    """Take what Python has compiled along, which otherwise each executor does anew."""
    if source.suffix == ".py":
        compiled = Path(cache_from_source(str(source)))
        if compiled.is_file():
            beside = Path(cache_from_source(str(target)))
            beside.parent.mkdir(exist_ok=True)
            shutil.copy2(compiled, beside)


def _try(root: Path) -> None:
    """Start the workers' daemon from the tree, as far as its imports."""
    command = [str(root / "bin" / "python"), "-c", _TRY, str(root)]
    try:
        done = subprocess.run(
            command,
            cwd=root.parent,
            env={"PATH": os.defpath},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TRY_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PackagingFailed(
            f"the environment does not start within {_TRY_TIMEOUT_SECONDS:g} s; try again on a "
            "machine that is less busy"
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise PackagingFailed(
            f"the environment does not run in another place: {last}. Install placement-reconciler "
            f"with a Python that can be moved ({sys.base_prefix} cannot), and try again"
        )
    outside = done.stdout.split()
    if outside:
        raise PackagingFailed(
            f"the environment takes {outside[0]} from this machine, which executors may not have. "
            "Install placement-reconciler with another Python, and try again"
        )


def _write_archive(root: Path, file: Path) -> None:
    """Write all of it under its name at once; owners and their names are not kept."""

    def forget_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with tarfile.open(beside, "w:gz", compresslevel=_COMPRESSION) as archive:
            for each in sorted(root.iterdir()):
                archive.add(each, each.name, filter=forget_owner)
        beside.rename(file)
    finally:
        beside.unlink(missing_ok=True)
