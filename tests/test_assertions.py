"""Tests that pass because there was nothing to look at are refused.

A test fails here if each of its assertions stands in a loop, or in `all(…)` or `not any(…)`, over a
collection that may be empty. The remedy is one assertion outside: of the size, or of the whole.
Never empty are literals, constants, enumerations, ranges up to a constant, the seeds that are
drawn, and what is made of these item by item.
"""

import ast

import pytest

from tests.test_tidy import ROOT, modules

# Calls that have as many items as their argument.
SAME_SIZE = {"enumerate", "sorted", "reversed", "list", "tuple", "set", "len", "permutations"}
SAME_SIZE |= {"items", "keys", "values", "splitlines", "split"}
# Counts and seeds of `tests/builders/drawn.py`, none of which is zero.
DRAWN = {"share", "seeds"}


class Assertions(ast.NodeVisitor):
    """The assertions of one function: how many are always reached, and how many may be left out."""

    def __init__(self, function: ast.AST) -> None:
        self.reached = self.skippable = 0
        self._filled: set[str] = set()
        self._inside = 0
        self.generic_visit(function)

    def visit_Assign(self, node: ast.Assign) -> None:
        if self._is_filled(node.value):
            self._filled |= {name.id for name in node.targets if isinstance(name, ast.Name)}

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value and self._is_filled(node.value) and isinstance(node.target, ast.Name):
            self._filled.add(node.target.id)

    def visit_For(self, node: ast.For) -> None:
        self._visit_body(node.body, self._is_filled(node.iter))

    def visit_While(self, node: ast.While) -> None:
        self._visit_body(node.body, False)

    def visit_Assert(self, node: ast.Assert) -> None:
        self._count(not self._is_vacuous(node.test))

    def visit_Call(self, node: ast.Call) -> None:
        name = _name(node.func)
        if name.startswith(("assert_", "check")) or name in {"raises", "warns", "fail"}:
            self._count(True)

    def _visit_body(self, body: list[ast.stmt], is_run: bool) -> None:
        self._inside += not is_run
        for statement in body:
            self.visit(statement)
        self._inside -= not is_run

    def _count(self, is_certain: bool) -> None:
        is_reached = is_certain and not self._inside
        self.reached += is_reached
        self.skippable += not is_reached

    def _is_vacuous(self, test: ast.expr) -> bool:
        """Whether the test holds where there is nothing to look at."""
        match test:
            case ast.BoolOp(op=ast.And(), values=parts):
                return all(map(self._is_vacuous, parts))
            case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id="any"), args=[items])):
                return not self._is_filled(items)
            case ast.Call(func=ast.Name(id="all"), args=[items]):
                return not self._is_filled(items)
        return False

    def _is_filled(self, value: ast.expr) -> bool:
        """Whether the value is never empty, or as a number never zero."""
        match value:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return any(not isinstance(p, ast.Starred) or self._is_filled(p) for p in parts)
            case ast.Dict(keys=keys):
                return bool(keys)
            case ast.Starred(value=inner):
                return self._is_filled(inner)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                return name in self._filled or name[0].isupper()
            case ast.BinOp(left=left, right=right):
                return self._is_filled(left) or self._is_filled(right)
            case ast.ListComp(generators=loops) | ast.GeneratorExp(generators=loops):
                return all(self._is_filled(loop.iter) and not loop.ifs for loop in loops)
            case ast.Call(func=function, args=given):
                return self._gives_items(_name(function), function, given)
        return isinstance(value, ast.Constant) and bool(value.value)

    def _gives_items(self, name: str, function: ast.expr, given: list[ast.expr]) -> bool:
        match name:
            case "range":
                return self._is_filled(given[min(len(given), 2) - 1])
            case "zip" | "product":
                return all(map(self._is_filled, given))
            case _ if name in SAME_SIZE:
                owner = [function.value] if isinstance(function, ast.Attribute) else given[:1]
                return any(map(self._is_filled, owner))
        return name in DRAWN


def _name(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def test_every_test_looks_at_something() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}": Assertions(node)
        for path in modules("tests")
        if path.name.startswith("test_")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }
    assert sum(each.reached for each in found.values()) > len(found)
    assert [name for name, each in found.items() if each.skippable and not each.reached] == []


@pytest.mark.parametrize(
    ("text", "looks"),
    [
        ("for each in answer.rows: assert each", False),
        ("assert answer.rows\nfor each in answer.rows: assert each", True),
        ("assert all(each for each in answer.rows)", False),
        ("assert not any(each for each in answer.rows)", False),
        ("assert any(each for each in answer.rows)", True),
        ("while rows: assert rows.pop()", False),
        ("for row in (1, 2):\n  for each in row: assert each", False),
        ("for seed in seeds(9): assert seed", True),
        ("for n in range(count): assert n", False),
        ("for n in range(first, first + SEEDS): assert n", True),
        ("names = ['a']\nfor n, each in enumerate(names): assert each", True),
        ("for a, b in zip(names, 'ab'): assert a == b", False),
        ("for event in LogEvent: assert event", True),
        ("for each in rows:\n  with pytest.raises(KeyError): each()", False),
    ],
)
def test_the_check_tells_which_tests_look_at_something(text: str, looks: bool) -> None:
    found = Assertions(ast.parse(text))
    assert bool(found.reached) == looks
