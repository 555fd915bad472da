"""Which part may import which: the tables are the map of each package, lowest parts first.

A part is a sub-package, or a module at the top of the package. Imports inside functions and for
types alone count as well. From outside a sub-package its `__init__` is the only door.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

PLACEMENT: Mapping[str, set[str]] = {
    # Values: names, records, the fleet, and what stands where as columns.
    "hashing": set(),
    "wording": set(),
    "model": set(),
    "replica_selector": {"model"},
    "topology": {"hashing", "model"},
    "assignments": {"topology"},
    # Inside the Spark operator, before anything is decided; and what is under way.
    "liveness": {"model"},
    "load_reports": {"model"},
    "moves": {"model", "assignments"},
    # From what a stream asks for to nodes.
    "rules": {"wording", "model", "topology", "assignments"},
    "policy": {"model", "topology", "rules"},
    "allocator": {"hashing", "model", "topology", "assignments", "rules", "policy"},
    "strategies": {
        *("hashing", "wording", "model", "topology", "assignments", "rules", "policy"),
        "allocator",
    },
    # Questions about an arrangement, whoever holds it.
    "diagnosis": {
        *("wording", "model", "topology", "assignments", "rules", "policy"),
        *("allocator", "strategies"),
    },
    "rebalance": {
        *("model", "topology", "assignments", "rules", "policy", "allocator"),
        "strategies",
    },
    # The state of record, and what is derived from it.
    "state": {
        *("hashing", "model", "topology", "assignments", "moves", "rules"),
        *("policy", "allocator", "strategies"),
    },
    "streams": {
        *("model", "topology", "assignments", "moves", "rules", "policy"),
        *("allocator", "strategies", "diagnosis", "rebalance", "state"),
    },
    "repair": {
        *("hashing", "wording", "model", "topology", "assignments", "moves"),
        *("rules", "policy", "allocator", "strategies", "diagnosis", "state"),
    },
    "planning": {
        *("hashing", "wording", "model", "topology", "assignments", "moves"),
        *("policy", "allocator", "diagnosis", "rebalance", "state", "repair"),
    },
    "nodes": {
        *("wording", "model", "topology", "assignments", "diagnosis", "state"),
        *("repair", "planning"),
    },
    # Events are carried out; the one entry point; questions of people.
    "controllers": {
        *("hashing", "wording", "model", "topology", "assignments", "moves"),
        *("policy", "allocator", "diagnosis", "rebalance", "state", "streams"),
        *("repair", "planning", "nodes"),
    },
    "reconciler": {"model", "state", "repair", "nodes", "controllers"},
    "explain": {
        *("wording", "model", "topology", "assignments", "rules", "policy", "allocator"),
        *("strategies", "state", "streams", "repair"),
    },
}
STREAMING: Mapping[str, set[str]] = {
    # Nothing beside it.
    "errors": set(),
    "environment_archive": {"errors"},
    "gc_pause": set(),
    "signals": set(),
    "codec": set(),
    # The surroundings.
    "runtime": {"errors"},
    "settings": {"errors"},
    "spark": {"errors", "runtime", "settings"},
    "observability": {"errors"},
    "locations": {"errors"},
    "brokers": {"errors", "settings"},
    "administration": {"errors", "settings", "brokers"},
    # The stream: input on workers, state, output, and what joins them.
    "ingest": {"codec"},
    "worker_daemon": {"ingest"},
    "presence": {"errors", "brokers"},
    "outbox": {"errors", "codec", "brokers"},
    "recovery": {"errors", "gc_pause", "codec", "brokers"},
    "pipeline": {
        *("errors", "gc_pause", "codec", "settings", "observability", "locations"),
        *("spark", "brokers", "administration", "presence", "ingest", "outbox", "recovery"),
    },
    "standby": {
        *("errors", "gc_pause", "codec", "brokers", "presence", "outbox", "recovery"),
    },
    "app": {
        *("errors", "settings", "observability", "locations", "administration", "brokers"),
        *("spark", "presence", "outbox", "recovery", "pipeline", "standby"),
    },
    "class_archive": {
        *("errors", "runtime", "settings", "spark", "administration", "presence", "pipeline"),
    },
    # Questions about the state, in a file or in topics; requests; the past.
    "offline": {"codec", "locations"},
    "live": {"errors", "codec", "settings", "brokers", "presence", "offline"},
    "sending": {"errors", "settings", "brokers"},
    "requests": {
        *("errors", "codec", "settings", "brokers", "presence", "outbox", "recovery", "live"),
        "sending",
    },
    "read_model": {
        *("errors", "gc_pause", "codec", "settings", "brokers", "offline", "live"),
    },
    "api": {
        *("errors", "settings", "observability", "presence", "live", "requests", "read_model"),
    },
    "replay": {
        *("errors", "codec", "settings", "brokers", "administration", "outbox", "recovery"),
    },
    "doctor": {
        *("errors", "runtime", "settings", "brokers", "administration", "outbox", "recovery"),
    },
    # A Kafka cluster as the system that is placed: knows neither the core nor the stream.
    "kafka_bridge": {"errors", "brokers", "administration"},
    # For the systems whose replicas are placed: knows the topics, and nothing of the stream.
    "client": {"errors", "signals", "brokers"},
    "conformance": {"errors", "brokers", "administration"},
    # A whole system on one machine.
    "simulator": {"errors", "settings", "brokers", "client"},
    "rerun": {"errors", "runtime", "brokers", "administration", "replay", "simulator"},
    "demo": {
        *("errors", "runtime", "settings", "brokers", "administration", "requests", "replay"),
        "simulator",
    },
    # Pages in a browser, on what the HTTP interface stands on.
    "console": {
        *("errors", "codec", "settings", "brokers", "offline", "live", "requests"),
        *("read_model", "api", "replay"),
    },
    # The command line has everything; see also test_screens_import_no_command.
    "cli": {
        *("errors", "codec", "runtime", "settings", "observability", "locations", "brokers"),
        *("administration", "recovery", "app", "offline", "live", "requests", "replay", "doctor"),
        *("kafka_bridge", "conformance", "simulator", "rerun", "demo", "standby", "presence"),
        *("spark", "environment_archive", "read_model", "api", "sending", "signals", "console"),
    },
}
TABLES = {"placement": PLACEMENT, "streaming": STREAMING}
# Packages of which one could import the other by its place in the table, and must not.
APART = (
    ("streams", "repair"),
    ("repair", "rebalance"),
    ("diagnosis", "rebalance"),
    ("diagnosis", "state"),
    ("liveness", "topology"),
)
# The demo needs a broker and the application: `tests/integration/test_demo.py`.
TESTED_ELSEWHERE = {"demo"}
# Its commands load one module each, so that `placer place` loads neither Kafka nor Spark.
OPEN = {"streaming.cli"}


@cache
def sources(package: str) -> Sequence[tuple[str, ast.Module]]:
    """The dotted name and the tree of every module."""
    found = []
    for path in sorted((ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found.append((name, ast.parse(path.read_text(encoding="utf-8"), name)))
    return found


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of every import of ours; no name where the module itself is imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


def part_of(package: str, module: str, name: str = "") -> str:
    """The part that a module or an imported name belongs to; the package's own `__init__` has
    none."""
    words = module.split(".")
    if len(words) > 1:
        return words[1]
    return name if name in TABLES[package] else ""


def edges(package: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield (importing module, its part, imported module, imported name) between parts."""
    for importer, tree in sources(package):
        own = part_of(package, importer)
        for module, name in imported(tree):
            if module.split(".")[0] != package:
                continue
            other = part_of(package, module, name)
            if other != own:
                yield importer, own, module, name


def door(package: str, part: str) -> set[str]:
    """The names that the sub-package offers."""
    path = ROOT / package / part / "__init__.py"
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


@pytest.mark.parametrize("package", TABLES)
def test_parts_import_only_what_their_row_allows(package: str) -> None:
    table = TABLES[package]
    found = {
        (own, part_of(package, module, name)): importer
        for importer, own, module, name in edges(package)
    }
    refused = [(who, *edge) for edge, who in found.items() if edge[1] not in table[edge[0]]]
    assert refused == []
    allowed = {(own, other) for own, row in table.items() for other in row}
    assert allowed - {*found} == set(), "the table allows what nobody needs"


@pytest.mark.parametrize("package", TABLES)
def test_the_table_is_complete_and_read_from_the_bottom(package: str) -> None:
    table = TABLES[package]
    there = {
        path.stem
        for path in (ROOT / package).iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert set(table) == there - {"__init__"}
    above: set[str] = set()
    for part, row in table.items():
        assert row <= above, f"{part} imports what stands below it in the table"
        above.add(part)


@pytest.mark.parametrize("package", TABLES)
def test_outsiders_come_through_the_door(package: str) -> None:
    around = []
    for importer, _, module, name in edges(package):
        part = part_of(package, module, name)
        if f"{package}.{part}" in OPEN or not (ROOT / package / part).is_dir():
            continue
        if module != package and not (
            module == f"{package}.{part}" and name in {"", *door(package, part)}
        ):
            around.append((importer, module, name))
    assert around == []


@pytest.mark.parametrize("package", TABLES)
def test_folders_of_tests_are_named_after_sub_packages(package: str) -> None:
    """Each folder holds tests or stories, so that the tests of a part are found by its name."""
    parts = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    files = [
        path
        for pattern in ("*/**/test_*.py", "*/testdata/*.txt")
        for path in (ROOT / "tests" / package).glob(pattern)
    ]
    folders = {path.relative_to(ROOT / "tests" / package).parts[0] for path in files}
    assert folders == parts - TESTED_ELSEWHERE


def test_screens_import_no_command() -> None:
    found = [
        (importer, module)
        for importer, tree in sources("streaming.cli.render".replace(".", "/"))
        for module, _ in imported(tree)
        if module.startswith("streaming.cli.commands")
    ]
    assert found == []


def test_the_shell_imports_the_core_through_its_doors() -> None:
    around = [
        (importer, module, name)
        for importer, tree in sources("streaming")
        for module, name in imported(tree)
        if module.split(".")[0] == "placement"
        and (ROOT / "placement" / (part := part_of("placement", module, name))).is_dir()
        and (module != f"placement.{part}" or name not in door("placement", part))
    ]
    assert around == []


@pytest.mark.parametrize("pair", APART, ids="-".join)
def test_parts_that_must_not_know_each_other(pair: tuple[str, str]) -> None:
    known = {
        (own, part_of("placement", module, name)) for _, own, module, name in edges("placement")
    }
    assert known.isdisjoint([pair, pair[::-1]])


@pytest.mark.parametrize("package", TABLES)
def test_no_circle_of_modules(package: str) -> None:
    """Imports for types alone included: a circle of two modules is one module."""
    modules: dict[str, set[str]] = {}
    for importer, tree in sources(package):
        if (ROOT / importer.replace(".", "/")).is_dir():
            continue
        for module, name in imported(tree):
            inner = ROOT.joinpath(*f"{module}.{name}".split(".")).with_suffix(".py")
            modules.setdefault(importer, set()).add(
                f"{module}.{name}" if inner.exists() else module
            )
    TopologicalSorter(modules).prepare()


# Methods by which lists, sets, dicts and arrays are changed in place.
CHANGES = {
    *("append", "extend", "insert", "add", "update", "setdefault", "sort", "fill"),
    *("pop", "popitem", "remove", "discard", "clear", "difference_update"),
}


def path_of(node: ast.expr) -> list[str]:
    """The names in `a.b[c].d`, from the first on; none where it begins with a call."""
    match node:
        case ast.Name(name):
            return [name]
        case ast.Attribute(owner, name):
            before = path_of(owner)
            return [*before, name] if before else []
        case ast.Subscript(value):
            return path_of(value)
    return []


def written(tree: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """Yield line and path of whatever is assigned, deleted or changed in place."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets) | ast.Delete(targets):
                found = [
                    each
                    for target in targets
                    for each in (target.elts if isinstance(target, ast.Tuple) else [target])
                ]
            case ast.AugAssign(target) | ast.AnnAssign(target):
                found = [target]
            case ast.Call(ast.Attribute(changed, name)) if name in CHANGES:
                found = [changed]
            case _:
                continue
        yield from ((node.lineno, path_of(each)) for each in found)


@pytest.mark.parametrize("package", TABLES)
def test_only_the_state_writes_its_fields(package: str) -> None:
    """Everybody else calls its methods, which publish what they change."""
    reached = [
        (importer, line, ".".join(path))
        for importer, tree in sources(package)
        if not importer.startswith("placement.state")
        for line, path in written(tree)
        if {"state", "_state"} & {*path[:-1]}
    ]
    assert reached == []
