"""Who may import whom, checked on the source: the layering is part of the architecture.

`streaming` stands on `placement` and `schemas`, which do not know each other; `placement` is pure,
so it can neither look at a clock nor do input or output; nobody imports tests or deploy.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("placement", "schemas", "streaming")

# What an import may start with, beside the standard library and the package itself.
ALLOWED = {
    "placement": {"numpy", "numba"},
    "schemas": {"orjson", "pydantic", "pydantic_core"},
}
FORBIDDEN_EVERYWHERE = {"tests", "deploy"}
# Time, chance and the outside world: with any of them equal input could give unequal answers.
FORBIDDEN_IN_PLACEMENT = {
    *("time", "datetime", "random", "secrets", "uuid"),
    *("os", "io", "pathlib", "tempfile", "shutil", "socket", "ssl", "select", "urllib", "http"),
    *("threading", "asyncio", "concurrent", "multiprocessing", "subprocess", "signal", "logging"),
}
EFFECTS_OF_BUILTINS = {"open", "print", "input", "exec", "eval", "__import__"}


def trees(package: str) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        name = str(path.relative_to(ROOT))
        yield name, ast.parse(path.read_text(encoding="utf-8"), name)


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of every import, also in functions; a relative one begins with a dot."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def is_refused(package: str, module: str) -> bool:
    top = module.partition(".")[0]
    if top in FORBIDDEN_EVERYWHERE or module.startswith("."):
        return True
    if top == package or package not in ALLOWED:
        return False
    if package == "placement" and top in FORBIDDEN_IN_PLACEMENT:
        return True
    return top not in sys.stdlib_module_names and top not in ALLOWED[package]


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_follow_the_layers(package: str) -> None:
    found = [(name, *row) for name, tree in trees(package) for row in imports(tree)]
    assert found, "a package without an import: the test looks in the wrong place"
    assert [row for row in found if is_refused(package, row[2])] == []


def test_placement_has_no_effects_through_builtins() -> None:
    calls = [
        (name, node.lineno, node.func.id)
        for name, tree in trees("placement")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert calls
    assert [call for call in calls if call[2] in EFFECTS_OF_BUILTINS] == []


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("placement", "import time"),
        ("placement", "def f():\n    from os import path"),
        ("placement", "import schemas.topics"),
        ("placement", "import pydantic"),
        ("schemas", "from placement.model import Node"),
        ("schemas", "import confluent_kafka"),
        ("streaming", "from tests.conftest import broker"),
        ("streaming", "from . import app"),
    ],
)
def test_the_rules_refuse(package: str, source: str) -> None:
    assert [module for _, module in imports(ast.parse(source)) if is_refused(package, module)]
