"""The table of faults in tests/README.md names tests that there are, and no fault is left out."""

import re
from pathlib import Path

TESTS = Path(__file__).parent
ROW = re.compile(r"^\| F(\d+) \|[^|]+\|(.+)\|$", re.MULTILINE)
NAMED = re.compile(r"`([\w/]+\.\w+)(?:::(\w+))?`")
FAULTS = 34


def test_every_fault_has_tests_that_exist() -> None:
    rows = ROW.findall((TESTS / "README.md").read_text())
    assert [int(number) for number, _ in rows] == [*range(1, FAULTS + 1)]
    for number, cell in rows:
        tests = NAMED.findall(cell)
        assert tests, f"F{number}"
        for path, function in tests:
            text = (TESTS / path).read_text()
            assert not function or f"def {function}(" in text, f"F{number}: {path}::{function}"
