"""The reconciler's behaviour as stories: every file in `testdata/` is one, told in commands.

The language is that of `tests/story.py`; what operators ask for is told in `tests/simulation`.
"""

from pathlib import Path

import pytest

from tests.datadriven import run_file
from tests.story import Story

TESTDATA = Path(__file__).parent / "testdata"


@pytest.mark.parametrize("path", sorted(TESTDATA.glob("*.txt")), ids=lambda path: path.stem)
def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    run_file(path, Story().answer, request.config.getoption("--rewrite"))
