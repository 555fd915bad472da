"""House rules that a tool can hold: sizes, names, and nothing that belongs to one machine."""

import ast
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("placement", "schemas", "streaming", "tests")
JARS = "streaming/runtime/jars.lock"
BUILD_FILES = ("Makefile", "pyproject.toml", "requirements.lock", ".ci/run", JARS)
TEXT_SUFFIXES = {".py", ".md", ".toml", ".lock", ".json", ".yaml", ".yml", ".sh", ".txt"}

# A module is read in one go, a function on one screen.
MODULE_LINES_MAX = 500
# As many commands as `placer` has; a folder with more is two.
FOLDER_MODULES_MAX = 30
# Less than this is a part of a module that somebody reads anyway.
MODULE_LINES_MIN = 60
# Modules of the core that are shorter; the list is to become empty.
SHORT = {
    "placement/controllers/retry_gate.py",
    "placement/topology/equal_nodes.py",
    "placement/topology/node_filter.py",
    "placement/wording.py",  # the command line loads it and nothing else of the core
}
FUNCTION_LINES_MAX = 70
# Names that say nothing about what a thing is for.
EMPTY_NAME = re.compile(r"(Manager|Helper|Utils?)(?![a-z])|(^|_)(manager|helper|utils?)s?(_|$)")
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(home|root|Users|work|tmp)/\w")
# A code or section of a document that no clone has.
OUTSIDE = re.compile(r"\bdesign section|§ ?\d|\bguarantees? G\d|\brules? R\d")
URL = re.compile(r"https?://|\b[\w-]+\.(?:org|com|io)/")


def modules(*folders: str) -> list[Path]:
    found = [path for folder in folders or FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(found) > len(folders)
    return sorted(found)


def texts() -> list[Path]:
    """All text files of the project except this one, which names what it forbids."""
    at_top = [path for path in ROOT.iterdir() if path.is_file()]
    below = [path for folder in (*FOLDERS, "deploy", ".ci") for path in (ROOT / folder).rglob("*")]
    kept = [
        path
        for path in (*at_top, *below)
        if path.is_file() and (path.suffix in TEXT_SUFFIXES or path.name in {"Makefile", "run"})
    ]
    return sorted(set(kept) - {Path(__file__).resolve()})


def matches(pattern: re.Pattern[str], paths: list[Path]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]


class Module(NamedTuple):
    """What is asked of a module's tree, which is parsed and walked once.

    `functions`: lines of each function by line and name; `names`: the file's own, and those of all
    classes, functions, parameters and variables that it makes.
    """

    functions: Mapping[str, int]
    names: frozenset[str]
    says_its_role: bool


@cache
def module(path: Path) -> Module:
    tree, functions, names = ast.parse(path.read_text(encoding="utf-8")), {}, {path.stem}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            functions[f"{node.lineno} {node.name}"] = node.end_lineno - node.lineno + 1
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return Module(functions, frozenset(names), ast.get_docstring(tree) is not None)


def test_modules_are_short() -> None:
    sizes = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in modules()}
    assert {path: lines for path, lines in sizes.items() if lines > MODULE_LINES_MAX} == {}


def test_folders_are_small() -> None:
    folders = {
        path.parent for folder in ("placement", "schemas", "streaming") for path in modules(folder)
    }
    counts = {
        str(folder.relative_to(ROOT)): len({*folder.glob("*.py")} - {folder / "__init__.py"})
        for folder in folders
    }
    assert {name: count for name, count in counts.items() if count > FOLDER_MODULES_MAX} == {}


def test_no_module_is_a_splinter() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in modules("placement")
        if path.name != "__init__.py"
    }
    assert {name for name, lines in sizes.items() if lines < MODULE_LINES_MIN} == SHORT


def test_functions_fit_a_screen() -> None:
    sizes = {
        f"{path.relative_to(ROOT)}:{name}": lines
        for path in modules()
        for name, lines in module(path).functions.items()
    }
    assert {name: lines for name, lines in sizes.items() if lines > FUNCTION_LINES_MAX} == {}


def test_every_module_says_its_role() -> None:
    silent = [str(path.relative_to(ROOT)) for path in modules() if not module(path).says_its_role]
    assert silent == []


def test_readmes_list_the_modules() -> None:
    """A part's README names each module of its folder, and none that is not there."""
    wrong = {}
    doors = [
        door for top in ("placement", "streaming") for door in (ROOT / top).glob("*/**/__init__.py")
    ]
    assert len(doors) > 30
    for door in doors:
        page = door.with_name("README.md").read_text("utf-8").split("**Called by**")[0]
        there = {path.name for path in door.parent.glob("*.py")} - {"__init__.py"}
        difference = there ^ set(re.findall(r"`(\w+\.py)`", page))
        if difference:
            wrong[str(door.parent.relative_to(ROOT))] = difference
    assert wrong == {}


def test_names_say_something() -> None:
    empty = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules()
        for name in sorted(module(path).names)
        if EMPTY_NAME.search(name)
    ]
    assert empty == []


def test_nothing_is_left_unfinished() -> None:
    assert matches(UNFINISHED, texts()) == []


def test_no_path_of_one_machine() -> None:
    assert matches(MACHINE_PATH, texts()) == []


def test_references_resolve_in_the_repository() -> None:
    assert matches(OUTSIDE, texts()) == []


def test_build_files_name_no_server() -> None:
    assert matches(URL, [ROOT / name for name in BUILD_FILES]) == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (EMPTY_NAME, "MoveManager"),
        (EMPTY_NAME, "kafka_utils"),
        (EMPTY_NAME, "helper"),
        (UNFINISHED, "# TODO later"),
        (MACHINE_PATH, 'open("/home/someone/x")'),
        (OUTSIDE, "see design section 4"),
        (OUTSIDE, "content (guarantee G2)"),
        (URL, "repository.example.org/maven2"),
    ],
)
def test_the_rules_find(pattern: re.Pattern[str], text: str) -> None:
    assert pattern.search(text)
